"""Control of brokers by the command or the webhook of the settings; without them the status asks an operator.

A command ends with the step that runs it: when that is cancelled, dies or freezes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
from temporalio.exceptions import ApplicationError

from activities.lifecycle.leashed_command import CommandFailed, run_leashed
from activities.lifecycle.step import StepTask
from clients.pulsar.admin.access import AdminAccess, token_auth
from clients.pulsar.admin.errors import AdminError, host_of
from clients.pulsar.admin.http import HttpSession
from clients.signature import SecretKeys, Signed
from models.bookie_cluster.input import BookieClusterInput, BrokerControl, Direction
from models.child_environment import child_environment
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import WaitKind
from models.settings import Settings

_POLL = 0.05
_LOG = logging.getLogger(__name__)


class BrokerOrder(NamedTuple):
    """Order for the brokers of a cluster; its receiver can refuse one that is older than the last.

    Attributes:
        action: `stop` or `start`.
        cluster: name of the Pulsar cluster.
        bookkeeper_uri: metadataServiceUri of the cluster that brokers use until the stop, or from the start on.
        workflow_id: the migration that orders it, with its `run_id`.
        direction: `forward`, or `back` in a rollback.
        epoch: grows with each step of the migration, also from run to run; a repeated order has the same.
    """

    action: str
    cluster: str
    bookkeeper_uri: str
    workflow_id: str
    run_id: str
    direction: Direction
    epoch: int

    @property
    def key(self) -> str:
        """Key of this order, the same for all attempts."""
        return f"{self.run_id}/{self.epoch}/{self.action}"


class BrokerController:
    """Carries out `stop` and `start` for one step of a switch.

    Args:
        task: the step.
        direction: of the switch.
    """

    def __init__(self, task: StepTask[BookieClusterInput], direction: Direction) -> None:
        self._task = task
        self._direction = direction
        self._settings = task.runtime.settings
        self._how = task.input.broker_control

    @property
    def by_hand(self) -> bool:
        """Whether an operator must do it."""
        return self._how is BrokerControl.MANUAL

    def ask(self, action: str, bookkeeper_uri: str, require: Callable[[], object]) -> None:
        """Order to stop brokers, or to start them on a bookie cluster; return when the command or webhook has answered.

        Args:
            action: `stop` or `start`.
            bookkeeper_uri: metadataServiceUri of the cluster that brokers use until the stop, or from the start on.
            require: raises where the step has lost its claim; asked right before the order is given.

        Raises:
            ApplicationError: the command failed or took too long, or the webhook refused; Temporal tries again.
            StoreConflict: the claim is lost; nothing was ordered.
            Cancelled: the step was cancelled; the command has ended.
        """
        if self.by_hand:
            return
        task = self._task
        order = BrokerOrder(
            action,
            task.input.cluster,
            bookkeeper_uri,
            task.workflow_id,
            task.run_id,
            self._direction,
            task.attempt.epoch,
        )
        kind = WaitKind.BROKERS_STOP if action == "stop" else WaitKind.BROKERS_START
        self._task.context.waiting_for(kind, f"the {self._how} that {action}s brokers")
        if self._how is BrokerControl.COMMAND:
            self._run(order, require)
        else:
            self._post(order, require)
        self._task.context.clear_waiting()

    def _run(self, order: BrokerOrder, require: Callable[[], object]) -> None:
        settings = self._settings
        command = settings.broker_stop_command if order.action == "stop" else settings.broker_start_command
        wanted = {
            "PULSAR_CLUSTER": order.cluster,
            "BOOKKEEPER_METADATA_SERVICE_URI": order.bookkeeper_uri,
            "SWITCH_WORKFLOW_ID": order.workflow_id,
            "SWITCH_RUN_ID": order.run_id,
            "SWITCH_DIRECTION": order.direction.value,
            "SWITCH_EPOCH": str(order.epoch),
        }
        limit = settings.broker_command_timeout.total_seconds()
        try:
            environment = child_environment(wanted, further=settings.command_environment)
            run_leashed(command, environment, limit, self._task.context, require)
        except CommandFailed as error:
            raise _failed(f"the command that {order.action}s brokers {error}") from None

    def _post(self, order: BrokerOrder, require: Callable[[], object]) -> None:
        require()
        # A request cannot be cancelled. If the step is, its thread continues, and the epoch shows the receiver which
        # order is the last.
        request = _Request(self._settings, order)
        request.start()
        while request.is_alive():
            self._task.context.pause(_POLL)
        if request.error is not None:
            raise _failed(f"the webhook that {order.action}s brokers {_refusal(request.error)}")


class _Request(threading.Thread):
    """Sends one order to the webhook.

    Attributes:
        error: why it failed; None where it did not.
    """

    def __init__(self, settings: Settings, order: BrokerOrder) -> None:
        super().__init__(name="broker-webhook", daemon=True)
        self._settings = settings
        self._order = order
        self.error: Exception | None = None

    def run(self) -> None:
        """Send it, and wait for the answer."""
        try:
            self._send()
        # Whatever it is: without an error the brokers count as stopped.
        except Exception as error:  # noqa: BLE001 - raised again by the step
            self.error = error

    def _send(self) -> None:
        settings, order = self._settings, self._order
        # The settings name the address: the token goes to its host alone, after redirects too.
        host = host_of(httpx.URL(settings.broker_webhook))
        keys = SecretKeys(
            settings.broker_webhook_secret,
            settings.broker_webhook_secret_file,
            "PULSAR_MIGRATE_BROKER_WEBHOOK_SECRET_FILE",
        )
        token = token_auth(settings.broker_webhook_token, settings.broker_webhook_token_file)
        access = AdminAccess(
            timeout=settings.broker_command_timeout.total_seconds(),
            auth=Signed(keys, order.key, token) if keys.given else token,
            destinations=settings.destinations_of("")._replace(hosts=(host,)),
        )
        body = {
            "action": order.action,
            "cluster": order.cluster,
            "bookkeeperMetadataServiceUri": order.bookkeeper_uri,
            "workflowId": order.workflow_id,
            "runId": order.run_id,
            "direction": order.direction.value,
            "epoch": order.epoch,
        }
        with HttpSession(access) as session:
            headers = {"Idempotency-Key": order.key}
            session.request("POST", settings.broker_webhook, json=body, headers=headers)


def missing_settings(settings: Settings, how: BrokerControl) -> str:
    """Return the settings that this control needs and that are not set; empty if there are none."""
    if how is BrokerControl.COMMAND and not (settings.broker_stop_command and settings.broker_start_command):
        return "PULSAR_MIGRATE_BROKER_STOP_COMMAND and PULSAR_MIGRATE_BROKER_START_COMMAND"
    if how is BrokerControl.WEBHOOK and not settings.broker_webhook:
        return "PULSAR_MIGRATE_BROKER_WEBHOOK"
    return ""


def _refusal(error: Exception) -> str:
    """Return why a request failed, without address and answer, which may have secrets: failures stay in the history."""
    _LOG.warning("the webhook for brokers failed: %s", error)
    if not isinstance(error, AdminError) or error.status is None:
        host = urlsplit(error.url).hostname if isinstance(error, AdminError) else None
        return f"did not answer{f' at {host}' if host else ''}; the worker's log says why"
    return f"answered {error.status}; the worker's log has the answer"


def _failed(what: str) -> ApplicationError:
    # Retried: brokers may be stopped by now, and a final failure would leave them stopped.
    return ApplicationError(what, type=FailureKind.UNREACHABLE)

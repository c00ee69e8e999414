"""Who stops and starts brokers: the command or the webhook of the settings; people are asked through the status."""

from __future__ import annotations

import os
import subprocess

from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from clients.errors import StoreError
from clients.pulsar.admin.access import AdminAccess, token_auth
from clients.pulsar.admin.http import HttpSession
from models.bookie_cluster.input import BrokerControl
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import WaitKind
from models.settings import Settings

# Characters of a command's output that a failure quotes: it becomes part of the history.
_TAIL = 500


class BrokerController:
    """Carries out `stop` and `start` for one cluster.

    Args:
        settings: command and webhook.
        how: which of them; by hand nothing is done here.
        cluster: name of the Pulsar cluster.
    """

    def __init__(self, settings: Settings, how: BrokerControl, cluster: str) -> None:
        self._settings = settings
        self._how = how
        self._cluster = cluster

    def missing(self) -> str:
        """What the settings lack for this control; empty if nothing."""
        settings = self._settings
        if self._how is BrokerControl.COMMAND and not (settings.broker_stop_command and settings.broker_start_command):
            return "PULSAR_MIGRATE_BROKER_STOP_COMMAND and PULSAR_MIGRATE_BROKER_START_COMMAND"
        if self._how is BrokerControl.WEBHOOK and not settings.broker_webhook:
            return "PULSAR_MIGRATE_BROKER_WEBHOOK"
        return ""

    def ask(self, action: str, bookkeeper_uri: str, control: ActivityContext) -> None:
        """Have brokers stopped, or started on a bookie cluster; returns when the command or webhook has answered.

        Args:
            action: `stop` or `start`.
            bookkeeper_uri: metadataServiceUri of the cluster that brokers use after that.
            control: tells what is waited for.

        Raises:
            ApplicationError: the command failed or took too long, or the webhook refused; Temporal tries again.
        """
        kind = WaitKind.BROKERS_STOP if action == "stop" else WaitKind.BROKERS_START
        if self._how is BrokerControl.COMMAND:
            control.waiting_for(kind, f"the command that {action}s brokers")
            self._run(action, bookkeeper_uri)
        elif self._how is BrokerControl.WEBHOOK:
            control.waiting_for(kind, f"the webhook that {action}s brokers")
            self._post(action, bookkeeper_uri)
        control.waits_no_more()

    def _run(self, action: str, bookkeeper_uri: str) -> None:
        settings = self._settings
        command = settings.broker_stop_command if action == "stop" else settings.broker_start_command
        wanted = {"PULSAR_CLUSTER": self._cluster, "BOOKKEEPER_METADATA_SERVICE_URI": bookkeeper_uri}
        limit = settings.broker_command_timeout.total_seconds()
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **wanted},
                # A program that asks back would hang until its limit.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(f"the command that {action}s brokers did not run: {error}") from error
        if done.returncode:
            said = done.stdout.decode(errors="replace").strip()[-_TAIL:]
            raise _failed(f"the command that {action}s brokers ended with {done.returncode}: {said}")

    def _post(self, action: str, bookkeeper_uri: str) -> None:
        settings = self._settings
        access = AdminAccess(
            timeout=settings.broker_command_timeout.total_seconds(),
            auth=token_auth(settings.broker_webhook_token, settings.broker_webhook_token_file),
        )
        body = {"action": action, "cluster": self._cluster, "bookkeeperMetadataServiceUri": bookkeeper_uri}
        try:
            with HttpSession(access) as session:
                session.request("POST", settings.broker_webhook, json=body)
        except StoreError as error:
            raise _failed(f"the webhook that {action}s brokers failed: {error}") from error


def _failed(what: str) -> ApplicationError:
    # Tried again: brokers may be away by now, and a final failure would leave them so.
    return ApplicationError(what, type=FailureKind.UNREACHABLE)

"""State that all steps in one worker process share: settings, credentials, the Spark session, and own resources."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.stop_file import stop_reason
from clients.closeable import Closeable
from clients.errors import NoCredentials
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.wire.access import WireAccess
from clients.stores import Access
from models.base import faults
from models.credentials import UnknownCredentials
from models.lifecycle.auto_throttle import CopyOrders
from models.lifecycle.status import WaitKind, WaitReason
from models.settings import Settings
from models.text import shown
from spark.engine import SparkEngine

ValueT = TypeVar("ValueT")
SharedT = TypeVar("SharedT", bound=Closeable)

_QUERY_LIMIT = timedelta(seconds=5)


class UnreadableOrders(Exception):
    """The orders of a workflow cannot be read, for example because it runs in another version; the message says why."""


class Runtime:
    """Shared state of one worker process.

    Args:
        settings: the process's settings.
        client: connection to Temporal, for signals to workflows.
        queue: the task queue that only this process serves.
        loop: event loop of the client, for threads that call Temporal; None where none does.
    """

    def __init__(
        self, settings: Settings, client: Client, queue: str, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.settings = settings
        self.client = client
        self.queue = queue
        self._loop = loop
        names = ("", *settings.credentials)
        # Created once, so that sessions share tokens.
        self._admins = {name: AdminAccess.from_settings(settings, name) for name in names}
        self._stores = {name: Access.from_settings(settings, name) for name in names}
        self.engine = SparkEngine(
            settings.spark_master,
            driver_memory=settings.spark_driver_memory,
            conf=settings.spark_conf,
            environment=settings.command_environment,
        )
        self._shared: dict[Callable[[], Closeable], Closeable] = {}
        self._lock = threading.Lock()

    @property
    def stopped_because(self) -> str:
        """Reason why no item of a wave may start: the first line of the stop file; empty if there is none."""
        return stop_reason(self.settings.stop_file) if self.settings.stop_file else ""

    def ask(self, call: Coroutine[Any, Any, ValueT], timeout: float) -> ValueT:
        """Return the result of a call of Temporal's client, for which a thread waits.

        Args:
            call: of the client.
            timeout: seconds.

        Raises:
            TimeoutError: Temporal does not answer in time.
        """
        assert self._loop is not None, "this process has no event loop for calls to Temporal"
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(timeout)
        finally:
            future.cancel()

    def copy_orders(self, workflow_ids: Iterable[str]) -> CopyOrders | None:
        """Return what a migration and its parent order a copy to do; None if Temporal does not answer.

        Args:
            workflow_ids: the first one orders the automatic throttle, and each of them may be paused.

        Raises:
            UnreadableOrders: an answer is not what this version understands.
        """
        if self._loop is None:
            return None
        answers: list[CopyOrders] = []
        for workflow_id in dict.fromkeys(workflow_ids):
            handle = self.client.get_workflow_handle(workflow_id)
            question = handle.query("copy_orders", result_type=CopyOrders, rpc_timeout=_QUERY_LIMIT)
            try:
                answers.append(self.ask(question, _QUERY_LIMIT.total_seconds()))
            except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError, TimeoutError):
                return None
            except (ValueError, RuntimeError) as error:
                why = faults(error) if isinstance(error, ValidationError) else shown(str(error))
                raise UnreadableOrders(f"the orders of {workflow_id} cannot be read: {why}") from error
        pause = next((answer.pause for answer in answers if answer.pause), None)
        return answers[0].model_copy(update={"pause": pause})

    def shared(self, make: Callable[[], SharedT]) -> SharedT:
        """Return an object that all steps of this process share: created at the first call, closed with the process.

        Args:
            make: a class without arguments, such as the watches of sources.
        """
        with self._lock:
            if make not in self._shared:
                self._shared[make] = make()
            return cast("SharedT", self._shared[make])

    def admin_of(self, credentials: str) -> AdminAccess:
        """Return the access to a cluster's admin interface, by the name of its credentials; empty for the default ones.

        Raises:
            NoCredentials: the settings have no credentials of this name.
        """
        return self._named(self._admins, credentials)

    def stores_of(self, credentials: str) -> Access:
        """Return the access to a cluster's metadata store; name and errors as in `admin_of`."""
        return self._named(self._stores, credentials)

    def wire_of(self, credentials: str) -> WireAccess:
        """Return the access to the brokers' binary protocol; fetches a token of OAuth2.

        Raises:
            NoCredentials: the settings have no credentials of this name.
            AdminError: the token cannot be fetched.
        """
        return WireAccess.of(self.admin_of(credentials))

    def _named(self, by_name: Mapping[str, ValueT], name: str) -> ValueT:
        if name not in by_name:
            try:
                self.settings.credentials_of(name)
            except UnknownCredentials as error:
                raise NoCredentials(str(error)) from None
        return by_name[name]

    def start(self) -> None:
        """Start the Spark session; blocks for some seconds, and steps that need Spark wait for it."""
        self.engine.start()

    def tag(self, run_id: str, context: ActivityContext) -> str:
        """Return a tag for the Spark jobs of a step: a cancelled step stops them, and reports what they wait for."""
        tag = self.engine.new_tag(run_id)
        context.on_cancel(lambda: self.engine.cancel(tag))
        context.set_wait_source(lambda: self._wait_for_spark(tag))
        return tag

    def _wait_for_spark(self, tag: str) -> WaitReason | None:
        why = self.engine.waits_for(tag)
        return WaitReason(kind=WaitKind.SPARK, why=why) if why else None

    def stop(self) -> None:
        """Close the shared objects, and stop the Spark session."""
        for shared in self._shared.values():
            shared.close()
        self.engine.stop()

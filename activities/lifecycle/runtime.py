"""What the steps share in one worker process: settings, credentials, the Spark session, and resources of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar, cast

from temporalio.client import Client

from activities.lifecycle.context import ActivityContext
from clients.closeable import Closeable
from clients.errors import NoCredentials
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.wire.access import WireAccess
from clients.stores import Access
from clients.tls import bookies_tls
from models.credentials import UnknownCredentials
from models.lifecycle.status import WaitKind, WaitReason
from models.settings import Settings
from spark.engine import SparkEngine

ValueT = TypeVar("ValueT")
SharedT = TypeVar("SharedT", bound=Closeable)


class Runtime:
    """One for each worker process.

    Args:
        settings: the process's settings.
        client: connection to Temporal, for notes to workflows.
        queue: the task queue that only this process serves.
        loop: in which the client lives, for threads that ask Temporal; None where none does.
    """

    def __init__(
        self, settings: Settings, client: Client, queue: str, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.settings = settings
        self.client = client
        self.queue = queue
        self._loop = loop
        names = ("", *settings.credentials)
        # Made once, so that sessions share tokens.
        self._admins = {name: AdminAccess.from_settings(settings, name) for name in names}
        self._stores = {name: Access.from_settings(settings, name) for name in names}
        self.admin, self.access = self._admins[""], self._stores[""]
        self.engine = SparkEngine(
            settings.spark_master, driver_memory=settings.spark_driver_memory, conf=settings.spark_conf
        )
        self.bookie_tls = bookies_tls(settings)
        self._shared: dict[Callable[[], Closeable], Closeable] = {}
        self._lock = threading.Lock()

    def ask(self, question: Coroutine[Any, Any, ValueT], timeout: float) -> ValueT:
        """Wait in a thread for what Temporal's client answers.

        Args:
            question: a call of the client.
            timeout: seconds.

        Raises:
            TimeoutError: it does not answer in time.
        """
        assert self._loop is not None, "this process asks Temporal nothing"
        asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return asked.result(timeout)
        finally:
            asked.cancel()

    def shared(self, make: Callable[[], SharedT]) -> SharedT:
        """Return what all steps of this process share, made by the first that asks, and closed with the process.

        Args:
            make: a class without arguments, such as the watches of sources.
        """
        with self._lock:
            if make not in self._shared:
                self._shared[make] = make()
            return cast("SharedT", self._shared[make])

    def admin_of(self, credentials: str) -> AdminAccess:
        """How a cluster's admin interface is talked to, by the name of its credentials; empty for the common ones.

        Raises:
            NoCredentials: the settings have none of this name.
        """
        return self._named(self._admins, credentials)

    def stores_of(self, credentials: str) -> Access:
        """How a cluster's metadata store is talked to; name and errors are those of `admin_of`."""
        return self._named(self._stores, credentials)

    def wire_of(self, credentials: str) -> WireAccess:
        """How a cluster's brokers are talked to in their binary protocol; a token of OAuth2 is got now.

        Raises:
            NoCredentials: the settings have none of this name.
            AdminError: a token cannot be had.
        """
        return WireAccess.of(self.admin_of(credentials))

    def _named(self, known: Mapping[str, ValueT], name: str) -> ValueT:
        if name not in known:
            try:
                self.settings.credentials_of(name)
            except UnknownCredentials as error:
                raise NoCredentials(str(error)) from None
        return known[name]

    def start(self) -> None:
        """Start the Spark session, for which steps that need it wait; blocks for some seconds."""
        self.engine.start()

    def tag(self, run_id: str, context: ActivityContext) -> str:
        """A tag for Spark jobs of a step: they are stopped when it is cancelled, and it tells what they wait for."""
        tag = self.engine.new_tag(run_id)
        context.on_cancel(lambda: self.engine.cancel(tag))
        context.set_wait_source(lambda: self._wait_for_spark(tag))
        return tag

    def _wait_for_spark(self, tag: str) -> WaitReason | None:
        why = self.engine.waits_for(tag)
        return WaitReason(kind=WaitKind.SPARK, why=why) if why else None

    def stop(self) -> None:
        """Close what steps share, and end the Spark session."""
        for shared in self._shared.values():
            shared.close()
        self.engine.stop()

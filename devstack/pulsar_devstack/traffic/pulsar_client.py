"""Pulsar's Python client for short tasks of tests and demos, and topics that are created one after the other."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from clients.pulsar.admin.errors import AdminConflict, AdminError
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.admin import StackAdmin, topic_url

ArgumentT = TypeVar("ArgumentT")

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

_OPERATION_LIMIT = 30
_LOOK_EVERY = 0.04
_CREATE_LIMIT = 10.0


class TrafficFault(Exception):
    """Messages are lost, out of order, corrupt or not sent; the text names the topic."""


def quiet_client(service_url: str, log: Path | None = None, **more: Any) -> Any:
    """Create a client that logs errors only, to the console or a file, with an operation timeout of half a minute.

    Args:
        service_url: of brokers.
        log: of errors.
        more: further arguments of the library's client.
    """
    level = pulsar.LoggerLevel.Error
    logger = pulsar.FileLogger(level, str(log)) if log else pulsar.ConsoleLogger(level)
    return pulsar.Client(service_url, operation_timeout_seconds=_OPERATION_LIMIT, logger=logger, **more)


def send_to(service_url: str, topics: Iterable[str], body: bytes = b"one") -> None:
    """Send one message to each topic; short names will do."""
    with closing(quiet_client(service_url)) as client:
        for topic in topics:
            client.create_producer(topic_url(topic)).send(body)


def read_from(service_url: str, topic: str, count: int, timeout_millis: int = 30_000) -> list[bytes]:
    """Return the bodies of the first messages of a topic.

    Raises:
        pulsar.Timeout: the topic has fewer.
    """
    with closing(quiet_client(service_url)) as client:
        reader = client.create_reader(topic_url(topic), pulsar.MessageId.earliest)
        return [bytes(reader.read_next(timeout_millis=timeout_millis).data()) for _ in range(count)]


class Churn(BackgroundThread):
    """Creates topics one after the other, from the entry of the context to its end; a refused one is tried again.

    Args:
        admin: where to create them.
        prefix: tenant/namespace/ and the start of their names; the namespace must be there.
        interval: seconds between two creations.

    Attributes:
        created: full names of the topics that the broker said it created.
        refused: how many attempts failed.
    """

    def __init__(self, admin: StackAdmin, prefix: str, interval: float = 0.25) -> None:
        super().__init__("churn", interval)
        self.created: list[str] = []
        self.refused = 0
        self.namespace = prefix.rpartition("/")[0]
        self._admin, self._prefix = admin, prefix

    def work(self) -> None:
        """Create topics."""
        for _ in self.ticks():
            name = f"{self._prefix}{len(self.created):04}"
            try:
                # Where it exists, an attempt whose answer was lost has created it.
                with suppress(AdminConflict):
                    self._admin.create_topic(name, _CREATE_LIMIT)
            except AdminError:
                self.refused += 1
            else:
                self.created.append(topic_url(name))


def started(work: Callable[[ArgumentT], None], argument: ArgumentT) -> threading.Thread:
    """Start a daemon thread."""
    thread = threading.Thread(target=work, args=(argument,), daemon=True)
    thread.start()
    return thread


def await_that(holds: Callable[[], bool], limit: float) -> bool:
    """Wait until something holds, `limit` seconds at most; returns whether it does."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True

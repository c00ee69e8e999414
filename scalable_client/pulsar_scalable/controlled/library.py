"""pulsar-client, which has no types: its errors as those of this package, and clients with the same settings."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pulsar_scalable.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    ConnectionLost,
    ConsumerBusy,
    IncompatibleSchema,
    MessageTooBig,
    NotAuthorized,
    ProducerBusy,
    QueueFull,
    Refused,
    ScalableError,
    SubscriptionNotFound,
    TimedOut,
    TopicNotFound,
    TopicTerminated,
    Unready,
)

pulsar: Any = importlib.import_module("pulsar")

_PLAIN: Final[dict[str, type[ScalableError]]] = {
    "AlreadyClosed": AlreadyClosed,
    "ConnectError": ConnectionLost,
    "Disconnected": ConnectionLost,
    "MessageTooBig": MessageTooBig,
    "NotConnected": ConnectionLost,
    "ProducerQueueIsFull": QueueFull,
    "Timeout": TimedOut,
}
_REFUSALS: Final[dict[str, type[Refused]]] = {
    "AuthenticationError": AuthenticationFailed,
    "AuthorizationError": NotAuthorized,
    "ConsumerBusy": ConsumerBusy,
    "IncompatibleSchema": IncompatibleSchema,
    "ProducerBusy": ProducerBusy,
    "ServiceUnitNotReady": Unready,
    "SubscriptionNotFound": SubscriptionNotFound,
    "TopicNotFound": TopicNotFound,
    "TopicTerminated": TopicTerminated,
}
_NO_CODE = -1


def error_of(name: str, what: str) -> ScalableError:
    """The error of a result of the library, by the result's name."""
    if plain := _PLAIN.get(name):
        return plain(f"{what}: {name}")
    return _REFUSALS.get(name, Refused)(_NO_CODE, name, what)


@contextmanager
def translated(what: str) -> Generator[None]:
    """Raise the library's errors as this package's own."""
    try:
        yield
    except pulsar.PulsarException as cause:
        raise error_of(type(cause).__name__, what) from cause


class Library:
    """Makes clients of the library.

    A message that a sealed segment refuses makes pulsar-client 3.13 break its connection, and all that goes over it is
    sent again; so each producer has a client, and thereby connections, of its own.

    Args:
        service_url: of brokers.
        settings: further arguments of the library's client.
    """

    def __init__(self, service_url: str, settings: Mapping[str, Any]) -> None:
        self._service_url = service_url
        self._settings = settings
        self.shared = self.client()

    def client(self) -> Any:
        """A new client, for its caller to close."""
        with translated(self._service_url):
            return pulsar.Client(self._service_url, **self._settings)

    def close(self) -> None:
        """Close what consumers and readers share."""
        close_quietly(self.shared)


def close_quietly(open_one: Any) -> None:
    """Close something of the library; that it is closed or broken already is no error."""
    try:
        open_one.close()
    except (pulsar.PulsarException, ValueError):
        return

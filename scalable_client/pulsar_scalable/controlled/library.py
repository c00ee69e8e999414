"""Typed access to pulsar-client: its errors as errors of this package, and clients with the same settings."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
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
    Unsupported,
)
from pulsar_scalable.messages import Entry
from pulsar_scalable.options import ClientOptions

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
    """Return the error for a result of pulsar-client, by the result's name."""
    if plain := _PLAIN.get(name):
        return plain(f"{what}: {name}")
    return _REFUSALS.get(name, Refused)(_NO_CODE, name, what)


@contextmanager
def translated(what: str) -> Generator[None]:
    """Translate errors of pulsar-client into errors of this package."""
    try:
        yield
    except pulsar.PulsarException as cause:
        raise error_of(type(cause).__name__, what) from cause
    except (TypeError, ValueError, OverflowError) as cause:
        raise Unsupported(f"{what}: pulsar-client rejects the value: {cause}") from cause


class Library:
    """Creates clients of pulsar-client.

    pulsar-client 3.13 breaks its connection on sealed segments: when they reject a message, and each time a broker
    reports the end to a consumer. Then other traffic of the connection is sent again, and acknowledgements of the last
    0.1 s are lost. So each producer, consumer and reader of a segment has its own client, and thereby its own
    connections. Readers of layouts, which are never sealed, share one client.

    Args:
        service_url: service URL of the brokers.
        options: options of the clients.
        end_of: returns the last entry of a topic without creating the topic; None if not available.
    """

    def __init__(
        self, service_url: str, options: ClientOptions, end_of: Callable[[str], Entry | None] | None = None
    ) -> None:
        self.end_of = end_of
        self._service_url = service_url
        self._options = options
        self._authentication = options.authentication
        if options.token is not None:
            self._authentication = pulsar.AuthenticationToken(options.token)
        self.shared = self.client()

    def client(self, answer_limit: int | None = None) -> Any:
        """Create a client; the caller closes it.

        Args:
            answer_limit: seconds for each of its operations, if lower than the options'.
        """
        options = self._options
        timeout = options.operation_timeout_seconds
        with translated(self._service_url):
            return pulsar.Client(
                self._service_url,
                authentication=self._authentication,
                operation_timeout_seconds=timeout if answer_limit is None else min(answer_limit, timeout),
                connection_timeout_ms=options.connection_timeout_ms,
                io_threads=options.io_threads,
                logger=options.logger,
                listener_name=options.listener_name,
                tls_trust_certs_file_path=options.tls_trust_certs_file_path,
                tls_allow_insecure_connection=options.tls_allow_insecure_connection,
                tls_validate_hostname=options.tls_validate_hostname,
                tls_certificate_file_path=options.tls_certificate_file_path,
                tls_private_key_file_path=options.tls_private_key_file_path,
            )

    @contextmanager
    def own_client(self, answer_limit: int | None = None) -> Generator[Any]:
        """Create a client for what is opened within; it is closed on an error, else the caller closes it.

        Args:
            answer_limit: seconds for each of its operations, if lower than the options'.
        """
        client = self.client(answer_limit)
        try:
            yield client
        except BaseException:
            close_quietly(client)
            raise

    def close(self) -> None:
        """Close the shared client."""
        close_quietly(self.shared)


def close_quietly(opened: Any) -> None:
    """Close an object of pulsar-client; ignore that it is closed or broken already."""
    try:
        opened.close()
    except (pulsar.PulsarException, ValueError):
        return

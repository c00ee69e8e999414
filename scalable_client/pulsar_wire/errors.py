"""Errors of clients and brokers.

PulsarError
├── ConnectionLost           no broker can be reached, or the connection broke
│   └── TlsFailed            TLS could not be agreed on
├── TimedOut                 something took longer than allowed
├── AlreadyClosed            the object is closed already
├── Unsupported              this client does not support it
│   ├── InvalidServiceUrl    not a valid service URL
│   └── HostNotAllowed       the application did not name this host for its token; nothing was sent
├── ProtocolViolation        the broker sent what the binary protocol does not allow
└── Refused                  the broker rejected a request, with a code of `ServerError`
    ├── AuthenticationFailed
    ├── NotAuthorized
    ├── TopicNotFound
    ├── TopicTerminated      the topic takes no more messages
    ├── SubscriptionNotFound
    ├── ConsumerBusy         others hold the subscription
    ├── ProducerBusy         others hold the producer's name
    ├── IncompatibleSchema
    ├── NotTheLeader         this broker is not the leader of the topic's controller
    └── Unready              the broker cannot serve yet; the same request may succeed later
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class PulsarError(Exception):
    """Base class of the errors of these clients."""


class ConnectionLost(PulsarError):
    """No broker can be reached, or the connection broke."""


class TlsFailed(ConnectionLost):
    """TLS could not be negotiated: unknown authority, wrong name in the certificate, or no certificate."""


class TimedOut(PulsarError):
    """Something took longer than allowed."""


class AlreadyClosed(PulsarError):
    """The object is closed already."""


class Unsupported(PulsarError):
    """This client does not support it."""


class InvalidServiceUrl(Unsupported, ValueError):
    """The service URL is invalid."""


class HostNotAllowed(Unsupported):
    """The application did not name this host for its token, or the link has no TLS; nothing was sent."""


class ProtocolViolation(PulsarError):
    """The broker sent what the binary protocol does not allow."""


class ServerError(IntEnum):
    """Codes of PulsarApi.proto's `ServerError` that these clients distinguish."""

    METADATA = 1
    PERSISTENCE = 2
    AUTHENTICATION = 3
    AUTHORIZATION = 4
    CONSUMER_BUSY = 5
    NOT_READY = 6
    QUOTA = 7
    QUOTA_EXCEPTION = 8
    CHECKSUM = 9
    UNSUPPORTED_VERSION = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    TOO_MANY_REQUESTS = 14
    TERMINATED = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC = 17
    INCOMPATIBLE_SCHEMA = 18
    NOT_ALLOWED = 22
    PRODUCER_FENCED = 25


class Refused(PulsarError):
    """The broker rejected a request.

    Attributes:
        code: of `ServerError`.
        message: text of the broker.
    """

    def __init__(self, code: int, message: str, what: str = "") -> None:
        self.code = code
        self.message = message
        super().__init__(f"{what}: {message} (code {code})" if what else f"{message} (code {code})")


class AuthenticationFailed(Refused):
    """The broker does not accept the credentials."""


class NotAuthorized(Refused):
    """The credentials do not allow what is asked."""


class TopicNotFound(Refused):
    """The topic does not exist, and is not created on demand."""


class TopicTerminated(Refused):
    """The topic accepts no more messages, for example because its segment is sealed."""


class SubscriptionNotFound(Refused):
    """The subscription does not exist."""


class ConsumerBusy(Refused):
    """Other consumers hold the subscription, or the limit of consumers is reached."""


class ProducerBusy(Refused):
    """Another producer has the name, or exclusive access to the topic."""


class IncompatibleSchema(Refused):
    """The topic has a schema that raw bytes do not satisfy."""


class NotTheLeader(Refused):
    """This broker is not the leader of the topic's controller."""


class Unready(Refused):
    """The broker cannot serve the request now, but may later."""


_BY_CODE: Final[dict[int, type[Refused]]] = {
    ServerError.METADATA: Unready,
    ServerError.PERSISTENCE: Unready,
    ServerError.AUTHENTICATION: AuthenticationFailed,
    ServerError.AUTHORIZATION: NotAuthorized,
    ServerError.CONSUMER_BUSY: ConsumerBusy,
    ServerError.NOT_READY: Unready,
    ServerError.TOPIC_NOT_FOUND: TopicNotFound,
    ServerError.SUBSCRIPTION_NOT_FOUND: SubscriptionNotFound,
    ServerError.TOO_MANY_REQUESTS: Unready,
    ServerError.TERMINATED: TopicTerminated,
    ServerError.PRODUCER_BUSY: ProducerBusy,
    ServerError.INCOMPATIBLE_SCHEMA: IncompatibleSchema,
}
# The controller answers with UnknownError, so only the text distinguishes this failure from others.
_NOT_LEADER = "not the leader"


def refused(code: int, message: str, what: str = "") -> Refused:
    """Return the typed error for a code and text of a broker."""
    if _NOT_LEADER in message:
        return NotTheLeader(code, message, what)
    return _BY_CODE.get(code, Refused)(code, message, what)

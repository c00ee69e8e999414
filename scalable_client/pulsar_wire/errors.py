"""What can go wrong between a client and brokers.

PulsarError
├── ConnectionLost           no broker can be reached, or the connection broke
│   └── TlsFailed            TLS could not be agreed on
├── TimedOut                 something took longer than allowed
├── AlreadyClosed            what is used is closed
├── Unsupported              what this client does not do
│   └── InvalidServiceUrl    not the address of brokers
├── ProtocolViolation        the broker sent what the binary protocol does not allow
└── Refused                  the broker said no, with a code of `ServerError`
    ├── AuthenticationFailed
    ├── NotAuthorized
    ├── TopicNotFound
    ├── TopicTerminated      the topic takes no more messages
    ├── SubscriptionNotFound
    ├── ConsumerBusy         others hold the subscription
    ├── ProducerBusy         others hold the producer's name
    ├── IncompatibleSchema
    ├── NotTheLeader         this broker does not lead the topic's controller
    └── Unready              the broker cannot serve yet; the same request may succeed later
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class PulsarError(Exception):
    """Base of all that these clients raise on purpose."""


class ConnectionLost(PulsarError):
    """No broker can be reached, or the connection broke."""


class TlsFailed(ConnectionLost):
    """TLS could not be agreed on: another authority, another name in the certificate, or a certificate is missing."""


class TimedOut(PulsarError):
    """Something took longer than allowed."""


class AlreadyClosed(PulsarError):
    """What is used is closed."""


class Unsupported(PulsarError):
    """What this client does not do."""


class InvalidServiceUrl(Unsupported, ValueError):
    """Not the address of brokers."""


class ProtocolViolation(PulsarError):
    """The broker sent what the binary protocol does not allow."""


class ServerError(IntEnum):
    """Why a broker refuses; those of PulsarApi.proto's `ServerError` that mean something here."""

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
    """The broker said no.

    Attributes:
        code: of `ServerError`.
        message: the broker's own words.
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
    """There is no such topic, and it is not made on demand."""


class TopicTerminated(Refused):
    """The topic takes no more messages; that of a sealed segment does not."""


class SubscriptionNotFound(Refused):
    """There is no such subscription."""


class ConsumerBusy(Refused):
    """Other consumers hold the subscription, or their number is at its limit."""


class ProducerBusy(Refused):
    """Another producer holds the name, or the topic for itself."""


class IncompatibleSchema(Refused):
    """The topic has a schema that raw bytes do not satisfy."""


class NotTheLeader(Refused):
    """This broker does not lead the topic's controller."""


class Unready(Refused):
    """The broker cannot serve the request now; later it may."""


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
# The controller answers so with UnknownError; no code distinguishes it from other failures.
_NOT_LEADER = "not the leader"


def refused(code: int, message: str, what: str = "") -> Refused:
    """Return the typed error of a broker's refusal."""
    if _NOT_LEADER in message:
        return NotTheLeader(code, message, what)
    return _BY_CODE.get(code, Refused)(code, message, what)

"""What can go wrong between this client and brokers.

ScalableError
├── ConnectionLost           no broker can be reached, or the connection broke
├── TimedOut                 something took longer than allowed
├── AlreadyClosed            client, producer, consumer, watch or registration is closed
├── QueueFull                a producer holds as many pending messages as it may
├── MessageTooBig            larger than the broker takes
├── Unsupported              what this client does not do
│   └── UnreadableMessage    a message that is encrypted, in chunks, compressed in another way, or damaged
├── ProtocolViolation        the broker sent what the binary protocol does not allow
├── LayoutError              a layout has no segment for what is asked
└── Refused                  the broker said no, with a code of PulsarApi.proto's ServerError
    ├── AuthenticationFailed
    ├── NotAuthorized
    ├── TopicNotFound
    ├── TopicTerminated      the segment is sealed: its children take new messages
    ├── SubscriptionNotFound
    ├── ConsumerBusy         others hold the subscription
    ├── ProducerBusy         others hold the producer's name
    ├── IncompatibleSchema
    ├── NotTheLeader         this broker does not lead the topic's controller
    └── Unready              the broker cannot serve yet; the same request may succeed later
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pulsar_scalable.native.message import MessageId


class ScalableError(Exception):
    """Anything that this client raises on purpose."""


class ConnectionLost(ScalableError):
    """No broker can be reached, or the connection broke."""


class TimedOut(ScalableError):
    """Something took longer than allowed."""


class AlreadyClosed(ScalableError):
    """What is asked of something that is closed."""


class QueueFull(ScalableError):
    """The producer holds as many pending messages as it may."""


class MessageTooBig(ScalableError):
    """The message is larger than the broker takes."""


class Unsupported(ScalableError):
    """What this client does not do."""


class UnreadableMessage(Unsupported):
    """A message that this client cannot read: encrypted, in chunks, compressed in another way, or damaged.

    Attributes:
        message_id: to acknowledge or to leave.
    """

    def __init__(self, text: str, message_id: MessageId) -> None:
        super().__init__(text)
        self.message_id = message_id


class ProtocolViolation(ScalableError):
    """The broker sent what the binary protocol does not allow."""


class LayoutError(ScalableError):
    """The layout has no segment for what is asked."""


class Refused(ScalableError):
    """The broker said no.

    Attributes:
        code: of `ServerError` (PulsarApi.proto).
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
    1: Unready,
    2: Unready,
    3: AuthenticationFailed,
    4: NotAuthorized,
    5: ConsumerBusy,
    6: Unready,
    11: TopicNotFound,
    12: SubscriptionNotFound,
    14: Unready,
    15: TopicTerminated,
    16: ProducerBusy,
    18: IncompatibleSchema,
}
# The controller answers so with UnknownError; no code distinguishes it from other failures.
_NOT_LEADER = "not the leader"


def refused(code: int, message: str, what: str = "") -> Refused:
    """The typed error of a broker's refusal."""
    if _NOT_LEADER in message:
        return NotTheLeader(code, message, what)
    return _BY_CODE.get(code, Refused)(code, message, what)


_BY_HTTP: Final[dict[int, type[Refused]]] = {401: AuthenticationFailed, 403: NotAuthorized, 404: TopicNotFound}


def refused_by_http(code: int, message: str, what: str = "") -> Refused:
    """The typed error of a controller's refusal, by its HTTP status."""
    return _BY_HTTP.get(code, Refused)(code, message, what)

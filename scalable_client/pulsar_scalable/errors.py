"""What can go wrong between this client and brokers.

These are the errors of `pulsar_wire.errors`, where `ScalableError` is called `PulsarError`, and besides:

ScalableError
├── QueueFull                a producer holds as many pending messages as it may
├── MessageTooBig            larger than the broker takes
├── Unsupported
│   └── UnreadableMessage    a message that is encrypted, in chunks, compressed in another way, or damaged
└── LayoutError              a layout has no segment for what is asked
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsar_wire.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    ConnectionLost,
    ConsumerBusy,
    IncompatibleSchema,
    NotAuthorized,
    NotTheLeader,
    ProducerBusy,
    ProtocolViolation,
    Refused,
    SubscriptionNotFound,
    TimedOut,
    TopicNotFound,
    TopicTerminated,
    Unready,
    Unsupported,
    refused,
)
from pulsar_wire.errors import PulsarError as ScalableError

if TYPE_CHECKING:
    from pulsar_scalable.native.message import MessageId

__all__ = [
    "AlreadyClosed",
    "AuthenticationFailed",
    "ConnectionLost",
    "ConsumerBusy",
    "IncompatibleSchema",
    "LayoutError",
    "MessageTooBig",
    "NotAuthorized",
    "NotTheLeader",
    "ProducerBusy",
    "ProtocolViolation",
    "QueueFull",
    "Refused",
    "ScalableError",
    "SubscriptionNotFound",
    "TimedOut",
    "TopicNotFound",
    "TopicTerminated",
    "UnreadableMessage",
    "Unready",
    "Unsupported",
    "refused",
    "refused_by_http",
]


class QueueFull(ScalableError):
    """The producer holds as many pending messages as it may."""


class MessageTooBig(ScalableError):
    """The message is larger than the broker takes."""


class UnreadableMessage(Unsupported):
    """A message that this client cannot read: encrypted, in chunks, compressed in another way, or damaged.

    Attributes:
        message_id: to acknowledge or to leave.
    """

    def __init__(self, text: str, message_id: MessageId) -> None:
        super().__init__(text)
        self.message_id = message_id


class LayoutError(ScalableError):
    """The layout has no segment for what is asked."""


_BY_HTTP: Final[dict[int, type[Refused]]] = {401: AuthenticationFailed, 403: NotAuthorized, 404: TopicNotFound}


def refused_by_http(code: int, message: str, what: str = "") -> Refused:
    """The typed error of a controller's refusal, by its HTTP status."""
    return _BY_HTTP.get(code, Refused)(code, message, what)

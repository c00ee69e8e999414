"""Errors of this client.

These are the errors of `pulsar_wire.errors`, where `ScalableError` is called `PulsarError`, plus:

ScalableError
├── QueueFull                a producer has too many pending messages
├── MessageTooBig            larger than the broker accepts
├── Unsupported
│   └── UnreadableMessage    an encrypted, chunked or damaged message, or one with an unknown compression
└── LayoutError              the layout has no segment for a message
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsar_wire.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    ConnectionLost,
    ConsumerBusy,
    HostNotAllowed,
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
    "HostNotAllowed",
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
    """The producer has as many pending messages as `max_pending_messages` allows."""


class MessageTooBig(ScalableError):
    """The message is larger than the broker accepts."""


class UnreadableMessage(Unsupported):
    """A message that this client cannot read: encrypted, chunked, damaged, or compressed in an unknown way.

    Attributes:
        message_id: id of the message, to acknowledge it or not.
    """

    def __init__(self, text: str, message_id: MessageId) -> None:
        super().__init__(text)
        self.message_id = message_id


class LayoutError(ScalableError):
    """The layout has no segment for a message."""


_BY_HTTP: Final[dict[int, type[Refused]]] = {
    401: AuthenticationFailed,
    403: NotAuthorized,
    404: TopicNotFound,
    408: Unready,
    429: Unready,
}


def refused_by_http(code: int, message: str, what: str = "") -> Refused:
    """Return the typed error for an HTTP status of a controller."""
    return _BY_HTTP.get(code, Refused)(code, message, what)

"""Messages and ids with their segments; the methods are those of pulsar-client."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Protocol

from pulsar_scalable.errors import UnreadableMessage

_SEGMENT = struct.Struct(">q")


class RawId(Protocol):
    """Id of a message in its segment, as the client library that received it provides it."""

    def ledger_id(self) -> int:
        """Return the id of the ledger."""
        ...

    def entry_id(self) -> int:
        """Return the number of the entry in the ledger."""
        ...

    def batch_index(self) -> int:
        """Return the index in the batch; -1 without a batch."""
        ...

    def serialize(self) -> bytes:
        """Return the id as bytes, in the format of all Pulsar clients."""
        ...


class RawMessage(Protocol):
    """A message as the client library that received it provides it; pulsar-client describes the methods."""

    def data(self) -> bytes: ...  # noqa: D102
    def properties(self) -> dict[str, str]: ...  # noqa: D102
    def partition_key(self) -> str: ...  # noqa: D102
    def ordering_key(self) -> str: ...  # noqa: D102
    def publish_timestamp(self) -> int: ...  # noqa: D102
    def event_timestamp(self) -> int: ...  # noqa: D102
    def message_id(self) -> Any: ...  # noqa: D102
    def redelivery_count(self) -> int: ...  # noqa: D102
    def producer_name(self) -> str: ...  # noqa: D102


class Unreadable:
    """A message whose content cannot be read; its id is known, so it can be acknowledged.

    Raises:
        UnreadableMessage: by all methods that return content.
    """

    def __init__(self, error: UnreadableMessage) -> None:
        self._error = error

    def data(self) -> bytes:  # noqa: D102
        raise self._error

    def properties(self) -> dict[str, str]:  # noqa: D102
        raise self._error

    def partition_key(self) -> str:  # noqa: D102
        raise self._error

    def ordering_key(self) -> str:  # noqa: D102
        raise self._error

    def event_timestamp(self) -> int:  # noqa: D102
        raise self._error

    def publish_timestamp(self) -> int:
        """Return 0: the time is unknown."""
        return 0

    def redelivery_count(self) -> int:
        """Return 0: the count is unknown."""
        return 0

    def producer_name(self) -> str:
        """Return an empty name: the producer is unknown."""
        return ""

    def message_id(self) -> Any:
        """Return the id of the message."""
        return self._error.message_id


Entry = tuple[int, int]
"""Ledger and number of an entry, which holds a message or a batch."""

MessagePosition = tuple[int, int, int]
"""Ledger, entry and index in the batch: the order of messages in one segment."""


def position_of(message_id: RawId) -> MessagePosition:
    """Return the position of a message in its segment."""
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


@dataclass(frozen=True, slots=True)
class MessageId:
    """Id of a stored message.

    Attributes:
        segment: id of the segment.
        position: ledger, entry and index in the batch; -1 if deduplication dropped the message.
        raw: the id in the segment.
        turn: how many messages its consumer had returned up to this one; 0 if unknown.
    """

    segment: int
    position: MessagePosition
    raw: Any = field(compare=False, repr=False)
    turn: int = field(default=0, compare=False, repr=False)

    @classmethod
    def of(cls, segment: int, raw: Any, turn: int = 0) -> MessageId:
        """Return the id of a message of a segment."""
        return cls(segment, position_of(raw), raw, turn)

    def ledger_id(self) -> int:
        """Return the id of the ledger."""
        return self.position[0]

    def entry_id(self) -> int:
        """Return the number of the entry in the ledger."""
        return self.position[1]

    def batch_index(self) -> int:
        """Return the index in the batch; -1 without a batch."""
        return self.position[2]

    def serialize(self) -> bytes:
        """Return the id as bytes: 8 for the segment, then the format of all Pulsar clients."""
        return _SEGMENT.pack(self.segment) + self.raw.serialize()


class Message:
    """A received message.

    Args:
        segment: id of its segment.
        topic: topic of the segment.
        raw: the message itself.
        source: source that received it.
    """

    __slots__ = ("_raw", "_segment", "_topic", "source", "turn")

    def __init__(self, segment: int, topic: str, raw: RawMessage, source: object = None) -> None:
        self._segment = segment
        self._topic = topic
        self._raw = raw
        self.source = source
        #: Number of messages that its consumer had returned up to this one.
        self.turn = 0

    def data(self) -> bytes:
        """Return the content that the application sent.

        Raises:
            UnreadableMessage: this client cannot read it; `acknowledge` skips it. All other methods that return
                content raise it, too.
        """
        return self._raw.data()

    def value(self) -> bytes:
        """Return the same as `data`: this client knows no schemas."""
        return self._raw.data()

    def properties(self) -> dict[str, str]:
        """Return the properties that the application set."""
        return self._raw.properties()

    def partition_key(self) -> str:
        """Return its key; empty for none."""
        return self._raw.partition_key()

    def ordering_key(self) -> str:
        """Return the key for Key_Shared subscriptions only; empty for none."""
        return self._raw.ordering_key()

    def publish_timestamp(self) -> int:
        """Return the time of sending, milliseconds since 1970."""
        return self._raw.publish_timestamp()

    def event_timestamp(self) -> int:
        """Return the event time that the application set, milliseconds since 1970; 0 for none."""
        return self._raw.event_timestamp()

    def message_id(self) -> MessageId:
        """Return the id of the message."""
        return MessageId.of(self._segment, self._raw.message_id(), self.turn)

    def segment_id(self) -> int:
        """Return the id of its segment."""
        return self._segment

    def topic_name(self) -> str:
        """Return the topic of the segment."""
        return self._topic

    def redelivery_count(self) -> int:
        """Return how often it was delivered to a consumer before."""
        return self._raw.redelivery_count()

    def producer_name(self) -> str:
        """Return the name of its producer."""
        return self._raw.producer_name()

    @property
    def raw(self) -> RawMessage:
        """The message as the client library that received it provides it."""
        return self._raw

    def replace_delivery(self, raw: RawMessage) -> None:
        """Use a later delivery: only acknowledgements of one delivery complete those of its batch."""
        self._raw = raw

    def __repr__(self) -> str:
        return f"Message(segment {self._segment}, {self.message_id().position})"

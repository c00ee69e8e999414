"""Messages and their ids, which know their segments; the methods are those of pulsar-client."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Protocol

from pulsar_scalable.errors import UnreadableMessage

_SEGMENT = struct.Struct(">q")


class RawId(Protocol):
    """The id of a message in its segment, as the library has it that received it."""

    def ledger_id(self) -> int:
        """Id of the ledger."""
        ...

    def entry_id(self) -> int:
        """Number in the ledger."""
        ...

    def batch_index(self) -> int:
        """Number in its batch; -1 outside of one."""
        ...

    def serialize(self) -> bytes:
        """The id as bytes, as all clients of Pulsar write it."""
        ...


class RawMessage(Protocol):
    """A message, as the library has it that received it; pulsar-client describes the methods."""

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
    """A message of which only the id is known; it can be acknowledged like any other, and its contents raise.

    Raises:
        UnreadableMessage: by all that asks for its contents.
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
        """Return 0: it is not known."""
        return 0

    def redelivery_count(self) -> int:
        """Return 0: it is not known."""
        return 0

    def producer_name(self) -> str:
        """Return nothing: it is not known."""
        return ""

    def message_id(self) -> Any:
        """Return where it is stored."""
        return self._error.message_id


Entry = tuple[int, int]
"""Ledger and number of an entry, which holds a message or a batch."""

MessagePosition = tuple[int, int, int]
"""Ledger, entry and number in the batch: what orders the messages of one segment."""


def position_of(found: RawId) -> MessagePosition:
    """The position of a message in its segment."""
    return found.ledger_id(), found.entry_id(), found.batch_index()


@dataclass(frozen=True, slots=True)
class MessageId:
    """Where a message is stored.

    Attributes:
        segment: id of the segment.
        position: ledger, entry and number in the batch; -1 where deduplication dropped the message.
        raw: the id in the segment.
        turn: how many messages its consumer had handed out with it; 0 where that is not known.
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
        """Id of the ledger."""
        return self.position[0]

    def entry_id(self) -> int:
        """Number in the ledger."""
        return self.position[1]

    def batch_index(self) -> int:
        """Number in its batch; -1 outside of one."""
        return self.position[2]

    def serialize(self) -> bytes:
        """The id as bytes: 8 for the segment, and what other clients of Pulsar write."""
        return _SEGMENT.pack(self.segment) + self.raw.serialize()


class Message:
    """A message that was received.

    Args:
        segment: id of its segment.
        topic: that holds the segment.
        raw: the message itself.
        source: what it was received from.
    """

    __slots__ = ("_raw", "_segment", "_topic", "source", "turn")

    def __init__(self, segment: int, topic: str, raw: RawMessage, source: object = None) -> None:
        self._segment = segment
        self._topic = topic
        self._raw = raw
        self.source = source
        #: How many messages its consumer had handed out with it.
        self.turn = 0

    def data(self) -> bytes:
        """What the application sent.

        Raises:
            UnreadableMessage: this client cannot read it; `acknowledge` skips it. So do all other methods that tell
                its contents.
        """
        return self._raw.data()

    def value(self) -> bytes:
        """The same: this client knows no schemas."""
        return self._raw.data()

    def properties(self) -> dict[str, str]:
        """What the application said of it."""
        return self._raw.properties()

    def partition_key(self) -> str:
        """Its key; empty for none."""
        return self._raw.partition_key()

    def ordering_key(self) -> str:
        """The key for Key_Shared subscriptions alone; empty for none."""
        return self._raw.ordering_key()

    def publish_timestamp(self) -> int:
        """When it was sent, milliseconds since 1970."""
        return self._raw.publish_timestamp()

    def event_timestamp(self) -> int:
        """What the application gave as its time, milliseconds since 1970; 0 for none."""
        return self._raw.event_timestamp()

    def message_id(self) -> MessageId:
        """Where it is stored."""
        return MessageId.of(self._segment, self._raw.message_id(), self.turn)

    def segment_id(self) -> int:
        """Id of its segment."""
        return self._segment

    def topic_name(self) -> str:
        """The topic that holds the segment."""
        return self._topic

    def redelivery_count(self) -> int:
        """How often it was sent to a consumer before."""
        return self._raw.redelivery_count()

    def producer_name(self) -> str:
        """Who sent it."""
        return self._raw.producer_name()

    @property
    def raw(self) -> RawMessage:
        """The message as the library has it that received it."""
        return self._raw

    def came_again(self, raw: RawMessage) -> None:
        """Stand for a later delivery: only the acknowledgements of one delivery complete those of its batch."""
        self._raw = raw

    def __repr__(self) -> str:
        return f"Message(segment {self._segment}, {self.message_id().position})"

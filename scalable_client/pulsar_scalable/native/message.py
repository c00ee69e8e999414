"""Messages and their ids, with the methods that those of pulsar-client have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from google.protobuf.message import DecodeError

from pulsar_scalable.errors import ProtocolViolation
from pulsar_scalable.native.payload import Content, Entry
from pulsar_wire.pulsar_api_pb2 import MessageIdData
from pulsar_wire.values import signed, unsigned


@dataclass(frozen=True, order=True, slots=True)
class MessageId:
    """Where a message is stored.

    Attributes:
        ledger: id of the ledger; -1 where deduplication dropped the message.
        entry: number in the ledger.
        index: number in its batch; -1 outside of one.
        size: messages of the batch; 0 outside of one.
        part: partition; -1 for none.
    """

    ledger: int
    entry: int
    index: int = -1
    size: int = 0
    part: int = -1

    def ledger_id(self) -> int:
        """Id of the ledger."""
        return self.ledger

    def entry_id(self) -> int:
        """Number in the ledger."""
        return self.entry

    def batch_index(self) -> int:
        """Number in its batch; -1 outside of one."""
        return self.index

    def partition(self) -> int:
        """Partition; -1 for none."""
        return self.part

    def serialize(self) -> bytes:
        """The id as bytes, as other clients of Pulsar write it."""
        data = self.entry_data()
        data.partition = self.part
        if self.index >= 0:
            data.batch_index, data.batch_size = self.index, self.size
        return data.SerializeToString()

    @classmethod
    def deserialize(cls, data: bytes) -> Self:
        """The reverse of `serialize`.

        Raises:
            ProtocolViolation: this is no id.
        """
        try:
            return cls.of(MessageIdData.FromString(data))
        except DecodeError as cause:
            raise ProtocolViolation(f"not a message id: {data!r}") from cause

    @classmethod
    def of(cls, data: MessageIdData) -> Self:
        """Return the id that a broker sent."""
        return cls(signed(data.ledgerId), signed(data.entryId), data.batch_index, data.batch_size, data.partition)

    def start_data(self) -> MessageIdData:
        """Where a reader starts, as brokers are told: from within a batch, they send all of it."""
        data = self.entry_data()
        if self.index >= 0:
            data.batch_index = self.index
        return data

    def entry_data(self) -> MessageIdData:
        """The whole entry, as brokers are told."""
        return MessageIdData(ledgerId=unsigned(self.ledger), entryId=unsigned(self.entry))


class Message:
    """A message that was received.

    Args:
        topic: of the segment.
        entry: in which it was stored.
        content: its own part of that.
        message_id: its id.
        redeliveries: how often it was sent before.
    """

    __slots__ = ("_content", "_entry", "_id", "_redeliveries", "_topic")

    def __init__(self, topic: str, entry: Entry, content: Content, message_id: MessageId, redeliveries: int) -> None:
        self._topic = topic
        self._entry = entry.metadata
        self._content = content
        self._id = message_id
        self._redeliveries = redeliveries

    def data(self) -> bytes:
        """What the application sent."""
        return self._content.data

    def value(self) -> bytes:
        """The same: this client knows no schemas."""
        return self._content.data

    def properties(self) -> dict[str, str]:
        """What the application said of it."""
        return self._content.properties

    def partition_key(self) -> str:
        """Its key; empty for none."""
        return self._content.partition_key

    def ordering_key(self) -> str:
        """The key for Key_Shared subscriptions alone; empty for none."""
        return self._content.ordering_key.decode(errors="replace")

    def publish_timestamp(self) -> int:
        """When it was sent, milliseconds since 1970."""
        return self._entry.publish_time

    def event_timestamp(self) -> int:
        """What the application gave as its time, milliseconds since 1970; 0 for none."""
        return self._content.event_time

    def message_id(self) -> MessageId:
        """Where it is stored."""
        return self._id

    def topic_name(self) -> str:
        """The segment's topic."""
        return self._topic

    def redelivery_count(self) -> int:
        """How often it was sent to a consumer before."""
        return self._redeliveries

    def producer_name(self) -> str:
        """Who sent it."""
        return self._entry.producer_name

    def sequence_id(self) -> int:
        """The number that its producer gave it."""
        return self._content.sequence_id

    def __repr__(self) -> str:
        return f"Message({self._topic}, {self._id})"

"""Messages and their ids, with the methods of pulsar-client's."""

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
    """Id of a stored message.

    Attributes:
        ledger: id of the ledger; -1 if deduplication dropped the message.
        entry: number in the ledger.
        index: index in its batch; -1 without a batch.
        size: messages of the batch; 0 without a batch.
        partition_index: partition; -1 for none.
    """

    ledger: int
    entry: int
    index: int = -1
    size: int = 0
    partition_index: int = -1

    def ledger_id(self) -> int:
        """Return the id of the ledger."""
        return self.ledger

    def entry_id(self) -> int:
        """Return the number of the entry in the ledger."""
        return self.entry

    def batch_index(self) -> int:
        """Return the index in the batch; -1 without a batch."""
        return self.index

    def partition(self) -> int:
        """Return the partition; -1 for none."""
        return self.partition_index

    def serialize(self) -> bytes:
        """Return the id as bytes, in the format of all Pulsar clients."""
        data = self.entry_data()
        data.partition = self.partition_index
        if self.index >= 0:
            data.batch_index, data.batch_size = self.index, self.size
        return data.SerializeToString()

    @classmethod
    def deserialize(cls, data: bytes) -> Self:
        """Parse the bytes that `serialize` returned.

        Raises:
            ProtocolViolation: the data are not a message id.
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
        """Return the start position of a reader for brokers: within a batch, they send the whole batch."""
        data = self.entry_data()
        if self.index >= 0:
            data.batch_index = self.index
        return data

    def entry_data(self) -> MessageIdData:
        """Return the id of the whole entry for brokers."""
        return MessageIdData(ledgerId=unsigned(self.ledger), entryId=unsigned(self.entry))


class Message:
    """A received message.

    Args:
        topic: topic of the segment.
        entry: entry that contains it.
        content: content of the message.
        message_id: its id.
        redeliveries: number of earlier deliveries.
    """

    __slots__ = ("_content", "_entry", "_id", "_redeliveries", "_topic")

    def __init__(self, topic: str, entry: Entry, content: Content, message_id: MessageId, redeliveries: int) -> None:
        self._topic = topic
        self._entry = entry.metadata
        self._content = content
        self._id = message_id
        self._redeliveries = redeliveries

    def data(self) -> bytes:
        """Return the content that the application sent."""
        return self._content.data

    def value(self) -> bytes:
        """Return the same as `data`: this client knows no schemas."""
        return self._content.data

    def properties(self) -> dict[str, str]:
        """Return the properties that the application set."""
        return self._content.properties

    def partition_key(self) -> str:
        """Return its key; empty for none."""
        return self._content.partition_key

    def ordering_key(self) -> str:
        """Return the key for Key_Shared subscriptions only; empty for none."""
        return self._content.ordering_key.decode(errors="replace")

    def publish_timestamp(self) -> int:
        """Return the time of sending, milliseconds since 1970."""
        return self._entry.publish_time

    def event_timestamp(self) -> int:
        """Return the event time that the application set, milliseconds since 1970; 0 for none."""
        return self._content.event_time

    def message_id(self) -> MessageId:
        """Return the id of the message."""
        return self._id

    def topic_name(self) -> str:
        """Return the topic of the segment."""
        return self._topic

    def redelivery_count(self) -> int:
        """Return how often it was delivered to a consumer before."""
        return self._redeliveries

    def producer_name(self) -> str:
        """Return the name of its producer."""
        return self._entry.producer_name

    def sequence_id(self) -> int:
        """Return the sequence id that its producer set."""
        return self._content.sequence_id

    def __repr__(self) -> str:
        return f"Message({self._topic}, {self._id})"

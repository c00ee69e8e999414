"""Routing of messages to partitions of the regular topic, as its own producers route messages with the same key."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from clients.errors import StoreUnsupported
from clients.pulsar.key_hashes import partition_of
from clients.pulsar.wire.batches import Single, pack, unpack
from clients.pulsar.wire.frames import Message, framed
from models.scalable_topic.copies import KeyHash
from pulsar_wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from spark.scalable_topic.sums import Print, print_of


class Piece(NamedTuple):
    """Part of an entry that goes to one partition.

    Attributes:
        partition: number of the partition; 0 in a topic without partitions.
        message: the whole entry, or a batch of some of its messages.
        content: its share of a sum.
    """

    partition: int
    message: Message
    content: Print


class Router:
    """Splits entries by partition. Messages without a key rotate by entry, so that batches of them stay whole.

    The same entry with the same number has the same pieces in every attempt.

    Args:
        partitions: number of partitions of the regular topic; 0 for none.
        hashing: how its producers choose a partition for a key.
    """

    def __init__(self, partitions: int, hashing: KeyHash) -> None:
        self._partitions = max(partitions, 1)
        self._hashing = hashing

    def pieces(self, entry: Message, number: int) -> list[Piece]:
        """Return the pieces of an entry.

        Args:
            entry: the stored entry.
            number: number of the entry, or any number that grows with entries.

        Raises:
            StoreUnsupported: the entry is an encrypted batch, whose keys cannot be read, or a key is not text.
            StoreError: the entry is damaged.
        """
        if self._partitions == 1:
            return [Piece(0, entry, print_of(entry, None))]
        singles = self.singles(entry)
        if singles is None:
            return [Piece(self._partition(entry.metadata, number), entry, print_of(entry, None))]
        groups: defaultdict[int, list[Single]] = defaultdict(list)
        for single in singles:
            groups[self._partition(single.metadata, number)].append(single)
        if len(groups) == 1:
            return [Piece(partition, entry, print_of(entry, group)) for partition, group in groups.items()]
        return [
            Piece(partition, pack(entry, group), print_of(entry, group)) for partition, group in sorted(groups.items())
        ]

    def singles(self, entry: Message) -> list[Single] | None:
        """Return the messages of a batch that may be split; None for any other entry.

        Raises:
            StoreUnsupported: see `pieces`.
            StoreError: the entry is damaged.
        """
        if self._partitions == 1 or not entry.is_batch:
            return None
        if entry.metadata.encryption_keys:
            # The key of a single message is outside of what is encrypted.
            if entry.messages == 1:
                return None
            raise StoreUnsupported(
                "a batch is encrypted, and its messages may belong to several partitions; copy to a topic without "
                "partitions"
            )
        return unpack(entry)

    def _partition(self, metadata: MessageMetadata | SingleMessageMetadata, number: int) -> int:
        key = _text_of(metadata.partition_key) if metadata.HasField("partition_key") else None
        partition = None if key is None else partition_of(key, self._partitions, self._hashing)
        if partition is None and isinstance(metadata, MessageMetadata) and metadata.HasField("uuid"):
            # The chunks of one message belong together.
            partition = partition_of(_text_of(metadata.uuid), self._partitions, self._hashing)
        return number % self._partitions if partition is None else partition


def _text_of(key: object) -> str:
    # A key that is not UTF-8 comes as bytes, and each library turns it into another text.
    if not isinstance(key, str):
        raise StoreUnsupported(f"the key {key!r} is not UTF-8 text; copy to a topic without partitions")
    return key


def signed(entry: Message, producer: str, number: int) -> Message:
    """Return an entry as a producer of the copy sends it.

    Args:
        entry: the stored entry.
        producer: name of the producer.
        number: sequence id of the entry there.
    """
    metadata = MessageMetadata()
    metadata.CopyFrom(entry.metadata)
    metadata.producer_name = producer
    metadata.sequence_id = number
    # Readers get committed messages only, and the other topic does not know the transaction. A regular topic has no
    # entry buckets, for which producers state an entry's hashes; and a part of a batch has fewer of these.
    for name in ("highest_sequence_id", "txnid_least_bits", "txnid_most_bits", "entry_hash_min", "entry_hash_max"):
        metadata.ClearField(name)
    return framed(metadata, entry.payload)

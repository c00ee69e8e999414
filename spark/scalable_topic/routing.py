"""Where messages go in the regular topic: where producers of such a topic send messages with the same key."""

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
    """What of an entry goes to one partition.

    Attributes:
        partition: which; 0 in a topic without partitions.
        message: the whole entry, or a batch of some of its messages.
        content: what it adds to a sum.
    """

    partition: int
    message: Message
    content: Print


class Router:
    """Takes entries apart by partition. Messages without a key go round by entry, so that batches of them stay whole.

    The same entry with the same number has the same pieces, in whichever attempt.

    Args:
        partitions: of the regular topic; 0 for none.
        hashing: how its producers choose a partition for a key.
    """

    def __init__(self, partitions: int, hashing: KeyHash) -> None:
        self._partitions = max(partitions, 1)
        self._hashing = hashing

    def pieces(self, one: Message, number: int) -> list[Piece]:
        """What of an entry goes where.

        Args:
            one: the entry.
            number: of the entry, or any that grows with entries.

        Raises:
            StoreUnsupported: it is an encrypted batch, whose keys nobody can read here, or a key is no text.
            StoreError: it is damaged.
        """
        if self._partitions == 1:
            return [Piece(0, one, print_of(one, None))]
        singles = self.singles(one)
        if singles is None:
            return [Piece(self._place(one.metadata, number), one, print_of(one, None))]
        groups: defaultdict[int, list[Single]] = defaultdict(list)
        for single in singles:
            groups[self._place(single.metadata, number)].append(single)
        if len(groups) == 1:
            return [Piece(partition, one, print_of(one, found)) for partition, found in groups.items()]
        return [Piece(partition, pack(one, found), print_of(one, found)) for partition, found in sorted(groups.items())]

    def singles(self, one: Message) -> list[Single] | None:
        """The messages of a batch that may be taken apart; None for any other entry.

        Raises:
            StoreUnsupported: see `pieces`.
            StoreError: it is damaged.
        """
        if self._partitions == 1 or not one.is_batch:
            return None
        if one.metadata.encryption_keys:
            # Of a single message the key stands outside of what is encrypted.
            if one.messages == 1:
                return None
            raise StoreUnsupported(
                "a batch is encrypted, and its messages may belong to several partitions; copy to a topic without "
                "partitions"
            )
        return unpack(one)

    def _place(self, metadata: MessageMetadata | SingleMessageMetadata, number: int) -> int:
        key = _text_of(metadata.partition_key) if metadata.HasField("partition_key") else None
        if key is None and isinstance(metadata, MessageMetadata) and metadata.HasField("uuid"):
            # The chunks of one message belong together.
            key = _text_of(metadata.uuid)
        found = None if key is None else partition_of(key, self._partitions, self._hashing)
        return number % self._partitions if found is None else found


def _text_of(key: object) -> str:
    # What is no UTF-8 comes as bytes, and each library makes another text of it.
    if not isinstance(key, str):
        raise StoreUnsupported(f"the key {key!r} is no text in UTF-8; copy to a topic without partitions")
    return key


def signed(one: Message, producer: str, number: int) -> Message:
    """An entry as a producer of the copy sends it.

    Args:
        one: the entry.
        producer: name of the producer.
        number: its sequence id there.
    """
    metadata = MessageMetadata()
    metadata.CopyFrom(one.metadata)
    metadata.producer_name = producer
    metadata.sequence_id = number
    # Readers get committed messages alone, and the transaction is not known to the other topic. A regular topic has no
    # entry buckets, for which producers state the hashes of an entry; and a part of a batch has fewer of these.
    for name in ("highest_sequence_id", "txnid_least_bits", "txnid_most_bits", "entry_hash_min", "entry_hash_max"):
        metadata.ClearField(name)
    return framed(metadata, one.payload)

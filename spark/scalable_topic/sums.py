"""What a copy is proved by: messages, their bytes, and a digest of all their content in order.

The content is all that a consumer can see of a message, but for what a copy cannot keep: message ids, producer names,
sequence ids, and for which entry buckets of a segment a message was stamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import xxhash

from clients.pulsar.wire.batches import Single
from clients.pulsar.wire.frames import Message
from pulsar_wire.pulsar_api_pb2 import MessageMetadata

_NOT_KEPT = (
    "producer_name",
    "sequence_id",
    "highest_sequence_id",
    "txnid_least_bits",
    "txnid_most_bits",
    "entry_hash_min",
    "entry_hash_max",
)
# What differs between a batch and a part of it.
_OF_BATCH = (
    "num_messages_in_batch",
    "uncompressed_size",
    "partition_key",
    "partition_key_b64_encoded",
    "ordering_key",
)


class Print(NamedTuple):
    """What one stored entry adds to a sum.

    Attributes:
        contents: of its messages; of a batch that is never taken apart, one for all.
        messages: how many there are.
        size: bytes of their payloads.
    """

    contents: tuple[bytes, ...]
    messages: int
    size: int

    @property
    def digest(self) -> bytes:
        """Of this entry alone."""
        return Sum().plus(self).digest


class Sum(NamedTuple):
    """Of messages in their order.

    Attributes:
        messages: how many.
        size: bytes of their payloads.
        digest: of their contents.
    """

    messages: int = 0
    size: int = 0
    digest: bytes = bytes(16)

    def plus(self, one: Print) -> Sum:
        """With one more entry."""
        digest = self.digest
        for content in one.contents:
            digest = xxhash.xxh3_128_digest(digest + content)
        return Sum(self.messages + one.messages, self.size + one.size, digest)


def print_of(one: Message, singles: Sequence[Single] | None) -> Print:
    """What an entry adds to a sum.

    Args:
        one: the entry.
        singles: its messages, where batches may be taken apart; None for what is no batch, or stays whole.
    """
    metadata = MessageMetadata()
    metadata.CopyFrom(one.metadata)
    for name in _NOT_KEPT:
        metadata.ClearField(name)
    if singles is None:
        payload = one.payload
        return Print((_joined(metadata, payload),), one.messages, len(payload))
    for name in _OF_BATCH:
        metadata.ClearField(name)
    contents = tuple(_joined(metadata, single.data) for single in singles)
    return Print(contents, len(singles), sum(single.metadata.payload_size for single in singles))


def _joined(metadata: MessageMetadata, body: bytes) -> bytes:
    head = metadata.SerializeToString(deterministic=True)
    return len(head).to_bytes(4) + head + body

"""Proof of a copy: number of messages, their bytes, and a digest of their content in order.

The content is everything that a consumer can see of a message, except what a copy cannot keep: message ids, producer
names, sequence ids, and the entry buckets of a segment for which a message was stamped.
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
# Fields that differ between a batch and a part of it.
_OF_BATCH = (
    "num_messages_in_batch",
    "uncompressed_size",
    "partition_key",
    "partition_key_b64_encoded",
    "ordering_key",
)


class Print(NamedTuple):
    """Share of one stored entry in a sum.

    Attributes:
        contents: contents of its messages; one for all in a batch that is never split.
        messages: number of messages.
        size: bytes of their payloads.
    """

    contents: tuple[bytes, ...]
    messages: int
    size: int

    @property
    def digest(self) -> bytes:
        """Digest of this entry alone."""
        return Sum().plus(self).digest


class Sum(NamedTuple):
    """Sum of messages in order.

    Attributes:
        messages: number of messages.
        size: bytes of their payloads.
        digest: digest of their contents.
    """

    messages: int = 0
    size: int = 0
    digest: bytes = bytes(16)

    def plus(self, entry: Print) -> Sum:
        """Return the sum with one more entry."""
        digest = self.digest
        for content in entry.contents:
            digest = xxhash.xxh3_128_digest(digest + content)
        return Sum(self.messages + entry.messages, self.size + entry.size, digest)


def print_of(entry: Message, singles: Sequence[Single] | None) -> Print:
    """Return the share of an entry in a sum.

    Args:
        entry: the stored entry.
        singles: its messages, if batches may be split; None for an entry that is not a batch, or stays whole.
    """
    metadata = MessageMetadata()
    metadata.CopyFrom(entry.metadata)
    for name in _NOT_KEPT:
        metadata.ClearField(name)
    if singles is None:
        payload = entry.payload
        return Print((_joined(metadata, payload),), entry.messages, len(payload))
    for name in _OF_BATCH:
        metadata.ClearField(name)
    contents = tuple(_joined(metadata, single.data) for single in singles)
    return Print(contents, len(singles), sum(single.metadata.payload_size for single in singles))


def _joined(metadata: MessageMetadata, body: bytes) -> bytes:
    head = metadata.SerializeToString(deterministic=True)
    return len(head).to_bytes(4) + head + body

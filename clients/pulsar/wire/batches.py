"""Batches: many messages in one stored entry, which can be taken apart and packed again.

A batch's payload, when it is decompressed, has for each message the size of its metadata (4 bytes, big-endian), that
metadata, and as many bytes as it names.

Source: Commands of Pulsar 5.0.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from clients.errors import StoreProtocolError, StoreUnsupported
from clients.pulsar.compression import Compression, compressed, decompressed
from clients.pulsar.wire.frames import Message, framed
from pulsar_wire.frames import SIZE
from pulsar_wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


class Single(NamedTuple):
    """One message of a batch.

    Attributes:
        metadata: what its producer said of it.
        data: metadata and payload as they are in the batch.
    """

    metadata: SingleMessageMetadata
    data: bytes


def unpack(batch: Message) -> list[Single]:
    """Return the messages of a batch.

    Raises:
        StoreProtocolError: it is damaged.
        StoreUnsupported: it is packed in a way that is not known.
    """
    metadata = batch.metadata
    body = decompressed(_compression(metadata), batch.payload, _size(batch))
    singles: list[Single] = []
    at = 0
    try:
        for _ in range(metadata.num_messages_in_batch):
            begin = at + SIZE.size
            end = begin + SIZE.unpack_from(body, at)[0]
            single = SingleMessageMetadata.FromString(body[begin:end])
            end += single.payload_size
            singles.append(Single(single, body[at:end]))
            at = end
    except (DecodeError, struct.error) as cause:
        raise StoreProtocolError(f"a batch of {metadata.num_messages_in_batch} messages is damaged: {cause}") from cause
    if at != len(body):
        raise StoreProtocolError(f"a batch of {len(singles)} messages has {len(body)} bytes where {at} are due")
    return singles


def pack(batch: Message, singles: Sequence[Single]) -> Message:
    """Return a batch of some of a batch's messages, which stay as they are; all else is that of the whole."""
    body = b"".join(single.data for single in singles)
    metadata = MessageMetadata()
    metadata.CopyFrom(batch.metadata)
    metadata.num_messages_in_batch = len(singles)
    metadata.uncompressed_size = len(body)
    _name_keys_of(metadata, singles[0].metadata)
    return framed(metadata, compressed(_compression(metadata), body))


def _name_keys_of(metadata: MessageMetadata, first: SingleMessageMetadata) -> None:
    """Set the key of a batch to that of its first message: brokers choose Key_Shared consumers by the batch's key."""
    if metadata.HasField("partition_key"):
        metadata.ClearField("partition_key")
        metadata.ClearField("partition_key_b64_encoded")
        if first.HasField("partition_key"):
            metadata.partition_key = first.partition_key
            metadata.partition_key_b64_encoded = first.partition_key_b64_encoded
    if metadata.HasField("ordering_key"):
        metadata.ClearField("ordering_key")
        if first.HasField("ordering_key"):
            metadata.ordering_key = first.ordering_key


def _compression(metadata: MessageMetadata) -> Compression:
    try:
        return Compression(metadata.compression)
    except ValueError as cause:
        raise StoreUnsupported(f"a batch is compressed with type {metadata.compression}, which is unknown") from cause


def _size(batch: Message) -> int:
    # Producers need not name it where nothing is compressed.
    metadata = batch.metadata
    return metadata.uncompressed_size if metadata.compression else len(batch.payload)

"""Messages as brokers store them.

A message is magic 0x0e01, CRC-32C of what comes after it, size of the metadata (4 bytes each, big-endian), metadata,
payload. Old clients leave out magic and checksum. A stored entry is the same, after what the broker itself noted: magic
0x0e02, size, and that.

Source: Commands of Pulsar 5.0.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import google_crc32c
from google.protobuf.message import DecodeError

from clients.errors import StoreProtocolError
from pulsar_wire.frames import SIZE
from pulsar_wire.pulsar_api_pb2 import MessageMetadata

_CHECKSUM, _BROKER_NOTES = b"\x0e\x01", b"\x0e\x02"
# The package has no type hints.
_crc32c = cast("Callable[[bytes], int]", google_crc32c.value)  # pyright: ignore[reportUnknownMemberType]


class Message(NamedTuple):
    """One stored entry: a message, a batch of them, or a chunk of one.

    Attributes:
        data: metadata and payload as producers send them, with their checksum.
        metadata: what the producer said of it.
    """

    data: bytes
    metadata: MessageMetadata

    @property
    def payload(self) -> bytes:
        """Payload after the metadata, as it is stored: compressed, encrypted, in a batch."""
        start = _start(self.data)
        return self.data[start + SIZE.size + SIZE.unpack_from(self.data, start)[0] :]

    @property
    def messages(self) -> int:
        """How many messages it is for a consumer."""
        return self.metadata.num_messages_in_batch

    @property
    def is_batch(self) -> bool:
        """Whether its payload is that of a batch, also where that has one message."""
        return self.metadata.HasField("num_messages_in_batch")

    @property
    def is_chunk(self) -> bool:
        """Whether it is a part of a message."""
        return self.metadata.num_chunks_from_msg > 1

    @property
    def is_marker(self) -> bool:
        """Whether brokers wrote it for themselves: consumers never get it."""
        return self.metadata.HasField("marker_type")

    @property
    def in_transaction(self) -> bool:
        """Whether it was sent in a transaction."""
        return self.metadata.HasField("txnid_least_bits") or self.metadata.HasField("txnid_most_bits")


def parse_message(entry: bytes) -> Message:
    """Return the message in a stored entry, or in what a consumer gets, without what the broker noted.

    Raises:
        StoreProtocolError: it is none, or its checksum differs.
    """
    data = entry
    if data[:2] == _BROKER_NOTES and len(data) >= 6:
        data = data[6 + SIZE.unpack_from(data, 2)[0] :]
    start = _start(data)
    if start and _crc32c(data[start:]) != SIZE.unpack_from(data, 2)[0]:
        raise StoreProtocolError("a stored message does not have the checksum that it names")
    if len(data) < start + SIZE.size:
        raise StoreProtocolError(f"an entry of {len(entry)} bytes is not a message")
    size = SIZE.unpack_from(data, start)[0]
    body = data[start + SIZE.size : start + SIZE.size + size]
    try:
        metadata = MessageMetadata.FromString(body)
    except DecodeError as cause:
        raise StoreProtocolError(f"an entry is not a message of Pulsar's: {cause}") from cause
    if len(body) < size or not metadata.HasField("producer_name"):
        raise StoreProtocolError("an entry is not a message of Pulsar's: it names no producer")
    return Message(data, metadata)


def framed(metadata: MessageMetadata, payload: bytes) -> Message:
    """Return a message as producers send it."""
    head = metadata.SerializeToString()
    body = SIZE.pack(len(head)) + head + payload
    return Message(_CHECKSUM + SIZE.pack(_crc32c(body)) + body, metadata)


def _start(data: bytes) -> int:
    """Return the offset of the size of the metadata: old clients send no checksum before it."""
    return 6 if data[:2] == _CHECKSUM and len(data) >= 10 else 0

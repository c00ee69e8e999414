"""Format of stored messages: metadata, payload, batches.

An entry may start with broker metadata (magic 0x0e02, size, metadata), then a checksum (magic 0x0e01, CRC-32C), then
the size of the message metadata, the message metadata, and the payload. This client neither sends nor checks checksums:
both would be slow without a library, and TCP and TLS have their own.

Source: PulsarApi.proto and `Commands` of Pulsar 5.0.1.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from pulsar_scalable.enums import Compression
from pulsar_scalable.errors import ProtocolViolation, Unsupported
from pulsar_wire.pulsar_api_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata

_SIZE = struct.Struct(">I")
_BROKER_METADATA, _CHECKSUM = b"\x0e\x02", b"\x0e\x01"
# No broker accepts more; a larger size would be an attack on memory.
_LARGEST = 128 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """One message of an entry.

    Attributes:
        data: content that the application sent.
        index: index in its batch; -1 without a batch.
        partition_key: empty for none.
        properties: properties that the application set.
        event_time: milliseconds since 1970; 0 for none.
        ordering_key: empty for none.
        sequence_id: sequence id that the producer set.
    """

    data: bytes
    index: int
    partition_key: str
    properties: dict[str, str]
    event_time: int
    ordering_key: bytes
    sequence_id: int


class Entry:
    """A stored entry.

    Args:
        body: data after the command that delivers the entry.

    Raises:
        ProtocolViolation: the data are not an entry.

    Attributes:
        metadata: metadata of the whole entry.
        payload: payload as it is stored.
    """

    def __init__(self, body: bytes) -> None:
        try:
            at = _SIZE.size + 2 + _SIZE.unpack_from(body, 2)[0] if body[:2] == _BROKER_METADATA else 0
            if body[at : at + 2] == _CHECKSUM:
                at += 2 + _SIZE.size
            size = _SIZE.unpack_from(body, at)[0]
        except struct.error as cause:
            raise ProtocolViolation(f"an entry of {len(body)} bytes is too short for a message") from cause
        at += _SIZE.size
        if at + size > len(body):
            raise ProtocolViolation("the metadata of a message exceed its entry")
        try:
            self.metadata = MessageMetadata.FromString(body[at : at + size])
        except DecodeError as cause:
            raise ProtocolViolation(f"an entry does not contain a message of Pulsar: {cause}") from cause
        self.payload = body[at + size :]

    @property
    def count(self) -> int:
        """Number of its messages, for flow control."""
        return max(1, self.metadata.num_messages_in_batch)

    @property
    def is_batch(self) -> bool:
        """True if it is a batch, also of one message."""
        return self.metadata.HasField("num_messages_in_batch")

    @property
    def is_marker(self) -> bool:
        """True if it is a marker that brokers wrote for themselves."""
        return self.metadata.HasField("marker_type")

    def contents(self) -> list[Content]:
        """Return its messages.

        Raises:
            Unsupported: it is encrypted, a chunk of a larger message, or compressed in an unsupported way.
            ProtocolViolation: it is damaged.
        """
        plain = self._plain()
        return list(self._batch(plain)) if self.is_batch else [self._single(plain)]

    def _plain(self) -> bytes:
        metadata = self.metadata
        if metadata.encryption_keys:
            raise Unsupported("a message is encrypted; this client has no keys")
        if metadata.num_chunks_from_msg > 1:
            raise Unsupported("a message was sent in chunks; this client does not join them")
        kind = metadata.compression
        if kind == Compression.NONE:
            return self.payload
        if kind == Compression.ZLIB:
            return _inflated(self.payload, metadata.uncompressed_size)
        name = Compression(kind).name if kind in list(Compression) else f"type {kind}"
        raise Unsupported(f"a message is compressed with {name}; this client supports ZLIB only")

    def _single(self, plain: bytes) -> Content:
        metadata = self.metadata
        return Content(
            data=plain,
            index=-1,
            partition_key=_key(metadata.partition_key, encoded=metadata.partition_key_b64_encoded),
            properties=_properties(metadata.properties),
            event_time=metadata.event_time,
            ordering_key=metadata.ordering_key,
            sequence_id=metadata.sequence_id,
        )

    def _batch(self, plain: bytes) -> Iterator[Content]:
        at = 0
        for index in range(self.count):
            if at + _SIZE.size > len(plain):
                raise ProtocolViolation(f"a batch of {self.count} messages ends before message {index}")
            start = at + _SIZE.size
            end = start + _SIZE.unpack_from(plain, at)[0]
            try:
                single = SingleMessageMetadata.FromString(plain[start:end])
            except DecodeError as cause:
                raise ProtocolViolation(f"message {index} of a batch is damaged: {cause}") from cause
            at = end + single.payload_size
            if single.payload_size < 0 or at > len(plain):
                raise ProtocolViolation(f"message {index} of a batch of {self.count} exceeds the batch")
            yield Content(
                data=plain[end:at],
                index=index,
                partition_key=_key(single.partition_key, encoded=single.partition_key_b64_encoded),
                properties=_properties(single.properties),
                event_time=single.event_time,
                ordering_key=single.ordering_key,
                sequence_id=(single if single.HasField("sequence_id") else self.metadata).sequence_id,
            )


def framed(metadata: MessageMetadata, payload: bytes) -> bytes:
    """Return an entry as producers send it, without a checksum."""
    head = metadata.SerializeToString()
    return b"".join((_SIZE.pack(len(head)), head, payload))


def _inflated(payload: bytes, size: int) -> bytes:
    if not 0 <= size <= _LARGEST:
        raise ProtocolViolation(f"a compressed message claims to have {size} bytes")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(payload, size + 1)
    except zlib.error as cause:
        raise ProtocolViolation(f"a message cannot be decompressed: {cause}") from cause
    if len(plain) != size:
        raise ProtocolViolation(f"a message decompresses to {len(plain)} bytes instead of {size}")
    return plain


def _key(key: str, *, encoded: bool) -> str:
    """Return the key; a binary key that is not UTF-8 stays in base64, as with pulsar-client."""
    if key and encoded:
        try:
            return base64.b64decode(key).decode()
        except ValueError:
            return key
    return key


def _properties(pairs: Iterable[KeyValue]) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}

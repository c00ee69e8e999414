"""Managed ledgers and their cursors, as Pulsar keeps them in the metadata store, compressed or not.

A compressed value begins with a magic number, the length of `CompressedInfo` and that message; a plain one is the
message itself, which cannot begin so.

Source: MetaStoreImpl of Pulsar 5.0.1, 4.2.4 and 4.0.8 (settings `managedLedgerInfoCompressionType` and
`managedCursorInfoCompressionType`).
"""

from __future__ import annotations

import struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from clients.errors import StoreProtocolError, StoreUnsupported
from clients.pulsar.compression import Compression, decompressed
from clients.pulsar.fields import Field, join, split
from clients.pulsar.formats_pb2 import CompressedInfo, CursorPosition, KeyValue, ManagedCursorInfo, ManagedLedgerInfo

#: Property of the cursor `__compaction`: the ledger that holds the compacted topic.
COMPACTED_LEDGER = "CompactedTopicLedger"
#: Begins the names of cursor properties whose values are ledgers with an index of delayed messages.
DELAYED_BUCKET = "#pulsar.internal.delayed.bucket"

#: Property of a managed ledger whose clients were sent to another cluster (PIP-188, "Managed-Ledger Changes").
MIGRATED = "migrated"

#: Fields of ManagedLedgerInfo: where the topic was ended, and its properties.
_TERMINATED, _PROPERTY = 2, 3

_HEADER = struct.Struct(">hi")
_MAGIC = 0x4778

MessageT = TypeVar("MessageT", bound=Message)


def unpack(value: bytes) -> tuple[Compression, bytes]:
    """Return how a value is packed, and what is in it.

    Raises:
        StoreProtocolError: it is damaged.
        StoreUnsupported: it is packed in a way that no supported release knows.
    """
    if len(value) < _HEADER.size or value[:2] != _MAGIC.to_bytes(2):
        return Compression.NONE, value
    _, size = _HEADER.unpack_from(value)
    packed = _HEADER.size + size
    info = parse(CompressedInfo, value[_HEADER.size : packed])
    try:
        compression = Compression(info.compressionType)
    except ValueError as cause:
        raise StoreUnsupported(
            f"a value is compressed with type {info.compressionType}, which is unknown; set Pulsar's compression of "
            "metadata to one that this version knows"
        ) from cause
    return compression, decompressed(compression, value[packed:], info.uncompressedSize)


def decode_ledger_info(value: bytes) -> ManagedLedgerInfo:
    """Read a managed ledger's node.

    Raises:
        StoreProtocolError: it is none.
        StoreUnsupported: see `unpack`.
    """
    return parse(ManagedLedgerInfo, unpack(value)[1])


def without_termination(value: bytes) -> bytes:
    """Return a managed ledger's node without the place where the topic was ended, and without the mark of a migration.

    All other fields keep their bytes. What was compressed is not any more, which brokers read as well.

    Raises:
        StoreProtocolError: it is none.
        StoreUnsupported: see `unpack`.
    """
    _, body = unpack(value)
    parse(ManagedLedgerInfo, body)
    return join(field for field in split(body) if not _ends_topic(field))


def _ends_topic(field: Field) -> bool:
    if field.number == _PROPERTY and field.content is not None:
        return parse(KeyValue, field.content).key == MIGRATED
    return field.number == _TERMINATED


def decode_cursor_info(value: bytes) -> ManagedCursorInfo:
    """Read a cursor's node.

    Raises:
        StoreProtocolError: it is none.
        StoreUnsupported: see `unpack`.
    """
    return parse(ManagedCursorInfo, unpack(value)[1])


def decode_cursor_entry(payload: bytes) -> CursorPosition:
    """Read an entry of a cursor's ledger, without header and digest; the last entry is the one that counts.

    Raises:
        StoreProtocolError: it is none.
        StoreUnsupported: see `unpack`.
    """
    return parse(CursorPosition, unpack(payload)[1])


def compacted_ledger(position: ManagedCursorInfo | CursorPosition) -> int | None:
    """Return the ledger of the compacted topic that a cursor names, None if it names none.

    While a cursor has a ledger (`cursorsLedgerId` is not -1), its position and these properties are in that ledger's
    last entry alone: those in the node are as old as the ledger, and name a compacted ledger that may be deleted. So
    may the last entry for some seconds, because the broker limits how often it writes one. What is there for certain
    are the ledgers whose own metadata has the component `compacted-ledger`.
    """
    return next((property_.value for property_ in position.properties if property_.name == COMPACTED_LEDGER), None)


def delayed_ledgers(cursor: ManagedCursorInfo) -> list[int]:
    """Return the ledgers of a cursor's delayed index; these properties are always in the node.

    Raises:
        StoreProtocolError: one is not a number.
    """
    ids: list[int] = []
    for cursorproperty in cursor.cursorProperties:
        if cursorproperty.key.startswith(DELAYED_BUCKET):
            if not cursorproperty.value.isdecimal():
                raise StoreProtocolError(
                    f"cursor property {cursorproperty.key} names no ledger: {cursorproperty.value!r}"
                )
            ids.append(int(cursorproperty.value))
    return ids


def parse(kind: type[MessageT], body: bytes) -> MessageT:
    """Return a message with all the fields that it must have, which protobuf itself does not look for.

    Raises:
        StoreProtocolError: it is none.
    """
    try:
        message = kind.FromString(body)
    except DecodeError as cause:
        raise StoreProtocolError(f"a value is not a {kind.DESCRIPTOR.name} of Pulsar's: {cause}") from cause
    if not message.IsInitialized():
        raise StoreProtocolError(f"a value is not a {kind.DESCRIPTOR.name} of Pulsar's: it lacks what each of them has")
    return message

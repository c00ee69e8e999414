"""Ledgers that Pulsar's metadata refer to: nodes of real brokers are read, compressed or not."""

from __future__ import annotations

import struct
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.errors import StoreDenied, StoreProtocolError, StoreUnsupported
from clients.pulsar.compression import Compression
from clients.pulsar.fields import join, split
from clients.pulsar.formats_pb2 import CompressedInfo, ManagedCursorInfo, ManagedLedgerInfo
from clients.pulsar.managed_ledgers import (
    compacted_ledger,
    decode_cursor_entry,
    decode_cursor_info,
    decode_ledger_info,
    delayed_ledgers,
    unpack,
)
from clients.pulsar.references import LedgerReference, ReferenceKind, references_in
from clients.store import Record, Unreadable

# By MetaStoreImpl of Pulsar 5.0.1: one managed ledger and one cursor, with each compression of its settings.
PLAIN_LEDGER = bytes.fromhex(
    "0a0f086410f40318b9602080d095ffbc310a0f086510f40318b9602080d095ffbc310a0f086610f40318b9602080d095ffbc310a0f086710f403"
    "18b9602080d095ffbc31"
)
PLAIN_CURSOR = bytes.fromhex("08ffffffffffffffffff01106418073080d095ffbc31")
LEDGERS = {
    Compression.NONE: PLAIN_LEDGER,
    Compression.LZ4: bytes.fromhex(
        "47780000000408011044fc060a0f086410f40318b9602080d095ffbc310a0f086511001c6611001467110050d095ffbc31"
    ),
    Compression.ZLIB: bytes.fromhex(
        "47780000000408021044789ce2e2e74811f8c22cb13341a1e1c2d4ff7b0cb9f83952d105d2d005d2510400000000ffff"
    ),
    Compression.ZSTD: bytes.fromhex(
        "4778000000040803104428b52ffd24440d0100b80a0f086410f40318b9602080d095ffbc310a0f086566670300e01080dc844c268a371663"
    ),
    Compression.SNAPPY: bytes.fromhex(
        "4778000000040804104444500a0f086410f40318b9602080d095ffbc310a0f08653e110000663e1100346710f40318b9602080d095ffbc31"
    ),
}
CURSORS = {
    Compression.NONE: PLAIN_CURSOR,
    Compression.LZ4: bytes.fromhex("477800000004080110162408ff0100c001106418073080d095ffbc31"),
    Compression.ZLIB: bytes.fromhex("47780000000408021016789ce2f80f038c022912ec060d17a6fedf6308000000ffff"),
    Compression.ZSTD: bytes.fromhex(
        "4778000000040803101628b52ffd2416a500007008ff01106418073080d095ffbc31010004c00277a0017d"
    ),
    Compression.SNAPPY: bytes.fromhex("47780000000408041016160408ff11012c01106418073080d095ffbc31"),
}

# Nodes of a broker; the classes of Pulsar 5.0.1 write the same bytes.
TOPIC = bytes.fromhex("0a0e081d100a18d40220cdf1c5f09f340a0408222000")
COMPACTION_CLOSED = bytes.fromhex(
    "08ffffffffffffffffff011009181d2a180a14436f6d706163746564546f7069634c6564676572100a30f5c9acf09f34"
)
COMPACTION_OPEN = bytes.fromhex("081f1009181d2a180a14436f6d706163746564546f7069634c6564676572100a3094f0c5f09f34")
COMPACTION_ENTRY = bytes.fromhex("0821100922180a14436f6d706163746564546f7069634c65646765721023")
DELAYED = bytes.fromhex(
    "08ffffffffffffffffff01100c18ffffffffffffffffff0130f4ecacf09f34422b0a252370756c7361722e696e7465726e616c2e64656c617965"
    "642e6275636b65745f32325f323212023235422b0a252370756c7361722e696e7465726e616c2e64656c617965642e6275636b65745f32305f32"
    "3012023233422b0a252370756c7361722e696e7465726e616c2e64656c617965642e6275636b65745f31325f313212023138"
)
SCHEMA = bytes.fromhex(
    "0a2a080012040801100"
    "01a20e73699f28b77c79f12cd5daac72d1f56ad8a03140ad0536197c16975b710dac1"
    "122a08001204080110001a20e73699f28b77c79f12cd5daac72d1f56ad8a03140ad0536197c16975b710dac1"
)

TOPIC_PATH = "/managed-ledgers/public/default/persistent/compact"


def mentions(path: str, value: bytes) -> list[LedgerReference]:
    """Return the references in a node."""
    return references_in(Record(path.encode(), value, 0, 0, 0, 0, 0))


def pack(compression: Compression, body: bytes) -> bytes:
    """Return the opposite of `unpack`; other bytes than Pulsar's, with the same content."""
    match compression:
        case Compression.NONE:
            return body
        case Compression.LZ4:
            packed = bytes(cramjam.lz4.compress_block(body, store_size=False))
        case Compression.ZLIB:
            packed = zlib.compress(body)
        case Compression.ZSTD:
            packed = bytes(cramjam.zstd.compress(body))
        case Compression.SNAPPY:
            packed = bytes(cramjam.snappy.compress_raw(body))
    info = CompressedInfo(compressionType=compression, uncompressedSize=len(body)).SerializeToString()
    return struct.pack(">hi", 0x4778, len(info)) + info + packed


@pytest.mark.parametrize("compression", Compression)
def test_compressed_values(compression: Compression) -> None:
    """Every compression of the broker yields the same content."""
    assert unpack(LEDGERS[compression]) == (compression, PLAIN_LEDGER)
    assert unpack(CURSORS[compression]) == (compression, PLAIN_CURSOR)
    ledgers = decode_ledger_info(LEDGERS[compression]).ledgerInfo
    assert [(ledger.ledgerId, ledger.entries, ledger.size) for ledger in ledgers] == [
        (100 + n, 500, 12345) for n in range(4)
    ]
    cursor = decode_cursor_info(CURSORS[compression])
    assert (cursor.cursorsLedgerId, cursor.markDeleteLedgerId, cursor.markDeleteEntryId) == (-1, 100, 7)


@given(st.sampled_from(Compression), st.binary(max_size=5_000))
def test_pack_and_unpack(compression: Compression, body: bytes) -> None:
    """A packed value can be unpacked; a plain value is never taken for packed, since no message begins like that."""
    if compression is Compression.NONE:
        body = b"\x08" + body
    assert unpack(pack(compression, body)) == (compression, body)


@pytest.mark.parametrize("compression", [compression for compression in Compression if compression])
def test_damaged_values(compression: Compression) -> None:
    """A packed value that is cut off, or holds more than it says, is refused."""
    value = LEDGERS[compression]
    for damaged in (value[:-12], value[:12], value[:7], value.replace(b"\x10\x44", b"\x10\x43", 1)):
        with pytest.raises(StoreProtocolError):
            unpack(damaged)


def test_unknown_compression() -> None:
    """A compression of a later Pulsar is refused with its number."""
    with pytest.raises(StoreUnsupported, match="type 9"):
        unpack(LEDGERS[Compression.LZ4].replace(b"\x08\x01", b"\x08\x09", 1))


def test_unknown_fields_survive() -> None:
    """Fields that later brokers add to a node survive decoding and encoding."""
    later = b"\xa2\x06\x03abc"
    assert ManagedLedgerInfo.FromString(TOPIC + later).SerializeToString() == TOPIC + later
    assert ManagedCursorInfo.FromString(DELAYED + later).SerializeToString() == DELAYED + later


def test_topic() -> None:
    """Each ledger of a topic is mentioned, and the last one is marked."""
    assert mentions(TOPIC_PATH, TOPIC) == [
        LedgerReference(29, ReferenceKind.DATA, TOPIC_PATH),
        LedgerReference(34, ReferenceKind.DATA, TOPIC_PATH, last=True),
    ]


def test_offloaded_and_attributed() -> None:
    """A ledger whose entries left the bookies is marked, and so is the bookie cluster of an attributed one."""
    info = ManagedLedgerInfo.FromString(TOPIC)
    info.ledgerInfo[0].offloadContext.complete = True
    info.ledgerInfo[1].properties.add(key="_pulsar.bookieClusterName", value="B")
    assert [mention[3:] for mention in mentions(TOPIC_PATH, info.SerializeToString())] == [
        (None, False, False),
        ("B", True, False),
    ]
    info.ledgerInfo[0].offloadContext.bookkeeperDeleted = True
    value = pack(Compression.ZSTD, info.SerializeToString())
    assert [mention.offloaded for mention in mentions(TOPIC_PATH, value)] == [True, False]


def test_compaction_cursor_without_a_ledger() -> None:
    """The compacted topic's ledger is in the cursor's node once the cursor has no ledger of its own."""
    path = TOPIC_PATH + "/__compaction"
    assert mentions(path, COMPACTION_CLOSED) == [LedgerReference(10, ReferenceKind.COMPACTED, path)]


def test_compaction_cursor_with_a_ledger() -> None:
    """While it has one, that ledger's last entry names the compacted ledger, and the node an older one."""
    path = TOPIC_PATH + "/__compaction"
    assert mentions(path, COMPACTION_OPEN) == [LedgerReference(31, ReferenceKind.CURSOR, path)]
    assert compacted_ledger(decode_cursor_info(COMPACTION_OPEN)) == 10
    entry = decode_cursor_entry(COMPACTION_ENTRY)
    assert (compacted_ledger(entry), entry.ledgerId, entry.entryId) == (35, 33, 9)


def test_delayed_index() -> None:
    """The ledgers of a cursor's delayed index are in its properties."""
    path = "/managed-ledgers/public/default/persistent/delayed/dsub"
    assert delayed_ledgers(decode_cursor_info(DELAYED)) == [25, 23, 18]
    assert mentions(path, DELAYED) == [
        LedgerReference(number, ReferenceKind.DELAYED_INDEX, path) for number in (25, 23, 18)
    ]
    with pytest.raises(StoreProtocolError, match="names no ledger"):
        mentions(path, DELAYED.replace(b"\x12\x0225", b"\x12\x022x"))


def test_schema() -> None:
    """A schema's ledger is mentioned once, although its node contains the newest version twice."""
    path = "/schemas/public/default/events"
    assert mentions(path, SCHEMA) == [LedgerReference(1, ReferenceKind.SCHEMA, path)]


def test_mere_parents_and_empty_topics() -> None:
    """Nodes without a value, and topics without ledgers, mention nothing."""
    assert mentions("/managed-ledgers/public", b"") == []
    assert mentions("/schemas/public/default", b"") == []
    assert mentions(TOPIC_PATH, ManagedLedgerInfo(properties=[{"key": "a", "value": "b"}]).SerializeToString()) == []


@pytest.mark.parametrize("value", [b"10.42.0.17", b"null", b"\xff\xfe"])
def test_parents_with_a_value_of_another_tool(value: bytes) -> None:
    """A value of another tool in a node above all topics mentions nothing; in a topic's own node it is reported."""
    parents = ("/managed-ledgers/public", "/managed-ledgers/public/default/persistent", "/schemas/public/default")
    assert [mentions(path, value) for path in parents] == [[], [], []]
    for path in (TOPIC_PATH, "/schemas/public/default/events"):
        with pytest.raises(StoreProtocolError, match=path):
            mentions(path, value)
    assert mentions("/managed-ledgers/of-another-program", TOPIC), "what can be read counts wherever it is"


def test_unreadable_nodes_are_named() -> None:
    """The error names a node of an unknown form, or one that may not be read."""
    with pytest.raises(StoreProtocolError, match=TOPIC_PATH):
        mentions(TOPIC_PATH, TOPIC[:-1])
    with pytest.raises(StoreProtocolError, match="/schemas/a/b/c"):
        mentions("/schemas/a/b/c", TOPIC)
    with pytest.raises(StoreDenied, match="no permission"):
        references_in(Unreadable(b"/schemas/a", "no permission"))


@given(st.binary(max_size=60))
def test_fields_keep_every_byte(message: bytes) -> None:
    """A message that is split into fields and joined is the same; bytes that are not a message are refused."""
    try:
        fields = split(message)
    except StoreProtocolError:
        return
    assert join(fields) == message

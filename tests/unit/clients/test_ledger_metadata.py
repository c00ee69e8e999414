"""Ledgers' metadata: what real servers wrote is read and written again byte for byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.bookkeeper.ledgers import Bookie, read_bookie
from clients.bookkeeper.metadata import (
    DigestType,
    LedgerMetadata,
    LedgerState,
    Segment,
    decode_metadata,
    encode_metadata,
)
from clients.errors import StoreProtocolError, StoreUnsupported

# Values of znodes in ZooKeeper 3.9.5, written by Pulsar and by the client of BookKeeper 4.18.
PULSAR_OPEN = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330ac20108021002180020ffffffffffffffffff01280132160a08626f6f"
    "6b69652d320a08626f6f6b69652d3110003803420048025a3a0a1570756c7361722f6d616e616765642d6c656467657212217075626c69632f64"
    "656661756c742f70657273697374656e742f636f6d706163745a1b0a09636f6d706f6e656e74120e6d616e616765642d6c65646765725a1d0a0d"
    "70756c7361722f637572736f72120c5f5f636f6d70616374696f6e5a150a0b6170706c69636174696f6e120670756c7361726000"
)
COMPACTED = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330abd010802100218ae012002280332160a08626f6f6b69652d310a0862"
    "6f6f6b69652d3210003801420048025a1c0a1270756c7361722f636f6d706163746564546f12060821100930005a1d0a09636f6d706f6e656e74"
    "1210636f6d7061637465642d6c65646765725a3c0a1570756c7361722f636f6d706163746564546f706963122370657273697374656e743a2f2f"
    "7075626c69632f64656661756c742f636f6d706163745a150a0b6170706c69636174696f6e120670756c7361726000"
)
DELAYED_BUCKET = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a90020802100218b0062008280332160a08626f6f6b69652d320a0862"
    "6f6f6b69652d3110003803420048025a210a09636f6d706f6e656e74121464656c617965642d696e6465782d6275636b65745a150a0b6170706c"
    "69636174696f6e120670756c7361725a450a1c70756c7361722f64656c61796564496e6465784275636b65744b657912252370756c7361722e69"
    "6e7465726e616c2e64656c617965642e6275636b65745f31325f31325a3f0a1870756c7361722f64656c61796564496e646578546f7069631223"
    "70657273697374656e743a2f2f7075626c69632f64656661756c742f64656c617965645a210a1970756c7361722f64656c61796564496e646578"
    "437572736f721204647375626000"
)
JAVA_CLOSED = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4c0802100318d00f2013280332200a08626f6f6b69652d330a08626f"
    "6f6b69652d310a08626f6f6b69652d3210003803420048025a150a0b6170706c69636174696f6e120670756c7361726000"
)
JAVA_OPEN = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4108021002180020ffffffffffffffffff01280132160a08626f6f6b"
    "69652d330a08626f6f6b69652d311000380142067365637265744802608f9990b0a6b79ebc14"
)
TWO_SEGMENTS_OPEN = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a5108021002180020ffffffffffffffffff01280132160a08626f6f6b"
    "69652d330a08626f6f6b69652d31100032160a08626f6f6b69652d320a08626f6f6b69652d3110053801420673656372657448026000"
)
TWO_SEGMENTS = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a490802100218f6032006280332160a08626f6f6b69652d330a08626f"
    "6f6b69652d31100032160a08626f6f6b69652d320a08626f6f6b69652d3110053801420673656372657448026000"
)
# By LedgerMetadataSerDe of BookKeeper 4.18, of one ledger in both versions.
WITH_TIME = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a84010802100318d20920292803321d0a0762313a333138310a076232"
    "3a333138310a0762333a333138311000321d0a0762313a333138310a0762343a333138310a0762333a3331383110113802420770c3a473732277"
    "48015080d095ffbc315a150a0b6170706c69636174696f6e120670756c7361725a0c0a056279746573120300ff0a6063"
)
TEXT = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 1234
lastEntryId: 41
state: CLOSED
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b2:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 0
}
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b4:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 17
}
digestType: HMAC
password: "p\\303\\244ss\\"w"
ackQuorumSize: 1
ctime: 1700000000000
customMetadata {
  key: "application"
  value: "pulsar"
}
customMetadata {
  key: "bytes"
  value: "\\000\\377\\n"
}
"""
TEXT_OPEN = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 2
length: 0
lastEntryId: -1
state: IN_RECOVERY
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b2:3181"
  firstEntryId: 0
}
digestType: DUMMY
password: ""
ackQuorumSize: 1
"""
FIRST_VERSION = b"BookieMetadataFormatVersion\t1\n2\n3\n1234\n0\tb1:3181\tb2:3181\tb3:3181\n41\tCLOSED"

GOLDEN = {
    "open cursor": PULSAR_OPEN,
    "compacted": COMPACTED,
    "delayed bucket": DELAYED_BUCKET,
    "closed": JAVA_CLOSED,
    "open": JAVA_OPEN,
    "two segments, open": TWO_SEGMENTS_OPEN,
    "two segments": TWO_SEGMENTS,
    "with time": WITH_TIME,
}

names = st.text(st.characters(codec="utf-8"), max_size=20)
longs = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """Return metadata of any ledger."""
    size = draw(st.integers(1, 5))
    ensembles = st.lists(names, min_size=size, max_size=size).map(tuple)
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 1 << 40), max_size=3)))]
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=(write_quorum := draw(st.integers(1, size))),
        ack_quorum=draw(st.integers(1, write_quorum)),
        state=draw(st.sampled_from(LedgerState)),
        length=draw(st.integers(0, 1 << 62)),
        last_entry=draw(st.integers(-1, 1 << 62)),
        segments=tuple(Segment(first, draw(ensembles)) for first in firsts),
        digest=draw(st.sampled_from(DigestType)),
        password=draw(st.binary(max_size=200)),
        ctime=draw(st.none() | longs),
        custom=tuple(draw(st.lists(st.tuples(names, st.binary(max_size=20)), max_size=4))),
        token=draw(st.none() | longs),
        closed_before=draw(st.binary()),
        unknown=draw(st.sampled_from([b"", b"\xa2\x06\x03abc", b"\x98\x06\x07\xa2\x06\x00"])),
    )


@pytest.mark.parametrize("data", GOLDEN.values(), ids=GOLDEN)
def test_znodes_of_real_servers(data: bytes) -> None:
    """Metadata that a server wrote are encoded again byte for byte."""
    assert encode_metadata(decode_metadata(data)) == data


def test_closed_ledger() -> None:
    """A closed ledger of a real server says what its writer gave it."""
    assert decode_metadata(JAVA_CLOSED) == LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        state=LedgerState.CLOSED,
        length=2000,
        last_entry=19,
        segments=(Segment(0, ("bookie-3", "bookie-1", "bookie-2")),),
        digest=DigestType.CRC32C,
        custom=(("application", b"pulsar"),),
        token=0,
    )


def test_open_ledger() -> None:
    """An open ledger has no last entry, and its creator's token."""
    metadata = decode_metadata(JAVA_OPEN)
    assert (metadata.state, metadata.last_entry, metadata.length, metadata.closed) == (LedgerState.OPEN, -1, 0, False)
    assert (metadata.digest, metadata.password, metadata.token) == (DigestType.CRC32, b"secret", 0x147879BA6604_0C8F)


def test_pulsar_ledgers() -> None:
    """The component tells what Pulsar uses a ledger for; a compacted topic's has another digest than all others."""
    kinds = [decode_metadata(data) for data in (PULSAR_OPEN, COMPACTED, DELAYED_BUCKET)]
    assert [kind.component for kind in kinds] == ["managed-ledger", "compacted-ledger", "delayed-index-bucket"]
    assert [kind.digest for kind in kinds] == [DigestType.CRC32C, DigestType.CRC32, DigestType.CRC32C]
    assert kinds[0].custom_map["pulsar/cursor"] == b"__compaction"
    assert kinds[1].custom_map["pulsar/compactedTo"] == b"\x08\x21\x10\x09\x30\x00"


def test_text_form() -> None:
    """The second version of the format says the same as the third, except for the token that it lacks."""
    binary = decode_metadata(WITH_TIME)
    assert binary.token == 99
    assert decode_metadata(TEXT) == replace(binary, token=None)
    assert decode_metadata(TEXT_OPEN).state is LedgerState.IN_RECOVERY
    assert decode_metadata(TEXT_OPEN).last_entry == -1


def test_first_version_is_refused() -> None:
    """The first version of the format, and one that is not known yet, are refused with the version's number."""
    for version, data in ((1, FIRST_VERSION), (4, JAVA_CLOSED.replace(b"\t3\n", b"\t4\n"))):
        with pytest.raises(StoreUnsupported, match=f"format version '{version}'"):
            decode_metadata(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        JAVA_CLOSED[:-1],
        JAVA_CLOSED[:31],
        JAVA_CLOSED[:30] + b"\x04" + JAVA_CLOSED[31:35],
        JAVA_CLOSED[:30] + b"\xff" * 9,
        TEXT.replace(b"length", b"width"),
        TEXT.replace(b"length: 1234\n", b""),
        TEXT.replace(b'  ensembleMember: "b4:3181"\n', b""),
    ],
)
def test_damage_is_refused(data: bytes) -> None:
    """Damaged bytes cause an error of the store, and nothing is guessed."""
    with pytest.raises(StoreProtocolError):
        decode_metadata(data)


def test_ledger_without_digest_is_refused() -> None:
    """A ledger whose metadata does not say what protects its entries cannot be verified, and is refused."""
    with pytest.raises(StoreUnsupported, match="digest"):
        decode_metadata(TEXT.replace(b"digestType: HMAC\n", b""))


@given(ledgers())
def test_round_trip(metadata: LedgerMetadata) -> None:
    """A ledger's metadata survive decoding and encoding, including unknown fields."""
    assert decode_metadata(encode_metadata(metadata)) == metadata


@pytest.mark.parametrize(("write", "ack"), [(2_000_000_000, 1), (4, 2), (2, 3), (0, 0), (-1, -1)])
def test_impossible_quorums_are_refused(write: int, ack: int) -> None:
    """Quorums that do not fit the ensemble are refused before memory is allocated for them."""
    metadata = replace(decode_metadata(JAVA_CLOSED), write_quorum=write, ack_quorum=ack)
    with pytest.raises(StoreProtocolError, match="expected ack <= write <= ensemble <= 128"):
        decode_metadata(encode_metadata(metadata))


def test_a_ledger_without_its_first_entries_is_refused() -> None:
    """A ledger whose first segment begins after entry 0 is refused when it is read, and not where it is copied."""
    with pytest.raises(StoreProtocolError, match="no segment for the first entries"):
        decode_metadata(TEXT_OPEN.replace(b"firstEntryId: 0", b"firstEntryId: 5"))


def test_unknown_fields_inside_a_segment_are_refused() -> None:
    """A field that a newer BookKeeper added to a segment cannot be kept, so the ledger is refused."""
    body = (
        JAVA_CLOSED[31:].replace(b"\x32\x20", b"\x32\x23").replace(b"bookie-2\x10\x00", b"bookie-2\x10\x00\x98\x06\x01")
    )
    with pytest.raises(StoreUnsupported, match="newer BookKeeper"):
        decode_metadata(JAVA_CLOSED[:30] + bytes([len(body)]) + body)


def test_replicas_are_striped() -> None:
    """Entries go round the ensemble of the segment that holds them."""
    metadata = decode_metadata(WITH_TIME)
    assert metadata.replicas(0) == ("b1:3181", "b2:3181")
    assert metadata.replicas(16) == ("b2:3181", "b3:3181")
    assert metadata.replicas(17) == ("b3:3181", "b1:3181")
    assert metadata.replicas(10_000) == ("b4:3181", "b3:3181")
    assert decode_metadata(TWO_SEGMENTS).segment_of(4).first_entry == 0
    assert decode_metadata(TWO_SEGMENTS).segment_of(5).first_entry == 5
    with pytest.raises(ValueError, match="entry -1"):
        metadata.replicas(-1)


def test_same_content() -> None:
    """Copies differ in where they lie and in the order of custom metadata, and in nothing else."""
    metadata = decode_metadata(PULSAR_OPEN)
    moved = decode_metadata(PULSAR_OPEN.replace(b"bookie-2", b"bookie-9"))
    assert metadata != moved
    assert metadata.same_content(moved)
    assert not metadata.same_content(decode_metadata(PULSAR_OPEN.replace(b"\x28\x01", b"\x28\x02")))
    assert not metadata.same_content(decode_metadata(PULSAR_OPEN.replace(b"__compaction", b"__compactioN")))
    assert not metadata.same_content(replace(metadata, last_entry=metadata.last_entry + 1))


# Of one bookie, by Pulsar's metadata driver and by BookKeeper's own: the same bytes.
BY_EITHER_DRIVER = (
    b'2!\n\nhttpserver\x10\xe4\xc4\x01\x1a\t127.0.0.1"\x04http'
    b'2#\n\x06bookie\x10\xe3\xc4\x01\x1a\t127.0.0.1"\nbookie-rpc'
)


@pytest.mark.parametrize(
    ("name", "value", "host", "port"),
    [
        ("bookie-1", BY_EITHER_DRIVER, "127.0.0.1", 25187),
        ("10.0.0.7:3181", b"", "10.0.0.7", 3181),
        ("[fe80::1]:3181", b"", "fe80::1", 3181),
    ],
)
def test_bookie(name: str, value: bytes, host: str, port: int) -> None:
    """A bookie is reached where it says, or by its id where it says nothing."""
    assert read_bookie(name, value, writable=True) == Bookie(name, host, port, writable=True)


def test_bookie_without_an_address() -> None:
    """A bookie that says nowhere how to reach it is named."""
    with pytest.raises(StoreProtocolError, match="bookie-1 names no endpoint"):
        read_bookie("bookie-1", BY_EITHER_DRIVER.replace(b"bookie-rpc", b"bookie-rpx"), writable=True)
    with pytest.raises(StoreProtocolError, match="bookie bookie-1"):
        read_bookie("bookie-1", BY_EITHER_DRIVER[:-1], writable=True)

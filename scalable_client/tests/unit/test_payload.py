"""Messages as they are stored, by this client and by others."""

from __future__ import annotations

import struct
import zlib

import pytest

from pulsar_scalable.errors import ProtocolViolation, ScalableError, Unsupported
from pulsar_scalable.native.payload import Entry, framed
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.frames import decode

# Recorded from brokers, without the frames' sizes.
SINGLE = (
    "0000001908094a150805120f0809100018ffffffffffffffffff012800000000250a076465762d312d3010001881bebd9fa13422060a016112"
    "016232026b306080d095ffbc3168656c6c6f"
)
# By pulsar-client 3.13, with ZLIB.
BATCH = (
    "0000001908094a150807120f080e100018ffffffffffffffffff0128000e015117efc70000001c0a076261746368657210001890d1bd9fa134"
    "32026b30400248485803789c63606010e262e362cc1362341062ca369060d2607560c8356040881b02c50dc1e28cb98648e246407123b03853"
    "ae11000c830820"
)
LZ4 = (
    "0000001908094a150807120f080e100118ffffffffffffffffff0128000e01c65ab37f000000160a076465762d312d32100018c6d1bd9fa134"
    "400148641f7a01004b507a7a7a7a7a"
)


def entry(recorded: str) -> Entry:
    """Return the entry of a frame."""
    frame = decode(bytes.fromhex(recorded))
    assert isinstance(frame.command, api.CommandMessage)
    return Entry(frame.body)


def test_a_single_message() -> None:
    """A message of this client is read, without a checksum."""
    contents = entry(SINGLE)
    (content,) = contents.contents()
    assert (content.data, content.partition_key, content.properties) == (b"hello", "k0", {"a": "b"})
    assert (content.event_time, content.index, contents.count, contents.is_batch) == (1_700_000_000_000, -1, 1, False)


def test_a_compressed_batch_of_the_library() -> None:
    """Each message has its own key, properties and time."""
    contents = entry(BATCH)
    assert contents.count == 3
    assert [
        (
            content.index,
            content.data,
            content.partition_key,
            content.properties,
            content.event_time,
            content.sequence_id,
        )
        for content in contents.contents()
    ] == [(number, b"m%d" % number, f"k{number}", {"n": str(number)}, 5, number) for number in range(3)]


def test_other_compressions_are_named() -> None:
    """The error names what the producer must change."""
    with pytest.raises(Unsupported, match="LZ4"):
        entry(LZ4).contents()


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        (api.MessageMetadata(encryption_keys=(b"key",)), "encrypted"),
        (api.MessageMetadata(num_chunks_from_msg=2), "chunks"),
        (api.MessageMetadata(compression=9), "type 9"),
    ],
)
def test_unreadable_messages_are_reported(metadata: api.MessageMetadata, named: str) -> None:
    """Encrypted messages, chunks and unknown compressions are rejected."""
    with pytest.raises(Unsupported, match=named):
        Entry(framed(metadata, b"x")).contents()


def test_notes_of_the_broker_and_checksums_are_passed_over() -> None:
    """In the order in which they are stored."""
    plain = framed(api.MessageMetadata(producer_name="p"), b"data")
    for head in (b"", b"\x0e\x01abcd", b"\x0e\x02\0\0\0\x03xyz", b"\x0e\x02\0\0\0\x03xyz\x0e\x01abcd"):
        assert Entry(head + plain).contents()[0].data == b"data"


def test_a_size_that_a_message_does_not_have_is_refused() -> None:
    """Neither too much nor too little comes out of a compressed payload."""
    for size in (0, 3, 5, (1 << 32) - 1):
        damaged = framed(api.MessageMetadata(compression=2, uncompressed_size=size), zlib.compress(b"four"))
        with pytest.raises(ProtocolViolation):
            Entry(damaged).contents()


@pytest.mark.parametrize("cut", range(1, 60))
def test_cut_batches_are_refused(cut: int) -> None:
    """Wherever a batch ends too early, the typed error says so."""
    singles = b"".join(
        struct.pack(">I", len(head)) + head + b"data"
        for head in [
            api.SingleMessageMetadata(payload_size=4, partition_key=f"key-{number}").SerializeToString()
            for number in range(3)
        ]
    )
    whole = framed(api.MessageMetadata(producer_name="p", num_messages_in_batch=3), singles)
    with pytest.raises(ScalableError):
        Entry(whole[:-cut]).contents()


def test_a_key_of_bytes() -> None:
    """A key of text bytes is returned as text, any other one in base64."""
    for key, expected in (("YWJj", "abc"), ("//8=", "//8=")):
        metadata = api.MessageMetadata(partition_key=key, partition_key_b64_encoded=True)
        assert Entry(framed(metadata, b"")).contents()[0].partition_key == expected

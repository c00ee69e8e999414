"""Partitions of copied messages, the preserved fields, and the differences that the proof of a copy detects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.errors import StoreProtocolError, StoreUnsupported
from clients.pulsar.compression import Compression, compressed
from clients.pulsar.key_hashes import cpp_hash, java_hash, partition_of
from clients.pulsar.wire.batches import unpack
from clients.pulsar.wire.frames import SIZE, Message, framed, parse_message
from models.scalable_topic.copies import KeyHash
from pulsar_wire.pulsar_api_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata
from spark.scalable_topic.routing import Router, signed
from spark.scalable_topic.spec import producer_of, segment_of
from spark.scalable_topic.sums import Sum, print_of

KEYS = st.none() | st.text(max_size=12)
BODIES = st.lists(st.tuples(KEYS, st.binary(max_size=30)), min_size=1, max_size=12)


def _plain(key: str | None = "k", payload: bytes = b"body", **fields: object) -> Message:
    metadata = MessageMetadata(producer_name="app", sequence_id=7, publish_time=1_000)
    if key is not None:
        metadata.partition_key = key
    metadata.MergeFrom(MessageMetadata(**fields))  # pyright: ignore[reportArgumentType] - by name
    return framed(metadata, payload)


def _batch(bodies: list[tuple[str | None, bytes]], compression: Compression = Compression.NONE) -> Message:
    packed = b""
    for number, (key, payload) in enumerate(bodies):
        single = SingleMessageMetadata(payload_size=len(payload), event_time=number, sequence_id=number)
        single.properties.append(KeyValue(key="number", value=str(number)))
        if key is not None:
            single.partition_key = key
        head = single.SerializeToString()
        packed += SIZE.pack(len(head)) + head + payload
    metadata = MessageMetadata(
        producer_name="app",
        sequence_id=7,
        publish_time=1_000,
        num_messages_in_batch=len(bodies),
        compression=compression,
        uncompressed_size=len(packed),
        schema_version=b"\0\0\0\0\0\0\0\1",
    )
    return framed(metadata, compressed(compression, packed))


@given(BODIES, st.sampled_from(Compression), st.integers(2, 5), st.sampled_from(KeyHash), st.integers(0, 99))
def test_batches_are_split_by_partition(
    bodies: list[tuple[str | None, bytes]], compression: Compression, partitions: int, hashing: KeyHash, number: int
) -> None:
    """Each message comes once, in order, in the partition of its key; messages without a key stay together."""
    batch = parse_message(_batch(bodies, compression).data)
    pieces = Router(partitions, hashing).pieces(batch, number)
    assert len({piece.partition for piece in pieces}) == len(pieces)
    by_partition: dict[int, list[int]] = {}
    for piece in pieces:
        again = parse_message(piece.message.data)
        singles = unpack(again)
        by_partition[piece.partition] = [single.metadata.event_time for single in singles]
        for single in singles:
            key, payload = bodies[single.metadata.event_time]
            where = None if key is None else partition_of(key, partitions, hashing)
            assert piece.partition == (number % partitions if where is None else where)
            assert single.data.endswith(payload)
            assert single.metadata.properties[0].value == str(single.metadata.event_time)
        assert (again.metadata.compression, again.metadata.schema_version) == (compression, b"\0\0\0\0\0\0\0\1")
        assert piece.content == print_of(again, singles)
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert sorted(number for numbers in by_partition.values() for number in numbers) == list(range(len(bodies)))
    if len(pieces) == 1:
        assert pieces[0].message.data == batch.data


def test_batches_stay_whole_without_partitions() -> None:
    """Batches are not unpacked for an unpartitioned target, so any compression works."""
    batch = _batch([("a", b"1"), ("b", b"2")])
    batch.metadata.compression = 99
    (piece,) = Router(0, KeyHash.JAVA).pieces(batch, 3)
    assert (piece.partition, piece.message, piece.content.messages) == (0, batch, 2)
    with pytest.raises(StoreUnsupported, match="type 99"):
        Router(2, KeyHash.JAVA).pieces(batch, 3)


@pytest.mark.parametrize("hashing", KeyHash)
@pytest.mark.parametrize("key", [None, "", "k"])
def test_the_chunks_of_a_message_stay_together(hashing: KeyHash, key: str | None) -> None:
    """Consumers put a message together from the chunks of one partition; an empty key gives none with some hashing."""
    chunks = [_plain(key, uuid="app-7", chunk_id=number, num_chunks_from_msg=3) for number in range(3)]
    pieces = [piece for number, chunk in enumerate(chunks) for piece in Router(4, hashing).pieces(chunk, number)]
    assert len(pieces) == 3
    assert len({piece.partition for piece in pieces}) == 1


def test_a_damaged_batch_is_an_error() -> None:
    """A batch with fewer messages than it names, or more bytes, is not copied in part."""
    batch = _batch([("a", b"1"), ("b", b"2")])
    for count in (1, 3):
        batch.metadata.num_messages_in_batch = count
        with pytest.raises(StoreProtocolError, match="batch of"):
            unpack(batch)


def test_parts_of_a_batch_name_their_own_keys() -> None:
    """Brokers choose consumers by the keys of a batch as a whole, which are those of its first message."""
    batch = _batch([("key-0", b"1"), ("key-1", b"2")])
    batch.metadata.partition_key = "key-0"
    pieces = Router(2, KeyHash.JAVA).pieces(framed(batch.metadata, batch.payload), 0)
    assert [piece.message.metadata.partition_key for piece in pieces] == ["key-0", "key-1"]


def test_encrypted_batches() -> None:
    """Keys of an encrypted batch of several messages are unreadable; the key of a single message is in its metadata."""
    router = Router(2, KeyHash.MURMUR3)
    many, encrypted = _batch([("a", b"1"), ("b", b"2")]), _batch([("a", b"1")])
    for batch in (many, encrypted):
        batch.metadata.encryption_keys.append(b"\n\1k\x12\1v")
    encrypted.metadata.partition_key = "a"
    with pytest.raises(StoreUnsupported, match="copy to a topic without partitions"):
        router.pieces(many, 0)
    (piece,) = router.pieces(encrypted, 0)
    assert piece.partition == partition_of("a", 2, KeyHash.MURMUR3)
    assert Router(0, KeyHash.MURMUR3).pieces(many, 0)[0].message == many


def test_keys_that_are_not_text() -> None:
    """A key that is not UTF-8 text can only be copied to an unpartitioned topic."""
    metadata = MessageMetadata.FromString(_plain(None).metadata.SerializeToString() + b"2\x02\xff\xfe")
    message = framed(metadata, b"body")
    with pytest.raises(StoreUnsupported, match="is not UTF-8 text"):
        Router(2, KeyHash.JAVA).pieces(message, 0)
    (piece,) = Router(0, KeyHash.JAVA).pieces(message, 0)
    assert b"2\x02\xff\xfe" in signed(piece.message, producer_of(0), 0).data


def test_chunks_stay_together() -> None:
    """The chunks of a message without a key go to one partition, and other entries are distributed."""
    router = Router(5, KeyHash.JAVA)
    chunks = [_plain(None, uuid="app-1", num_chunks_from_msg=3, chunk_id=number) for number in range(3)]
    assert len({router.pieces(chunk, number)[0].partition for number, chunk in enumerate(chunks)}) == 1
    assert [router.pieces(_plain(None), number)[0].partition for number in range(6)] == [0, 1, 2, 3, 4, 0]


def test_what_is_sent_keeps_all_but_its_producer() -> None:
    """Producer name and sequence id are replaced, the transaction is removed, and unknown fields survive."""
    unknown = bytes.fromhex("ba3e0568656c6c6f")
    head = _plain(event_time=5, ordering_key=b"o", txnid_least_bits=1, txnid_most_bits=2, deliver_at_time=9)
    raw = head.metadata.SerializeToString() + unknown
    message = framed(MessageMetadata.FromString(raw), b"body")
    sent = parse_message(signed(message, producer_of(3), 12).data)
    assert (segment_of(sent.metadata.producer_name), sent.metadata.sequence_id) == (3, 12)
    assert not sent.in_transaction
    assert unknown in sent.data
    assert sent.payload == b"body"
    assert print_of(sent, None) == print_of(message, None)


def test_entry_buckets_are_removed() -> None:
    """Entry buckets are removed: a regular topic has none, and a partial batch has not all hashes."""
    plain = _plain(entry_hash_min=17, entry_hash_max=40_000)
    whole = _batch([("key-0", b"1"), ("key-1", b"2")])
    whole.metadata.MergeFrom(MessageMetadata(entry_hash_min=17, entry_hash_max=40_000))
    batch = framed(whole.metadata, whole.payload)
    for message in (plain, *(piece.message for piece in Router(2, KeyHash.JAVA).pieces(batch, 0))):
        assert message.metadata.entry_hash_max == 40_000
        sent = parse_message(signed(message, producer_of(3), 12).data)
        assert not sent.metadata.HasField("entry_hash_min")
        assert not sent.metadata.HasField("entry_hash_max")
        assert print_of(sent, None) == print_of(message, None)


def test_the_proof_detects_every_visible_difference() -> None:
    """The proof detects another key, property, time, schema, payload, order or number of messages."""
    first, second = _plain("a"), _plain("b")
    changed = [
        _plain("c"),
        _plain("a", b"other"),
        _plain("a", publish_time=2),
        _plain("a", event_time=1),
        _plain("a", ordering_key=b"o"),
        _plain("a", schema_version=b"1"),
        _plain("a", properties=[KeyValue(key="x", value="y")]),
        _plain("a", null_value=True),
    ]
    prints = [print_of(message, None) for message in (first, second, *changed)]
    assert len({message.digest for message in prints}) == len(prints)
    both = Sum().plus(prints[0]).plus(prints[1])
    assert both != Sum().plus(prints[1]).plus(prints[0])
    assert both != Sum().plus(prints[0])
    assert (both.messages, both.size) == (2, 8)


@pytest.mark.parametrize(("name", "segment"), [("pulsar-migrate-copy-12", 12), ("pulsar-migrate-copy-", None)])
def test_producers_of_copies(name: str, segment: int | None) -> None:
    """The name of a copying producer contains the segment; other names have none."""
    assert segment_of(name) == segment
    assert segment_of("app") is None
    assert segment_of("pulsar-migrate-copy") is None


def test_hashes_of_clients() -> None:
    """Key hashes equal Java's `String.hashCode`, and those of Pulsar's Python client 3.13."""
    keys = ("", "a", "hello", "key-19", "漢🙂", "order-123456789")
    assert [java_hash(key) for key in keys] == [0, 97, 99162322, 1012760662, 29113415, 245248118]
    assert [cpp_hash(f"key-{number}") % 5 for number in range(8)] == [1, 4, 1, 2, 2, 4, 4, 4]
    assert partition_of("", 5, KeyHash.CPP) is None
    assert partition_of("", 5, KeyHash.JAVA) == 0

"""A scalable topic's messages come to a regular topic: each once, in order per key, whatever attempts do."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from threading import Thread

import pytest

from clients.cas.store import CasReader
from clients.errors import RetryableError, Superseded
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.wire.access import NOTE, WireAccess
from clients.pulsar.wire.frames import Message
from clients.pulsar.wire.producer import RawProducer
from clients.stores import Access, open_cas_reader
from models.scalable_topic.copies import KeyHash
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from spark.scalable_topic.copy_record import SegmentRecord, read_stored, record_path, segment_path
from spark.scalable_topic.partition_producers import PartitionProducers
from spark.scalable_topic.routing import Piece, Router, signed
from spark.scalable_topic.spec import CopyOut, producer_of
from tests.support.scalable_topic.copies import (
    APP,
    Copier,
    CopyThread,
    make_space,
    native,
    open_copier,
    received,
    require_all,
    require_certificate,
    send_as_regular,
    send_to_segments,
    stored_in,
    topic,
)
from tests.support.scalable_topic.topics import make_scalable
from tests.support.waiting import timeout_for, wait_for

STEP = 150
SENT = 4 * STEP
LONG = 1_000


@pytest.fixture(scope="module")
def copier(stack: Stack, admin: PulsarAdmin) -> Generator[Copier]:
    """Copies in a namespace of which brokers delete nothing."""
    make_space(admin)
    with open_copier(stack) as copier:
        yield copier


@pytest.fixture(scope="module")
def source(stack: Stack, admin: PulsarAdmin, copier: Copier) -> TopicName:
    """A topic that had three partitions, was split and merged, with messages of every time."""
    name = topic("history")
    admin.topics.create_partitioned(name, 3)
    send_as_regular(stack, name, range(STEP), batching_enabled=True, batching_max_messages=5)
    make_scalable(stack, admin, name)
    admin.scalable_topics.set_auto_scale_policy(name, AutoScalePolicy(enabled=False))
    send_to_segments(stack, admin, name, range(STEP, 2 * STEP))
    layout = admin.scalable_topics.layout(name)
    admin.scalable_topics.split(name, layout.route("key 3").segment_id)
    send_to_segments(stack, admin, name, range(2 * STEP, 3 * STEP))
    first, second = admin.scalable_topics.layout(name).active[1:3]
    admin.scalable_topics.merge(name, first.segment_id, second.segment_id)
    send_to_segments(stack, admin, name, range(3 * STEP, SENT))
    return name


@pytest.mark.parametrize("partitions", [2, pytest.param(0, marks=pytest.mark.exhaustive)])
def test_everything_comes_over(
    stack: Stack, store: CasReader, copier: Copier, source: TopicName, partitions: int
) -> None:
    """Entries from before and after a split and a merge are copied; a dry run and a second call write nothing."""
    target = topic(f"all-{partitions}")
    options = {"partitions": partitions, "subscriptions": (APP,)}
    planned = copier.copy(source, target, partitions=partitions, dry_run=True)
    assert store.get(record_path(target)) is None
    assert store.get(target.managed_ledger_path) is None
    copied = copier.copy(source, target, **options)
    assert (copied.segments, copied.entries) == (planned.segments, planned.entries) == (9, copied.entries)
    assert copied.partitions == partitions
    require_certificate(copied, SENT)
    again = copier.copy(source, target, **options)
    assert (again.entries, again.digest, again.certificate) == (0, copied.digest, copied.certificate)
    require_all(received(stack, target, APP, SENT), range(SENT))
    copier.finish_copy(target)
    assert store.get(record_path(target)) is None
    copier.finish_copy(target)


def test_what_comes_later_comes_over(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Each call continues where the previous one ended, also after a split since the first copy."""
    source, target = native(stack, admin, "later", STEP), topic("later-copy")
    assert copier.copy(source, target, partitions=2, subscriptions=(APP,)).entries == STEP
    send_to_segments(stack, admin, source, range(STEP, STEP + 20))
    admin.scalable_topics.split(source, 0)
    send_to_segments(stack, admin, source, range(STEP + 20, 2 * STEP))
    later = copier.copy(source, target, partitions=2)
    assert (later.entries, later.segments) == (STEP, 3)
    require_certificate(later, 2 * STEP)
    require_all(received(stack, target, APP, 2 * STEP), range(2 * STEP))


def test_an_attempt_that_was_killed(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Messages that it sent without a record are found, and neither lost nor sent again."""
    source, target = native(stack, admin, "long", LONG), topic("killed")
    first = CopyThread(copier, source, target, partitions=2, subscriptions=(APP,), throttle=0.3)
    first.start()
    _await_messages(admin, target, 60)
    first.context.cancel()
    first.join(timeout_for(60))
    assert first.failure
    copied = copier.copy(source, target, partitions=2)
    assert 60 <= copied.already_copied < copied.entries == LONG
    require_certificate(copied, LONG)
    require_all(received(stack, target, APP, LONG), range(LONG))


@pytest.mark.exhaustive
def test_brokers_move_topics_during_a_copy(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """A task that loses its producers begins again by itself, and finds what it had sent."""
    source, target = native(stack, admin, "moving", LONG), topic("moving-copy")
    attempt = CopyThread(copier, source, target, partitions=2, subscriptions=(APP,), throttle=0.3)
    attempt.start()
    _await_messages(admin, target, 60)
    for number in range(2):
        admin.topics.unload(target.of_partition(number))
    attempt.join(timeout_for(60))
    assert attempt.failure is None
    require_certificate(copier.copy(source, target, partitions=2), LONG)
    require_all(received(stack, target, APP, LONG), range(LONG))


def test_two_attempts_at_once(stack: Stack, admin: PulsarAdmin, copier: Copier, source: TopicName) -> None:
    """The newer one takes over during the work of the older, which stops; no message is doubled."""
    target = topic("twice")
    older = CopyThread(copier, source, target, partitions=2, subscriptions=(APP,), throttle=0.2)
    older.start()
    _await_messages(admin, target, 20)
    copied = copier.copy(source, target, partitions=2)
    older.join(timeout_for(60))
    assert isinstance(older.failure, Superseded), older.failure
    require_certificate(copied, SENT)
    require_all(received(stack, target, APP, SENT), range(SENT))


def test_an_attempt_that_froze(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Messages that it sent are found; its connection is closed, so that it can send nothing when it continues."""
    source, target = native(stack, admin, "frozen", 50), topic("frozen-copy")
    assert copier.copy(source, target, subscriptions=(APP,)).entries == 50
    send_to_segments(stack, admin, source, range(50, 80))
    (segment,) = admin.scalable_topics.layout(source).active
    producer = producer_of(segment.segment_id)
    entries = stored_in(stack, SegmentName(source, segment.descriptor))
    pieces = [signed(entry, producer, number) for number, entry in enumerate(entries)]
    frozen = RawProducer(
        stack.broker_url,
        target,
        WireAccess(),
        name=producer,
        notes={NOTE: "an earlier attempt"},
        on_stored=lambda _place: None,
        exclusive=False,
    )
    _send(frozen, pieces[50:62])
    copied = copier.copy(source, target)
    assert (copied.entries, copied.already_copied) == (30, 12)
    with pytest.raises(RetryableError):
        _send(frozen, pieces[62:])
    frozen.close()
    require_certificate(copier.copy(source, target), 80)
    require_all(received(stack, target, APP, 80), range(80))


def test_what_a_lost_attempt_has_on_its_way(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Its name is free before bookies have stored what it sent last; who comes then waits, and finds all of that."""
    source, target = native(stack, admin, "under-way", 10), topic("under-way-copy")
    assert copier.copy(source, target, subscriptions=(APP,)).entries == 10
    send_to_segments(stack, admin, source, range(10, 110))
    entries = stored_in(stack, SegmentName(source, admin.scalable_topics.layout(source).active[0].descriptor))
    (pieces,) = zip(*(Router(0, KeyHash.JAVA).pieces(entry, 0) for entry in entries), strict=True)
    url = parse_store_url(stack.metadata_url)
    job = CopyOut(url, copier.attempt(), stack.broker_url, tuple(stack.admin_urls), target, 0, KeyHash.JAVA)
    with open_cas_reader(url, Access()) as store:
        record, _ = read_stored(store, SegmentRecord, segment_path(target, 0))
    assert record
    lost = RawProducer(
        stack.broker_url,
        target,
        WireAccess(timeout=0.5),
        name=producer_of(0),
        notes=job.notes,
        on_stored=lambda _place: None,
        exclusive=False,
    )
    bookie = stack["bookie-1"]
    bookie.pause()
    try:
        for number, piece in enumerate(pieces[10:100], 10):
            lost.send(signed(piece.message, producer_of(0), number))
        lost.close()
        wait_for("its name to be free", lambda: not admin.topics.stats(target).publishers, 10)
        answers: list[bool] = []
        later = Thread(target=lambda: answers.extend(_take_again(job, record, pieces)))
        later.start()
        wait_for("the next attempt", lambda: admin.topics.stats(target).publishers, 10)
        later.join(1)
        assert later.is_alive()
    finally:
        bookie.resume()
    later.join(timeout_for(30))
    there = len(stored_in(stack, target)) - 10
    assert 50 < there <= 90
    assert answers == [True] * there + [False] * (100 - there)


def _take_again(job: CopyOut, record: SegmentRecord, pieces: Sequence[Piece]) -> Iterator[bool]:
    """Yield whether each piece is there by itself, without sending those that are not."""
    with PartitionProducers(job, 0) as producers:
        producers.resume(record.partitions, record.sequence)
        for number, piece in enumerate(pieces[10:], 10):
            yield producers.take(piece, number)


def _send(producer: RawProducer, entries: list[Message]) -> None:
    for entry in entries:
        producer.send(entry)
    producer.flush()


def _messages(admin: PulsarAdmin, target: TopicName) -> int:
    """Return how many entries there are in both partitions."""
    return sum(admin.topics.internal_stats(target.of_partition(number)).number_of_entries for number in range(2))


def _await_messages(admin: PulsarAdmin, target: TopicName, count: int) -> None:
    def seen() -> bool:
        try:
            return _messages(admin, target) >= count
        except AdminNotFound:
            return False

    wait_for(f"{count} messages in {target}", seen, 120)

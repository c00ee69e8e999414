"""Refusals of a copy of a scalable topic, and the differences that its comparison finds."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing

import httpx
import pytest

from clients.cas.store import CasReader
from clients.errors import RetryableError, StoreConflict, StoreNotFound
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.records.scalable_topics import read_scalable
from clients.stores import Access, open_cas
from models.scalable_topic.copies import KeyHash
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.blue_green.namespaces import create_namespace, set_topic_policies
from tests.support.scalable_topic.copies import (
    APP,
    SPACE,
    Copier,
    make_space,
    native,
    open_copier,
    received,
    require_all,
    send_as_regular,
    send_to_segments,
    topic,
)
from tests.support.scalable_topic.topics import create_again, delete_scalable
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def copier(stack: Stack, admin: PulsarAdmin) -> Generator[Copier]:
    """Copies in a namespace of which brokers delete nothing."""
    make_space(admin)
    with open_copier(stack) as copier:
        yield copier


def test_what_is_not_ours_is_refused(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """A topic that holds something else, that others send to, or that is of another copy; nothing is written there."""
    source = native(stack, admin, "refused", 3)
    full, busy, shaped = topic("full"), topic("busy"), topic("shaped")
    send_as_regular(stack, full, range(3))
    admin.topics.create_partitioned(shaped, 3)
    for dry_run in (True, False):
        with pytest.raises(StoreConflict, match="is not a copy of this topic, and holds messages"):
            copier.copy(source, full, dry_run=dry_run)
        with pytest.raises(StoreConflict, match="has 3 partitions, and 2 are asked for"):
            copier.copy(source, shaped, partitions=2, dry_run=dry_run)
    with closing(quiet_client(stack.broker_url)) as client:
        client.create_producer(str(busy))
        with pytest.raises(StoreConflict, match="has 1 producers, the first from"):
            copier.copy(source, busy)
    admin.namespaces.create("public/idle-copies", {"subscription_expiration_time_minutes": 5})
    with pytest.raises(StoreConflict, match="has had no consumer for 5 minutes, and so pulsar-migrate-copy"):
        copier.copy(source, TopicName.parse("persistent://public/idle-copies/copy"))
    evicting = topic("evicting")
    admin.topics.create(evicting)
    quota = {"limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}
    set_topic_policies(admin, evicting, {"messageTTL": 90, "backlogQuota": {"message_age": quota}})
    with pytest.raises(StoreConflict, match=r"for 90 seconds, and drop the oldest of a backlog \(limitTime 60\)"):
        copier.copy(source, evicting)
    with pytest.raises(StoreConflict, match="has the name of the scalable topic"):
        copier.copy(source, source)
    with pytest.raises(StoreConflict, match="not the full name of a persistent topic"):
        copier.copy(source, busy.of_partition(0))
    with pytest.raises(StoreNotFound, match="is not a scalable topic"):
        copier.copy(busy, shaped, partitions=3)
    other = native(stack, admin, "other", 3)
    copier.copy(other, busy)
    with pytest.raises(StoreConflict, match=f"gets the messages of topic://{SPACE}/other"):
        copier.copy(source, busy)
    with pytest.raises(StoreConflict, match="with 0 partitions and hash java"):
        copier.copy(other, busy, hashing=KeyHash.MURMUR3)


def test_the_proof_finds_what_others_did(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """A message of another producer in the copy, and a copy that was deleted: each is an error with its cure."""
    source, target = native(stack, admin, "meddled", 5), topic("meddled-copy")
    copier.copy(source, target)
    send_as_regular(stack, target, range(1))
    with pytest.raises(StoreConflict, match=r"of \S+, is not a copy.* copy to another target, and keep this one"):
        copier.copy(source, target)
    admin.topics.delete(target, force=True)
    assert copier.copy(source, target).entries == 5
    with pytest.raises(StoreConflict, match="no subscription but"):
        copier.finish_copy(target)
    admin.topics.delete(target, force=True)
    send_as_regular(stack, target, range(1))
    with pytest.raises(StoreConflict, match="does not hold its copy any more, and holds messages"):
        copier.copy(source, target)


def test_segments_that_go(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Brokers may prune what was copied, and not what was not; nor may a sealed segment take messages."""
    source, target = native(stack, admin, "pruned", 10), topic("pruned-copy")
    admin.scalable_topics.split(source, 0)
    send_to_segments(stack, admin, source, range(10, 30))
    copier.copy(source, target, subscriptions=(APP,))
    _prune(stack, source, 0)
    send_to_segments(stack, admin, source, range(30, 40))
    assert copier.copy(source, target).entries == 10
    # Brokers learn of it a moment later.
    for segment in _change(stack, source, lambda layout: layout.split(1, 1)).active:
        admin.scalable_topics.create_segment(source, segment.descriptor, [])
    with pytest.raises(RetryableError, match="is sealed, and still takes messages"):
        copier.copy(source, target)
    _prune(stack, source, 1)
    with pytest.raises(StoreConflict, match="have pruned segments 1 before they were copied completely"):
        copier.copy(source, target)
    require_all(received(stack, target, APP, 40), range(40))


def test_messages_that_go_between_two_copies(
    stack: Stack, admin: PulsarAdmin, store: CasReader, copier: Copier
) -> None:
    """Brokers delete consumed ledgers, the oldest first: a copy continues while that in which it ends is there."""
    create_namespace(admin, "copies/trimmed")
    source, target = TopicName.parse("persistent://copies/trimmed/source"), topic("trimmed-copy")
    admin.scalable_topics.create(source, 1)
    admin.scalable_topics.register(source, APP, SubscriptionKind.QUEUE)
    node = SegmentName(source, admin.scalable_topics.layout(source).active[0].descriptor).managed_ledger_path

    def ledgers() -> list[int]:
        record = store.get(node)
        assert record
        return [ledger.ledgerId for ledger in decode_ledger_info(record.value).ledgerInfo]

    def send_to_new_ledger(numbers: Iterable[int]) -> None:
        admin.namespaces.unload(source.namespace_path)
        send_to_segments(stack, admin, source, numbers)

    def consume() -> int:
        path = f"{stack.admin_urls[0]}/admin/v2/scalable/{source.local_path}/subscriptions/{APP}/skip-all"
        assert httpx.post(path, timeout=30).is_success
        wait_for("one ledger to be left", lambda: len(ledgers()) == 1, 30)
        return ledgers()[0]

    send_to_segments(stack, admin, source, range(5))
    copier.copy(source, target, subscriptions=(APP,))
    first = ledgers()[0]
    send_to_segments(stack, admin, source, range(5, 7))
    send_to_new_ledger(range(7, 9))
    assert consume() > first
    with pytest.raises(StoreConflict, match=rf"was copied up to {first}:4\. Brokers have deleted that ledger"):
        copier.copy(source, target)
    assert [message.number for message in received(stack, target, APP, 5)] == [*range(5)]
    other = topic("trimmed-copy-again")
    assert copier.copy(source, other).entries == 2
    send_to_segments(stack, admin, source, range(9, 10))
    send_to_new_ledger(range(10, 12))
    assert len(ledgers()) == 2
    assert copier.copy(source, other).entries == 3
    consume()
    assert copier.copy(source, other).messages == 5


def test_topic_that_was_created_again(stack: Stack, admin: PulsarAdmin, copier: Copier) -> None:
    """Its segments have the same ids, and messages of another topic."""
    source, target = native(stack, admin, "again", 4), topic("again-copy")
    copier.copy(source, target)
    delete_scalable(admin, source)
    create_again(stack, admin, source)
    send_to_segments(stack, admin, source, range(3))
    with pytest.raises(StoreConflict, match="was created again since it was copied"):
        copier.copy(source, target)


def _prune(stack: Stack, name: TopicName, segment_id: int) -> None:
    """Remove a sealed and consumed segment, as a broker does."""
    _change(stack, name, lambda layout: layout.prune(segment_id))


def _change(stack: Stack, name: TopicName, change: Callable[[SegmentLayout], SegmentLayout]) -> SegmentLayout:
    with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
        record = read_scalable(store, name)
        assert record.layout
        layout = change(record.layout)
        store.set(name.scalable_path, layout.encode(), record.version)
        return layout

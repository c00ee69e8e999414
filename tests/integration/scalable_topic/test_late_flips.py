"""Flips, withdrawals and cleanups that freeze with a request at hand, on a broker that soon closes idle connections."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator
from contextlib import closing

import pytest

from activities.pulsar import pulsar_cluster
from activities.scalable_topic import cleanup, flip, hold_release
from clients.cas.store import CasStore
from clients.errors import StoreError
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from clients.stores import Access, open_cas
from models.segments.layout_check import layout_faults, migration_faults
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.blue_green.namespaces import create_namespace
from tests.support.scalable_topic.existing_topics import OWN_POLICIES, TopicsSnapshot, changes, read_snapshot
from tests.support.scalable_topic.steps import FrozenStep, TopicSteps, flip_refused
from tests.support.scalable_topic.topics import QUEUE, STREAM, drain, fill, pulsar
from tests.support.stacks import MakeStack

IDLE_SECONDS = 3
NAMESPACE = "late/flips"
PARTS = range(2)

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A broker that closes connections without requests after three seconds, instead of thirty."""
    settings = {"httpServerIdleTimeout": str(IDLE_SECONDS * 1000)}
    return make_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, broker_settings=settings))


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Its admin interface, with a namespace."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        create_namespace(admin, NAMESPACE, **OWN_POLICIES)
        yield admin


@pytest.fixture(scope="module")
def store(stack: Stack) -> Generator[CasStore]:
    """Its metadata store."""
    with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
        yield store


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsar_cluster, "IDLE_LIMIT", IDLE_SECONDS + 1.0)
    monkeypatch.setattr(pulsar_cluster, "LONGEST_REQUEST", 1.0)


@pytest.fixture
def snapshot(stack: Stack, admin: PulsarAdmin, store: CasStore) -> Callable[[TopicName], TopicsSnapshot]:
    """Return a function that takes a snapshot of topics, policies and records."""
    return lambda name: read_snapshot(admin, store, stack.admin_urls, NAMESPACE, [name])


@pytest.fixture
def make_topic(stack: Stack, admin: PulsarAdmin) -> Callable[[str], TopicName]:
    """Makes topics of two partitions that can become scalable."""

    def make(topic: str) -> TopicName:
        name = TopicName.parse(f"persistent://{NAMESPACE}/{topic}")
        fill(stack, admin, name, len(PARTS))
        drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
        return name

    return make


def test_whatever_a_lost_run_was_about_to_ask_never_arrives(
    stack: Stack,
    store: CasStore,
    snapshot: Callable[[TopicName], TopicsSnapshot],
    make_topic: Callable[[str], TopicName],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run leaves the topic regular as it was, or scalable as a whole, and the late attempt changes nothing."""
    ends: set[RecordState] = set()
    for at in itertools.count(1):
        name = make_topic(f"lost-{at}")
        before, lost = snapshot(name), TopicSteps(stack, name)
        lost.run(hold_release.guard)
        with monkeypatch.context() as mine:
            late = FrozenStep(lost, flip.flip, at, mine)
            frozen = late.freezes()
            following = TopicSteps(stack, name, run_id="run-2")
            following.run(hold_release.recover)
            after = snapshot(name)
            ends.add(after.topics[str(name)].record)
            if frozen:
                assert isinstance(late.resume(), StoreError)
        assert changes(after, snapshot(name)) == []
        assert (after.policies, after.reported) == (before.policies, before.reported)
        if after.topics[str(name)].record is RecordState.ABSENT:
            assert changes(before, after) == []
        else:
            _is_whole(store, name)
        if not frozen:
            break
    assert ends == {RecordState.ABSENT, RecordState.GOOD}


def test_late_withdrawals_delete_nothing_of_a_scalable_topic(
    stack: Stack,
    store: CasStore,
    snapshot: Callable[[TopicName], TopicsSnapshot],
    make_topic: Callable[[str], TopicName],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker refuses; segments are about to be deleted when the next attempt makes the topic scalable with them."""
    for at in itertools.count(1):
        name = make_topic(f"refused-{at}")
        steps = TopicSteps(stack, name)
        steps.run(hold_release.guard)
        with monkeypatch.context() as mine, closing(quiet_client(stack.broker_url)) as client:
            consumer = client.subscribe(str(name), QUEUE, pulsar.ConsumerType.Shared)
            late = FrozenStep(steps, flip_refused, at, mine)
            frozen = late.freezes()
            consumer.close()
            if not frozen:
                assert at > 2 * len(PARTS), "segments are made, and deleted"
                steps.run(hold_release.undo)
                return
            answer = steps.run(flip.flip)
            assert answer.flipped
            scalable = snapshot(name)
            assert isinstance(late.resume(), StoreError)
        assert changes(scalable, snapshot(name)) == []
        _is_whole(store, name)
        steps.run(hold_release.complete)


def test_a_late_cleanup_deletes_nothing_that_another_attempt_has_kept(
    stack: Stack,
    store: CasStore,
    snapshot: Callable[[TopicName], TopicsSnapshot],
    make_topic: Callable[[str], TopicName],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The regular topic stays, as the end of the migration has said."""
    name = make_topic("cleaned")
    steps = TopicSteps(stack, name, cleanup="remove")
    for step in (hold_release.guard, flip.flip):
        steps.run(step)
    steps.run(lambda task: drain(stack, task.admin, name, QUEUE, pulsar.ConsumerType.Shared))
    _prune(store, name)
    steps.run(hold_release.complete)
    late = FrozenStep(steps, cleanup.clean_up, 1, monkeypatch)
    assert late.freezes()
    steps.run(cleanup.forget)
    before = snapshot(name)
    # Other attempts need longer; here the end has come at once.
    threading.Event().wait(IDLE_SECONDS + 1)
    assert isinstance(late.resume(), StoreError)
    assert changes(before, snapshot(name)) == []
    assert len(before.topics[str(name)].regular) == len(PARTS)


def _is_whole(store: CasStore, name: TopicName) -> None:
    layout = read_scalable(store, name).layout
    assert layout
    assert layout_faults(layout) == []
    assert migration_faults(layout, [str(name.of_partition(number)) for number in PARTS]) == []


def _prune(store: CasStore, name: TopicName) -> None:
    """Drop old parents, as brokers do once they are consumed."""
    record = read_scalable(store, name)
    assert record.layout
    layout = record.layout
    for segment in [child.segment_id for child in layout.segments.values() if child.legacy_topic_name]:
        layout = layout.prune(segment)
    store.set(name.scalable_path, layout.encode(), record.version)

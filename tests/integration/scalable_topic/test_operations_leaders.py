"""Brokers that lead topics die."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from clients.cas.claims import read_claim
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import controller_of
from models.scalable_topic.claims import OperatedTopic, operation_record
from models.scalable_topic.operation_input import Operation
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.scalable_topic.operations import Operations, carried_out
from tests.support.scalable_topic.topics import layout_of
from tests.support.stacks import SharedStack
from tests.support.waiting import timeout_for, wait_for

SPACE = "public/default"


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


def _led(admin: PulsarAdmin, topic: str, segments: int = 1) -> TopicName:
    """Return a topic that a broker leads."""
    name = TopicName.parse(f"{SPACE}/{topic}")
    admin.scalable_topics.create(name, segments)
    admin.scalable_topics.register(name, "queue", SubscriptionKind.QUEUE)
    return name


def _broker(stack: Stack, leader: str | None) -> Server:
    assert leader
    return next(server for server in stack if server.kind == "broker" and leader.endswith(f":{server.ports['http']}"))


@pytest.mark.exhaustive
def test_a_leader_dies(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A split in its middle is completed by the next leader, and a broker that was asked for statistics leads later.

    Any other broker sends that request to the leader, and takes part in no election by it (5.0.1).
    """
    split, haunted = _led(admin, "leader-split"), _led(admin, "leader-haunted")
    leader = _broker(stack, controller_of(store, split))
    other = next(server for server in stack if server.kind == "broker" and server is not leader)
    assert _broker(stack, controller_of(store, haunted)) is leader
    url = f"http://127.0.0.1:{other.ports['http']}"
    assert httpx.get(f"{url}/admin/v2/scalable/{SPACE}/{haunted.topic}/stats", timeout=30).is_redirect
    _dies_during(Operation.SPLIT, split, stack, store)
    _is_whole(admin, store, split, 2)
    assert carried_out(stack, Operation.SPLIT, str(haunted)).changed == 1
    leader.start()


@pytest.mark.exhaustive
def test_a_leader_dies_during_a_merge(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The next leader completes it: both parents have ended, and one segment takes what both took."""
    name = _led(admin, "leader-merge", 2)
    leader = _broker(stack, controller_of(store, name))
    _dies_during(Operation.MERGE, name, stack, store)
    _is_whole(admin, store, name, 1)
    leader.start()


def _dies_during(operation: Operation, name: TopicName, stack: Stack, store: CasStore) -> None:
    """Run an operation whose leader is killed once it has begun."""
    operations = Operations(stack, operation, str(name))
    path = operation_record(f"{SPACE}/{name.topic}")

    def has_begun() -> bool:
        record = read_claim(store, OperatedTopic, path)
        return record is not None and bool(record.claim.segments)

    leader = _broker(stack, controller_of(store, name))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(operations.operate)
        wait_for("the operation to begin", has_begun, 30)
        leader.kill()
        done = running.result(timeout_for(180))
    assert operations.complete() == ()
    assert (done.changed, done.failures) == (1, ())


def _is_whole(admin: PulsarAdmin, store: CasStore, name: TopicName, active: int) -> None:
    layout = layout_of(store, name)
    assert (len(layout.active), layout_faults(layout)) == (active, [])
    for segment in layout.active:
        assert admin.scalable_topics.backlog(name, segment.descriptor, "queue") == 0

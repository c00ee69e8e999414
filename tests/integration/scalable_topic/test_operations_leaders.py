"""Brokers that lead topics die, or do not know that they lead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from clients.cas.claims import read_claim
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import SubscriptionKind
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import controller_of
from deploy.devstack.server import Server
from deploy.devstack.stack import Stack, StackSpec
from models.scalable_topic.operation_claims import OperatedTopic, operation_record
from models.scalable_topic.operation_input import Operation
from models.segment_layout_check import layout_faults
from tests.support.scalable_topic.operations import Operations, carried_out
from tests.support.stacks import SharedStack
from tests.support.waiting import wait_for

SPACE = "public/default"
_ELECTED = 60.0


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


def _led(admin: PulsarAdmin, topic: str) -> TopicName:
    """A topic that a broker leads."""
    name = TopicName.parse(f"{SPACE}/{topic}")
    admin.scalable_topics.create(name, 1)
    admin.scalable_topics.register(name, "queue", SubscriptionKind.QUEUE)
    return name


def _broker(stack: Stack, leader: str | None) -> Server:
    assert leader
    return next(one for one in stack if one.kind == "broker" and leader.endswith(f":{one.ports['http']}"))


def test_nobody_is_made_a_leader_by_a_question(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A leader that leads is no zombie; where nobody leads, nobody is asked."""
    led, other = _led(admin, "asked-led"), TopicName.parse(f"{SPACE}/asked-other")
    admin.scalable_topics.create(other, 1)
    before = admin.scalable_topics.layout(led)
    found = carried_out(stack, Operation.FIND_ZOMBIES, f"{SPACE}/asked-*")
    assert (found.topics, found.unchanged) == (2, 2)
    assert controller_of(store, other) is None
    assert admin.scalable_topics.layout(led) == before


@pytest.mark.exhaustive
def test_a_leader_dies(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A split in its middle is completed by the next leader; one that does not know that it leads is found and named.

    Who asked for the statistics of a topic at the other broker has made that one.
    """
    split, haunted = _led(admin, "leader-split"), _led(admin, "leader-haunted")
    leader = _broker(stack, controller_of(store, split))
    other = next(one for one in stack if one.kind == "broker" and one is not leader)
    assert _broker(stack, controller_of(store, haunted)) is leader
    url = f"http://127.0.0.1:{other.ports['http']}"
    httpx.get(f"{url}/admin/v2/scalable/{SPACE}/{haunted.topic}/stats").raise_for_status()
    operations = Operations(stack, Operation.SPLIT, str(split))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(operations.operate)
        path = operation_record(f"{SPACE}/{split.topic}")

        def has_begun() -> bool:
            record = read_claim(store, OperatedTopic, path)
            return record is not None and bool(record.claim.segments)

        wait_for("the split", has_begun, 30)
        leader.kill()
        done = running.result(180)
    assert operations.complete() == ()
    assert (done.changed, done.failures) == (1, ())
    layout = admin.scalable_topics.layout(split)
    assert (len(layout.active), layout_faults(layout)) == (2, [])
    for one in layout.active:
        assert admin.scalable_topics.backlog(split, one.descriptor, "queue") == 0
    wait_for("another leader", lambda: controller_of(store, haunted) == url.removeprefix("http://"), _ELECTED)
    found = carried_out(stack, Operation.FIND_ZOMBIES, f"{SPACE}/leader-*")
    assert (found.found, found.unchanged) == (1, 1)
    assert f"Restart {url.removeprefix('http://')}" in found.outcomes[0]
    refused = carried_out(stack, Operation.SPLIT, str(haunted))
    assert "Restart" in refused.failures[0].reason
    leader.start()
    other.restart()
    assert carried_out(stack, Operation.SPLIT, str(haunted)).changed == 1

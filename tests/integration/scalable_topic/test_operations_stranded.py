"""Messages of regular topics that a scalable one does not name any more, and how they come back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import httpx
import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import controller_of, read_scalable, recorded_subscriptions
from deploy.devstack.moving.client_program import ClientProgram
from deploy.devstack.moving.plan import Language
from deploy.devstack.moving.regular_clients import RegularClients
from deploy.devstack.moving.scalable_plan import STAYS, ScalableTopicPlan
from deploy.devstack.on_demand import with_scalable_clients
from deploy.devstack.server import Server
from deploy.devstack.stack import Stack, StackSpec
from deploy.devstack.toolchain import Toolchain
from models.scalable_topic.operation_input import Operation
from models.segment import SegmentInfo, SubscriptionKind
from models.segment_layout_check import layout_faults
from tests.support.scalable_topic.operations import Operations, carried_out
from tests.support.scalable_topic.topics import MESSAGES, QUEUE, STREAM, fill
from tests.support.stacks import SharedStack
from tests.support.waiting import wait_for

SPACE = "public/default"

# Brokers look every 60 s.
_DROPPED = 150.0


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


def _without_parents(stack: Stack, admin: PulsarAdmin, store: CasStore, topic: str) -> TopicName:
    """A topic that the bare command has made scalable, and whose parents are gone from the layout."""
    name = TopicName.parse(f"persistent://{SPACE}/{topic}")
    fill(stack, admin, name, 2)
    admin.scalable_topics.migrate(name)
    _prune(store, name)
    return name


def _prune(store: CasStore, name: TopicName) -> None:
    record = read_scalable(store, name)
    assert record.layout
    store.set(name.scalable_path, record.layout.prune(0).prune(1).encode(), record.version)


def test_parents_are_named_again(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The layout is as before they were dropped, each subscription has its record and places, and nothing is stranded.

    Where nothing was dropped there is nothing to find.
    """
    name = _without_parents(stack, admin, store, "stranded")
    found = carried_out(stack, Operation.FIND_STRANDED, f"{SPACE}/strand*")
    assert (found.found, found.messages) == (1, 2 * MESSAGES)
    assert f"{2 * MESSAGES} messages of {QUEUE}, {STREAM}" in found.outcomes[0]
    plan = Operations(stack, Operation.REPAIR_STRANDED, str(name), dry_run=True).check().plan
    assert plan
    assert (plan.changed, plan.messages) == (1, 2 * MESSAGES)
    assert controller_of(store, name) is None
    done = carried_out(stack, Operation.REPAIR_STRANDED, str(name))
    assert (done.changed, done.messages, done.registered) == (1, 2 * MESSAGES, 2)
    layout = admin.scalable_topics.layout(name)
    assert layout_faults(layout) == []
    assert [one.parent_ids for one in layout.active] == [(0, 1), (0, 1)]
    assert recorded_subscriptions(store, name) == {QUEUE: SubscriptionKind.QUEUE, STREAM: SubscriptionKind.STREAM}
    assert carried_out(stack, Operation.FIND_STRANDED, str(name)).unchanged == 1
    assert carried_out(stack, Operation.REPAIR_STRANDED, str(name)).unchanged == 1


def test_no_repair_beside_a_leader(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A broker that leads would not see it, so nothing is written, and the refusal names the broker and the cure."""
    name = _without_parents(stack, admin, store, "led")
    admin.scalable_topics.register(name, QUEUE, SubscriptionKind.QUEUE)
    before = read_scalable(store, name).version
    done = carried_out(stack, Operation.REPAIR_STRANDED, str(name))
    (failed,) = done.failures
    assert f"{controller_of(store, name)} leads it" in failed.reason
    assert "Restart that broker" in failed.reason
    assert read_scalable(store, name).version == before


def test_other_topics_of_the_name_are_not_stranded(stack: Stack, admin: PulsarAdmin) -> None:
    """A regular topic that takes messages has clients who know it, whatever scalable topic has its name."""
    name = TopicName.parse(f"persistent://{SPACE}/both")
    fill(stack, admin, name, 0)
    admin.scalable_topics.create(name, 1)
    assert carried_out(stack, Operation.FIND_STRANDED, str(name)).unchanged == 1


@pytest.mark.exhaustive
def test_what_the_bare_command_strands_comes_back(
    stack: Stack, admin: PulsarAdmin, store: CasStore, toolchain: Toolchain, tmp_path: Path
) -> None:
    """One look at the statistics, and a minute later all messages are stranded; V5 clients get each of them again."""
    plan = ScalableTopicPlan(f"persistent://{SPACE}/bare", 2, ordered=False, interval=0.05)
    name = TopicName.parse(plan.topic)
    admin.topics.create_partitioned(name, plan.partitions)
    regular = RegularClients(stack.broker_url)
    regular.fill([plan], MESSAGES)
    admin.scalable_topics.migrate(name)
    httpx.get(f"{stack.admin_urls[0]}/admin/v2/scalable/{SPACE}/bare/stats").raise_for_status()
    wait_for("dropped parents", lambda: not any(one.legacy for one in _segments(admin, name)), _DROPPED)
    found = carried_out(stack, Operation.FIND_STRANDED, str(name))
    assert (found.found, found.messages) == (1, 3 * MESSAGES)
    assert carried_out(stack, Operation.REPAIR_STRANDED, str(name)).failed == 1
    _leader(stack, store, name).restart()
    assert carried_out(stack, Operation.REPAIR_STRANDED, str(name)).messages == 3 * MESSAGES
    tools = with_scalable_clients(toolchain)
    with closing(ClientProgram.of(Language.JAVA_V5, stack.broker_url, tmp_path, tools, shared=True)) as clients:
        clients.subscribe([plan.queue(STAYS)])
        sent = sorted((one.key, one.number) for record in regular.producers for one in record.sent)
        wait_for("all messages", lambda: _received(clients) == sent, 30)


def _segments(admin: PulsarAdmin, name: TopicName) -> list[SegmentInfo]:
    return list(admin.scalable_topics.layout(name).segments.values())


def _leader(stack: Stack, store: CasStore, name: TopicName) -> Server:
    leader = controller_of(store, name)
    assert leader
    return next(one for one in stack if one.kind == "broker" and leader.endswith(f":{one.ports['http']}"))


def _received(clients: ClientProgram) -> list[tuple[str, int]]:
    _, consumers = clients.collect()
    return sorted((one.key, one.number) for record in consumers for one in record.received)

"""Segments are split and merged under V5 clients, whose subscriptions no record knows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import recorded_subscriptions
from models.scalable_topic.operation_input import Operation
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed, TopicPlan
from pulsar_devstack.traffic.runner import Traffic
from tests.support.scalable_topic.operations import carried_out
from tests.support.scalable_topic.topics import layout_of
from tests.support.stacks import SharedStack

SPACE = "public/default"
QUEUE, STREAM = Subscribed.SHARED.value, Subscribed.FAILOVER.value
# Stream consumers get new segments when brokers have seen that those before are consumed. They check that after 2, 4, 8
# … seconds: a client that stalls for half a minute on a busy machine is noticed a minute later (5.0.1).
_DELIVERED = 180.0


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


def test_segments_change_under_traffic(
    stack: Stack, admin: PulsarAdmin, store: CasStore, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Nothing is lost or doubled; an audit finds what only clients have made, and cures it.

    A V5 producer whose segment is sealed sends unconfirmed messages again after later ones of the same key, also where
    brokers split on their own (seen): the order is not checked.
    """
    changed, audited = (TopicName.parse(f"{SPACE}/live-{which}") for which in ("changed", "audited"))
    for name in (changed, audited):
        admin.scalable_topics.create(name, 2)
    plans = [_plan(name) for name in (changed, audited)]
    tools = with_scalable_clients(toolchain)
    with Traffic.in_programs(stack.broker_url, plans, tmp_path, tools, shared=True) as traffic:
        traffic.wait_for_more(20)
        assert not any(recorded_subscriptions(store, changed).values())
        done = carried_out(stack, Operation.SPLIT, str(changed), choose="busiest")
        assert done.failures == ()
        assert (done.changed, done.registered) == (1, 2)
        traffic.wait_for_more(20)
        assert carried_out(stack, Operation.MERGE, str(changed)).changed == 1
        first_audit = carried_out(stack, Operation.AUDIT, f"{SPACE}/live-*")
        assert (first_audit.with_findings, first_audit.unchanged) == (1, 1)
        assert f"live-audited: {STREAM}, {QUEUE} have no record" in first_audit.outcomes[0]
        assert carried_out(stack, Operation.AUDIT, str(audited), fix=True).registered == 2
        traffic.wait_for_more(20)
        audit = traffic.stop(_DELIVERED)
        backlogs = _backlogs(admin, changed) if audit.lost else {}
    assert (audit.lost, audit.duplicates.other, audit.corrupt) == (0, 0, 0), (audit.subscriptions, backlogs)
    assert (audit.dead_producers, audit.dead_consumers) == ({}, ())
    for name in (changed, audited):
        assert recorded_subscriptions(store, name) == {
            QUEUE: SubscriptionKind.QUEUE,
            STREAM: SubscriptionKind.STREAM,
        }
    assert len(layout_of(store, changed).active) == 2


def _backlogs(admin: PulsarAdmin, name: TopicName) -> dict[str, int]:
    """Return what subscriptions have left of each segment, as far as brokers have it loaded."""
    backlogs: dict[str, int] = {}
    for segment in admin.scalable_topics.layout(name).segments.values():
        for subscription in (QUEUE, STREAM):
            with suppress(AdminNotFound):
                backlog = admin.scalable_topics.backlog(name, segment.descriptor, subscription)
                backlogs[f"{subscription} on {segment.descriptor}"] = backlog
    return backlogs


def _plan(name: TopicName) -> TopicPlan:
    topic, label = f"topic://{SPACE}/{name.topic}", name.topic
    return TopicPlan(
        topic,
        0,
        (ProducerPlan(f"{label}-producer", topic, Language.JAVA_V5, interval=0.02),),
        tuple(
            ConsumerPlan(f"{label}-{kind.value}", topic, Language.JAVA_V5, kind)
            for kind in (Subscribed.SHARED, Subscribed.FAILOVER)
        ),
    )

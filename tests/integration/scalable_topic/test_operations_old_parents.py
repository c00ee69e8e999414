"""An audit looks at what a regular topic has left long after its migration, and lets stream consumers begin."""

from __future__ import annotations

from contextlib import closing

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.scalable_records import controller_of
from deploy.devstack.moving.client_program import ClientProgram
from deploy.devstack.stack import Stack
from deploy.devstack.traffic import quiet_client
from models.scalable_topic.operation_input import Operation
from models.scalable_topic.operation_results import OperationOutcome
from models.segment import SegmentInfo, SubscriptionKind
from models.segment_repair import NEVER_DROPPED
from tests.support.scalable_topic.flips import flip_of
from tests.support.scalable_topic.operations import Operations, carried_out
from tests.support.scalable_topic.topics import (
    MESSAGES,
    QUEUE,
    STREAM,
    drain,
    drain_all,
    fill,
    pulsar,
    regular_parents_of,
    stream_plan,
)

SPACE = "public/default"
_PARTITIONS = 2


def test_an_audit_shows_what_was_consumed_after_the_migration(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """Nothing is found or made while an ordered subscription has messages left; then each is shown when it is done."""
    name = TopicName.parse(f"persistent://{SPACE}/consumed-late")
    fill(stack, admin, name, _PARTITIONS)
    flip_of(admin, store, name, _PARTITIONS).run()
    parents = regular_parents_of(admin, name)
    assert _audited(stack, name, fix=True).unchanged == 1
    assert _cursors(store, name, parents) == [None] * _PARTITIONS

    assert len(drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)) == MESSAGES
    assert clients.attach([stream_plan(name)]) == {name.topic: "TopicDoesNotExistException"}
    told = f"stream consumers cannot begin: {STREAM} have nothing left in {name}, and no segment shows that to brokers"
    assert _audited(stack, name).outcomes == (f"{SPACE}/{name.topic}: {told}",)
    plan = Operations(stack, Operation.AUDIT, str(name), fix=True, dry_run=True).check().plan
    assert plan
    assert plan.found == 1
    assert _cursors(store, name, parents) == [None] * _PARTITIONS
    done = _audited(stack, name, fix=True)
    assert (done.changed, done.healed, done.registered) == (1, _PARTITIONS, 0)
    assert done.outcomes == (f"{SPACE}/{name.topic}: cured: {told}",)
    assert _cursors(store, name, parents) == [{STREAM}] * _PARTITIONS
    assert _audited(stack, name).unchanged == 1
    assert clients.attach([stream_plan(name)]) == {}

    assert len(drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared)) == MESSAGES
    (told,) = _audited(stack, name).outcomes
    assert f"brokers keep its parents: {QUEUE} have nothing left" in told
    assert _audited(stack, name, fix=True).changed == 1
    assert _audited(stack, name).unchanged == 1


def test_an_audit_lets_no_broker_drop_a_schema(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """Brokers would drop it with the parents. Before one leads the topic an audit keeps these; later it names it."""
    kept, led = (TopicName.parse(f"persistent://{SPACE}/consumed-{which}") for which in ("kept", "led"))
    for name in (kept, led):
        fill(stack, admin, name, _PARTITIONS)
        with closing(quiet_client(stack.broker_url)) as client:
            client.create_producer(str(name), schema=pulsar.schema.StringSchema()).close()
        admin.scalable_topics.migrate(name)
    admin.scalable_topics.register(led, QUEUE, SubscriptionKind.QUEUE)
    for name in (kept, led):
        assert _audited(stack, name, fix=True).changed == 1
        drain_all(stack, admin, name)
        assert "stream consumers cannot begin" in _audited(stack, name).outcomes[0]

    assert _audited(stack, kept, fix=True).changed == 1
    assert _audited(stack, kept).unchanged == 1
    parents = regular_parents_of(admin, kept)
    assert _cursors(store, kept, parents) == [{QUEUE, STREAM}] * _PARTITIONS
    assert {one.sealed_at_ms for one in parents} == {NEVER_DROPPED}

    done = _audited(stack, led, fix=True)
    assert (done.found, done.changed) == (1, 0)
    assert f"{controller_of(store, led)} leads {led}, and would drop its parents with the schema" in done.outcomes[0]
    assert _cursors(store, led, regular_parents_of(admin, led)) == [None] * _PARTITIONS


def _audited(stack: Stack, name: TopicName, *, fix: bool = False) -> OperationOutcome:
    return carried_out(stack, Operation.AUDIT, str(name), fix=fix)


def _cursors(store: CasStore, name: TopicName, parents: list[SegmentInfo]) -> list[set[str] | None]:
    """Subscriptions of the segments of the parents' names; None where there is no such segment."""
    paths = [SegmentName(name, one.descriptor).managed_ledger_path for one in parents]
    return [{*store.children(path)} if store.get(path) else None for path in paths]

"""Deletions by brokers: regular topics after the grace window, and a topic's schema never (5.0.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.scalable_topic import cleanup, flip, hold_release
from activities.scalable_topic import drain as draining
from activities.scalable_topic.context import GRACE, TopicTask
from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import Language, ProducerPlan
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.scalable_topic.steps import TopicSteps, flip_refused
from tests.support.scalable_topic.topics import (
    MESSAGES,
    QUEUE,
    drain_all,
    fill,
    pulsar,
    regular_parents_of,
    stream_plan,
)
from tests.support.waiting import wait_for

# Brokers look for parents to drop every 60 s.
_COLLECTED = 150.0
_FIELDS = [
    '{"name":"number","type":["null","int"]}',
    '{"name":"price","type":["null","int"],"default":null}',
    '{"name":"tax","type":["null","int"],"default":null}',
]
_OTHER = '{"type":"record","name":"Other","fields":[]}'
*_VERSIONS, _THIRD = (
    f'{{"type":"record","name":"Order","fields":[{",".join(_FIELDS[:count])}]}}' for count in (1, 2, 3)
)


@pytest.mark.exhaustive
def test_regular_topics_stay_until_the_window_ends(stack: Stack, admin: PulsarAdmin, clients: ClientProgram) -> None:
    """Until the cleanup brokers delete nothing, though all is consumed; then they do, and the schema stays."""
    names = {
        TopicName.parse(f"persistent://public/default/{name}"): count
        for name, count in (("plain", 0), ("parts", 2), ("released", 0))
    }
    before = {name: _with_schema(stack, admin, name, count) for name, count in names.items()}
    runs = {name: TopicSteps(stack, name, f"run-{name.topic}", cleanup="remove") for name in names}
    for steps in runs.values():
        # The others continue, each in its window.
        steps.running |= {f"run-{name.topic}" for name in names}
        for step in (hold_release.guard, flip.flip, draining.verify, hold_release.complete):
            steps.run(step)
    *held_topics, released = names
    # Brokers look at each topic every 60 s, at this one last.
    admin.subscriptions.delete(released, GRACE)
    clients.attach([stream_plan(name) for name in held_topics])
    clients.open_producers([ProducerPlan(name.topic, str(name), Language.JAVA_V5) for name in held_topics])
    clients.start()
    wait_for("the parent to be dropped", lambda: not regular_parents_of(admin, released), _COLLECTED)
    for name in held_topics:
        assert len(regular_parents_of(admin, name)) == max(names[name], 1)
        held = [stats.subscriptions[GRACE].msg_backlog for stats in _parts(admin, name)]
        assert sum(held) == MESSAGES
    # What keeps the regular topic keeps no stream from what came later.
    assert all(record.received for record in clients.collect()[1])
    clients.close()
    for name, steps in runs.items():
        cleaned = steps.run(cleanup.clean_up)
        assert (cleaned.deleted, cleaned.remaining) == (1, ())
        assert regular_parents_of(admin, name) == []
        with pytest.raises(AdminNotFound):
            admin.topics.partitions(name)
        assert admin.schemas.versions(name) == before[name]


def _parts(admin: PulsarAdmin, name: TopicName) -> Iterator[TopicStats]:
    for number in range(admin.topics.partitions(name)) or [None]:
        yield admin.topics.stats(name if number is None else name.of_partition(number))


def test_a_topic_that_stays_regular_keeps_its_schema(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The segments that were made for it are deleted, and its schema is as it was."""
    name = TopicName.parse("persistent://public/default/stays")
    before = _with_schema(stack, admin, name, 2)
    steps = TopicSteps(stack, name)
    steps.run(hold_release.guard)
    with closing(quiet_client(stack.broker_url)) as client:
        consumer = client.subscribe(str(name), QUEUE, pulsar.ConsumerType.Shared)
        steps.run(flip_refused)
        consumer.close()
    assert read_scalable(store, name).state is RecordState.ABSENT
    assert admin.schemas.versions(name) == before
    steps.run(hold_release.undo)


def test_late_withdrawals_keep_schemas(stack: Stack, admin: PulsarAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that came since a flip died stay, and so does the schema of another topic that has the name now."""
    grown, replaced = (TopicName.parse(f"persistent://public/default/{name}") for name in ("grown", "replaced"))

    def nothing(_task: TopicTask) -> None:
        return

    # What has died before its request has sent none.
    monkeypatch.setattr(PulsarCluster, "await_late_requests", nothing)
    for number, name in enumerate((grown, replaced)):
        _with_schema(stack, admin, name, 2)
        steps = TopicSteps(stack, name)
        steps.run(hold_release.guard)
        with monkeypatch.context() as patch:
            patch.setattr(TopicConversion, "_migrate", _dies)
            with pytest.raises(KeyboardInterrupt):
                steps.run(flip.flip)
        if name == replaced:
            admin.topics.delete_partitioned(name, force=True)
            admin.topics.create(name)
        admin.schemas.add(name, "JSON", _THIRD if name == grown else _OTHER)
        wanted = admin.schemas.versions(name)
        assert len(wanted) == (3 if name == grown else 1)
        TopicSteps(stack, name, f"run-{number + 2}").run(hold_release.recover)
        assert admin.schemas.versions(name) == wanted


def _dies(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _with_schema(stack: Stack, admin: PulsarAdmin, name: TopicName, partitions: int) -> list[Schema]:
    """Make a topic whose schema has two versions, and whose messages were consumed; return the versions."""
    fill(stack, admin, name, partitions)
    drain_all(stack, admin, name)
    for data in _VERSIONS:
        admin.schemas.add(name, "JSON", data)
    versions = admin.schemas.versions(name)
    assert [version.version for version in versions] == [0, 1]
    return versions

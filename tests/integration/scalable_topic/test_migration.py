"""One regular topic becomes scalable on a real broker, under a workflow of a real Temporal server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from activities.pulsar.namespace_guard import recorded_namespaces
from clients.cas.store import CasReader
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_policy import read_policy
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.claim import CLAIM
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.phases import Phase
from models.scalable_topic.state import TopicCertificate, TopicFigures
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.blue_green.namespaces import create_namespace
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.operator import Run
from tests.support.scalable_topic.topics import MESSAGES, QUEUE, STREAM, consume, drain, fill, pulsar
from tests.support.waiting import wait_until_equal

OWN = Retention(retention_time_in_minutes=7, retention_size_in_m_b=70)
FOR_EVER = Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)

Start = Callable[[ScalableTopicInput], Run]


@pytest.fixture
def start(environment: Environment) -> Start:
    """Starts migrations."""
    return environment.operator.start


def _input(stack: Stack, admin: PulsarAdmin, topic: TopicName, **more: object) -> ScalableTopicInput:
    cluster = admin.brokers.runtime_configuration()["clusterName"]
    given = {
        "cluster": cluster,
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "topic": str(topic),
    }
    return ScalableTopicInput.model_validate({**given, **more})


def _topic(stack: Stack, admin: PulsarAdmin, namespace: str, partitions: int = 2) -> TopicName:
    """Return a topic with a backlog, in a namespace that has a retention of its own."""
    create_namespace(admin, namespace)
    admin.namespaces.set_retention(namespace, OWN)
    name = TopicName.parse(f"persistent://{namespace}/topic")
    fill(stack, admin, name, partitions)
    return name


def _is_as_before(admin: PulsarAdmin, store: CasReader, name: TopicName) -> None:
    assert admin.namespaces.retention(name.namespace_path) == OWN
    assert read_policy(store, name.namespace_path, ("scalableTopicAutoScalePolicy",)) is None
    assert store.get(CLAIM) is None
    assert name.namespace_path not in recorded_namespaces(store)


def test_a_topic_becomes_scalable_without_a_loss(
    stack: Stack, admin: PulsarAdmin, store: CasReader, start: Start
) -> None:
    """It waits for clients, for `proceed` and for old messages; policies are held until then, and restored."""
    name = _topic(stack, admin, "whole/space")
    with closing(quiet_client(stack.broker_url)) as client:
        consumer = client.subscribe(str(name), STREAM, pulsar.ConsumerType.Failover)
        run = start(_input(stack, admin, name))
        waiting = run.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.CLIENTS).waiting
        assert waiting
        assert f"{STREAM} ({MESSAGES} messages)" in waiting.why
        assert f"of {STREAM} at 127.0.0.1:" in waiting.why
        consume(consumer, MESSAGES)
        consumer.close()
    run.wait_until_it_waits_for(WaitKind.HOLD)
    assert admin.namespaces.retention(name.namespace_path) == OWN
    assert read_scalable(store, name).state is RecordState.ABSENT
    run.steer(Verb.PROCEED)
    waiting = run.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN).waiting
    assert waiting
    assert f"{QUEUE} ({MESSAGES} messages)" in waiting.why
    assert admin.namespaces.retention(name.namespace_path) == FOR_EVER
    assert read_policy(store, name.namespace_path, ("scalableTopicAutoScalePolicy",)) == {"enabled": False}
    assert sorted(map(int, drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared))) == list(range(MESSAGES))
    report = run.result()
    assert report.outcome is Outcome.DONE
    assert [note for note in report.notes if "warning: " not in note and "proceed by" not in note] == []
    proof = TopicCertificate.model_validate(report.certificate)
    assert (proof.migrated_from, proof.segments, proof.subscriptions) == (str(name), 2, 2)
    assert (proof.faults, proof.undrained) == ([], {})
    _is_as_before(admin, store, name)


def test_a_rehearsal(stack: Stack, admin: PulsarAdmin, store: CasReader, start: Start) -> None:
    """The topic is locked and its namespace's policies are overridden; then all is as before, the backlog included."""
    name = _topic(stack, admin, "rehearsed/space")
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    report = start(_input(stack, admin, name, until="GUARD")).result()
    assert report.outcome is Outcome.REHEARSED
    assert [entry.phase for entry in report.history] == [Phase.PRECHECK, Phase.CLIENTS, Phase.GUARD, Phase.ROLLBACK]
    _is_as_before(admin, store, name)
    assert read_scalable(store, name).state is RecordState.ABSENT
    assert sorted(map(int, drain(stack, admin, name, QUEUE, pulsar.ConsumerType.Shared))) == list(range(MESSAGES))


def test_a_dry_run_writes_nothing(stack: Stack, admin: PulsarAdmin, store: CasReader, start: Start) -> None:
    """The plan is reported, and nothing else happens."""
    name = _topic(stack, admin, "dry/space", 3)
    report = start(_input(stack, admin, name, dry_run=True)).result()
    assert report.outcome is Outcome.PLANNED
    assert report.summary == (
        f"ready: 3 sealed segments with {2 * MESSAGES} messages of 2 subscriptions, and new segments 0000-5554-3, "
        "5555-aaa9-4, aaaa-ffff-5"
    )
    assert TopicFigures.model_validate(report.figures).blockers == 0
    assert read_scalable(store, name).state is RecordState.ABSENT
    _is_as_before(admin, store, name)


def test_a_topic_that_is_not_there(stack: Stack, admin: PulsarAdmin, start: Start) -> None:
    """It is a blocker, with its cure."""
    failure = start(_input(stack, admin, TopicName.parse("persistent://public/default/nowhere"))).failure()
    assert "TOPIC_MISSING" in failure.message


def test_a_rollback_before_the_flip_leaves_everything(
    stack: Stack, admin: PulsarAdmin, store: CasReader, start: Start
) -> None:
    """It is free, and refused after it."""
    name = _topic(stack, admin, "back/space", 0)
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    run = start(_input(stack, admin, name))
    run.wait_until_it_waits_for(WaitKind.HOLD)
    run.steer(Verb.ROLLBACK)
    assert run.result().outcome is Outcome.ROLLED_BACK
    assert read_scalable(store, name).state is RecordState.ABSENT
    _is_as_before(admin, store, name)


def test_clients_that_do_not_go_end_it(stack: Stack, admin: PulsarAdmin, store: CasReader, start: Start) -> None:
    """After `client_timeout` nothing has changed, and the failure says for what it waited."""
    name = _topic(stack, admin, "stays/space", 0)
    failure = start(_input(stack, admin, name, client_timeout="1s")).failure()
    assert f"{STREAM} ({MESSAGES} messages)" in failure.message
    assert read_scalable(store, name).state is RecordState.ABSENT
    _is_as_before(admin, store, name)


def test_the_next_start_puts_back_what_a_terminated_run_has_changed(
    stack: Stack, admin: PulsarAdmin, store: CasReader, start: Start
) -> None:
    """Policies that a run held when it was terminated are as before once the next one of the cluster has begun."""
    name, other = (_topic(stack, admin, f"{which}/space", 0) for which in ("ended", "next"))
    for each in (name, other):
        drain(stack, admin, each, STREAM, pulsar.ConsumerType.Failover)
    run = start(_input(stack, admin, name, hold_before_cutover=False))
    run.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN)
    run.terminate()
    assert admin.namespaces.retention(name.namespace_path) == FOR_EVER
    later = start(_input(stack, admin, other))
    later.wait_until_it_waits_for(WaitKind.HOLD)
    wait_until_equal("the previous policies", lambda: admin.namespaces.retention(name.namespace_path), OWN, 30)
    later.steer(Verb.ROLLBACK)
    assert later.result().outcome is Outcome.ROLLED_BACK
    for each in (name, other):
        _is_as_before(admin, store, each)


def test_the_wait_for_old_messages_is_ended(stack: Stack, admin: PulsarAdmin, store: CasReader, start: Start) -> None:
    """`proceed` ends it: the topic is scalable, and the rest is reported and stays."""
    name = _topic(stack, admin, "later/space")
    run = start(_input(stack, admin, name, force=True, hold_before_cutover=False))
    run.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN)
    run.steer(Verb.PROCEED)
    report = run.result()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert TopicCertificate.model_validate(report.certificate).undrained == {QUEUE: MESSAGES, STREAM: MESSAGES}
    assert any("the wait for old messages was ended by `proceed`" in note for note in report.notes)
    _is_as_before(admin, store, name)
    backlogs = {QUEUE: 0, STREAM: 0}
    for partition in map(name.of_partition, range(2)):
        for subscription, stats in admin.topics.stats(partition).subscriptions.items():
            backlogs[subscription] += stats.msg_backlog
    assert backlogs == {QUEUE: MESSAGES, STREAM: MESSAGES}

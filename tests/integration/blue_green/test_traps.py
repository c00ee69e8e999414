"""Cases in which Pulsar's own mechanism loses backlogs or clients, and how the steps handle them."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from activities.blue_green import write_limit
from activities.blue_green.batch import drain, flip, quiesce, undo, verify
from activities.blue_green.checks import readiness
from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.topics import TopicState, check_topic
from activities.lifecycle.context import ActivityContext
from activities.pulsar.stored_topics import stored
from clients.errors import StoreConflict, StoreContention, Superseded
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_policy import read_policy
from clients.pulsar.records.namespace_flag import read_flag, set_flag
from models.blue_green.claims import NamespaceClaim, Stage
from models.blue_green.input import IdleSubscriptions
from models.releases import Behaviour, parse_release
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.environment import BLUE, Clusters
from tests.support.blue_green.steps import Steps, make_namespace, take
from tests.support.waiting import wait_for

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

BACKLOG = 7
SWEEP = "clusterMigrationCheckDurationSeconds"
THROTTLE = PublishRate(publish_throttling_rate_in_byte=1)


@pytest.fixture
def steps(clusters: Clusters, request: pytest.FixtureRequest) -> Generator[Steps]:
    """The steps of a migration of the namespace `traps/<test>`."""
    name = re.sub(r"\W|_", "-", request.node.name.removeprefix("test_"))[-40:].strip("-")
    ready = Steps(clusters, f"traps/{name}", drain_timeout="PT40S", idle_subscriptions="wait")
    yield ready
    ready.end()


def test_topic_that_was_unloaded_during_the_flip_is_drained(clusters: Clusters, steps: Steps) -> None:
    """A topic that lost its place in memory while the flag was set is loaded again, and its backlog consumed."""
    (topic,) = _with_backlog(clusters, steps, "unloaded")
    steps.begin()
    steps.quiesce()
    steps.batch(flip.flip)
    clusters.blue_admin.topics.unload(topic)
    wait_for("the topic out of memory", lambda: check_topic(clusters.blue_admin, topic).blocked, 20)
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        # The watch loads it again; only then can it be consumed.
        drained = steps.batch(lambda task: _drain_with(task, task.guards, task.store, client, topic))
    assert (drained.repaired, drained.remaining) == (1, ())


def test_a_subscription_that_green_deletes_is_a_fault(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that vanishes on green while its consumer reads on blue is named: it lacks messages."""
    (namespace,) = steps.input.namespaces
    (topic,) = make_namespace(clusters, namespace, "slow")
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        consumer = client.subscribe(str(topic), "s", pulsar.ConsumerType.Shared)
        # It sends again when it has been redirected.
        producer = client.create_producer(str(topic), send_timeout_millis=120_000)
        producer.send(b"slow")
        unread = [consumer.receive(timeout_millis=10_000)]
        steps.begin()
        steps.quiesce()
        steps.batch(flip.flip)
        producer.send(b"lost")
        # As green's brokers do where subscriptions expire.
        clusters.green_admin.subscriptions.delete(topic, "s", force=True)

        pause = ActivityContext.pause

        def acknowledge(context: ActivityContext, seconds: float) -> None:
            # The first round has looked at green.
            if unread:
                consumer.acknowledge(unread.pop())
            pause(context, seconds)

        monkeypatch.setattr(ActivityContext, "pause", acknowledge)
        drained = steps.batch(drain.drain)
    assert drained.remaining == ()
    assert [item.path for item in drained.abandoned] == [str(topic)]
    assert "deleted the subscription s before its consumers connected" in drained.abandoned[0].reason


def test_idle_subscription_is_waited_for(clusters: Clusters, steps: Steps) -> None:
    """A backlog without a consumer is named when the time is up, and stays where it can be consumed."""
    (topic,) = _with_backlog(clusters, steps, "idle")
    steps.input = steps.input.model_copy(update={"drain_timeout": steps.input.drain_timeout / 20})
    steps.begin()
    steps.quiesce()
    steps.batch(flip.flip)
    drained = steps.batch(drain.drain)
    assert "subscription s has 7 messages left, and no consumer" in drained.remaining[0].reason
    assert "subscriptions with messages or consumers: s" in steps.batch(verify.verify).faults[0].reason
    assert _consumed(clusters, topic, BACKLOG) == BACKLOG


def test_replication_is_waited_for_by_cursors(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is flipped while a third cluster lacks messages; if it does after the flip, they are waited for.

    That holds also while brokers report no replicator of the topic.
    """
    namespace, third = "replicating/one", "unreachable"
    admin = clusters.blue_admin
    admin.clusters.create(
        third, ClusterUrls(service_url="http://127.0.0.1:1", broker_service_url="pulsar://127.0.0.1:1")
    )
    admin.tenants.create("replicating", Tenant(allowed_clusters=(BLUE,)))
    (topic,) = make_namespace(clusters, namespace, "topic")
    steps = Steps(clusters, namespace, drain_timeout="PT2S")
    steps.begin()
    steps.quiesce()
    # Not before: brokers of green would try to create the topic there.
    admin.tenants.update("replicating", Tenant(allowed_clusters=(BLUE, third)))
    admin.namespaces.set_policy(namespace, ("replication_clusters",), [BLUE, third])

    def without_replicators(admin: PulsarAdminReader, topic: TopicName) -> TopicState:
        state = check_topic(admin, topic)
        return state._replace(stats=state.stats and state.stats.model_copy(update={"replication": {}}))

    def unasked(*_: object, drained: bool) -> None:
        assert drained

    try:
        wait_for("the replicator", lambda: third in admin.topics.stats(topic).replication, 30)
        # Before the flip the limit keeps the client from closing its producer.
        with closing(quiet_client(clusters.blue.broker_url)) as client:
            client.create_producer(str(topic)).send(b"one")
            usual_input = steps.input
            steps.input = usual_input.model_copy(update={"quiesce_timeout": timedelta(seconds=1)})
            with pytest.raises(StoreConflict, match=f"1 messages are not in {third} yet"):
                steps.batch(flip.flip)
            steps.input = usual_input
            # As if the message had come right after that.
            monkeypatch.setattr(flip, "await_movable", unasked)
            steps.batch(flip.flip)
        monkeypatch.setattr(drain, "check_topic", without_replicators)
        (undrained,) = steps.batch(drain.drain).remaining
    finally:
        steps.end()
        admin.namespaces.set_policy(namespace, ("replication_clusters",), [BLUE])
        admin.tenants.update("replicating", Tenant(allowed_clusters=(BLUE,)))
        admin.clusters.delete(third)
    assert f"1 messages are not replicated to {third} yet" in undrained.reason


def test_idle_subscription_is_skipped(clusters: Clusters, steps: Steps) -> None:
    """With `skip` a backlog without a consumer is given up, and counted; green has the subscription all the same."""
    (topic,) = _with_backlog(clusters, steps, "skipped")
    steps.input = steps.input.model_copy(update={"idle_subscriptions": IdleSubscriptions.SKIP})
    steps.begin()
    steps.quiesce()
    steps.batch(flip.flip)
    drained = steps.batch(drain.drain)
    assert (drained.skipped, drained.remaining) == (BACKLOG, ())
    assert clusters.green_admin.subscriptions.names(topic) == ["s"]
    assert not steps.batch(verify.verify).faults


def test_publish_limits_are_lifted_after_the_flip(clusters: Clusters, steps: Steps) -> None:
    """The limit holds from QUIESCE to the end of FLIP, and then the namespace has the one that it had before."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "limited")
    own = PublishRate(publish_throttling_rate_in_msg=700)
    clusters.blue_admin.namespaces.set_publish_rate(namespace, own)
    steps.begin()
    steps.quiesce()
    assert clusters.blue_admin.namespaces.publish_rate(namespace) == THROTTLE
    steps.batch(flip.flip)
    assert clusters.blue_admin.namespaces.publish_rate(namespace) == own


def test_limit_of_an_operator_stays(clusters: Clusters, steps: Steps) -> None:
    """A limit that an operator sets while the migration holds writes back is not overwritten."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "limited")
    steps.begin()
    steps.quiesce()
    theirs = PublishRate(publish_throttling_rate_in_msg=9)
    clusters.blue_admin.namespaces.set_publish_rate(namespace, theirs)
    steps.batch(undo.undo)
    assert clusters.blue_admin.namespaces.publish_rate(namespace) == theirs


def test_limit_that_is_taken_off_before_the_flag(clusters: Clusters, steps: Steps) -> None:
    """If an operator releases writes, nothing is flipped, and the error names the reason."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "limited")
    steps.begin()
    steps.quiesce()
    clusters.blue_admin.namespaces.remove_publish_rate(namespace)
    with pytest.raises(StoreConflict, match=r"nothing is flipped: the publish rate of .* was changed during the flip"):
        steps.batch(flip.flip)
    assert not _is_flagged(clusters, namespace)


def test_worker_that_froze_after_its_last_check_does_not_flip(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes were quiet too long ago when the flag is about to be set: the flip is retried, and checks again."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "frozen")
    steps.begin()
    steps.quiesce()
    require_quiet = flip.require_quiet

    def freeze(task: BlueGreenTask, guards: Sequence[NamespaceGuard]) -> float:
        return require_quiet(task, guards) - task.input.quiesce_timeout.total_seconds() / 2

    monkeypatch.setattr(flip, "require_quiet", freeze)
    with pytest.raises(StoreContention, match="the last check that writes are held back is"):
        steps.batch(flip.flip)
    assert not _is_flagged(clusters, namespace)
    monkeypatch.setattr(flip, "require_quiet", require_quiet)
    assert steps.batch(flip.flip).topics == 1
    assert _is_flagged(clusters, namespace)


def test_a_batch_that_takes_long_to_check_is_not_flipped(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that are never all quiet in one check stay on blue, and the error names the input field to change."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "many")
    steps.input = steps.input.model_copy(update={"quiesce_timeout": timedelta(seconds=4)})
    steps.begin()
    steps.quiesce()

    def check_slowly(admin: PulsarAdminReader, topic: TopicName) -> TopicState:
        state = check_topic(admin, topic)
        time.sleep(2.2)
        return state

    monkeypatch.setattr(write_limit, "check_topic", check_slowly)
    with pytest.raises(StoreConflict, match=r"the check of 1 topics takes \d+ s.*batch_size"):
        steps.batch(flip.flip)
    assert not _is_flagged(clusters, namespace)


@pytest.mark.exhaustive
def test_next_run_restores_the_limit(clusters: Clusters, steps: Steps) -> None:
    """A run that was terminated while it held writes back is followed by one that releases them before all else."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "limited")
    steps.begin()
    steps.quiesce()
    later = Steps(clusters, namespace, run_id="run-2")
    later.begin()
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None
    later.end()


def test_late_attempt_does_not_flip(clusters: Clusters, steps: Steps) -> None:
    """An attempt that froze before it set the flag, and continues after the rollback, does not set it any more."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "late")
    steps.begin()
    steps.quiesce()
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])

        def freeze() -> None:
            # Between what it read and its write: the fence itself has been asked.
            guard.require()
            if not undone:
                undone.append(steps.batch(undo.undo))

        undone: list[object] = []
        with pytest.raises(Superseded):
            set_flag(store, namespace, freeze, migrated=True)
        assert not read_flag(store, namespace)
        with pytest.raises(Superseded):
            write_limit.throttle(task, guard)
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None


def test_late_attempt_does_not_hold_writes_back(clusters: Clusters, steps: Steps) -> None:
    """An attempt that froze right before it set the limit, and continues after the rollback, leaves no limit."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "late")
    steps.begin()
    undone: list[object] = []
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        require = guard.require

        def freeze() -> NamespaceClaim:
            claim = require()
            if claim.publish_rate and not undone:
                undone.append(steps.batch(undo.undo))
            return claim

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(guard, "require", freeze)
            with pytest.raises(Superseded):
                write_limit.throttle(task, guard)
        assert undone
        assert read_policy(store, namespace, ("publishMaxMessageRate", BLUE)) is None


def test_a_limit_without_effect_is_set_again(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may miss a change, or apply an older one last: the limit is written again while the topic is busy."""
    # Nothing counts as quiet because the traffic waited for a second.
    monkeypatch.setattr(write_limit, "_CHECK_EVERY", 1.0)
    # A limit that holds no writes back, for longer than two times that it is written again.
    steps = Steps(clusters, "traps/repeated-limit", throttle_bytes=10_000, quiesce_timeout="PT10S")
    (topic,) = make_namespace(clusters, "traps/repeated-limit", "busy")
    path = "/admin/policies/traps/repeated-limit"
    steps.begin()
    running = Traffic.here(clusters.blue.broker_url, [str(topic)])
    with running as traffic, steps.task() as task, task.blue.store() as store:
        traffic.wait_for_more(10)
        before = store.get(path)
        quiet = steps.batch(quiesce.quiesce)
        after = store.get(path)
    steps.end()
    assert quiet.busy == (str(topic),)
    assert before is not None
    assert after is not None
    # Once when it was set, and then every few seconds in which the topic was looked at.
    assert after.version >= before.version + 2


@pytest.mark.exhaustive
def test_undo_before_the_termination_is_free(clusters: Clusters, steps: Steps) -> None:
    """A batch that was throttled and not flipped is rolled back: no limit, no flag, and writes continue."""
    (topic,) = _with_backlog(clusters, steps, "free")
    steps.begin()
    steps.quiesce()
    undone = steps.batch(undo.undo)
    assert (undone.undone, undone.terminated) == (True, 0)
    send_to(clusters.blue.broker_url, [str(topic)])
    assert _consumed(clusters, topic, BACKLOG + 1) == BACKLOG + 1


def test_termination_is_undone(clusters: Clusters, steps: Steps) -> None:
    """With `unterminate`, topics of which green has no message take messages again, with their subscriptions."""
    (topic,) = _with_backlog(clusters, steps, "back")
    clusters.blue_admin.subscriptions.create(topic, "drained")
    clusters.blue_admin.subscriptions.skip_all(topic, "drained")
    steps.begin()
    steps.quiesce()
    steps.batch(flip.flip)
    refused = steps.batch(undo.undo)
    assert (refused.undone, refused.terminated) == (False, 1)
    assert '"unterminate" is not set' in refused.why
    steps.input = steps.input.model_copy(update={"unterminate": True})
    undone = steps.batch(undo.undo)
    assert (undone.undone, undone.restored) == (True, 1)
    info = stored(clusters.blue_admin, topic)
    assert info is not None
    assert info.terminated_position is None
    assert not info.properties
    send_to(clusters.blue.broker_url, [str(topic)])
    assert _consumed(clusters, topic, BACKLOG + 1) == BACKLOG + 1
    assert _consumed(clusters, topic, 1, "drained") == 1


@pytest.mark.parametrize("unterminate", [pytest.param(True, marks=pytest.mark.exhaustive), False])
def test_undo_during_a_sweep(clusters: Clusters, steps: Steps, *, unterminate: bool) -> None:
    """Brokers continue their sweep after the flag is cleared: no topic is terminated while its namespace stays."""
    (namespace,) = steps.input.namespaces
    topics = make_namespace(clusters, namespace, *(f"t{number:02}" for number in range(30)))
    steps.input = steps.input.model_copy(update={"unterminate": unterminate})
    steps.begin()
    steps.quiesce()
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        guard.note(stage=Stage.FLIPPED, flipped_in=task.attempt.run_id)
        set_flag(store, namespace, guard.require, migrated=True)
    undone = steps.batch(undo.undo)
    ended = [topic for topic in topics if (info := stored(clusters.blue_admin, topic)) and info.terminated_position]
    assert len(ended) == (0 if undone.undone else len(topics)), undone
    assert _is_flagged(clusters, namespace) is not undone.undone
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None


def test_drain_sets_a_flag_again_that_a_lost_attempt_took_off(clusters: Clusters, steps: Steps) -> None:
    """If a worker died with the flag cleared while it loaded topics again, DRAIN sets the flag again."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "topic")
    steps.begin()
    steps.quiesce()
    steps.batch(flip.flip)
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        write_limit.throttle(task, guard)
        set_flag(store, namespace, guard.require, migrated=False)
    assert steps.batch(drain.drain).remaining == ()
    assert _is_flagged(clusters, namespace)
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None


@pytest.mark.exhaustive
def test_flip_continues_after_a_lost_attempt(clusters: Clusters, steps: Steps) -> None:
    """A second attempt completes a flip whose first attempt set the flag and was lost."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "again")
    steps.begin()
    steps.quiesce()
    with steps.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        guard.note(stage=Stage.FLIPPED, flipped_in=task.attempt.run_id)
        set_flag(store, namespace, guard.require, migrated=True)
    assert steps.batch(flip.flip).topics == 1
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None


def test_nothing_is_flipped_while_green_is_away(clusters: Clusters, steps: Steps) -> None:
    """If green does not answer right before the flag, the batch stays on blue, and the rollback needs no green."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "away")
    steps.begin()
    steps.quiesce()
    clusters.green["broker-1"].kill()
    try:
        with pytest.raises(StoreConflict, match="green is not ready for the clients"):
            steps.batch(flip.flip)
        assert steps.batch(undo.undo).undone
    finally:
        clusters.green["broker-1"].start()
    with steps.task() as task, task.blue.store() as store:
        assert not read_flag(store, namespace)
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None


@pytest.mark.exhaustive
def test_nothing_is_flipped_by_a_broker_with_other_settings(clusters: Clusters, steps: Steps) -> None:
    """A broker of blue that was restarted since, and never looks for topics to move, keeps the batch on blue."""
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "settings")
    steps.begin()
    steps.quiesce()
    steps.input = steps.input.model_copy(update={"quiesce_timeout": timedelta(seconds=1)})
    clusters.blue.reconfigure("broker-2", **{SWEEP: "0"})
    try:
        with pytest.raises(StoreConflict, match="BLUE_NO_SWEEP"):
            steps.batch(flip.flip)
        assert steps.batch(undo.undo).undone
    finally:
        clusters.blue.reconfigure("broker-2", **{SWEEP: "1"})
    with steps.task() as task, task.blue.store() as store:
        assert not read_flag(store, namespace)


def test_a_late_scalable_topic_is_not_terminated(
    clusters: Clusters, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scalable topic created since PRECHECK keeps its namespace on blue; VERIFY names one that is created later."""
    release = parse_release(clusters.blue_admin.brokers.version())
    if not release.has(Behaviour.SCALABLE_TOPICS):
        pytest.skip(f"Pulsar {release} has no scalable topics")
    (namespace,) = steps.input.namespaces
    make_namespace(clusters, namespace, "regular")
    steps.begin()
    steps.quiesce()
    steps.input = steps.input.model_copy(update={"quiesce_timeout": timedelta(seconds=1)})
    elastic = TopicName.parse(f"{namespace}/elastic")
    clusters.blue_admin.scalable_topics.create(elastic)
    with pytest.raises(StoreConflict, match=f"scalable topics.*{namespace}/elastic"):
        steps.batch(flip.flip)
    with steps.task() as task, task.blue.store() as store:
        assert not read_flag(store, namespace)

    def none(*_: object) -> list[str]:
        """Return what the check before the flag finds of a topic that comes right after it."""
        return []

    monkeypatch.setattr(readiness, "scalable_topics", none)
    steps.batch(flip.flip)
    steps.batch(drain.drain)
    assert [fault.path for fault in steps.batch(verify.verify).faults] == [f"topic://{namespace}/elastic"]


def _with_backlog(clusters: Clusters, steps: Steps, *topics: str) -> list[TopicName]:
    """Return topics of the namespace with a subscription `s` that has messages and no consumer."""
    (namespace,) = steps.input.namespaces
    names = make_namespace(clusters, namespace, *topics)
    for topic in names:
        clusters.blue_admin.subscriptions.create(topic, "s")
        for _ in range(BACKLOG):
            send_to(clusters.blue.broker_url, [str(topic)])
    return names


def _drain_with(task: Any, guards: Any, store: Any, client: Any, topic: TopicName) -> Any:
    """Drain with a consumer that comes as soon as blue serves the topic again."""
    watch = drain.DrainWatch(task, guards, store)
    check, received = watch.check, list[bytes]()

    def consume_then_check(guard: Any) -> Any:
        remaining = check(guard)
        if remaining and not received:
            consumer = client.subscribe(str(topic), "s")
            for _ in range(BACKLOG):
                message = consumer.receive(timeout_millis=20_000)
                received.append(message.data())
                consumer.acknowledge(message)
        return remaining

    watch.check = consume_then_check
    return watch.run()


def _consumed(clusters: Clusters, topic: TopicName, least: int, subscription: str = "s") -> int:
    """Return how many messages a consumer of blue gets; brokers that are busy may give those that are due slowly."""
    count = 0
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        consumer = client.subscribe(str(topic), subscription)
        while True:
            try:
                consumer.acknowledge(consumer.receive(timeout_millis=30_000 if count < least else 2_000))
            except pulsar.Timeout:
                return count
            count += 1


def _is_flagged(clusters: Clusters, namespace: str) -> bool:
    return clusters.blue_admin.namespaces.policies(namespace).migrated

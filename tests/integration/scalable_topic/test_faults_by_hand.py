"""Faults at moments that rounds do not hit: lost and wrong answers, and operators who change topics."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import suppress

import httpx
import pytest
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.phases import Phase
from models.scalable_topic.state import TopicCertificate
from models.segments.layout import SegmentLayout
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import Language, ProducerPlan
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.operator import Run
from tests.support.scalable_topic.existing_topics import TopicsSnapshot, changes, read_snapshot, topic_faults
from tests.support.scalable_topic.faulty_broker_proxy import (
    Act,
    Answer,
    Ask,
    FaultyBrokerProxy,
    failed,
    failed_but_done,
    hung_up,
)
from tests.support.scalable_topic.topics import (
    MESSAGES,
    QUEUE,
    STREAM,
    create_again,
    drain,
    make_scalable,
    make_topic,
    pulsar,
    write_record,
)
from tests.support.waiting import wait_for

PARTS = 2
LATE = "late"
_END_LIMIT = 90.0
# Brokers look for old parents every 60 s.
_DEAD_SECONDS = 130.0


class Topics:
    """Topics that can become scalable, each in a namespace that has policies of its own, and their migrations."""

    def __init__(self, stack: Stack, admin: PulsarAdmin, store: CasStore, environment: Environment) -> None:
        self.stack, self.admin, self.store, self.environment = stack, admin, store, environment
        self._runs: list[Run] = []

    def make(self, namespace: str, *, drained: bool = True) -> TopicName:
        """Return one with a backlog of its queue subscription, and of the ordered one unless that is drained."""
        return make_topic(self.stack, self.admin, namespace, PARTS, drained=drained)

    def input(self, name: TopicName, *, url: str = "", **more: object) -> ScalableTopicInput:
        """Return the input of its migration, which waits for no client."""
        given: dict[str, object] = {
            "cluster": self.stack.state.spec.cluster,
            "metadata_url": self.stack.metadata_url,
            "admin_urls": [url or self.stack.admin_urls[0]],
            "topic": str(name),
            "hold_before_cutover": False,
        }
        return ScalableTopicInput.model_validate({**given, **more})

    def start(self, name: TopicName, *, url: str = "", **more: object) -> Run:
        """Start its migration."""
        run = self.environment.operator.start(self.input(name, url=url, **more))
        self._runs.append(run)
        return run

    def end(self) -> None:
        """End what a failed test has left, which would keep others from the cluster."""
        for run in self._runs:
            with suppress(RPCError):
                run.terminate()

    def snapshot(self, name: TopicName) -> TopicsSnapshot:
        """Return a snapshot of topics, policies and records."""
        return read_snapshot(self.admin, self.store, self.stack.admin_urls, name.namespace_path, [name])

    def is_scalable(self, name: TopicName) -> bool:
        """Return whether it is."""
        return read_scalable(self.store, name).state is RecordState.GOOD

    def drain(self, name: TopicName, subscription: str = QUEUE) -> None:
        """Consume what a regular topic has left, with a regular client; no message is lost, and none comes twice."""
        received = drain(self.stack, self.admin, name, subscription, pulsar.ConsumerType.Shared)
        assert sorted(map(int, received)) == list(range(MESSAGES))

    def ends_well(
        self, run: Run, name: TopicName, before: TopicsSnapshot, *subscriptions: str, fault: str = ""
    ) -> Report:
        """Check that a migration ends with nothing missing, and nothing left over; its certificate names the fault."""
        run.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN)
        for subscription in (QUEUE, *subscriptions):
            self.drain(name, subscription)
        try:
            report = run.result(_END_LIMIT)
        except TimeoutError as error:
            raise AssertionError(f"it has not ended: {run.story()}") from error
        self.is_whole(name, before, *subscriptions)
        assert report.outcome is (Outcome.DONE_WITH_FAILURES if fault else Outcome.DONE), report
        proof = TopicCertificate.model_validate(report.certificate)
        assert (proof.migrated_from, proof.partitions, proof.segments) == (str(name), PARTS, PARTS)
        assert proof.faults is not None
        assert len(proof.faults) == bool(fault), proof.faults
        assert all(fault in said for said in proof.faults)
        return report

    def is_whole(self, name: TopicName, before: TopicsSnapshot, *subscriptions: str) -> None:
        """Check that a topic is scalable with all that belongs to it, and everything else is as before."""
        wanted = (QUEUE, STREAM, *subscriptions)
        assert topic_faults(self.admin, self.store, name, partitions=PARTS, subscriptions=wanted) == []
        after = self.snapshot(name)
        assert (after.policies, after.reported) == (before.policies, before.reported)


@pytest.fixture
def topics(stack: Stack, admin: PulsarAdmin, store: CasStore, environment: Environment) -> Generator[Topics]:
    """Makes topics, and migrates them."""
    topics = Topics(stack, admin, store, environment)
    yield topics
    topics.end()


@pytest.fixture
def proxy(stack: Stack) -> Generator[FaultyBrokerProxy]:
    """Yield a proxy between the worker and the broker."""
    with FaultyBrokerProxy(stack.admin_urls[0]) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "act",
    [
        failed_but_done,
        pytest.param(hung_up, marks=pytest.mark.exhaustive),
        pytest.param(failed, marks=pytest.mark.exhaustive),
    ],
    ids=["failed-but-done", "hung-up", "failed"],
)
def test_an_unclear_answer_is_decided_by_the_metadata(
    topics: Topics, proxy: FaultyBrokerProxy, act: Act, request: pytest.FixtureRequest
) -> None:
    """Whether brokers have made the topic scalable or not, it is so at the end, once and as a whole."""
    name = topics.make(f"unclear/{request.node.callspec.id}")
    before = topics.snapshot(name)
    proxy.once("POST", f"/{name.topic}/migrate", act)
    topics.ends_well(topics.start(name, url=proxy.url), name, before)
    assert proxy.waits == 0
    assert topics.snapshot(name).notes == {}


def _denied(ask: Ask) -> Answer:
    """Refuse, as a broker does whose authorization lacks a grant."""
    del ask
    return Answer(403, b'{"reason":"Unauthorized to perform MIGRATE_TO_SCALABLE"}')


@pytest.mark.parametrize("asked_by", ["precheck", "flip"])
def test_a_right_that_is_missing_changes_nothing(topics: Topics, proxy: FaultyBrokerProxy, asked_by: str) -> None:
    """PRECHECK reports it; if a grant is taken away later, the topic and the policies stay as they are."""
    name = topics.make(f"denied/{asked_by}")
    before = topics.snapshot(name)
    proxy.always("POST", "/migrate" if asked_by == "precheck" else f"/{name.topic}/migrate", _denied)
    failure = topics.start(name, url=proxy.url).failure()
    assert ("NO_RIGHT" in failure.message) is (asked_by == "precheck")
    assert "MIGRATE_TO_SCALABLE" in failure.message
    assert changes(before, topics.snapshot(name)) == []


def test_a_scalable_topic_that_comes_right_before_the_call(
    topics: Topics, proxy: FaultyBrokerProxy, clients: ClientProgram
) -> None:
    """A client makes one of the name, and sends to it: both topics keep what they have, and the flip says so."""
    name = topics.make("early/space")
    before = topics.snapshot(name)

    def make_another(ask: Ask) -> Answer:
        create_again(topics.stack, topics.admin, name)
        clients.open_producers([ProducerPlan("early", f"topic://{name.local_path}", Language.JAVA_V5)])
        clients.start()
        wait_for("a message", lambda: any(record.sent for record in clients.collect()[0]), 30)
        clients.stop_sending(10)
        return ask()

    proxy.once("POST", f"/{name.topic}/migrate", make_another)
    failure = topics.start(name, url=proxy.url, replace_empty=True).failure()
    assert f"topic://{name.local_path} exists, and did not come from {name}" in failure.message
    assert proxy.waits == 0
    clients.close()
    after = topics.snapshot(name)
    assert (after.policies, after.reported, after.notes) == (before.policies, before.reported, {})
    assert after.topics[str(name)].regular == before.topics[str(name)].regular
    assert topics.admin.scalable_topics.segment_stats(name, 0).storage_size > 0
    blocked = topics.start(name, replace_empty=True).failure()
    assert "NAME_TAKEN" in blocked.message
    topics.drain(name)


def test_regular_topics_that_brokers_did_not_end_are_ended(topics: Topics, proxy: FaultyBrokerProxy) -> None:
    """A broker dies between its write and the end of regular topics; what is sent and subscribed until then counts."""
    name = topics.make("unended/space")
    before = topics.snapshot(name)

    def make_scalable_alone(ask: Ask) -> Answer:
        del ask
        layout = SegmentLayout.migrated([str(name.of_partition(number)) for number in range(PARTS)], 1)
        write_record(topics.store, name, layout)
        return Answer(500)

    def subscribe_and_fail(ask: Ask) -> Answer:
        topics.admin.subscriptions.create(name, LATE)
        return failed(ask)

    proxy.once("POST", f"/{name.topic}/migrate", make_scalable_alone)
    proxy.once("POST", "/terminate", subscribe_and_fail)
    topics.ends_well(topics.start(name, url=proxy.url), name, before, LATE)
    assert proxy.waits == 0


@pytest.mark.exhaustive
def test_a_subscription_that_comes_before_the_flip_is_recorded(topics: Topics) -> None:
    """It was made after the look at the topic, while the migration waited for the operator."""
    name = topics.make("census/space")
    before = topics.snapshot(name)
    run = topics.start(name, hold_before_cutover=True)
    run.wait_until_it_waits_for(WaitKind.HOLD)
    topics.admin.subscriptions.create(name, LATE)
    run.steer(Verb.PROCEED)
    topics.ends_well(run, name, before, LATE)


@pytest.mark.exhaustive
def test_topic_made_scalable_by_a_command_is_completed(topics: Topics) -> None:
    """By the brokers' command alone it has no records, no cursors and no guard."""
    name = topics.make("bare/space")
    before = topics.snapshot(name)
    run = topics.start(name, hold_before_cutover=True)
    run.wait_until_it_waits_for(WaitKind.HOLD)
    make_scalable(topics.stack, topics.admin, name)
    run.steer(Verb.PROCEED)
    topics.ends_well(run, name, before)


def test_a_topic_that_is_deleted_while_it_waits(topics: Topics) -> None:
    """The migration ends and says so, and nothing of it is left."""
    name = topics.make("gone/space", drained=False)
    before = topics.snapshot(name)
    run = topics.start(name)
    run.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.CLIENTS)
    topics.admin.topics.delete_partitioned(name, force=True)
    assert f"{name} does not exist any more: it was deleted" in run.failure().message
    after = topics.snapshot(name)
    assert (after.policies, after.notes) == (before.policies, {})
    assert after.topics[str(name)].record is RecordState.ABSENT


@pytest.mark.exhaustive
def test_two_starts_of_a_topic(topics: Topics) -> None:
    """The second one is refused by the server."""
    name = topics.make("twice/space")
    run = topics.start(name, hold_before_cutover=True)
    with pytest.raises(WorkflowAlreadyStartedError):
        topics.start(name)
    run.wait_until_it_waits_for(WaitKind.HOLD)
    run.steer(Verb.ROLLBACK)
    assert run.result().outcome is Outcome.ROLLED_BACK


def test_migrations_of_two_topics_of_a_cluster_come_one_after_the_other(topics: Topics) -> None:
    """The second one names the migration that it waits for, changes nothing until then, and continues."""
    first, second = topics.make("queue/first"), topics.make("queue/second")
    before = {name: topics.snapshot(name) for name in (first, second)}
    ahead = topics.start(first)
    ahead.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN)
    waiting_run = topics.start(second)
    waiting = waiting_run.wait_until_it_waits_for(WaitKind.MIGRATION, phase=Phase.GUARD).waiting
    assert waiting
    assert topics.input(first).workflow_id in waiting.why
    assert topics.snapshot(second).policies == before[second].policies
    assert not topics.is_scalable(second)
    topics.ends_well(ahead, first, before[first])
    topics.ends_well(waiting_run, second, before[second])
    assert topics.snapshot(second).notes == {}


@pytest.mark.exhaustive
def test_the_next_migration_completes_a_topic_whose_run_was_lost_after_the_call(
    topics: Topics, proxy: FaultyBrokerProxy
) -> None:
    """Its attempt never heard the answer of the broker, its workflow was terminated, and nothing was registered."""
    lost, other = topics.make("lost/first"), topics.make("lost/second")
    before = {name: topics.snapshot(name) for name in (lost, other)}
    with _HeldAnswer(proxy) as answered:
        run = topics.start(lost, url=proxy.url)
        wait_for("the topic to be scalable", lambda: topics.is_scalable(lost), 60)
        run.terminate()
        assert topics.snapshot(lost).topics[str(lost)].subscriptions == {}
        following = topics.start(other)
        following.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN)
        topics.is_whole(lost, before[lost])
        whole = topics.snapshot(lost)
        answered.set()
    report = topics.ends_well(following, other, before[other])
    assert any(
        f"{lost} was left during its flip by an earlier run, and is complete now" in note for note in report.notes
    )
    assert changes(whole._replace(notes={}), topics.snapshot(lost)._replace(notes={})) == []
    topics.drain(lost)


@pytest.mark.exhaustive
def test_worker_dead_for_minutes_after_the_call_loses_nothing(topics: Topics, proxy: FaultyBrokerProxy) -> None:
    """Brokers look for unused messages, and the held policies keep all of them."""
    name = topics.make("dead/space")
    before = topics.snapshot(name)
    worker = topics.environment.worker
    with _HeldAnswer(proxy) as answered:
        run = topics.start(name, url=proxy.url)
        wait_for("the topic to be scalable", lambda: topics.is_scalable(name), 60)
        worker.kill()
        answered.set()
    try:
        # Makes a broker the controller, which looks then.
        httpx.get(
            f"{topics.stack.admin_urls[0]}/admin/v2/scalable/{name.local_path}/stats", timeout=30
        ).raise_for_status()
        threading.Event().wait(_DEAD_SECONDS)
        layout = read_scalable(topics.store, name).layout
        assert layout
        assert sum(segment.legacy_topic_name is not None for segment in layout.segments.values()) == PARTS
        assert topics.snapshot(name).topics[str(name)].subscriptions == {}
    finally:
        worker.restart()
    # Nothing marked the regular topic while the worker was dead, and the report says what follows from that.
    topics.ends_well(run, name, before, fault="before its regular topic could be marked")


class _HeldAnswer:
    """The broker's answer to a migration, which is held back until the event is set."""

    def __init__(self, proxy: FaultyBrokerProxy) -> None:
        self._released = threading.Event()
        self._liar = proxy
        self._arm()

    def __enter__(self) -> threading.Event:
        return self._released

    def __exit__(self, *_: object) -> None:
        self._released.set()

    def _arm(self) -> None:
        self._liar.once("POST", "/topic/migrate", self._hold)

    def _hold(self, ask: Ask) -> Answer | None:
        answer = ask()
        if not 200 <= answer.status < 300:
            # The broker has not done it, and is asked again.
            self._arm()
            return answer
        self._released.wait(300)
        return None

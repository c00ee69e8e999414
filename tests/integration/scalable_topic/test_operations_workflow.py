"""Operations under a workflow of a real Temporal server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from temporalio.client import (
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
)

from clients.cas.store import CasReader, CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, controller_of, read_scalable
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import NAMED
from models.lifecycle.names import TASK_QUEUE
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.claims import OPERATIONS
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.operation_input import Operation, ScalableOperationInput
from models.scalable_topic.operation_state import OperationCertificate, OperationFigures
from models.scalable_topic.phases import OperationPhase, Phase
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from tests.support.blue_green.namespaces import create_namespace
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.operator import Run
from tests.support.scalable_topic.copies import received, require_all, send_to_segments
from tests.support.scalable_topic.topics import fill
from tests.support.waiting import wait_for

SPACE = "public/default"
# A history beyond this is slow to load, and more than one answer may hold.
_HISTORY_BYTES = 256 << 10
_SENT = 300

Start = Callable[..., Run]


@pytest.fixture
def start(environment: Environment, stack: Stack) -> Start:
    """Starts operations."""

    def start(operation: Operation, *topics: str, **more: object) -> Run:
        given = {
            "cluster": stack.state.spec.cluster,
            "metadata_url": stack.metadata_url,
            "admin_urls": stack.admin_urls,
            "topics": topics,
            "operation": operation,
        }
        return environment.operator.start(ScalableOperationInput.model_validate({**given, **more}))

    return start


def _nothing_is_left(store: CasReader) -> None:
    assert store.get(CLAIM) is None
    assert store.children(OPERATIONS) == []


def test_a_list_of_topics(admin: PulsarAdmin, store: CasStore, start: Start) -> None:
    """A dry run writes nothing; then each topic has its outcome, and those that fail do not keep others from theirs."""
    names = [TopicName.parse(f"{SPACE}/listed-{number}") for number in range(3)]
    for name in names:
        admin.scalable_topics.create(name, 2)
    broken = TopicName.parse(f"{SPACE}/listed-broken")
    store.create(broken.scalable_path, b"no JSON")
    topics = (f"topic://{SPACE}/listed-0", f"{SPACE}/listed-*", f"persistent://{SPACE}/listed-missing")
    plan = start(Operation.SPLIT, *topics, dry_run=True).result()
    assert (plan.outcome, plan.summary) == (Outcome.PLANNED, "ready: of 5 topics 3 changed, 2 failed")
    assert [controller_of(store, name) for name in names] == [None] * 3
    report = start(Operation.SPLIT, *topics).result()
    assert (report.outcome, report.summary) == (Outcome.DONE_WITH_FAILURES, "of 5 topics 3 changed, 2 failed")
    figures = OperationFigures.model_validate(report.figures)
    assert (figures.topics, figures.changed_topics, figures.failed_topics) == (5, 3, 2)
    proof = OperationCertificate.model_validate(report.certificate)
    assert proof.operation == Operation.SPLIT
    assert proof.completed_at
    assert sorted(proof.outcomes or ()) == [
        f"{SPACE}/listed-{number}: 0000-7fff-0 became 0000-3fff-2, 4000-7fff-3" for number in range(3)
    ]
    (failed,) = report.failed_items
    assert {item.path for item in failed.items} == {f"{SPACE}/listed-broken", f"{SPACE}/listed-missing"}
    assert [len(admin.scalable_topics.layout(name).active) for name in names] == [3] * 3
    _nothing_is_left(store)
    store.delete(broken.scalable_path, 0)


def test_segments_get_other_entry_buckets(admin: PulsarAdmin, store: CasStore, start: Start) -> None:
    """Each topic's widest segment has a child of the same hashes and other buckets, with places of subscriptions."""
    names = [TopicName.parse(f"{SPACE}/bucketed-{number}") for number in range(2)]
    for name in names:
        admin.scalable_topics.create(name, 2)
        admin.scalable_topics.register(name, "all", SubscriptionKind.STREAM)
    topics = f"{SPACE}/bucketed-*"
    plan = start(Operation.REBUCKET, topics, buckets=3, dry_run=True).result()
    assert (plan.outcome, plan.summary) == (Outcome.PLANNED, "ready: of 2 topics 2 changed")
    report = start(Operation.REBUCKET, topics, buckets=3).result()
    assert (report.outcome, report.summary) == (Outcome.DONE, "of 2 topics 2 changed")
    for name in names:
        layout = admin.scalable_topics.layout(name)
        assert layout_faults(layout) == []
        assert {segment.descriptor: segment.buckets for segment in layout.active} == {
            "0000-7fff-2": 3,
            "8000-ffff-1": 2,
        }
        assert layout.segments[0].child_ids == (2,)
        assert [admin.scalable_topics.backlog(name, segment.descriptor, "all") for segment in layout.active] == [0, 0]
    # The parent, and the segment that has the buckets.
    for segment in (0, 2):
        again = start(Operation.REBUCKET, f"{SPACE}/bucketed-0", buckets=3, segment=segment).result()
        assert again.summary == "of 1 topics 1 as before", again
    _nothing_is_left(store)


def test_what_the_cluster_uses_is_looked_at(admin: PulsarAdmin, store: CasStore, start: Start) -> None:
    """Records that no table knows refuse an operation before and after a hold, unless they are accepted; not a look."""
    name = TopicName.parse(f"{SPACE}/unknown")
    admin.scalable_topics.create(name, 2)
    held = start(Operation.SPLIT, str(name), hold_before_cutover=True)
    held.wait_until_it_waits_for(WaitKind.HOLD, phase=OperationPhase.OPERATE)
    store.create("/from-the-future", b"")
    try:
        held.steer(Verb.PROCEED)
        assert "UNKNOWN_FEATURE" in held.failure().message
        refused = start(Operation.SPLIT, str(name), dry_run=True).result()
        assert "[UNKNOWN_FEATURE] unknown path /from-the-future" in refused.summary
        assert start(Operation.AUDIT, str(name)).result().outcome is Outcome.DONE
        assert len(admin.scalable_topics.layout(name).active) == 2
        report = start(Operation.SPLIT, str(name), accept=["path:/from-the-future"]).result()
        assert (report.outcome, [use.feature for use in report.features if use.accepted]) == (
            Outcome.DONE,
            ["path:/from-the-future"],
        )
    finally:
        store.delete("/from-the-future", 0)
    _nothing_is_left(store)


def test_an_operation_waits_for_a_migration(
    environment: Environment, stack: Stack, admin: PulsarAdmin, store: CasStore, start: Start
) -> None:
    """It waits until that run releases the cluster; `rollback` ends the wait. Reading operations continue."""
    name = TopicName.parse(f"persistent://{SPACE}/held")
    fill(stack, admin, name, 0)
    given = {"cluster": stack.state.spec.cluster, "metadata_url": stack.metadata_url, "admin_urls": stack.admin_urls}
    more = {"topic": str(name), "force": True, "hold_before_cutover": False}
    migration = environment.operator.start(ScalableTopicInput.model_validate({**given, **more}))
    migration.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN)
    before = read_scalable(store, name)
    run = start(Operation.SPLIT, str(name))
    waiting = run.wait_until_it_waits_for(WaitKind.MIGRATION, phase=OperationPhase.OPERATE).waiting
    assert waiting
    assert f"scalable-topic/{stack.state.spec.cluster}/{SPACE}/held" in waiting.why
    assert start(Operation.AUDIT, str(name)).result().outcome is Outcome.DONE
    run.steer(Verb.ROLLBACK)
    assert run.result().outcome is Outcome.ROLLED_BACK
    assert read_scalable(store, name).version == before.version
    migration.steer(Verb.PROCEED)
    run = start(Operation.SPLIT, str(name))
    assert migration.result().outcome is Outcome.DONE_WITH_FAILURES
    assert run.result().outcome is Outcome.DONE
    _nothing_is_left(store)


def test_a_copy_to_a_regular_topic(stack: Stack, admin: PulsarAdmin, store: CasStore, start: Start) -> None:
    """Every message is there once, in the order of its key; retention is held during the copy, then restored."""
    namespace = "operated/copies"
    create_namespace(admin, namespace)
    name, target = (TopicName.parse(f"persistent://{namespace}/{which}") for which in ("source", "source-v4"))
    admin.scalable_topics.create(name, 2)
    send_to_segments(stack, admin, name, range(_SENT))
    options: dict[str, object] = {"copy_to": "*-v4", "copy_partitions": 2, "copy_subscriptions": ["app"]}
    plan = start(Operation.COPY, f"{namespace}/*", dry_run=True, **options).result()
    assert plan.summary == "ready: of 1 topics 1 changed"
    assert store.get(target.managed_ledger_path) is None
    report = start(Operation.COPY, f"{namespace}/*", **options).result()
    assert (report.outcome, report.failed_items) == (Outcome.DONE, [])
    assert OperationFigures.model_validate(report.figures).messages == _SENT
    require_all(received(stack, target, "app", _SENT), range(_SENT))
    assert start(Operation.END_COPY, str(name), copy_to="*-v4").result().outcome is Outcome.DONE
    assert admin.namespaces.retention(namespace) is None
    _nothing_is_left(store)


def test_nothing_fits(start: Start) -> None:
    """A pattern without any topic is a blocker, with its cure."""
    failure = start(Operation.AUDIT, f"{SPACE}/missing-*").failure()
    assert "NO_TOPICS" in failure.message


def test_on_a_schedule(environment: Environment, stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """Temporal starts it under an id with the time; it takes the cluster and gives it back like any other."""
    name = TopicName.parse(f"{SPACE}/scheduled")
    admin.scalable_topics.create(name, 1)
    given = {"cluster": stack.state.spec.cluster, "metadata_url": stack.metadata_url, "admin_urls": stack.admin_urls}
    input = ScalableOperationInput.model_validate({**given, "topics": [str(name)], "operation": Operation.SPLIT})
    action = ScheduleActionStartWorkflow("ScalableOperation", input, id=input.workflow_id, task_queue=TASK_QUEUE)
    operator = environment.operator
    schedule = operator.wait(
        operator.client.create_schedule("nightly", Schedule(action, ScheduleSpec()), trigger_immediately=True), 30
    )

    def started() -> str:
        actions = [recent_action.action for recent_action in operator.wait(schedule.describe(), 30).info.recent_actions]
        return next(
            (action.workflow_id for action in actions if isinstance(action, ScheduleActionExecutionStartWorkflow)), ""
        )

    run_id = wait_for("the run", started, 30)
    assert run_id.startswith(f"{input.workflow_id}-")
    handle = operator.client.get_workflow_handle(run_id, result_type=Report)
    assert operator.wait(handle.result(), 120).outcome is Outcome.DONE
    assert len(admin.scalable_topics.layout(name).active) == 2
    operator.wait(schedule.delete(), 30)
    _nothing_is_left(store)


@pytest.mark.exhaustive
def test_a_thousand_topics(environment: Environment, store: CasStore, start: Start) -> None:
    """The history names a hundred of them, and holds no list of all."""
    for number in range(1000):
        name = TopicName.parse(f"{SPACE}/many-{number}")
        store.create(f"{name.scalable_path}/segments/1/load", b"{}")
    run = start(Operation.CLEAR_EMPTY, f"{SPACE}/many-*")
    report = run.result(300)
    assert (report.outcome, report.summary) == (Outcome.DONE, "of 1000 topics 1000 changed")
    proof = OperationCertificate.model_validate(report.certificate)
    assert (len(proof.outcomes or ()), proof.not_named) == (NAMED, 1000 - NAMED)
    assert read_scalable(store, TopicName.parse(f"{SPACE}/many-999")).state is RecordState.ABSENT
    client = environment.operator.client
    history = environment.operator.wait(client.get_workflow_handle(_id(report.cluster)).fetch_history(), 30)
    assert len(history.to_json()) < _HISTORY_BYTES
    _nothing_is_left(store)


def _id(cluster: str) -> str:
    return f"scalable-operation/{cluster}/{Operation.CLEAR_EMPTY}"

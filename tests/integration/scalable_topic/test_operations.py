"""Operations on scalable topics, on two real brokers: splits, merges, audits, and what is left of runs that died."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from activities.scalable_topic import flip, hold_release
from activities.scalable_topic.auto_scale import hold_auto_scale, restore_auto_scale
from activities.scalable_topic.context import GRACE
from activities.scalable_topic.operations import run
from activities.scalable_topic.operations.context import TopicEditor, ask_leader
from clients.cas.store import CasStore
from clients.errors import Superseded
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.json_records import read_record
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, controller_of, read_scalable, recorded_subscriptions
from models.lifecycle.claim import CLAIM
from models.scalable_topic.claims import OPERATIONS
from models.scalable_topic.operation_input import Operation
from models.scalable_topic.results import Released
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.scalable_topic.operations import Operations, carried_out
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import QUEUE, STREAM, drain, fill, layout_of, pulsar
from tests.support.stacks import SharedStack

SPACE = "public/default"
OWN = AutoScalePolicy(enabled=True, min_segments=2)


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


def _native(admin: PulsarAdmin, topic: str, segments: int = 2) -> TopicName:
    """Return a scalable topic with a policy of its own, and a subscription that only its segments know."""
    name = TopicName.parse(f"{SPACE}/{topic}")
    admin.scalable_topics.create(name, segments)
    admin.scalable_topics.set_auto_scale_policy(name, OWN)
    for segment in admin.scalable_topics.layout(name).active:
        admin.scalable_topics.create_segment(name, segment.descriptor, ["unrecorded"])
    return name


def _hold_policy(editor: TopicEditor) -> None:
    hold_auto_scale(editor.store, editor.guard, editor.name)


def _nothing_is_left(store: CasStore) -> None:
    assert store.get(CLAIM) is None
    assert store.children(OPERATIONS) == []


def _policy(store: CasStore, name: TopicName) -> AutoScalePolicy:
    """Return the stored policy: a broker answers from its cache, which follows a moment later."""
    return AutoScalePolicy.model_validate((read_record(store, name.scalable_path) or {})["autoScalePolicy"])


def _has_all(admin: PulsarAdmin, store: CasStore, name: TopicName, *subscriptions: str) -> SegmentLayout:
    """Return the layout is whole, the policy as before, and each subscription has its record and its places."""
    layout = layout_of(store, name)
    assert layout_faults(layout) == []
    assert _policy(store, name) == OWN
    assert set(recorded_subscriptions(store, name)) == set(subscriptions)
    for segment in layout.active:
        for subscription in subscriptions:
            assert admin.scalable_topics.backlog(name, segment.descriptor, subscription) == 0
    return layout


def test_two_splits_of_a_segment_are_one(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The layout is the planned one, a subscription without a record is carried over, and the second run finds it."""
    name = _native(admin, "split-twice")
    admin.scalable_topics.register(name, "recorded", SubscriptionKind.STREAM)
    before = layout_of(store, name)
    done = carried_out(stack, Operation.SPLIT, str(name), segment=0)
    assert (done.changed, done.failed, done.registered) == (1, 0, 1)
    assert done.outcomes == (f"{SPACE}/split-twice: 0000-7fff-0 became 0000-3fff-2, 4000-7fff-3",)
    layout = _has_all(admin, store, name, "recorded", "unrecorded")
    assert layout == before.split(0, layout.segments[2].created_at_ms)
    again = carried_out(stack, Operation.SPLIT, f"topic://{SPACE}/split-twice", segment=0)
    assert (again.changed, again.unchanged, again.failed) == (0, 1, 0)
    assert layout_of(store, name) == layout
    _nothing_is_left(store)


def test_a_merge(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """Neighbours become one, in either order; others are refused, and everything stays as it was."""
    name = _native(admin, "merge", 4)
    before = layout_of(store, name)
    assert carried_out(stack, Operation.MERGE, str(name), segments=(2, 1)).changed == 1
    layout = _has_all(admin, store, name, "unrecorded")
    assert layout == before.merge(2, 1, layout.segments[4].created_at_ms)
    assert carried_out(stack, Operation.MERGE, str(name), segments=(1, 2)).unchanged == 1
    refused = carried_out(stack, Operation.MERGE, str(name), segments=(0, 3))
    assert [failure.reason for failure in refused.failures] == [
        "segments 0000-3fff-0 and c000-ffff-3 are not neighbours"
    ]
    other = carried_out(stack, Operation.SPLIT, str(name), segment=1)
    assert "4000-7fff-1 was changed in another way" in other.failures[0].reason
    assert _has_all(admin, store, name, "unrecorded") == layout
    _nothing_is_left(store)


def test_an_attempt_that_comes_again_changes_nothing_more(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The segment that was chosen is noted, so the widest one is not split twice in one run."""
    name = _native(admin, "chosen", 2)
    operations = Operations(stack, Operation.SPLIT, str(name))
    first = operations.operate()
    assert operations.operate().outcomes == first.outcomes
    assert len(layout_of(store, name).active) == 3
    operations.complete()
    _nothing_is_left(store)


def test_attempt_that_died_after_the_request_is_completed(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The next one finds the split, gives the policy back and says that it was done."""
    name = _native(admin, "died", 1)
    operations = Operations(stack, Operation.SPLIT, str(name))

    def die(editor: TopicEditor) -> None:
        layout = editor.layout()
        editor.guard.note(segments=(layout.segments[0],), next_segment_id=layout.next_segment_id)
        _hold_policy(editor)
        ask_leader(editor, lambda admin: admin.scalable_topics.split(name, 0))

    _with_editor(operations, name, die)
    assert _policy(store, name) == OWN.model_copy(update={"enabled": False})
    done = operations.operate()
    # What was split without a record has no cursors of it.
    assert (done.changed, done.registered, done.healed) == (1, 1, 2)
    _has_all(admin, store, name, "unrecorded")
    operations.complete()
    _nothing_is_left(store)


def test_the_next_run_puts_back_what_a_terminated_one_held(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """Any next operation on the cluster restores it; a policy that was set since stays."""
    names = [_native(admin, f"left-{number}", 1) for number in range(2)]
    dead = Operations(stack, Operation.SPLIT, *map(str, names))
    for name in names:
        _with_editor(dead, name, _hold_policy)
    other = AutoScalePolicy(enabled=False, max_segments=5)
    admin.scalable_topics.set_auto_scale_policy(names[1], other)
    done = carried_out(stack, Operation.CLEAR_EMPTY, f"{SPACE}/left-*", run_id="run-2")
    assert (done.topics, done.unchanged) == (2, 2)
    assert [_policy(store, name) for name in names] == [OWN, other]
    assert len(done.notes) == 1
    assert "left-1" in done.notes[0]
    _nothing_is_left(store)


def test_a_late_attempt_changes_nothing(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """It is refused whatever it comes back to, while its run continues and when that has ended."""
    name = _native(admin, "late", 1)
    operations = Operations(stack, Operation.SPLIT, str(name))
    with operations.task() as old, old.cluster.store() as its_store:
        old.take_cluster(its_store)
        guard = old.operation_guard(its_store, name)
        guard.take()
        editor = TopicEditor(old, its_store, name, guard)
        steps: list[Callable[[], object]] = [
            lambda: _hold_policy(editor),
            lambda: editor.secure(editor.layout().active),
            lambda: ask_leader(editor, lambda admin: admin.scalable_topics.split(name, 1)),
            lambda: list(restore_auto_scale(its_store, guard, name)),
            lambda: run.complete(old),
        ]
        operations.operate()
        before = read_scalable(store, name)
        for late in steps:
            with pytest.raises(Superseded):
                late()
        operations.complete()
        for late in steps[:-1]:
            with pytest.raises(Superseded):
                late()
        assert run.complete(old) == Released()
    assert read_scalable(store, name).layout == before.layout
    _has_all(admin, store, name, "unrecorded")
    _nothing_is_left(store)


def test_missing_children_are_made(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A missing new segment is created and its split reported, and a subscription without a record gets one."""
    name = _native(admin, "healed", 1)
    admin.scalable_topics.split(name, 0)
    (missing, _) = layout_of(store, name).active
    url = f"{stack.admin_urls[0]}/admin/v2/segments/{SPACE}/{name.topic}/{missing.descriptor}"
    httpx.delete(url, params={"force": True}, follow_redirects=True, timeout=30).raise_for_status()
    (outcome,) = carried_out(stack, Operation.AUDIT, str(name)).outcomes
    assert "unrecorded have no record" in outcome
    assert f"segment {missing.descriptor} is missing" in outcome
    done = carried_out(stack, Operation.SPLIT, str(name), segment=0)
    # The other one came of a split without a record, and lacked the subscription.
    assert (done.unchanged, done.registered, done.healed, done.failures) == (1, 1, 2, ())
    _has_all(admin, store, name, "unrecorded")
    _nothing_is_left(store)


def test_an_audit_names_what_will_be_lost(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """It changes nothing, also where no broker leads the topic, unless it fixes; then nothing is left to find."""
    name = _native(admin, "audited", 2)
    audit = carried_out(stack, Operation.AUDIT, f"{SPACE}/audit*")
    (outcome,) = audit.outcomes
    assert outcome.startswith(f"{SPACE}/audited: unrecorded have no record: what they have not consumed is lost")
    assert recorded_subscriptions(store, name) == {}
    assert controller_of(store, name) is None
    plan = Operations(stack, Operation.AUDIT, str(name), fix=True, dry_run=True).check().plan
    assert plan
    assert plan.with_findings == 1
    assert recorded_subscriptions(store, name) == {}
    cured = carried_out(stack, Operation.AUDIT, str(name), fix=True)
    assert (cured.changed, cured.registered) == (1, 1)
    assert carried_out(stack, Operation.AUDIT, str(name)).unchanged == 1
    _has_all(admin, store, name, "unrecorded")


def test_what_keeps_a_regular_topic_is_no_subscription(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """In the grace window of a migration an audit finds nothing, and a split takes over the consumers' own alone."""
    name = TopicName.parse(f"persistent://{SPACE}/in-its-window")
    fill(stack, admin, name, 0)
    drain(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    steps = TopicSteps(stack, name, cleanup="remove")
    for step in (hold_release.guard, flip.flip, hold_release.complete):
        steps.run(step)
    assert {*admin.topics.stats(name).subscriptions} == {QUEUE, STREAM, GRACE}
    assert carried_out(stack, Operation.AUDIT, str(name)).unchanged == 1
    done = carried_out(stack, Operation.SPLIT, str(name))
    assert (done.changed, done.registered) == (1, 0)
    assert {*recorded_subscriptions(store, name)} == {QUEUE, STREAM}
    _nothing_is_left(store)


def test_a_split_that_was_left_by_halves(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """An active segment that takes no messages is found, and the split that is named as its cure is one."""
    name = _native(admin, "halved", 1)
    (half,) = layout_of(store, name).active
    admin.scalable_topics.terminate_segment(name, half.descriptor)
    (outcome,) = carried_out(stack, Operation.AUDIT, str(name), fix=True).outcomes
    assert f"segment {half.descriptor} takes no messages" in outcome
    assert carried_out(stack, Operation.AUDIT, str(name)).with_findings == 1
    assert carried_out(stack, Operation.SPLIT, str(name), segment=half.segment_id).changed == 1
    assert carried_out(stack, Operation.AUDIT, str(name)).unchanged == 1
    _has_all(admin, store, name, "unrecorded")


def test_policies(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A dry run says what would be set; then it is set once, and a contradiction is an outcome of its topic."""
    name = _native(admin, "scaled", 1)
    wanted: dict[str, Any] = {"auto_scale": {"enabled": True, "min_segments": 4}}
    plan = Operations(stack, Operation.SET_AUTO_SCALE, str(name), dry_run=True, **wanted).check().plan
    assert plan
    (outcome,) = plan.outcomes
    would, instead = "{'enabled': True, 'minSegments': 4}", "{'enabled': True, 'minSegments': 2}"
    assert outcome == f"{SPACE}/scaled: its policy would be {would} instead of {instead}"
    assert _policy(store, name) == OWN
    assert carried_out(stack, Operation.SET_AUTO_SCALE, str(name), **wanted).changed == 1
    assert _policy(store, name) == AutoScalePolicy(enabled=True, min_segments=4)
    assert carried_out(stack, Operation.SET_AUTO_SCALE, str(name), **wanted).unchanged == 1
    _nothing_is_left(store)


def test_empty_records_are_removed(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """One without a value goes, with the reports beneath it; one that is broken stays, and is named."""
    empty, broken, good = (TopicName.parse(f"{SPACE}/record-{which}-op") for which in ("empty", "broken", "good"))
    store.create(f"{empty.scalable_path}/segments/2/load", b"{}")
    store.create(broken.scalable_path, b"no JSON")
    admin.scalable_topics.create(good, 1)
    done = carried_out(stack, Operation.CLEAR_EMPTY, f"{SPACE}/record-*-op")
    assert (done.topics, done.changed, done.unchanged, done.failed) == (3, 1, 1, 1)
    assert read_scalable(store, empty).state is RecordState.ABSENT
    assert read_scalable(store, broken).state is RecordState.BROKEN
    admin.scalable_topics.create(empty, 1)
    store.delete(broken.scalable_path, 0)


def _with_editor(operations: Operations, name: TopicName, act: Callable[[TopicEditor], object]) -> None:
    """Take the cluster and a topic, do something, and end without giving anything back."""
    with operations.task() as task, task.cluster.store() as store:
        task.take_cluster(store)
        guard = task.operation_guard(store, name)
        guard.take()
        act(TopicEditor(task, store, name, guard))

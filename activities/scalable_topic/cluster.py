"""What a migration to scalable topics takes of a cluster, and gives back: claims, records, policies that are held."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote

from activities.lifecycle.context import ActivityContext
from activities.pulsar.namespace_guard import NamespaceGuard, RecordGuard, recorded_namespaces
from activities.pulsar.overridden_policies import (
    Brokers,
    OverriddenPolicy,
    is_overridden,
    override_policies,
    restore_policy,
    wait_until_known,
)
from activities.scalable_topic.auto_scale import restore_auto_scale, set_or_fall_back
from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.conversion.name_taken import foreign_layout, name_is_taken
from activities.scalable_topic.conversion.topic import conversion_of
from activities.scalable_topic.regular_topic import GRACE
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict, StoreContention
from clients.pulsar.admin.errors import AdminConflict, AdminError, AdminServerError, AdminUnreachable
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.creation_locks import allow_creation, bar_path
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, unreadable
from models.lifecycle.status import WaitKind
from models.scalable_topic.claims import OPERATIONS, TOPICS, GuardedNamespace, Stage, TopicClaim, is_ours
from models.scalable_topic.input import ClusterInput, cleans_up
from models.scalable_topic.results import Released

ResultT = TypeVar("ResultT")

_TRIES = 6
PAUSE = 5.0
"""Seconds between them: half a minute in all, in which brokers that restart are back."""


Guard = NamespaceGuard[GuardedNamespace]


def _kept(_now: Retention | None) -> Retention:
    return Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)


def _still(now: AutoScalePolicy | None) -> AutoScalePolicy:
    return (now or AutoScalePolicy()).model_copy(update={"enabled": False})


RETENTION = OverriddenPolicy("retention", "retention", Retention, ("retention_policies",), _kept)
"""How long consumed messages are kept: indefinitely, so that no segment is taken for consumed."""

AUTO_SCALE = OverriddenPolicy(
    "auto_scale", "auto-scale policy", AutoScalePolicy, ("scalableTopicAutoScalePolicy",), _still
)
"""When brokers split and merge segments on their own: not now."""

_HELD: tuple[OverriddenPolicy[Any], ...] = (RETENTION, AUTO_SCALE)


def take(task: ClusterTask[ClusterInput], namespaces: Iterable[str]) -> Released:
    """Take the claim on the cluster, bring to its end what an earlier run left, and hold the policies of namespaces.

    Waits while a migration of other topics of the cluster runs.

    Raises:
        ClaimHeld: another kind of migration holds the cluster.
    """
    with task.cluster.store() as store:
        task.take_cluster(store)
        told = [*_finish(task, store), *_finish_operations(task, store, own=False)]
        for namespace in namespaces:
            guard = task.namespace_guard(store, namespace)
            guard.take()
            _hold_policies(guard, task.context, task.cluster.brokers)
    return Released(kept=tuple(told))


def recover(task: ClusterTask[ClusterInput]) -> Released:
    """Bring to its end what a run has left that was terminated, or is lost; harmless where none was.

    A cluster that another migration holds is left alone.
    """
    with task.cluster.store() as store:
        if not task.is_orphaned(store):
            return Released()
        task.take_cluster(store)
    return release_cluster(task)


def release_cluster(task: ClusterTask[ClusterInput]) -> Released:
    """Put policies back, forget topics that nobody cleans up, and give up the claim; harmless where that was done."""
    with task.cluster.store() as store:
        if not holds_cluster(task, store):
            return Released()
        keeper = task.keeper(store)
        keeper.renew()
        told = [*_finish(task, store), *_finish_operations(task, store, own=True)]
        if not cleans_up(task.input):
            # Before the claim goes: then others may hold it for as long as their clients take.
            forget_topics(task, store)
        keeper.release()
        return Released(kept=tuple(told))


def holds_cluster(task: ClusterTask[ClusterInput], store: CasStore) -> bool:
    """Return whether this run holds the cluster: it may never have taken it, or given it up already."""
    found = task.keeper(store).read()
    return found is not None and found.claim.is_of(task.attempt)


def own_topics(task: ClusterTask[ClusterInput], store: CasStore) -> list[TopicName]:
    """Return topics that this migration has made scalable, and has not forgotten."""
    records = ((name, task.topic_guard(store, name).read()) for name in recorded_topics(store))
    mine = task.attempt.workflow_id
    return [name for name, one in records if one and one.stage is Stage.FLIPPED and one.workflow_id == mine]


def forget_topics(task: ClusterTask[ClusterInput], store: CasStore) -> None:
    """Remove their records."""
    for name in own_topics(task, store):
        guard = task.topic_guard(store, name)
        guard.take()
        guard.release()


def require_held(guard: Guard) -> None:
    """Right before a topic becomes scalable: the policies still stand.

    Raises:
        StoreConflict: somebody has changed one.
    """
    for policy in _HELD:
        if not is_overridden(guard, policy):
            raise StoreConflict(
                f"the {policy.name} of {guard.namespace} is not what the migration has set: somebody has changed it, "
                "and brokers may drop messages that are not consumed"
            )


def recorded_topics(store: CasReader) -> Iterator[TopicName]:
    """Yield all topics that have a record."""
    for name in store.children(TOPICS):
        yield TopicName.parse(unquote(name))


def _finish(task: ClusterTask[ClusterInput], store: CasStore) -> Iterator[str]:
    """Bring topics to their end that a run left amid their flip, and put policies back; says in words what was done."""
    half: set[str] = set()
    # Topics first: while one of them is scalable half-finished, its namespace must stay as it is.
    yield from _finish_topics(task, store, half)  # mutant: scalable-topic/lost-topics-stay-half-finished
    yield from _put_back(task, store, half)


def _finish_topics(task: ClusterTask[ClusterInput], store: CasStore, half: set[str]) -> Iterator[str]:
    """Yield the former; adds to `half` the namespaces of topics that could not be completed."""
    left: dict[TopicName, TopicClaim] = {}
    for name in recorded_topics(store):
        guard = task.topic_guard(store, name)
        if (record := guard.read()) is None or not _is_unfinished(task, store, record):
            continue
        task.take_over(record)
        guard.take()
        if record.begun:
            left[name] = record
        else:
            guard.release()
    unfinished = {name: record for name, record in left.items() if record.stage is not Stage.FLIPPED}
    stopped = [name for name, record in unfinished.items() if _stopped(task, store, name, record)]
    asked = {broker for record in unfinished.values() for broker in record.asked}
    answered = task.answering() if asked else set[str]()
    if stopped or asked & answered:
        task.cluster.await_late_requests()
    for name, record in left.items():
        try:
            yield from patiently(
                task,
                f"complete {name}",
                lambda name=name, record=record: [*_finish_topic(task, store, name, record, answered)],
            )
        except TopicRefused as error:
            # The next start tries it again.
            half.add(name.namespace_path)
            yield (
                f"{name} was left during its flip by an earlier run, and cannot be completed: {error}. The policies of "
                "its namespace stay held until a start completes it"
            )


def _stopped(task: ClusterTask[ClusterInput], store: CasStore, name: TopicName, record: TopicClaim) -> bool:
    """Keep brokers from making a topic scalable that is not; whether requests of workers may still arrive."""
    if record.stage is Stage.CLAIMED:
        # It was stopped before.
        return False
    conversion = conversion_of(task, store, task.topic_guard(store, name), name, record)
    # What brokers refuse is tried, and reported, with what follows.
    with suppress(TopicRefused):
        return patiently(task, f"leave {name} regular", lambda: conversion.withdrawal.stop(name, record.partitions))
    return True


def _is_unfinished(task: ClusterTask[ClusterInput], store: CasStore, record: TopicClaim) -> bool:
    """Whether a topic must be brought to its end; one that is scalable as a whole is its run's while that continues."""
    if record.stage is not Stage.FLIPPED:
        return True
    return not record.is_of(task.attempt) and not task.is_running(record, store)


def patiently(task: ClusterTask[ClusterInput], what: str, work: Callable[[], ResultT]) -> ResultT:
    """Do something about one of many topics, which must not keep all others from theirs.

    Args:
        task: an attempt of the migration.
        what: brokers must do, for the message.
        work: does it; tried some times while brokers refuse.

    Raises:
        TopicRefused: they continue refusing, or one holds the lock of the topic.
        AdminUnreachable: none of them can be reached, which concerns all topics.
    """
    for left in reversed(range(_TRIES)):
        try:
            return work()
        except StoreContention as error:
            # It was waited for.
            raise TopicRefused(str(error)) from error  # mutant: scalable-topic/a-lock-of-one-topic-stops-all
        except AdminError as error:
            # One that answers 5xx may do so for good: brokers cannot even name the partitions of some topics.
            # mutant: scalable-topic/a-topic-that-brokers-fail-for-blocks-all
            if isinstance(error, AdminUnreachable) and not isinstance(error, AdminServerError):
                raise
            if not left:
                raise TopicRefused(str(error)) from error
            with task.context.waiting(WaitKind.STORE, f"brokers to {what}: {error}"):
                task.context.pause(PAUSE)
    raise AssertionError("the last try returns or raises")


def keep_for_grace(task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName) -> tuple[str, ...]:
    """Keep a regular topic until the grace window ends; in words if that cannot be done, which holds nobody up."""
    try:
        patiently(task, f"keep {name} for the grace window", lambda: _keep_regular(task, guard, name))
    except TopicRefused as error:
        return (f"brokers may delete {name} before the grace window ends: {error}",)
    return ()


def _keep_regular(task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName) -> None:
    """Have brokers keep a regular topic with its messages; harmless when done twice.

    Brokers that lead a scalable topic check once a minute for regular parents that every subscription has consumed, and
    whose retention has ended; they drop these from the layout, and delete the regular topic (5.0.1). A subscription
    that nobody consumes keeps them from it, and costs no more than the regular topic itself; a retention that is held
    longer would keep what the whole namespace consumes. Only the cleanup deletes it: where an operator keeps the
    regular topic, or a run is terminated, it stays.

    What has no message is not kept.

    Raises:
        AdminError: a broker refuses.
    """
    if (topic := task.find_topic(name)) is None:
        return
    guard.note(held=True)

    def keep(part: TopicName) -> None:
        # A late request would make the subscription, or even the topic, again.
        with suppress(AdminConflict):
            task.cluster.change_or_never(
                connect=lambda admin: admin.topics.internal_stats(part),
                fence=guard.require,
                change=lambda admin: admin.subscriptions.create(part, GRACE),
            )

    task.each([part.name for part in topic.parts], keep)


class TopicRefused(Exception):
    """Brokers refuse something about one topic again and again."""


def _finish_topic(
    task: ClusterTask[ClusterInput], store: CasStore, name: TopicName, record: TopicClaim, answered: Collection[str]
) -> Iterator[str]:
    """Bring a topic to its end; `record` is what the run has noted that left it, `answered` as for `Withdrawal.end`."""
    guard = task.topic_guard(store, name)
    state = read_scalable(store, name).state
    if state is RecordState.BROKEN:  # mutant: scalable-topic/a-newer-record-is-junk
        raise TopicRefused(unreadable(name, state))
    if record.stage is Stage.FLIPPED:
        if state is RecordState.GOOD:
            yield from _keep_segments(task, guard, name, record)
        if record.workflow_id != task.attempt.workflow_id:
            guard.release()
        return
    match state:
        case RecordState.GOOD:
            yield from _complete_topic(task, store, guard, name, record)
        case _ if record.stage is Stage.CLAIMED and store.get(bar_path(name)) is None:
            # Somebody has deleted it, and knows that no broker has the request.
            guard.release()
        case _:
            withdrawal = conversion_of(task, store, guard, name, record).withdrawal
            if told := withdrawal.end(name, record.partitions, record.asked, answered):
                yield told
            else:
                guard.release()


def _complete_topic(
    task: ClusterTask[ClusterInput],
    store: CasStore,
    guard: RecordGuard[TopicClaim],
    name: TopicName,
    record: TopicClaim,
) -> Iterator[str]:
    """Complete a topic that is scalable half-finished."""
    allow_creation(store, name, guard.check)  # mutant: scalable-topic/a-topic-that-is-completed-stays-barred
    if (topic := task.find_topic(name)) is None:
        guard.release()
        yield (
            f"{name} was left during its flip, and its regular topic is gone now: run the audit with fix, which "
            "records subscriptions that have places on its segments"
        )
    elif foreign_layout(store, read_scalable(store, name), topic) is not None:
        # That topic is another's, and must not stop migrations of all others.
        guard.release()
        yield name_is_taken(name)
    else:
        conversion_of(task, store, guard, name, record).run()
        yield from _keep_segments(task, guard, name, record)
        if cleans_up(task.input):
            yield from keep_for_grace(task, guard, name)
        yield f"{name} was left during its flip by an earlier run, and is complete now"


def _keep_segments(
    task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName, record: TopicClaim
) -> Iterator[str]:
    """Set the policy of a topic, before its namespace's counts again: brokers may merge its segments at once."""
    if record.auto_scale is not None and (
        fault := set_or_fall_back(task.admin, task.cluster.change_or_never, name, record.auto_scale, guard.require)
    ):
        yield fault


def _put_back(task: ClusterTask[ClusterInput], store: CasStore, half: Container[str]) -> Iterator[str]:
    for namespace in recorded_namespaces(store):
        if namespace in half:
            continue
        guard = task.namespace_guard(store, namespace)
        record = guard.read()
        if record is not None and is_ours(record):
            task.take_over(record)
            yield from _restore_policies(guard, task.context, task.cluster.brokers)


def _hold_policies(guard: Guard, context: ActivityContext, brokers: Brokers) -> None:
    """Hold the policies, and wait until every broker knows it; harmless when done twice.

    A broker that leads a scalable topic checks once a minute for sealed segments that retention does not keep, and
    takes one without any record of a subscription for consumed; and it merges segments with little traffic (5.0.1).

    Raises:
        StoreContention: a broker does not see it for half a minute.
    """
    override_policies(guard, *_HELD)
    for policy in _HELD:
        wait_until_known(guard, policy, context, brokers)


def _restore_policies(guard: Guard, context: ActivityContext, brokers: Brokers) -> Iterable[str]:
    """Put the policies back as they were, and forget them; says in words what somebody else has set meanwhile."""
    guard.take()
    kept = [restore_policy(guard, policy, context, brokers) for policy in _HELD]
    guard.release()
    return filter(None, kept)


def _finish_operations(task: ClusterTask[ClusterInput], store: CasStore, *, own: bool) -> Iterator[str]:
    """Put policies of topics back that an operation held, and forget the topics.

    Args:
        task: of whoever holds the cluster.
        store: the brokers' metadata store.
        own: also those of this run, which has done what it was to do.

    Returns:
        What cannot be put back, or may be left half-finished, in words.
    """
    for name in _recorded_operations(store):
        guard = task.operation_guard(store, name)
        if (record := guard.read()) is None:
            continue
        if not record.is_of(task.attempt):
            task.take_over(record)
        elif not own:
            continue
        guard.take()
        yield from restore_auto_scale(store, guard, name)
        if record.segments and record.outcome is None and not record.is_of(task.attempt):
            yield f"{name} was left by a run that had begun to change its segments; audit tells how it stands"
        guard.release()


def _recorded_operations(store: CasReader) -> Iterator[TopicName]:
    for name in store.children(OPERATIONS):
        yield TopicName.parse(unquote(name))

"""Claims, records and overridden policies that a migration to scalable topics holds in a cluster, and releases."""

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
from models.scalable_topic.input import ClusterInput
from models.scalable_topic.results import Released

ResultT = TypeVar("ResultT")

_TRIES = 6
PAUSE = 5.0
"""Seconds between tries; in half a minute, a broker that restarts is available again."""


Guard = NamespaceGuard[GuardedNamespace]


def _keep_indefinitely(_now: Retention | None) -> Retention:
    return Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)


def _disabled(now: AutoScalePolicy | None) -> AutoScalePolicy:
    return (now or AutoScalePolicy()).model_copy(update={"enabled": False})


RETENTION = OverriddenPolicy("retention", "retention", Retention, ("retention_policies",), _keep_indefinitely)
"""Consumed messages are kept indefinitely, so that brokers count no segment as consumed."""

AUTO_SCALE = OverriddenPolicy(
    "auto_scale", "auto-scale policy", AutoScalePolicy, ("scalableTopicAutoScalePolicy",), _disabled
)
"""Brokers neither split nor merge segments on their own."""

_HELD: tuple[OverriddenPolicy[Any], ...] = (RETENTION, AUTO_SCALE)


def take(task: ClusterTask[ClusterInput], namespaces: Iterable[str]) -> Released:
    """Take the claim on the cluster, complete what earlier runs left, and override the policies of namespaces.

    Waits while a migration of other topics of the cluster runs.

    Raises:
        ClaimHeld: another kind of migration holds the cluster.
    """
    with task.cluster.store() as store:
        task.take_cluster(store)
        notes = [*_finish(task, store), *_finish_operations(task, store, own=False)]
        for namespace in namespaces:
            guard = task.namespace_guard(store, namespace)
            guard.take()
            _hold_policies(guard, task.context, task.cluster.brokers)
    return Released(notes=tuple(notes))


def recover(task: ClusterTask[ClusterInput]) -> Released:
    """Complete what a terminated or lost run left, if there is any.

    A cluster that another migration holds is not changed.
    """
    with task.cluster.store() as store:
        if not task.is_orphaned(store):
            return Released()
        task.take_cluster(store)
    return release_cluster(task)


def release_cluster(task: ClusterTask[ClusterInput]) -> Released:
    """Restore policies, delete records of topics that no cleanup follows, and release the claim; idempotent."""
    with task.cluster.store() as store:
        if not holds_cluster(task, store):
            return Released()
        keeper = task.keeper(store)
        keeper.renew()
        notes = [*_finish(task, store), *_finish_operations(task, store, own=True)]
        if not task.input.deletes_source:
            # Before the claim goes: then others may hold it for as long as their clients take.
            forget_topics(task, store)
        keeper.release()
        return Released(notes=tuple(notes))


def holds_cluster(task: ClusterTask[ClusterInput], store: CasStore) -> bool:
    """Return whether this run holds the cluster: it may never have claimed it, or have released it already."""
    claimed = task.keeper(store).read()
    return claimed is not None and claimed.claim.is_of(task.attempt)


def own_topics(task: ClusterTask[ClusterInput], store: CasStore) -> list[TopicName]:
    """Return the topics that this migration has made scalable and still has a record of."""
    records = ((name, task.topic_guard(store, name).read()) for name in recorded_topics(store))
    mine = task.attempt.workflow_id
    return [name for name, record in records if record and record.stage is Stage.FLIPPED and record.workflow_id == mine]


def forget_topics(task: ClusterTask[ClusterInput], store: CasStore) -> None:
    """Delete the records of the topics of this migration."""
    for name in own_topics(task, store):
        guard = task.topic_guard(store, name)
        guard.take()
        guard.release()


def require_held(guard: Guard) -> None:
    """Require that the policies are still overridden, right before a topic becomes scalable.

    Raises:
        StoreConflict: another client has changed one.
    """
    for policy in _HELD:
        if not is_overridden(guard, policy):
            raise StoreConflict(
                f"the {policy.name} of {guard.namespace} is not what the migration has set: another client changed it, "
                "and brokers may drop messages that are not consumed"
            )


def recorded_topics(store: CasReader) -> Iterator[TopicName]:
    """Yield all topics that have a record."""
    for name in store.children(TOPICS):
        yield TopicName.parse(unquote(name))


def _finish(task: ClusterTask[ClusterInput], store: CasStore) -> Iterator[str]:
    """Complete topics that a run left during their flip, and restore policies; yield descriptions of the results."""
    half: set[str] = set()
    # Topics first: while a flip is half-finished, the policies of its namespace must stay overridden.
    yield from _finish_topics(task, store, half)  # mutant: scalable-topic/lost-topics-stay-half-finished
    yield from _restore_namespaces(task, store, half)


def _finish_topics(task: ClusterTask[ClusterInput], store: CasStore, half: set[str]) -> Iterator[str]:
    """Complete the topics; add to `half` the namespaces of topics that could not be completed."""
    begun: dict[TopicName, TopicClaim] = {}
    for name in recorded_topics(store):
        guard = task.topic_guard(store, name)
        if (record := guard.read()) is None or not _is_unfinished(task, store, record):
            continue
        task.take_over(record)
        guard.take()
        if record.begun:
            begun[name] = record
        else:
            guard.release()
    unfinished = {name: record for name, record in begun.items() if record.stage is not Stage.FLIPPED}
    stopped = [name for name, record in unfinished.items() if _stopped(task, store, name, record)]
    asked = {broker for record in unfinished.values() for broker in record.asked}
    answered = task.answering() if asked else set[str]()
    if stopped or asked & answered:
        task.cluster.await_late_requests()
    for name, record in begun.items():
        try:
            yield from retry_for_topic(
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
    """Keep brokers from making a regular topic scalable; return whether requests of workers may still arrive."""
    if record.stage is Stage.CLAIMED:
        # It was stopped before.
        return False
    conversion = conversion_of(task, store, task.topic_guard(store, name), name, record)
    # The next step tries again what brokers refuse here, and reports it.
    with suppress(TopicRefused):
        return retry_for_topic(
            task, f"leave {name} regular", lambda: conversion.withdrawal.stop(name, record.partitions)
        )
    return True


def _is_unfinished(task: ClusterTask[ClusterInput], store: CasStore, record: TopicClaim) -> bool:
    """Return whether a topic must be completed or released; a finished flip belongs to its run while that runs."""
    if record.stage is not Stage.FLIPPED:
        return True
    return not record.is_of(task.attempt) and not task.is_running(record, store)


def retry_for_topic(task: ClusterTask[ClusterInput], what: str, work: Callable[[], ResultT]) -> ResultT:
    """Call a function for one of many topics, and retry it while brokers fail.

    A topic for which brokers keep failing must not stop the others.

    Args:
        task: an attempt of the migration.
        what: what brokers are asked to do, for the message.
        work: the function.

    Raises:
        TopicRefused: brokers still refuse, or one of them holds the lock of the topic.
        AdminUnreachable: no broker can be reached, which concerns all topics.
    """
    for remaining_tries in reversed(range(_TRIES)):
        try:
            return work()
        except StoreContention as error:
            # The function has waited for the lock.
            raise TopicRefused(str(error)) from error  # mutant: scalable-topic/a-lock-of-one-topic-stops-all
        except AdminError as error:
            # A broker may answer 5xx permanently: for some topics it cannot even name the partitions.
            # mutant: scalable-topic/a-topic-that-brokers-fail-for-blocks-all
            if isinstance(error, AdminUnreachable) and not isinstance(error, AdminServerError):
                raise
            if not remaining_tries:
                raise TopicRefused(str(error)) from error
            with task.context.waiting(WaitKind.STORE, f"brokers to {what}: {error}"):
                task.context.pause(PAUSE)
    raise AssertionError("the last try returns or raises")


def keep_for_grace(task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName) -> tuple[str, ...]:
    """Keep a regular topic until the grace window ends; return a warning if that fails, which stops nothing."""
    try:
        retry_for_topic(task, f"keep {name} for the grace window", lambda: _keep_regular(task, guard, name))
    except TopicRefused as error:
        return (f"brokers may delete {name} before the grace window ends: {error}",)
    return ()


def _keep_regular(task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName) -> None:
    """Create the subscription that keeps a regular topic with its messages; idempotent.

    Brokers that lead a scalable topic check once a minute for regular parents that every subscription has consumed, and
    whose retention has ended; they drop these from the layout, and delete the regular topic (5.0.1). A subscription
    without consumers prevents that, and costs no more than the regular topic itself. Overriding the retention for
    longer would keep the messages of the whole namespace. Only the cleanup deletes the subscription: it stays if an
    operator keeps the regular topic, or a run is terminated.

    A topic without messages is not kept.

    Raises:
        AdminError: a broker refuses.
    """
    if (topic := task.find_topic(name)) is None:
        return
    guard.note(held=True)

    def keep(partition: TopicName) -> None:
        # A late request would create the subscription, or even the topic, again.
        with suppress(AdminConflict):
            task.cluster.change_or_never(
                connect=lambda admin: admin.topics.internal_stats(partition),
                fence=guard.require,
                change=lambda admin: admin.subscriptions.create(partition, GRACE),
            )

    task.each([partition.name for partition in topic.parts], keep)


class TopicRefused(Exception):
    """Brokers keep refusing a request for one topic."""


def _finish_topic(
    task: ClusterTask[ClusterInput], store: CasStore, name: TopicName, record: TopicClaim, answered: Collection[str]
) -> Iterator[str]:
    """Complete or release a topic; `record` is from the run that left it, `answered` as for `Withdrawal.end`."""
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
            # An operator has deleted the node, knowing that no broker has the request.
            guard.release()
        case _:
            withdrawal = conversion_of(task, store, guard, name, record).withdrawal
            if note := withdrawal.end(name, record.partitions, record.asked, answered):
                yield note
            else:
                guard.release()


def _complete_topic(
    task: ClusterTask[ClusterInput],
    store: CasStore,
    guard: RecordGuard[TopicClaim],
    name: TopicName,
    record: TopicClaim,
) -> Iterator[str]:
    """Complete a topic whose flip is half-finished."""
    allow_creation(store, name, guard.check)  # mutant: scalable-topic/a-topic-that-is-completed-stays-barred
    if (topic := task.find_topic(name)) is None:
        guard.release()
        yield (
            f"{name} was left during its flip, and its regular topic is gone now: run the audit with fix, which "
            "records subscriptions that have cursors on its segments"
        )
    elif foreign_layout(store, read_scalable(store, name), topic) is not None:
        # The topic did not come from this flip, and must not stop the migration of all others.
        guard.release()
        yield name_is_taken(name)
    else:
        conversion_of(task, store, guard, name, record).run()
        yield from _keep_segments(task, guard, name, record)
        if task.input.deletes_source:
            yield from keep_for_grace(task, guard, name)
        yield f"{name} was left during its flip by an earlier run, and is complete now"


def _keep_segments(
    task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName, record: TopicClaim
) -> Iterator[str]:
    """Set the policy of a topic before its namespace's applies again, which may let brokers merge its segments."""
    if record.auto_scale is not None and (
        fault := set_or_fall_back(task.admin, task.cluster.change_or_never, name, record.auto_scale, guard.require)
    ):
        yield fault


def _restore_namespaces(task: ClusterTask[ClusterInput], store: CasStore, half: Container[str]) -> Iterator[str]:
    for namespace in recorded_namespaces(store):
        if namespace in half:
            continue
        guard = task.namespace_guard(store, namespace)
        record = guard.read()
        if record is not None and is_ours(record):
            task.take_over(record)
            yield from _restore_policies(guard, task.context, task.cluster.brokers)


def _hold_policies(guard: Guard, context: ActivityContext, brokers: Brokers) -> None:
    """Set the policies that the migration needs, and wait until every broker applies them; idempotent.

    A broker that leads a scalable topic checks once a minute for sealed segments that retention does not keep, and
    counts one without any record of a subscription as consumed. It also merges segments with little traffic (5.0.1).

    Raises:
        StoreContention: a broker does not see the change for half a minute.
    """
    override_policies(guard, *_HELD)
    for policy in _HELD:
        wait_until_known(guard, policy, context, brokers)


def _restore_policies(guard: Guard, context: ActivityContext, brokers: Brokers) -> Iterable[str]:
    """Restore the policies, and delete the record; return notes about policies that another client has changed."""
    guard.take()
    notes = [restore_policy(guard, policy, context, brokers) for policy in _HELD]
    guard.release()
    return filter(None, notes)


def _finish_operations(task: ClusterTask[ClusterInput], store: CasStore, *, own: bool) -> Iterator[str]:
    """Restore policies of topics that an operation changed, and delete its records.

    Args:
        task: of the run that holds the cluster.
        store: the brokers' metadata store.
        own: also the records of this run, which is finished.

    Returns:
        Descriptions of what cannot be restored or may be half-finished.
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
            yield f"{name} was left by a run that had begun to change its segments; run audit to check it"
        guard.release()


def _recorded_operations(store: CasReader) -> Iterator[TopicName]:
    for name in store.children(OPERATIONS):
        yield TopicName.parse(unquote(name))

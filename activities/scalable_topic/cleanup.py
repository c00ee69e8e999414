"""CLEANUP: delete the regular topics that remain after the flip (PIP-475 leaves that to operators).

From now on brokers may drop a consumed parent from the layout, and delete its regular topic or each partition of it.
They do not delete everything: the record of a partitioned topic stays, for example (5.0.1).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from activities.lifecycle.step import step
from activities.pulsar.namespace_guard import RecordGuard
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.checks.policies import own_retention
from activities.scalable_topic.cluster import TopicRefused, own_topics, release_cluster, retry_for_topic
from activities.scalable_topic.context import ClusterTask, NamespaceTask, TopicTask
from activities.scalable_topic.regular_topic import GRACE, census, is_terminated, regular_parts
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound, AdminServerError
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, controller_of, read_scalable, recorded_subscriptions
from models.lifecycle.failures import NAMED, FailedItem, summarize
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from models.scalable_topic.claims import TopicClaim
from models.scalable_topic.input import ClusterInput
from models.scalable_topic.results import CleanedUp
from models.segments.layout import SegmentLayout

DROP_LIMIT = 150.0
"""Seconds within which brokers drop what is consumed: the leader of a topic checks every 60 s."""
_POLL_INTERVAL = 2.0


@step(TopicTask)
def clean_up(task: TopicTask) -> CleanedUp:
    """Delete the regular topic unless it is still needed, and its record (CLEANUP)."""
    return _end_topics(task, delete=True)


@step(TopicTask)
def forget(task: TopicTask) -> CleanedUp:
    """Delete the record of the topic, without a cleanup."""
    return _end_topics(task, delete=False)


@step(NamespaceTask)
def clean_up_all(task: NamespaceTask) -> CleanedUp:
    """Delete the regular topics that are not needed any more, and the records of all topics (CLEANUP)."""
    return _end_topics(task, delete=True)


@step(NamespaceTask)
def forget_all(task: NamespaceTask) -> CleanedUp:
    """Delete the records of all topics, without a cleanup."""
    return _end_topics(task, delete=False)


def why_kept(topic: TopicInventory, layout: SegmentLayout | None) -> str:
    """Return why a regular topic must stay; empty if it is not needed any more.

    Args:
        topic: as it is.
        layout: of the scalable topic.
    """
    if layout is None:
        return "there is no scalable topic of this name any more"
    there = {segment.legacy_topic_name for segment in layout.segments.values()}
    if named := [partition for partition in regular_parts(topic) if str(partition) in there]:
        return f"the layout still names {summarize(named)}: its messages are not consumed, or kept by the retention"
    if topic.unloadable:
        return f"no broker can load {summarize([partition.name for partition in topic.unloadable])}"
    if backlogs := [
        f"{subscription.name} ({subscription.backlog})" for subscription in topic.durable if subscription.backlog
    ]:
        return f"subscriptions have messages there: {summarize(backlogs)}"
    if (clients := census(topic)).legacy or clients.managed:
        return f"{clients.legacy + clients.managed} clients are connected to it"
    return ""


# Inside ---------------------------------------------------------------------------------------------------------------


def _end_topics(task: ClusterTask[ClusterInput], *, delete: bool) -> CleanedUp:
    """Delete the records of all topics of this migration and, if requested, the regular topics that are not needed.

    Waits while a migration of other topics of the cluster runs.
    """
    with task.cluster.store() as store:
        if not own_topics(task, store):
            return CleanedUp()
        task.take_cluster(store)
        names = own_topics(task, store)
        records = {name: task.topic_guard(store, name).take() for name in names}
        held = [name for name, record in records.items() if delete and record.held and not record.cleaned]
        released: list[TopicName] = []
        for name in held:
            # What brokers fail for is reported by the cleanup of that topic.
            with suppress(TopicRefused):
                guard = task.topic_guard(store, name)
                if retry_for_topic(task, f"allow the deletion of {name}", partial(_released, task, guard, name)):
                    released.append(name)
        _await_dropped(task, store, released)
        for number, name in enumerate(names if delete else ()):
            task.context.progress(ProgressTask.DELETE, ProgressUnit.TOPICS, number, len(names))
            if not records[name].cleaned:
                _clean(task, store, task.topic_guard(store, name), name)
        # Only now: what one attempt has done, the next one must report.
        guards = {name: task.topic_guard(store, name) for name in names}
        cleaned = {name: guard.take() for name, guard in guards.items()}
        for guard in guards.values():
            guard.release()
    release_cluster(task)
    remaining = [
        FailedItem(path=str(name), reason=record.kept_reason) for name, record in cleaned.items() if record.kept_reason
    ]
    deleted = sum(1 for record in cleaned.values() if record.deleted)
    return CleanedUp(deleted=deleted, remaining=tuple(remaining[:NAMED]), remaining_count=len(remaining))


def _released(task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName) -> bool:
    """Allow brokers to delete a regular topic; return whether they may."""
    if own_retention(task.admin, name):  # mutant: scalable-topic/own-retention-is-deleted
        return False
    _release_regular(task, guard, name)
    return True


def _clean(task: ClusterTask[ClusterInput], store: CasStore, guard: RecordGuard[TopicClaim], name: TopicName) -> None:
    """Delete one regular topic, or record why it stays."""
    try:
        # mutant: scalable-topic/one-topic-stops-a-cleanup
        why = retry_for_topic(task, f"delete {name}", lambda: _delete(task, store, name))
    except TopicRefused as error:
        why = str(error)
    # Brokers deleted a topic that was kept until now and is gone, as soon as they were allowed to.
    gone = why is None and guard.take().held
    # mutant: scalable-topic/a-cleanup-forgets-what-it-did
    guard.note(cleaned=True, deleted=gone or why == "", kept_reason=why or "")


def _delete(task: ClusterTask[ClusterInput], store: CasStore, name: TopicName) -> str | None:
    """Delete one regular topic; return why it stays, empty if it is deleted; None if it was gone before."""
    record = read_scalable(store, name)
    # mutant: scalable-topic/brokers-are-asked-for-what-they-cannot-read
    if record.state in (RecordState.EMPTY, RecordState.BROKEN):
        # Every request for such a topic fails in the broker.
        return f"its record in the metadata store is {record.state}, and no broker can read it"
    if (topic := task.find_topic(name)) is None:
        return None
    if own := own_retention(task.admin, name):
        return f"policies of its own keep its messages ({', '.join(own)}){_also_kept(task, store, name)}"
    layout = record.layout
    if why := why_kept(topic, layout):
        return why
    try:
        task.cluster.change_or_never(
            # On the connection of the change: a client may have created another topic of this name, or connected to it.
            connect=lambda admin: _require_done(admin, topic),
            fence=task.topic_guard(store, name).require,
            change=lambda admin: _delete_all(admin, topic),
        )
    except (AdminConflict, _InUse) as error:
        gone = [partition for partition in regular_parts(topic) if not _is_there(task.admin, partition)]
        return f"{error}{f'; {summarize(gone)} were deleted before that' if gone else ''}"
    if task.find_topic(name) is not None:
        raise StoreConflict(f"{name} is there after a broker said that it was deleted", server=task.input.admin_urls[0])
    return ""


def _also_kept(task: ClusterTask[ClusterInput], store: CasStore, name: TopicName) -> str:
    """Return what else keeps a regular topic that was kept for the grace window and was not released since."""
    record = task.topic_guard(store, name).read()
    if record is None or not record.held:
        return ""
    return f"; so does the subscription {GRACE}: pulsar-admin topics unsubscribe -f -s {GRACE} {name} deletes it"


class _InUse(Exception):
    """Another topic of the same name was created, or clients use this one."""


def _require_done(admin: PulsarAdmin, topic: TopicInventory) -> None:
    if open_ := [partition for partition in regular_parts(topic) if not is_terminated(admin, partition)]:
        raise _InUse(f"{summarize(open_)} take messages: these are other topics")
    for partition in regular_parts(topic):
        try:
            subscriptions = admin.topics.stats(partition).subscriptions
        except AdminNotFound:
            # Brokers have deleted it, since every subscription has consumed it.
            continue
        backlogs = {name: subscription.msg_backlog for name, subscription in subscriptions.items()}
        if waiting := [f"{name} ({backlog})" for name, backlog in backlogs.items() if backlog]:
            raise _InUse(f"subscriptions have messages in {partition}: {summarize(waiting)}")


def _is_there(admin: PulsarAdmin, partition: TopicName) -> bool:
    try:
        admin.topics.internal_stats(partition)
    except AdminNotFound:
        return False
    return True


def _delete_all(admin: PulsarAdmin, topic: TopicInventory) -> None:
    if topic.partitions:
        admin.topics.delete_partitioned(topic.name)
    else:
        admin.topics.delete(topic.name)


def _release_regular(task: ClusterTask[ClusterInput], guard: RecordGuard[TopicClaim], name: TopicName) -> None:
    """Allow brokers to delete a regular topic once it is consumed; idempotent. See `keep_for_grace`.

    Raises:
        AdminError: a broker refuses.
    """
    if (topic := task.find_topic(name)) is None:
        return

    def release(partition: TopicName) -> None:
        # A late request would end the window of another topic of this name.
        with suppress(AdminNotFound):
            task.cluster.change_or_never(
                connect=lambda admin: admin.topics.internal_stats(partition),
                fence=guard.require,
                change=lambda admin: admin.subscriptions.delete(partition, GRACE, force=True),
            )

    task.each([partition.name for partition in topic.parts], release)


def _await_dropped(task: ClusterTask[ClusterInput], store: CasReader, names: Iterable[TopicName]) -> None:
    """Wait until brokers have dropped regular topics that are consumed, `DROP_LIMIT` seconds at most."""
    waiting: dict[TopicName, set[str]] = {}
    for name in names:
        # What brokers fail for is reported by the cleanup of that topic.
        with suppress(AdminServerError):
            topic = task.find_topic(name)
            if topic and not any(subscription.backlog for subscription in topic.durable):
                _require_leader(task, store, name)
                waiting[name] = {*map(str, regular_parts(topic))}
    end = time.monotonic() + DROP_LIMIT
    with task.context.waiting(WaitKind.STORE, "brokers to drop consumed regular topics from their layouts"):
        while waiting := {name: parts for name, parts in waiting.items() if _named(store, name) & parts}:
            if time.monotonic() > end:
                return
            task.context.pause(_POLL_INTERVAL)


def _named(store: CasReader, name: TopicName) -> set[str | None]:
    """Return the regular topics that the layout of a scalable one names."""
    layout = read_scalable(store, name).layout
    return {segment.legacy_topic_name for segment in layout.segments.values()} if layout else set()


def _require_leader(task: ClusterTask[ClusterInput], store: CasReader, name: TopicName) -> None:
    """Ensure that a broker leads a scalable topic, because only the leader drops its parents."""
    if controller_of(store, name):
        return
    recorded = recorded_subscriptions(store, name)
    for subscription, kind in recorded.items():
        if kind is not None:
            task.admin.scalable_topics.register(name, subscription, kind)
            return

"""The grace window: check which clients use blue and whether its flags were changed, and delete its topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from activities.blue_green.context import AnyBlueGreenTask, BlueGreenTask, NamespaceGuard
from activities.blue_green.namespace_redirect import records, urls_of
from activities.blue_green.policies import INACTIVE, restore_policy
from activities.blue_green.topics import DeletionRules, check_topic, deletion_refusal, needed_by, topics_of
from activities.lifecycle.step import step
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasStore
from clients.errors import StoreError
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound, AdminServerError
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import Stage
from models.blue_green.results import Census, CleanupStep
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.status import ProgressTask, ProgressUnit


@step(BlueGreenTask, reads_only=True)
def census(task: BlueGreenTask) -> Census:
    """Return connections to blue, settings that were changed since COMPLETE, and topics that cannot be drained."""
    with task.blue.store() as store:
        moved = _moved(store)
        # mutant: blue-green/undrainable-topics-are-not-seen
        undrained = [name for name, record in records(store).items() if record.stage is Stage.FLIPPED]
        drift = [f"the flag of {namespace} was taken off" for namespace in moved if not read_flag(store, namespace)]
    flag = task.blue.admin.clusters.migration(task.input.cluster)
    if flag is None or flag.migrated_cluster_url != urls_of(task.input.green):
        drift.append(f"brokers of {task.input.cluster} no longer have the address of {task.input.green_cluster}")
    connections = {url: admin.brokers.connections() for url, admin in task.blue.brokers()}
    topics = {namespace: topics_of(task.blue.admin, namespace) for namespace in moved}
    more, fewer = _changed_partitions(task, topics)
    return Census(
        topics=sum(map(len, topics.values())),
        connections=sum(connection.active for connection in connections.values()),
        opened={url: connection.opened for url, connection in connections.items()},
        drift=tuple(drift[:NAMED]),
        undrainable=tuple(why for namespace in undrained for why in _undrainable(task, namespace))[:NAMED],
        more_partitions=tuple(more),
        fewer_partitions=tuple(fewer),
    )


def _changed_partitions(
    task: AnyBlueGreenTask, topics: Mapping[str, Iterable[TopicName]]
) -> tuple[list[str], list[str]]:
    """Return the first topics that have more partitions on green than on blue, and those that have fewer, in words.

    Args:
        task: the step.
        topics: blue's topics, each partition by itself, by namespace.
    """
    more, fewer = list[str](), list[str]()
    blue, green = task.input.cluster, task.input.green_cluster
    # Without green the rest of the census is still of use.
    with suppress(StoreError):
        for namespace, listed in topics.items():
            here, there = map(_listed_partitions, (listed, topics_of(task.green.admin, namespace)))
            # A partition that brokers have deleted is in the metadata still, where clients find it.
            for topic, on_blue in here.items():
                on_green = there[topic]
                if on_blue < on_green and len(more) < NAMED:
                    count = _partitions(task.blue.admin, topic)
                    if 0 < count < on_green:
                        more.append(f"{topic} has {on_green} partitions on {green}, and {count} on {blue}")
                elif on_green < on_blue and len(fewer) < NAMED:
                    count = _partitions(task.green.admin, topic)
                    if 0 < count < on_blue:
                        fewer.append(f"{topic} has {count} partitions on {green}, and {on_blue} on {blue}")
    return more, fewer


def _listed_partitions(topics: Iterable[TopicName]) -> Counter[TopicName]:
    return Counter(topic.whole for topic in topics if topic.partition is not None)


def _undrainable(task: AnyBlueGreenTask, namespace: str) -> list[str]:
    """Return topics of an undrained namespace that were unloaded, and that consumers cannot read, in words."""
    states = task.each(topics_of(task.blue.admin, namespace), lambda topic: check_topic(task.blue.admin, topic))
    blocked = [state.topic for state in states if state.blocked]
    infos = task.each(blocked, lambda topic: stored(task.blue.admin, topic))
    return [
        f"{topic} was unloaded before it was drained, and consumers cannot read its remaining messages "
        f"({needed_by(info)})"
        for topic, info in zip(blocked, infos, strict=True)
        if info and needed_by(info)
    ]


@step(BlueGreenTask)
def clean_up(task: BlueGreenTask) -> CleanupStep:
    """Delete a limited number of blue's unused topics, then the metadata of their partitioned topics."""
    deleted = remaining = 0
    refused: list[FailedItem] = []
    with task.blue.store() as store:
        for namespace in _moved(store):
            guard = NamespaceGuard(store, task.attempt, namespace)
            guard.take()
            waiting, undeletable = topics_of(task.blue.admin, namespace), list[FailedItem]()
            # Refused topics do not count against the limit, so that they never keep later ones from being deleted.
            while waiting and (limit := task.input.cleanup_limit - deleted) > 0:
                now, waiting = waiting[:limit], waiting[limit:]
                items = task.each(now, lambda topic, guard=guard: _delete(task, guard, topic))
                undeletable += [item for item in items if item]
                deleted += sum(1 for item in items if item is None)
            refused += undeletable
            remaining += len(waiting)
            if not undeletable and not waiting:
                refused += _delete_partitioned(task, guard)
                restore_policy(task, guard, INACTIVE)
            task.context.progress(ProgressTask.DELETE, ProgressUnit.TOPICS, deleted, deleted + remaining)
    return CleanupStep(deleted=deleted, remaining=remaining, refused=tuple(refused[:NAMED]), refused_count=len(refused))


def _moved(store: CasStore) -> list[str]:
    return [namespace for namespace, record in records(store).items() if record.stage is Stage.MOVED]


def _delete(task: AnyBlueGreenTask, guard: NamespaceGuard, topic: TopicName) -> FailedItem | None:
    rules = DeletionRules(task.blue.admin, task.input.green_cluster, task.input.cleanup_retained, "cleanup_retained")
    if why := deletion_refusal(rules, topic) or _lacking_on_green(task, topic):
        return FailedItem(path=str(topic), reason=why)
    return _unless_refused(
        str(topic),
        lambda: task.blue.change_or_never(
            connect=lambda admin: admin.topics.internal_info(topic),
            fence=guard.require,
            change=lambda admin: admin.topics.delete(topic),  # mutant: blue-green/deletion-that-may-arrive-late
        ),
    )


def _unless_refused(path: str, delete: Callable[[], None]) -> FailedItem | None:
    """Delete a topic; return why brokers refused that, so that other topics are still deleted."""
    try:
        with suppress(AdminNotFound):
            delete()
    except (AdminConflict, AdminServerError) as error:
        return FailedItem(path=path, reason=error.reason)
    return None


def _lacking_on_green(task: AnyBlueGreenTask, topic: TopicName) -> str:
    try:
        task.green.admin.subscriptions.names(topic)
    except AdminNotFound:
        return f"{task.input.green_cluster} has no such topic"
    return ""


def _delete_partitioned(task: AnyBlueGreenTask, guard: NamespaceGuard) -> list[FailedItem]:
    """Delete the metadata of partitioned topics without partitions; return those that must stay."""
    refused: list[FailedItem] = []
    try:
        names = task.blue.admin.topics.partitioned_names(guard.namespace)
    except AdminNotFound:
        # The namespace is gone.
        return []
    for name in names:
        topic = TopicName.parse(name)
        if topic.topic.startswith("__"):
            continue
        if not _partitions(task.green.admin, topic):
            # A client created it on blue after the flip.
            refused.append(FailedItem(path=name, reason=f"{task.input.green_cluster} has no such topic"))
            continue
        if item := _unless_refused(name, lambda topic=topic: _delete_whole(task, guard, topic)):
            refused.append(item)
    return refused


def _delete_whole(task: AnyBlueGreenTask, guard: NamespaceGuard, topic: TopicName) -> None:
    task.blue.change_or_never(
        connect=lambda admin: admin.topics.partitions(topic),
        fence=guard.require,
        change=lambda admin: admin.topics.delete_partitioned(topic),
    )


def _partitions(admin: PulsarAdminReader, topic: TopicName) -> int:
    try:
        return admin.topics.partitions(topic)
    except AdminNotFound:
        return 0

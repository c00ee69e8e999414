"""Create on green the topics and subscriptions that come to blue after PROVISION.

A consumer that connects again would create its subscription on green by itself, but at the end of the topic. Green may
not let clients create a topic, and never creates a partition where it has fewer of them: producers would fail for good.
So would producers whose schema green does not accept from clients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.namespace_redirect import has_terminated_topics
from activities.blue_green.provisioning.namespaces import Scope, provision_all
from activities.blue_green.saved_clients import clients_of, save_clients, saved_clients
from activities.blue_green.topics import check_topic, topics_of
from activities.pulsar.late_subscriptions import create_subscription
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import Position, TopicStats
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import TopicClients
from spark.blue_green.tasks import read_record

_NAMED = 3


class MissingOnGreen(NamedTuple):
    """A topic of blue of which green lacks something, that green lacks, or whose saved subscriptions are out of date.

    Attributes:
        topic: without partitions, or one partition.
        stats: how it is on blue.
        subscriptions: durable ones that green lacks.
        exists: green has the topic itself.
        lacks_schema: green lacks versions of its schema.
    """

    topic: TopicName
    stats: TopicStats
    subscriptions: list[str]
    exists: bool
    lacks_schema: bool

    @property
    def is_incomplete(self) -> bool:
        """Return whether green lacks the topic or something of it."""
        return bool(self.subscriptions) or self.lacks_schema or not self.exists


def provision_late(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Create on green what came to blue since LOAD or the last call, and forget subscriptions that clients deleted.

    Topics without subscriptions are created again if brokers of green deleted them since.

    Raises:
        StoreConflict: both sides differ in what cannot be created.
    """
    for guard in guards:
        # Clients of a topic are also saved if green has all of it: VERIFY takes a topic without saved clients for one
        # that came to blue after the flip.
        saved = saved_clients(store, guard.namespace)
        topics = _missing_topics(task, guard.namespace, saved=saved)
        if not topics:
            continue
        absent = {
            topic.topic: names
            for topic in topics
            if (names := (_saved_subscriptions(topic, saved) or set()).difference(topic.stats.durable_subscriptions))
        }
        deleted = _deleted_on_blue(task, store, guard.namespace, absent)
        is_new = any(topic.subscriptions or _has_unsaved(topic, saved) for topic in topics)
        if is_new and not has_terminated_topics(task, guard.namespace):
            # First: if this attempt is lost, the next one finds them on green, and must still place their cursors.
            guard.note(copied_in="")  # mutant: blue-green/late-subscriptions-get-the-whole-copy
        # Not topics with deletions alone: writes are held back, and there may be many.
        # mutant: blue-green/topics-with-deletions-are-compared
        if late := {topic.topic.whole for topic in topics if topic.is_incomplete or str(topic.topic) not in saved}:
            provision_batch(task, [guard], late, served=True)
        _save_new_clients(store, guard, topics, deleted)


def create_late(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Create on green the subscriptions that came to blue between the flag and the termination of its topics."""
    for guard in guards:
        saved = saved_clients(store, guard.namespace)
        late = _missing_topics(task, guard.namespace, saved=saved)
        # Not topics alone: clients may have deleted those on green that an earlier run had moved.
        # mutant: blue-green/late-topics-of-an-earlier-run
        topics = [topic for topic in late if topic.subscriptions or _has_unsaved(topic, saved)]
        for topic, name in ((late_topic, name) for late_topic in topics for name in late_topic.subscriptions):
            sub = topic.stats.client_subscriptions[name]
            # Its consumer was faster; or there is no such topic on green, which VERIFY reports.
            create_subscription(
                task.green,
                topic.topic,
                name,
                after=_last_copy_for_others(store, topic.topic, name),
                fence=guard.require,
                replicated=sub.is_replicated,
                properties=sub.subscription_properties,
            )
        if topics:
            _save_new_clients(store, guard, topics)


def _last_copy_for_others(store: CasReader, topic: TopicName, name: str) -> Position | None:
    """Return the last entry that was copied to green for other subscriptions; None if this one needs the copies."""
    copied = read_record(store, topic)
    last = copied.record.positions.last if copied else None
    # mutant: blue-green/copies-for-subscriptions-without-one
    if copied is None or last is None or name in copied.record.copied_subscriptions:
        return None
    return Position(ledger_id=last[1].ledger_id, entry_id=last[1].entry_id)


def _missing_topics(
    task: AnyBlueGreenTask, namespace: str, *, saved: Mapping[str, TopicClients]
) -> list[MissingOnGreen]:
    there = set(topics_of(task.green.admin, namespace))
    topics = task.each(
        topics_of(task.blue.admin, namespace), lambda topic: _missing_on_green(task, topic, exists=topic in there)
    )
    return [
        topic
        for topic in topics
        if topic and (topic.is_incomplete or _saved_subscriptions(topic, saved) != {*topic.stats.durable_subscriptions})
    ]


def _saved_subscriptions(topic: MissingOnGreen, saved: Mapping[str, TopicClients]) -> set[str] | None:
    """Return the subscriptions of a topic's saved clients; None if it has no saved clients."""
    clients = saved.get(str(topic.topic))
    return None if clients is None else set(clients.consumers)


def _has_unsaved(topic: MissingOnGreen, saved: Mapping[str, TopicClients]) -> bool:
    """Return whether a topic with saved clients has other subscriptions.

    Green may have these: a client has deleted one on blue, which was forgotten, and created it again.
    """
    names = _saved_subscriptions(topic, saved)
    return names is not None and not names.issuperset(topic.stats.durable_subscriptions)


def _deleted_on_blue(
    task: AnyBlueGreenTask, store: CasReader, namespace: str, absent: Mapping[TopicName, set[str]]
) -> dict[TopicName, set[str]]:
    """Return the subscriptions that clients have deleted on blue.

    Once the flip has begun there are none: brokers delete drained subscriptions of a terminated topic, and a rollback
    creates these again.

    Args:
        task: the step.
        store: blue's metadata store.
        namespace: `tenant/namespace`.
        absent: saved subscriptions that the statistics of their topics lack, by topic.
    """
    # An earlier attempt may have set the flag since this one looked.
    # mutant: blue-green/drained-subscriptions-count-as-deleted
    if not absent or read_flag(store, namespace):
        return {}
    infos = zip(absent, task.each(absent, lambda topic: stored(task.blue.admin, topic)), strict=True)
    # The store decides: a broker that has lost the topic does not know newer subscriptions.
    # mutant: blue-green/subscriptions-of-an-ended-topic-count-as-deleted
    return {topic: absent[topic] - info.cursors.keys() for topic, info in infos if info and not info.marked}


def _missing_on_green(task: AnyBlueGreenTask, topic: TopicName, *, exists: bool) -> MissingOnGreen | None:
    stats = check_topic(task.blue.admin, topic).stats
    if stats is None:
        return None
    here = sorted(stats.durable_subscriptions)
    try:
        there = task.green.admin.subscriptions.names(topic) if exists and here else []
    except AdminNotFound:
        there, exists = [], False
    lacks_schema = exists and _schema_version(task.blue.admin, topic) > _schema_version(task.green.admin, topic)
    return MissingOnGreen(topic, stats, [name for name in here if name not in there], exists, lacks_schema)


def _schema_version(admin: PulsarAdminReader, topic: TopicName) -> int:
    newest = admin.schemas.latest(topic.whole)
    return -1 if newest is None else newest.version


def _save_new_clients(
    store: CasStore,
    guard: NamespaceGuard,
    late: Sequence[MissingOnGreen],
    deleted: Mapping[TopicName, set[str]] = MappingProxyType({}),
) -> None:
    """Save the clients of these topics, so that VERIFY looks for them on green, and DRAIN skips no late backlog.

    Args:
        store: blue's metadata store.
        guard: guard of the namespace.
        late: the topics.
        deleted: subscriptions that no client wants any more: DRAIN must not wait for their consumers, and a rollback
            must not create them again.
    """
    clients_by_topic = {
        TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()
    }
    for topic in late:
        now, before = clients_of(topic.stats), clients_by_topic.get(topic.topic)
        if before:
            before = _without(before, deleted.get(topic.topic, set[str]()))
            # Clients that used it before LOAD may be on green by now.
            new = {
                name: count
                for name, count in now.consumers.items()
                if name in topic.subscriptions or name not in before.consumers
            }
            more = {
                "consumers": {**before.consumers, **new},
                "properties": {**before.properties, **now.properties},
                "replicated": tuple({*before.replicated, *now.replicated}),
            }
            now = before.model_copy(update=more)
        noted = before or TopicClients()
        # mutant: blue-green/skip-of-what-came-late
        late_names = {*noted.late, *(now.consumers.keys() - noted.consumers.keys())}
        clients_by_topic[topic.topic] = now.model_copy(update={"late": tuple(sorted(late_names))})
    save_clients(store, guard, clients_by_topic)


def _without(clients: TopicClients, deleted: set[str]) -> TopicClients:
    """Return the clients of a topic without some subscriptions."""
    return clients.model_copy(
        update={
            "consumers": {name: count for name, count in clients.consumers.items() if name not in deleted},
            "properties": {name: notes for name, notes in clients.properties.items() if name not in deleted},
            "replicated": tuple(name for name in clients.replicated if name not in deleted),
            "late": tuple(name for name in clients.late if name not in deleted),
        }
    )


def provision_batch(
    task: AnyBlueGreenTask,
    guards: Sequence[NamespaceGuard],
    topics: Collection[TopicName] | None = None,
    *,
    served: bool = False,
) -> None:
    """Create on green what came to blue since PROVISION, partitions among it.

    Args:
        task: the step.
        guards: the namespaces.
        topics: whole topics, alone; None for everything.
        served: green serves clients by now, who may have sent to it.

    Raises:
        StoreConflict: both sides differ in what cannot be created.
    """
    for guard in guards:
        result = provision_all(task, [guard.namespace], guard.require, Scope(topics, grow=True, served=served))
        if result.blocking:
            raise StoreConflict(
                f"{guard.namespace} differs on {task.input.green_cluster} in {result.blocking_count} things: "
                f"{'; '.join(result.blocking[:_NAMED])}"
            )

"""Create on green the topics and subscriptions that come to blue after PROVISION.

A consumer that connects again would create its subscription on green by itself, but at the end of the topic. Green may
not let clients create a topic, and never creates a partition where it has fewer of them: producers would fail for good.
So would producers whose schema green does not accept from clients.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.namespace_redirect import has_terminated_topics
from activities.blue_green.provisioning.namespaces import Scope, provision_all
from activities.blue_green.saved_clients import clients_of, save_clients, saved_clients
from activities.blue_green.topics import check_topic, topics_of
from activities.pulsar.late_subscriptions import create_subscription
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import Position, TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients
from spark.blue_green.tasks import read_record

_NAMED = 3


class MissingOnGreen(NamedTuple):
    """A topic of blue of which green lacks something, or that green lacks.

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


def provision_late(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Create on green what came to blue since LOAD or the last call.

    Topics without subscriptions are created again if brokers of green deleted them since.

    Raises:
        StoreConflict: both sides differ in what cannot be created.
    """
    late = {
        guard: topics
        for guard in guards
        # Clients of a topic are also saved if green has all of it: VERIFY takes a topic without saved clients for one
        # that came to blue after the flip.
        if (topics := _missing_topics(task, guard.namespace, noted=saved_clients(store, guard.namespace).keys()))
    }
    for guard, topics in late.items():
        if any(topic.subscriptions for topic in topics) and not has_terminated_topics(task, guard.namespace):
            # First: if this attempt is lost, the next one finds them on green, and must still place their cursors.
            guard.note(copied_in="")  # mutant: blue-green/late-subscriptions-get-the-whole-copy
        provision_batch(task, [guard], {topic.topic.whole for topic in topics}, served=True)
        _save_new_clients(store, guard, topics)


def create_late(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Create on green the subscriptions that came to blue between the flag and the termination of its topics."""
    for guard in guards:
        # Not topics alone: clients may have deleted those on green that an earlier run had moved.
        # mutant: blue-green/late-topics-of-an-earlier-run
        topics = [topic for topic in _missing_topics(task, guard.namespace) if topic.subscriptions]
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
    task: AnyBlueGreenTask, namespace: str, *, noted: Collection[str] | None = None
) -> list[MissingOnGreen]:
    there = set(topics_of(task.green.admin, namespace))
    topics = task.each(
        topics_of(task.blue.admin, namespace), lambda topic: _missing_on_green(task, topic, exists=topic in there)
    )
    return [
        topic
        for topic in topics
        if topic
        and (
            topic.subscriptions
            or topic.lacks_schema
            or not topic.exists
            or (noted is not None and str(topic.topic) not in noted)
        )
    ]


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


def _save_new_clients(store: CasStore, guard: NamespaceGuard, late: Sequence[MissingOnGreen]) -> None:
    """Save the clients of these topics, so that VERIFY looks for them on green, and DRAIN skips no late backlog."""
    clients_by_topic = {
        TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()
    }
    for topic in late:
        now, before = clients_of(topic.stats), clients_by_topic.get(topic.topic)
        if before:
            # Clients that used it before LOAD may be on green by now.
            new = {name: now.consumers[name] for name in topic.subscriptions if name in now.consumers}
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

"""Create on green what comes to blue after PROVISION.

Who connects again would create its subscription on green by itself, but at the end of the topic. A topic may not be
created by its clients there, and a partition is not where green has fewer of them: their producers would be dead. So
would be those whose schema green refuses to learn from clients.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.provisioning.namespaces import Scope, provision_all
from activities.blue_green.saved_clients import clients_of, save_clients, saved_clients
from activities.blue_green.topics import check_topic, topics_of
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName

_NAMED = 3


class MissingOnGreen(NamedTuple):
    """What green lacks of a topic of blue.

    Attributes:
        topic: without partitions, or one partition.
        stats: how it is on blue.
        subscriptions: durable ones that green lacks.
        exists: green has the topic itself.
        behind: green lacks versions of its schema.
    """

    topic: TopicName
    stats: TopicStats
    subscriptions: list[str]
    exists: bool
    behind: bool


def provision_late(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> bool:
    """Create on green what came to blue since LOAD, or since it was last asked; returns whether a subscription did.

    Topics that nobody subscribed to are made again where brokers of green deleted them meanwhile.

    Raises:
        StoreConflict: both sides differ in what cannot be created.
    """
    late = {
        guard: found
        for guard in guards
        # Whoever uses a topic that is not noted is noted, also where green has all of it: VERIFY takes the others for
        # topics that came to blue after the flip.
        if (found := _late(task, guard.namespace, noted=saved_clients(store, guard.namespace).keys()))
    }
    for guard, found in late.items():
        provision_batch(task, [guard], {one.topic.whole for one in found}, served=True)
        _remember(store, guard, found)
    return any(one.subscriptions for found in late.values() for one in found)


def create_late(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Once topics are terminated: the same for subscriptions that came between the flag and that."""
    for guard in guards:
        found = _late(task, guard.namespace)
        for one, name in ((late, name) for late in found for name in late.subscriptions):
            sub = one.stats.client_subscriptions[name]
            guard.require()
            # Its consumer was faster; or there is no such topic on green, which VERIFY tells.
            with suppress(AdminConflict, AdminNotFound):
                task.green.subscriptions.create(
                    one.topic, name, replicated=sub.is_replicated, properties=sub.subscription_properties
                )
        if found:
            _remember(store, guard, found)


def _late(task: AnyBlueGreenTask, namespace: str, *, noted: Collection[str] | None = None) -> list[MissingOnGreen]:
    there = set(topics_of(task.green, namespace))
    found = task.each(topics_of(task.blue, namespace), lambda topic: _late_of(task, topic, exists=topic in there))
    return [
        one
        for one in found
        if one
        and (one.subscriptions or one.behind or not one.exists or (noted is not None and str(one.topic) not in noted))
    ]


def _late_of(task: AnyBlueGreenTask, topic: TopicName, *, exists: bool) -> MissingOnGreen | None:
    stats = check_topic(task.blue, topic).stats
    if stats is None:
        return None
    here = sorted(stats.durable_subscriptions)
    try:
        there = task.green.subscriptions.names(topic) if exists and here else []
    except AdminNotFound:
        there, exists = [], False
    behind = exists and _schema_version(task.blue, topic) > _schema_version(task.green, topic)
    return MissingOnGreen(topic, stats, [name for name in here if name not in there], exists, behind)


def _schema_version(admin: PulsarAdminReader, topic: TopicName) -> int:
    newest = admin.schemas.latest(topic.whole)
    return -1 if newest is None else newest.version


def _remember(store: CasStore, guard: NamespaceGuard, late: Sequence[MissingOnGreen]) -> None:
    """Add those who use them to those who are looked for on green."""
    known = {TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()}
    for one in late:
        now, before = clients_of(one.stats), known.get(one.topic)
        if before:
            # Those who use it since before LOAD may be on green by now.
            new = {name: now.consumers[name] for name in one.subscriptions if name in now.consumers}
            more = {
                "consumers": {**before.consumers, **new},
                "properties": {**before.properties, **now.properties},
                "replicated": tuple({*before.replicated, *now.replicated}),
            }
            now = before.model_copy(update=more)
        known[one.topic] = now
    save_clients(store, guard, known)


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
        found = provision_all(task, [guard.namespace], guard.require, Scope(topics, grow=True, served=served))
        if found.blocking:
            raise StoreConflict(
                f"{guard.namespace} differs on {task.input.green_cluster} in {found.blocking_count} things: "
                f"{'; '.join(found.blocking[:_NAMED])}"
            )

"""Snapshots of all that a migration to scalable topics may change, read without the code of the migration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from clients.cas.store import CasReader
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_policy import read_policy
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions
from models.lifecycle.claim import CLAIM
from models.segments.layout_check import layout_faults

_ACCESS = AdminAccess(timeout=30)
_NOTES = (CLAIM, *(f"{CLAIM}-{what}" for what in ("namespaces", "topics", "operations")))
"""Nodes that workflows about scalable topics create for themselves, and remove at their end."""
_POLICIES = {"retention": ("retention_policies",), "auto-scale policy": ("scalableTopicAutoScalePolicy",)}
_TERMINATED = "Terminated"

OWN_POLICIES: dict[str, Any] = {
    "retention_policies": {"retentionTimeInMinutes": 7, "retentionSizeInMB": 70},
    "scalableTopicAutoScalePolicy": {"minSegments": 1, "maxSegments": 16},
}
"""Policies of a namespace that its owner has set."""


class TopicSnapshot(NamedTuple):
    """State of one topic.

    Attributes:
        record: state of its record.
        version: of its record, which grows with each change.
        subscriptions: kinds of subscriptions with a record.
        segments: cursors of each stored segment.
        regular: state of each existing regular topic.
    """

    record: RecordState
    version: int
    subscriptions: Mapping[str, str]
    segments: Mapping[str, Sequence[str]]
    regular: Mapping[str, str]


class TopicsSnapshot(NamedTuple):
    """State of all that a migration may change.

    Attributes:
        policies: of the namespace, where brokers keep them.
        reported: the policies that each broker reports.
        notes: claims and records, by their path.
        topics: by name.
    """

    policies: Mapping[str, Any]
    reported: Sequence[Mapping[str, Any]]
    notes: Mapping[str, bytes]
    topics: Mapping[str, TopicSnapshot]


SnapshotT = TypeVar("SnapshotT", TopicsSnapshot, TopicSnapshot)


def read_snapshot(
    admin: PulsarAdminReader, store: CasReader, urls: Iterable[str], namespace: str, topics: Iterable[TopicName]
) -> TopicsSnapshot:
    """Return the current state.

    Args:
        admin: of any broker.
        store: the brokers' metadata store.
        urls: the admin interface of each broker.
        namespace: whose policies are read.
        topics: topics of the namespace.
    """
    return TopicsSnapshot(
        policies={what: read_policy(store, namespace, path) for what, path in _POLICIES.items()},
        reported=[_reported_policies(url, namespace) for url in urls],
        notes={at: value for path in _NOTES for at, value in below(store, path)},
        topics={str(name): _topic(admin, store, name) for name in topics},
    )


def changes(before: TopicsSnapshot, after: TopicsSnapshot) -> list[str]:
    """Return descriptions of the differences; empty if there are none."""
    differences = _differences(before._replace(topics={}), after._replace(topics={}))
    for name, was in before.topics.items():
        differences += [f"{name}: {difference}" for difference in _differences(was, after.topics[name])]
    return differences


def _differences(before: SnapshotT, after: SnapshotT) -> list[str]:
    pairs = zip(before._fields, before, after, strict=True)
    return [f"{what}: {was} to {now}" for what, was, now in pairs if was != now]


def topic_faults(
    admin: PulsarAdminReader,
    store: CasReader,
    name: TopicName,
    *,
    partitions: int,
    subscriptions: Iterable[str],
    cleaned_up: bool = False,
) -> list[str]:
    """Return the faults of a topic that has become scalable; empty if there are none.

    Args:
        admin: of any broker.
        store: the brokers' metadata store.
        name: the regular topic.
        partitions: of the regular topic; 0 for an unpartitioned one.
        subscriptions: its durable subscriptions.
        cleaned_up: whether its regular topics may be gone.
    """
    record, recorded, regular = (
        read_scalable(store, name),
        recorded_subscriptions(store, name),
        regular_states(admin, store, name),
    )
    if record.layout is None:
        return [f"{name} is not scalable: its record is {record.state}"]
    faults, active = layout_faults(record.layout), record.layout.active
    segments = max(partitions, 1)
    if len(active) != segments:
        faults.append(f"{name} has {len(active)} segments, and not {segments}")
    for subscription in subscriptions:
        if recorded.get(subscription) is None:
            faults.append(f"{subscription} of {name} has no record")
        faults += [
            f"{subscription} has no cursor on {at}"
            for at in _without(admin, name, [s.descriptor for s in active], subscription)
        ]
    faults += [f"{regular_topic} is {state}" for regular_topic, state in regular.items() if state != _TERMINATED]
    if not cleaned_up and len(regular) != segments:
        faults.append(f"of the regular topics of {name} only {sorted(regular)} are left")
    return faults


def regular_states(admin: PulsarAdminReader, store: CasReader, name: TopicName) -> dict[str, str]:
    """Return the state of each stored regular topic, a partition or the topic itself."""
    folder = name.managed_ledger_path.rpartition("/")[0]
    there = [TopicName(name.tenant, name.namespace, topic) for topic in store.children(folder)]
    mine = [regular_topic for regular_topic in there if regular_topic.whole == name]
    return {str(regular_topic): admin.topics.internal_stats(regular_topic).state for regular_topic in mine}


def below(store: CasReader, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield a node and all nodes below it that have a value."""
    if (node := store.get(path)) and node.value:
        yield path, node.value
    for child in store.children(path):
        yield from below(store, f"{path}/{child}")


def _without(admin: PulsarAdminReader, name: TopicName, descriptors: Iterable[str], subscription: str) -> Iterator[str]:
    for descriptor in descriptors:
        try:
            admin.scalable_topics.backlog(name, descriptor, subscription)
        except AdminNotFound:
            yield descriptor


def _reported_policies(url: str, namespace: str) -> Mapping[str, Any]:
    with PulsarAdmin.open(_ACCESS, [url]) as admin:
        raw = admin.namespaces.policies(namespace).raw
    return {what: raw.get(path[0]) for what, path in _POLICIES.items()}


def _topic(admin: PulsarAdminReader, store: CasReader, name: TopicName) -> TopicSnapshot:
    record = read_scalable(store, name)
    subscriptions = {subscription: str(kind) for subscription, kind in recorded_subscriptions(store, name).items()}
    base = f"/managed-ledgers/{name.namespace_path}/segment/{name.topic}"
    segments = {child: sorted(store.children(f"{base}/{child}")) for child in store.children(base)}
    return TopicSnapshot(record.state, record.version, subscriptions, segments, regular_states(admin, store, name))

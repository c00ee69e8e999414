"""A scalable topic that has the name of a regular one, and did not come from it.

Brokers create one, with one segment, when a client looks up `topic://…` and no such topic exists (5.0). From then on
they refuse to migrate the regular topic. If the scalable topic is empty, the migration can remove it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.conversion.segments import TopicGuard, clear_late_records, probe_segment
from activities.scalable_topic.regular_topic import regular_parts
from activities.scalable_topic.subscriptions import subscriptions_by_segment
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.records.scalable_topics import (
    ScalableRecord,
    read_scalable,
    recorded_subscriptions,
    remove_record,
)
from models.lifecycle.failures import summarize
from models.segments.layout import SegmentLayout
from models.segments.repair import comes_from
from models.segments.segment import SegmentInfo


def foreign_layout(store: CasReader, record: ScalableRecord, topic: TopicInventory) -> SegmentLayout | None:
    """Return the layout of a scalable topic of the same name that did not come from the regular one; None for none.

    If a layout names no regular topic, brokers have dropped its parents, or it never had any. It can only have come
    from the regular topic if that is terminated: a topic that still takes messages did not become scalable.
    """
    layout = record.layout
    return None if layout is None or _came_from(store, layout, regular_parts(topic)) else layout


def name_taken_problem(name: TopicName) -> str:
    """Return the message for a scalable topic that has the name, and did not come from the regular topic."""
    return (
        f"topic://{name.local_path} exists, and did not come from {name}: a client that looked it up, or a tool, "
        'created it; start again with "replace_empty": true, which removes it if it is empty'
    )


def name_is_taken(name: TopicName) -> str:
    """Return the note of a migration that found another scalable topic of this name during its flip."""
    return (
        f"another scalable topic has the name of {name} now, which stays regular; segments that were made for the flip "
        "were not deleted"
    )


def has_become(store: CasReader, record: ScalableRecord, name: TopicName) -> bool:
    """Return whether a regular topic has become the scalable topic of its name; False where the record is not valid.

    Like `foreign_layout`, if only the name of the topic is known.
    """
    if (layout := record.layout) is None:
        return False
    named = [
        TopicName.parse(partition) for segment in layout.segments.values() if (partition := segment.legacy_topic_name)
    ]
    partitions = (
        [partition for partition in named if partition.whole == name] if named else [name, name.of_partition(0)]
    )
    return _came_from(store, layout, partitions)


def check_name(
    admin: PulsarAdminReader,
    store: CasReader,
    findings: Findings,
    topic: TopicInventory,
    layout: SegmentLayout,
    *,
    replace: bool,
) -> None:
    """Note that a scalable topic has the name, and what can be done.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        findings: collects the results.
        topic: the regular one.
        layout: of the scalable topic that has its name.
        replace: whether the migration may remove it if it is empty.
    """
    local = topic.name.local_path
    taken = f"topic://{local} exists, and did not come from {topic.name}"
    if used := _used(admin, store, topic, layout):
        findings.block(
            "NAME_TAKEN",
            f"{taken}; it {used}",
            "disconnect its clients, move its messages, and delete it; or leave the regular topic out",
        )
    elif replace:
        findings.warn(f"{taken}; it is empty, and is removed before the regular topic becomes scalable")
    else:
        findings.block(
            "NAME_TAKEN",
            f"{taken}; it is empty: a client that looked it up, or a tool, created it",
            'start again with "replace_empty": true, which removes it if it is still empty then; or delete it',
        )


def remove_empty(
    admin: PulsarAdmin,
    store: CasStore,
    change: ChangeOrNever,
    topic: TopicInventory,
    guard: TopicGuard,
    *,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Remove the scalable topic that has the name, if nothing was ever sent to it; idempotent.

    Its segments are terminated first, so that they cannot change during the check: a producer that has just connected
    gets an error, and loses nothing. Its record is deleted last, unless it was changed. The deletion of brokers is not
    used: it would also delete the schema, which belongs to the regular topic. The deleted segments have other names
    than segments of a migrated topic, whose numbers start after those of its parents.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        change: sends each change.
        topic: the regular one.
        guard: of the topic; checked before each change.
        pause: waits for seconds.

    Raises:
        StoreConflict: it is used, or was changed in the meantime.
    """
    record = read_scalable(store, topic.name)
    if (layout := foreign_layout(store, record, topic)) is None:
        return
    name = topic.name

    def require_unused() -> None:
        if used := _used(admin, store, topic, layout):
            raise StoreConflict(f"topic://{name.local_path} {used}; it is not removed")

    require_unused()
    for segment in layout.segments.values():
        _end(change, name, segment, guard.require)
    if used := [segment.descriptor for segment in layout.segments.values() if not _never_used(store, name, segment)]:
        raise StoreConflict(
            f"topic://{name.local_path} is not empty: segments {summarize(used)} hold messages, or were not ended. It "
            "takes no messages any more, and is not removed; consume its messages, and delete it"
        )
    for segment in layout.segments.values():
        change(
            connect=lambda admin, segment=segment: probe_segment(admin, name, segment),
            fence=guard.require,
            change=lambda admin, segment=segment: admin.scalable_topics.delete_segment(name, segment.descriptor),
        )
    remove_record(store, name, record.version, guard.check, require_unused)
    # The broker that led the topic is elected again before it learns that the topic is gone.
    clear_late_records(store, name, guard.check, pause)


# Inside ---------------------------------------------------------------------------------------------------------------


def _came_from(store: CasReader, layout: SegmentLayout, partitions: Sequence[TopicName]) -> bool:
    named = any(segment.legacy for segment in layout.segments.values())
    return comes_from(layout, list(map(str, partitions))) and (named or _ended(store, partitions))


def _ended(store: CasReader, partitions: Sequence[TopicName]) -> bool:
    """Return whether a regular topic was terminated, or is gone; partitions may have been added since."""
    nodes = [node for partition in partitions if (node := store.get(partition.managed_ledger_path))]
    return not nodes or any(decode_ledger_info(node.value).HasField("terminatedPosition") for node in nodes)


def _used(admin: PulsarAdminReader, store: CasReader, topic: TopicInventory, layout: SegmentLayout) -> str:
    """Return how a scalable topic was used, as a phrase that follows its name; empty if it can be removed."""
    name = topic.name
    if any(segment.legacy for segment in layout.segments.values()):
        return "names other regular topics"
    if layout.epoch:
        # Its segments may have the names that segments of the regular topic will have.
        return "has been split, merged or rebucketed"
    clients: set[str] = set()
    cursors = subscriptions_by_segment(store, name, layout.segments.values())
    subscriptions = {*recorded_subscriptions(store, name)}.union(*cursors.values())
    stored = 0
    for number in layout.segments:
        try:
            stats = admin.scalable_topics.segment_stats(name, number)
        except AdminNotFound:
            continue
        clients |= {*stats.clients}
        stored += stats.storage_size
    if stored or clients:
        return (
            f"holds {stored:,} bytes, and has {f'clients: {summarize(sorted(clients))}' if clients else 'no clients'}"
        )
    # Subscriptions that the regular topic has as well get their cursors from there.
    if own := sorted(subscriptions - topic.subscriptions.keys()):
        return f"has subscriptions that {name} does not have: {summarize(own)}"
    return ""


def _end(change: ChangeOrNever, name: TopicName, segment: SegmentInfo, fence: Callable[[], object]) -> None:
    try:
        change(
            connect=lambda admin: probe_segment(admin, name, segment),
            fence=fence,
            change=lambda admin: admin.scalable_topics.terminate_segment(name, segment.descriptor),
        )
    except AdminNotFound:
        # An earlier attempt has deleted it.
        return


def _never_used(store: CasReader, name: TopicName, segment: SegmentInfo) -> bool:
    """Return whether a segment was terminated before its first message, or is gone."""
    node = store.get(SegmentName(name, segment.descriptor).managed_ledger_path)
    if node is None:
        return True
    info = decode_ledger_info(node.value)
    return info.HasField("terminatedPosition") and info.terminatedPosition.entryId < 0 and len(info.ledgerInfo) <= 1

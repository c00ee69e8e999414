"""A scalable topic that has the name of a regular one, and did not come from it.

Brokers make one, with one segment, when a client looks up `topic://…` and no topic of that kind is there (5.0). From
then on they refuse to migrate the regular topic. Where that topic is empty, the migration can remove it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from activities.lifecycle.precheck import Findings
from activities.lifecycle.topic_inventory import TopicInventory
from activities.scalable_topic.regular import regular_parts
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.scalable_records import ScalableRecord, clear_empty, read_scalable, remove_record
from models.lifecycle.failures import some
from models.segment import SegmentInfo
from models.segment_layout import SegmentLayout
from models.segment_repair import comes_from

_LOOKS, _PAUSE = 8, 0.25


def foreign_layout(record: ScalableRecord, topic: TopicInventory) -> SegmentLayout | None:
    """Return the layout of a scalable topic of the same name that did not come from the regular one; None for none."""
    layout = record.layout
    return None if layout is None or comes_from(layout, list(map(str, regular_parts(topic)))) else layout


def check_name(
    admin: PulsarAdminReader, findings: Findings, topic: TopicInventory, layout: SegmentLayout, *, replace: bool
) -> None:
    """Note that the name is taken, and what can be done.

    Args:
        admin: of the cluster.
        findings: where it goes.
        topic: the regular one.
        layout: of the scalable topic that has its name.
        replace: whether the migration may remove it where it is empty.
    """
    local = topic.name.local_path
    clients, stored = _usage(admin, topic.name, layout)
    taken = f"topic://{local} exists, and did not come from {topic.name}"
    if stored or clients:
        findings.block(
            "NAME_TAKEN",
            f"{taken}; it holds {stored:,} bytes, and has {f'clients: {some(clients)}' if clients else 'no clients'}",
            "end its clients, and move what it holds; or leave the regular topic out",
        )
    elif replace:
        findings.warn(f"{taken}; it is empty, and is removed before the regular topic becomes scalable")
    else:
        findings.block(
            "NAME_TAKEN",
            f"{taken}; it is empty: a client has looked it up, or a tool has made it",
            'start again with "replace_empty": true, which removes it if it is still empty then; or delete it',
        )


def remove_empty(
    admin: PulsarAdmin,
    store: CasStore,
    change: ChangeOrNever,
    topic: TopicInventory,
    fence: Callable[[], object],
    *,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Remove the scalable topic that has the name, if nothing was ever sent to it; harmless when done twice.

    Its segments are ended first, so that what is compared cannot change: a producer that is connected is told so, and
    loses nothing. Its record goes last, if it is still the one that was read. Brokers' own deletion is not used: it
    deletes the schema too, which is the regular topic's.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        change: makes each change.
        topic: the regular one.
        fence: raises where somebody else is in charge; asked before each change.
        pause: waits for seconds.

    Raises:
        StoreConflict: it holds messages, or was changed in the meantime.
    """
    record = read_scalable(store, topic.name)
    if (layout := foreign_layout(record, topic)) is None:
        return
    if any(segment.legacy for segment in layout.segments.values()):
        raise StoreConflict(f"topic://{topic.name.local_path} names other regular topics, and is not removed")
    for segment in layout.segments.values():
        _end(change, topic.name, segment, fence)
    if used := [one.descriptor for one in layout.segments.values() if not _never_used(store, topic.name, one)]:
        raise StoreConflict(
            f"topic://{topic.name.local_path} is not empty: segments {some(used)} hold messages, or were not ended. It "
            "takes no messages any more, and is not removed; consume what it holds, and delete it"
        )
    for segment in layout.segments.values():
        fence()
        admin.scalable_topics.delete_segment(topic.name, segment.descriptor)
    remove_record(store, topic.name, record.version, fence)
    # The broker that led the topic is elected once more before it learns that the topic is gone: the record is there
    # again, without a value (5.0.1).
    for _ in range(_LOOKS):
        pause(_PAUSE)
        clear_empty(store, topic.name, fence)


# Inside ---------------------------------------------------------------------------------------------------------------


def _usage(admin: PulsarAdminReader, name: TopicName, layout: SegmentLayout) -> tuple[list[str], int]:
    """Return the clients that use segments, by their own names, and how many bytes these hold."""
    clients: set[str] = set()
    stored = 0
    for number in layout.segments:
        try:
            stats = admin.scalable_topics.segment_stats(name, number)
        except AdminNotFound:
            continue
        clients |= {*stats.clients}
        stored += stats.storage_size
    return sorted(clients), stored


def _end(change: ChangeOrNever, name: TopicName, segment: SegmentInfo, fence: Callable[[], object]) -> None:
    try:
        change(
            look=lambda admin: admin.scalable_topics.names(name.namespace_path),
            fence=fence,
            change=lambda admin: admin.scalable_topics.terminate_segment(name, segment.descriptor),
        )
    except AdminNotFound:
        # An earlier attempt has deleted it.
        return


def _never_used(store: CasReader, name: TopicName, segment: SegmentInfo) -> bool:
    """Return whether a segment has ended before its first message, or is gone."""
    node = store.get(SegmentName(name, segment.descriptor).managed_ledger_path)
    if node is None:
        return True
    info = decode_ledger_info(node.value)
    return info.HasField("terminatedPosition") and info.terminatedPosition.entryId < 0 and len(info.ledgerInfo) <= 1

"""The segments that will take new messages, made before a topic becomes scalable, and taken back where it does not.

Consumers of V5 follow within milliseconds of the brokers' migration. One that begins at the end (`Latest`) finds no
place of its subscription on segments that brokers have just made, and so misses what was sent there before it came.

Late requests would make segments of a topic that stays regular, or delete those of one that has become scalable, with
their messages. So each arrives soon after its fence or never, and a record tells whoever comes after an attempt that
died for what to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from activities.lifecycle.parallel import Each
from clients.cas.store import CasStore, Check
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, clear_empty, read_scalable
from models.lifecycle.failures import some
from models.scalable_topic.claims import Stage
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

HARMLESS = (RecordState.ABSENT, RecordState.EMPTY)
"""States of the record of a topic that is regular."""
_NOBODY = "nobody"


class TopicGuard(Protocol):
    """The right to change one topic, with its record."""

    def require(self) -> object:
        """Raises where somebody else is in charge."""
        ...

    def check(self) -> Check:
        """Return the same as a part of a transaction."""
        ...

    def note(self, **fields: object) -> object:
        """Write into the record what is about to be done, or was."""
        ...


def make_children(
    change: ChangeOrNever,
    name: TopicName,
    partitions: int,
    subscriptions: Sequence[str],
    fence: Callable[[], object],
    *,
    each: Each,
) -> None:
    """Make the segments that a migration will make, with the places of subscriptions; harmless when done twice.

    Args:
        change: makes each change.
        name: the regular topic.
        partitions: of it; 0 for none.
        subscriptions: durable ones.
        fence: raises where somebody else is in charge; asked before each change.
        each: does the same for many items.
    """

    def make(segment: SegmentInfo) -> None:
        change(
            look=lambda admin: look_at_segment(admin, name, segment),
            fence=fence,
            change=lambda admin: admin.scalable_topics.create_segment(name, segment.descriptor, subscriptions),
        )

    each(planned(name, partitions).active, make)


def take_back_children(
    change: ChangeOrNever, store: CasStore, name: TopicName, partitions: int, guard: TopicGuard, *, each: Each
) -> None:
    """Delete them again, with the record that brokers begin when they report their load.

    Args:
        change: makes each change.
        store: the brokers' metadata store.
        name: the regular topic, which has not become scalable; no request that makes it so can arrive any more.
        partitions: of it; 0 for none.
        guard: of the topic; asked before each change.
        each: does the same for many items.

    Raises:
        StoreConflict: the topic is scalable.
        StoreContention: brokers report again and again.
    """

    def take_back(segment: SegmentInfo) -> None:
        change(
            look=lambda admin: look_at_segment(admin, name, segment),
            fence=require,
            change=lambda admin: admin.scalable_topics.delete_segment(name, segment.descriptor),
        )

    def require() -> None:
        if (state := read_scalable(store, name).state) not in HARMLESS:
            raise StoreConflict(f"the record of {name} is {state}: its segments are not taken back")
        guard.require()

    guard.note(stage=Stage.WITHDRAWING)
    each(planned(name, partitions).active, take_back)
    clear_empty(store, name, guard.check)


def strays(layout: SegmentLayout, parts: Sequence[TopicName]) -> list[str]:
    """Segments that were made for fewer partitions than brokers then found, in words; they are none of the topic's.

    Args:
        layout: as brokers wrote it.
        parts: the partitions that there were before, or the topic itself.
    """
    names = [str(part) for part in parts]
    if {one.legacy_topic_name for one in layout.segments.values() if one.legacy} <= {*names}:
        return []
    known = {one.descriptor for one in layout.segments.values()}
    left = [one.descriptor for one in SegmentLayout.migrated(names, 0).active if one.descriptor not in known]
    return [f"partitions were added amid the flip; the segments {some(left)} of before are left, and nobody uses them"]


def planned(name: TopicName, partitions: int) -> SegmentLayout:
    """The layout right after the migration of a topic, without its times."""
    return SegmentLayout.migrated([str(part) for part in parts_of(name, partitions)], 0)


def parts_of(name: TopicName, partitions: int) -> list[TopicName]:
    """The partitions of a regular topic in their order, or itself."""
    return [name.of_partition(number) for number in range(partitions)] or [name]


def look_at_segment(admin: PulsarAdmin, name: TopicName, segment: SegmentInfo) -> None:
    """Ask the broker that a change of the segment is sent on to; there may be no such segment."""
    admin.scalable_topics.backlog(name, segment.descriptor, _NOBODY)

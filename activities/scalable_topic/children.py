"""The segments that will take new messages, made before a topic becomes scalable, and taken back where it does not.

Consumers of V5 follow within milliseconds of the brokers' migration. One that begins at the end (`Latest`) finds no
place of its subscription on segments that brokers have just made, and so misses what was sent there before it came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import RecordState, clear_empty, read_scalable
from models.segment_layout import SegmentLayout

_HARMLESS = (RecordState.ABSENT, RecordState.EMPTY)


def make_children(
    admin: PulsarAdmin, name: TopicName, partitions: int, subscriptions: Sequence[str], fence: Callable[[], object]
) -> None:
    """Make the segments that a migration will make, with the places of subscriptions; harmless when done twice.

    Args:
        admin: of the cluster.
        name: the regular topic.
        partitions: of it; 0 for none.
        subscriptions: durable ones.
        fence: raises where somebody else is in charge; asked before each change.
    """
    for segment in planned(name, partitions).active:
        fence()
        admin.scalable_topics.create_segment(name, segment.descriptor, subscriptions)


def take_back_children(
    admin: PulsarAdmin, store: CasStore, name: TopicName, partitions: int, fence: Callable[[], object]
) -> None:
    """Delete them again, with the record that brokers begin when they report their load.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        name: the regular topic, which has not become scalable; no request that makes it so can arrive any more.
        partitions: of it; 0 for none.
        fence: raises where somebody else is in charge; asked before each change.

    Raises:
        StoreConflict: the topic is scalable.
        StoreContention: brokers report again and again.
    """
    for segment in planned(name, partitions).active:
        fence()
        if (state := read_scalable(store, name).state) not in _HARMLESS:
            raise StoreConflict(f"the record of {name} is {state}: its segments are not taken back")
        admin.scalable_topics.delete_segment(name, segment.descriptor)
    clear_empty(store, name, fence)


def planned(name: TopicName, partitions: int) -> SegmentLayout:
    """The layout right after the migration of a topic, without its times."""
    return SegmentLayout.migrated([str(part) for part in parts_of(name, partitions)], 0)


def parts_of(name: TopicName, partitions: int) -> list[TopicName]:
    """The partitions of a regular topic in their order, or itself."""
    return [name.of_partition(number) for number in range(partitions)] or [name]

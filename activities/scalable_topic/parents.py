"""Let consumers of segments begin where regular topics ended, once these are consumed (PIP-468, drain before assign).

Brokers of 5.0.0-M1 ask a segment of the parent's name what a subscription has left, and take "there is none" for "not
yet": streams wait for ever, and parents are never dropped. A regular topic has no such segment. So it gets an empty
one, with the subscriptions that have nothing left in the regular topic, and no others: brokers drop a parent when every
subscription is done with it. While an ordered subscription has something left there is none at all: its consumer would
make its own place there, at the end of nothing, and be taken for done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from activities.lifecycle.parallel import Each, in_turn
from activities.lifecycle.topic_inventory import TopicInventory
from activities.scalable_topic.schemas import keep_schema
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from models.segment import SegmentInfo
from models.segment_layout import SegmentLayout

# Types whose V5 consumers read the regular topic itself. Others may be ordered.
_QUEUES = {"Shared", "Key_Shared"}


def release_parents(
    admin: PulsarAdmin,
    store: CasStore,
    topic: TopicInventory,
    layout: SegmentLayout,
    subscriptions: Iterable[str],
    *,
    fence: Callable[[], object],
    each: Each = in_turn,
) -> list[str]:
    """Show brokers which subscriptions are done with the regular topic; returns these.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        topic: the regular one, which takes no messages any more.
        layout: of the scalable topic.
        subscriptions: all that have a record.
        fence: raises where somebody else is in charge; asked before each change.
        each: does the same for many items.

    Raises:
        StoreConflict: what was made is not empty.
    """
    if (found := done_with(topic, subscriptions)) is None:
        return []
    done = sorted(found)
    # First: with these segments there brokers could drop parents, and with them the schema.
    if keep_schema(admin, store, topic.name, fence):
        return []

    def release(parent: SegmentInfo) -> None:
        fence()
        admin.scalable_topics.create_segment(topic.name, parent.descriptor, done)
        fence()
        admin.scalable_topics.terminate_segment(topic.name, parent.descriptor)
        # One for all: nothing was ever sent there, which each of them would tell.
        for name in done[:1]:
            if backlog := admin.scalable_topics.backlog(topic.name, parent.descriptor, name):
                raise StoreConflict(f"{name} has {backlog} messages in segment {parent.descriptor} of {topic.name}")

    # Without any subscription too: a new stream consumer attaches to all segments, and fails where one is missing.
    each(regular_parents(layout), release)
    return done


def done_with(topic: TopicInventory, subscriptions: Iterable[str]) -> set[str] | None:
    """Subscriptions that have nothing left in a regular topic; None while brokers may not be shown any.

    Args:
        topic: the regular one.
        subscriptions: all that have a record.
    """
    if topic.unloadable:
        # Nobody can say what is left there.
        return None
    waiting = {one.name: one.type for one in topic.subscriptions.values() if one.durable and one.backlog}
    done = {*subscriptions} - waiting.keys()
    return None if {*waiting.values()} - _QUEUES or (waiting and not done) else done


def regular_parents(layout: SegmentLayout) -> list[SegmentInfo]:
    """Segments whose messages are in a regular topic."""
    return [one for one in layout.segments.values() if one.legacy_topic_name]

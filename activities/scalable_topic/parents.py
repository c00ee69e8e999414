"""The regular topics that a layout names as parents.

Brokers look once a minute whether all subscriptions have consumed a regular parent, and the retention has ended. Then
they drop it from the layout, and delete the regular topic (5.0.1).
"""

from __future__ import annotations

from collections.abc import Callable

from clients.cas.store import CasStore, retry
from clients.errors import StoreConflict
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import controller_of, read_scalable, set_while_none_leads
from models.segments.layout import SegmentLayout
from models.segments.repair import with_kept_parents
from models.segments.segment import SegmentInfo


def regular_parents(layout: SegmentLayout) -> list[SegmentInfo]:
    """Return segments whose messages are in a regular topic."""
    return [segment for segment in layout.segments.values() if segment.legacy_topic_name]


def keep_parents(store: CasStore, topic: TopicName, fence: Callable[[], object]) -> str:
    """Have brokers never drop the regular parents of a topic, nor delete the regular topic; harmless when done twice.

    A broker that leads the topic uses the layout that it has read, so none may.

    Args:
        store: the brokers' metadata store.
        topic: the scalable one.
        fence: raises where another attempt is in charge; asked before the change.

    Returns:
        why that cannot be done, in words; empty where it is done.

    Raises:
        StoreConflict: the topic is not scalable any more.
        StoreContention: the record changes again and again.
    """

    def keep() -> str:
        record = read_scalable(store, topic)
        if record.layout is None:
            raise StoreConflict(f"the record of {topic} is {record.state} now")
        wanted = with_kept_parents(record.layout)
        if wanted == record.layout:
            return ""
        if leader := controller_of(store, topic):
            return (
                f"{leader} led {topic} before its regular topic could be marked, and deletes that once every "
                "subscription has consumed it"
            )
        fence()
        set_while_none_leads(store, topic, wanted, record.version)
        return ""

    return retry(keep, topic.scalable_path)

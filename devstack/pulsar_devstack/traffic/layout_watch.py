"""Watch on the layouts of topics: parents that are deleted, segments that are merged."""

from __future__ import annotations

from collections.abc import Sequence

from clients.cas.store import CasReader
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import read_scalable
from models.segments.layout import SegmentLayout
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan

_LOOK_EVERY = 2.0


class LayoutWatch(BackgroundThread):
    """Reads layouts in the store, as controllers may answer what they remember.

    Args:
        store: the brokers' metadata store.
        admin: of the brokers, for what subscriptions have left in a parent.
        topics: to be watched.
    """

    def __init__(self, store: CasReader, admin: PulsarAdmin, topics: Sequence[ScalableTopicPlan]) -> None:
        super().__init__("layout-watch", _LOOK_EVERY)
        self._store = store
        self._admin = admin
        self._topics = topics
        self._merged: set[str] = set()
        self._unread: dict[TopicName, int] = {}

    @property
    def merged(self) -> int:
        """Topics that had less active segments than planned at any time."""
        return len(self._merged)

    @property
    def pruned(self) -> int:
        """Parents that are no longer in layouts."""
        return len(self._unread)

    @property
    def pruned_unread(self) -> int:
        """Messages that durable subscriptions had left in such a parent, each counted for every subscription."""
        return sum(self._unread.values())

    def work(self) -> None:
        """Scan the layouts repeatedly."""
        for _ in self.ticks():
            self.scan()

    def scan(self) -> None:
        """Record the changes."""
        for plan in self._topics:
            if (layout := read_scalable(self._store, TopicName.parse(plan.topic)).layout) is not None:
                self._note(plan, layout)

    def _note(self, plan: ScalableTopicPlan, layout: SegmentLayout) -> None:
        if len(layout.active) < plan.segments:
            self._merged.add(plan.topic)
        there = {segment.legacy_topic_name for segment in layout.segments.values()}
        for partition in plan.parts:
            if (
                str(partition) not in there
                and partition not in self._unread
                and (unread := self._unread_in(partition)) is not None
            ):
                self._unread[partition] = unread

    def _unread_in(self, partition: TopicName) -> int | None:
        try:
            stats = self._admin.topics.stats(partition)
        except AdminError:
            # The next scan tries again.
            return None
        return sum(subscription.msg_backlog for subscription in stats.subscriptions.values() if subscription.is_durable)

"""The flip of one topic, without Temporal, claims and policies."""

from __future__ import annotations

from collections.abc import Callable

from activities.pulsar.topic_inventory import TopicInventory, TopicReader
from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore, Check
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName


class UnclaimedTopic:
    """A guard of a topic that no other attempt has claimed.

    Attributes:
        notes: the recorded fields.
    """

    def __init__(self) -> None:
        self.notes: list[dict[str, object]] = []

    def require(self) -> None:
        """Accept: no other attempt is in charge."""

    def check(self) -> Check:
        """Return a check that succeeds in every cluster."""
        self.require()
        return Check("/admin", -1)

    def note(self, **fields: object) -> None:
        """Store the fields."""
        self.require()
        self.notes.append(fields)


def flip_of(
    admin: PulsarAdmin, store: CasStore, name: TopicName, partitions: int, guard: UnclaimedTopic | None = None
) -> TopicConversion:
    """Return the flip of a topic."""
    reader = TopicReader(admin, lambda: None)

    def read() -> TopicInventory:
        topic = reader.partitioned(name) if partitions else reader.plain(name)
        assert topic
        return topic

    def change(
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], object],
    ) -> None:
        del connect
        fence()
        change(admin)

    return TopicConversion(admin, store, read, guard or UnclaimedTopic(), change)

"""The flip of one topic by itself, without Temporal, claims and policies."""

from __future__ import annotations

from collections.abc import Callable

from activities.pulsar.topic_inventory import TopicInventory, TopicReader
from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore, Check
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName


class FreeTopic:
    """A guard of a topic of which nobody else is in charge.

    Attributes:
        notes: what was noted.
    """

    def __init__(self) -> None:
        self.notes: list[dict[str, object]] = []

    def require(self) -> None:
        """Nobody else is."""

    def check(self) -> Check:
        """Return what holds in every cluster."""
        self.require()
        return Check("/admin", -1)

    def note(self, **fields: object) -> None:
        """Keep it."""
        self.require()
        self.notes.append(fields)


def flip_of(
    admin: PulsarAdmin, store: CasStore, name: TopicName, partitions: int, guard: FreeTopic | None = None
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

    return TopicConversion(admin, store, read, guard or FreeTopic(), change)

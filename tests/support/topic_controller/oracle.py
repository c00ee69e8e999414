"""Invariants of a controlled topic, checked at samples during changes, and when no change is under way."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any

from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.records import StoredRecord, read_record
from clients.errors import RetryableError, StoreError
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.stores import Access, open_cas_reader
from models.segments.layout_check import layout_faults
from models.store_url import parse_store_url
from models.topic_controller.record import PublishedLayout
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from pulsar_scalable.controlled.library import pulsar
from tests.support.topic_controller.listed_topics import listed_topics
from tests.support.waiting import wait_until_equal

_EVERY = 0.5
_LISTED_WITHIN = 10.0
_ACCESS = AdminAccess(timeout=10)
_TERMINATED = "Terminated"


class Oracle(BackgroundThread):
    """Checks a topic periodically, from the start of a `with` block to its end.

    Args:
        stack: its cluster.
        topic: the scalable one.
        subscriptions: that it has all the time.
        passing: that it may have besides.
        metadata_url: of the store that has its record, unless it is the stack's usual one.

    Attributes:
        found: what was wrong at some moment.
        samples: looks that saw all of it.
    """

    def __init__(
        self,
        stack: Stack,
        topic: TopicName,
        subscriptions: Collection[str],
        passing: Collection[str] = (),
        *,
        metadata_url: str = "",
    ) -> None:
        super().__init__(f"oracle of {topic}", _EVERY)
        self._stack, self._topic, self._subscriptions = stack, topic, {*subscriptions}
        self._known = self._subscriptions | {*passing}
        self._store = parse_store_url(metadata_url or stack.metadata_url)
        self._epoch = -1
        self.found: list[str] = []
        self.samples = 0

    def work(self) -> None:
        """Sample the topic at each tick; servers that are away give no sample."""
        with PulsarAdmin.open(_ACCESS, self._stack.admin_urls) as admin:
            for _ in self.ticks():
                with suppress(StoreError):
                    self._sample(admin)

    def _sample(self, admin: PulsarAdmin) -> None:
        stored = self.record()
        if stored is None:
            return
        record = stored.record
        if record.epoch < self._epoch:
            self.found.append(f"the epoch went from {self._epoch} back to {record.epoch}")
        self._epoch = max(self._epoch, record.epoch)
        self.found += layout_faults(record)
        for segment in record.segments.values():
            if missing := self._missing_cursors(admin, segment_topic(self._topic, segment.descriptor)):
                self.found.append(f"epoch {record.epoch}: {segment.descriptor} has no cursor of {sorted(missing)}")
        self.samples += 1

    def record(self) -> StoredRecord | None:
        """Return the layout's record."""
        with open_cas_reader(self._store, Access()) as store:
            return read_record(store, self._topic)

    def _missing_cursors(self, admin: PulsarAdmin, name: TopicName) -> set[str]:
        try:
            return self._subscriptions - {*admin.topics.internal_stats(name).cursors}
        except AdminNotFound:
            # A sealed one is deleted when it is consumed.
            now = self.record()
            named = now and any(segment_topic(self._topic, segment.descriptor) == name for segment in _segments(now))
            return self._subscriptions if named else set()
        except RetryableError:
            return set()

    def faults_at_rest(self, admin: PulsarAdmin) -> list[str]:
        """Return the faults of the topic when no change is under way."""
        stored = self.record()
        if stored is None:
            return ["there is no layout"]
        record, faults = stored.record, [*self.found]
        if record.pending:
            faults.append(f"{record.pending} is still under way")
        faults += layout_faults(record)
        named = {segment_topic(self._topic, segment.descriptor): segment for segment in record.segments.values()}
        for name, segment in named.items():
            if missing := self._missing_cursors(admin, name):
                faults.append(f"{name} has no cursor of {sorted(missing)}")
            with suppress(AdminNotFound):
                durable = {
                    subscription
                    for subscription, stats in admin.topics.stats(name).subscriptions.items()
                    if stats.is_durable
                }
                if strange := durable - self._known:
                    faults.append(f"{name} has subscriptions that no client created: {sorted(strange)[:5]}")
                ended = admin.topics.internal_stats(name).state == _TERMINATED
                if ended is segment.active:
                    faults.append(f"{name} is {'ended' if ended else 'not ended'}, and {segment.state}")
        retired = {str(segment_topic(self._topic, segment.descriptor)) for segment in record.retired}
        expected = {*map(str, named), *retired, str(layout_topic(self._topic))}

        def unexpected() -> set[str]:
            return {*listed_topics(admin, self._topic)} - expected

        # A broker lists a topic a moment longer that another one has deleted.
        with suppress(AssertionError):
            wait_until_equal("no other topics", unexpected, set[str](), _LISTED_WITHIN)
        faults += [f"{topic} is in no layout" for topic in sorted(unexpected())]
        return faults + self._faults_of_layout_topic(record.epoch)

    def _faults_of_layout_topic(self, epoch: int) -> list[str]:
        epochs = [layout.epoch for layout in published(self._stack, self._topic)]
        faults = [
            f"clients saw epoch {later} after {earlier}" for earlier, later in pairwise(epochs) if later < earlier
        ]
        if not epochs or epochs[-1] != epoch:
            faults.append(f"the layout is at epoch {epoch}, and clients see {epochs[-1:]}")
        return faults


def published(stack: Stack, name: TopicName) -> list[PublishedLayout]:
    """Return all layouts that the layout topic has, oldest first."""
    layouts: list[PublishedLayout] = []
    with closing(quiet_client(stack.broker_url)) as client:
        reader: Any = client.create_reader(str(layout_topic(name)), pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(10_000)
            if message.partition_key() == "layout":
                layouts.append(PublishedLayout.model_validate_json(message.data()))
        reader.close()
    return layouts


def _segments(stored: StoredRecord) -> Collection[Any]:
    return stored.record.segments.values()

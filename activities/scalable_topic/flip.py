"""FLIP of one topic: the brokers' migration, and at once all that it leaves out (PIP-475, "Migration").

In 5.0.0-M1 the new segments have no cursors of the subscriptions that there were, and brokers take what was written
before for consumed, at their next look, where no subscription has a record: within a minute. A migration whose last
step fails leaves regular topics that take messages which nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from activities.lifecycle.topic_inventory import SubscriptionInventory, TopicInventory
from activities.scalable_topic.clients import waits_for
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.guards import require_held
from activities.scalable_topic.topic_checks import kind_of
from clients.cas.store import CasReader
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminError, AdminNotFound, AdminUnreachable
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import RecordState, read_scalable
from models.scalable_topic.results import FlipAnswer, FlippedTopic
from models.segment_layout import SegmentLayout
from models.segment_layout_check import migration_faults

_TERMINATED = "Terminated"


def flip(task: TopicTask) -> FlipAnswer:
    """Make the topic scalable, if that can still be done as it was seen; complete it where it was begun.

    Raises:
        StoreConflict: policies are not held any more, or the record is empty or broken.
    """
    with task.store() as store:
        task.keeper(store).renew()
        guard = task.guard(store)
        guard.take()
        if not (begun := _is_begun(store, task.name)):
            require_held(guard)
            if not task.input.force and (waiting := waits_for(task.read_topic())):
                return FlipAnswer(refused=waiting)
        try:
            flipped = Flip(task.admin, store, task.read_topic, guard.require).run(force=task.input.force)
        except AdminConflict as error:
            if begun or _is_begun(store, task.name):
                raise
            return FlipAnswer(refused=str(error))
        return FlipAnswer(flipped=flipped)


def _is_begun(store: CasReader, name: TopicName) -> bool:
    return read_scalable(store, name).state is not RecordState.ABSENT


@dataclass(frozen=True)
class Flip:
    """Makes one topic scalable. Each step can be done again, also behind one that died.

    Attributes:
        admin: of the cluster.
        store: the brokers' metadata store.
        read: reads the regular topic, which stays when it is scalable.
        require: raises where somebody else is in charge; asked before each change, since brokers cannot be fenced.
    """

    admin: PulsarAdmin
    store: CasReader
    read: Callable[[], TopicInventory]
    require: Callable[[], object]

    def run(self, *, force: bool = False) -> FlippedTopic:
        """Make the topic scalable, unless it is, and complete what that leaves out.

        Args:
            force: also under clients that cannot follow.

        Raises:
            AdminConflict: such clients are attached; nothing has changed.
            StoreConflict: the record is empty or broken, and people have to decide.
            AdminError: a broker refuses, or does not answer; another attempt goes on from there.
        """
        topic = self.read()
        layout = self._made_scalable(topic.name, force=force)
        known = durable_of(topic)
        self._register(topic.name, known)
        ended = sum(self._terminated(part) for part in regular_parts(topic))
        # Until the topic has ended, and is scalable for all brokers, clients may make more of them.
        late = [one for one in durable_of(self.read()) if one.name not in {before.name for before in known}]
        self._register(topic.name, late)
        for one in (*known, *late):
            self._require_cursors(topic.name, layout, one.name)
        return FlippedTopic(
            segments=len(layout.active),
            registered=len(known) + len(late),
            terminated=ended,
            faults=tuple(migration_faults(layout, [str(part) for part in regular_parts(topic)])),
        )

    def _made_scalable(self, name: TopicName, *, force: bool) -> SegmentLayout:
        refusal: AdminError | None = None
        if read_scalable(self.store, name).state is RecordState.ABSENT:
            self.require()
            try:
                self.admin.scalable_topics.migrate(name, force=force)
            except (AdminUnreachable, AdminConflict) as error:
                # What the broker says proves nothing: it may have written the record, or another attempt may have.
                refusal = error
        record = read_scalable(self.store, name)
        if record.layout is not None:
            return record.layout
        if record.state is RecordState.ABSENT and refusal is not None:
            raise refusal
        raise StoreConflict(
            f"the record of {name} in the metadata store is {record.state}: no broker can read it. Stop the brokers' "
            f"reports by unloading its segments, delete {name.scalable_path} with all beneath it, and start again"
        ) from refusal

    def _register(self, name: TopicName, subscriptions: Iterable[SubscriptionInventory]) -> None:
        for one in subscriptions:
            self.require()
            self.admin.scalable_topics.register(name, one.name, kind_of(one))

    def _terminated(self, part: TopicName) -> bool:
        """Whether a regular topic had to be ended."""
        if self._is_terminated(part):
            return False
        self.require()
        self.admin.topics.terminate(part)
        if not self._is_terminated(part):
            raise StoreConflict(f"{part} still takes messages, although its broker said that it was terminated")
        return True

    def _is_terminated(self, part: TopicName) -> bool:
        return self.admin.topics.internal_stats(part).state == _TERMINATED

    def _require_cursors(self, name: TopicName, layout: SegmentLayout, subscription: str) -> None:
        """See that a subscription has its place on each new segment, and make the segments that are missing."""
        for segment in layout.active:
            try:
                self.admin.scalable_topics.backlog(name, segment.descriptor, subscription)
            except AdminNotFound:
                self.require()
                self.admin.scalable_topics.create_segment(name, segment.descriptor, [subscription])
                self.admin.scalable_topics.backlog(name, segment.descriptor, subscription)


def durable_of(topic: TopicInventory) -> list[SubscriptionInventory]:
    """Subscriptions that last."""
    return [one for one in topic.subscriptions.values() if one.durable]


def regular_parts(topic: TopicInventory) -> list[TopicName]:
    """The partitions of a topic in their order, or itself."""
    return [topic.name.of_partition(number) for number in range(topic.partitions)] or [topic.name]

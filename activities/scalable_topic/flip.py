"""FLIP of one topic: the brokers' migration, and at once all that it leaves out (PIP-475, "Migration").

In 5.0.0-M1 the new segments have no cursors of the subscriptions that there were, and brokers take what was written
before for consumed, at their next look, where no subscription has a record: within a minute. A migration whose last
step fails leaves regular topics that take messages which nobody reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from activities.lifecycle.namespace_guard import RecordGuard
from activities.lifecycle.topic_inventory import SubscriptionInventory, TopicInventory
from activities.scalable_topic.clients import waits_for
from activities.scalable_topic.context import ClusterTask, TopicTask
from activities.scalable_topic.guards import require_held
from activities.scalable_topic.parents import release_parents
from activities.scalable_topic.topic_checks import kind_of
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import AdminConflict, AdminError, AdminNotFound, AdminUnreachable
from clients.pulsar.admin.late_requests import change_or_never
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import RecordState, clear_empty, read_scalable
from models.scalable_topic.access import ClusterInput
from models.scalable_topic.claims import Stage, TopicClaim
from models.scalable_topic.results import FlipAnswer, FlippedTopic
from models.segment_layout import SegmentLayout
from models.segment_layout_check import migration_faults

_TERMINATED = "Terminated"
_TRIES = 3


class TopicGuard(Protocol):
    """The right to change one topic, with its record."""

    def require(self) -> object:
        """Raises where somebody else is in charge."""
        ...

    def note(self, **fields: object) -> object:
        """Write into the record what is about to be done, or was."""
        ...


class Migrate(Protocol):
    """Has a broker make a topic scalable."""

    def __call__(self, fence: Callable[[], object], *, force: bool) -> None:
        """Ask the fence, and then a broker.

        Raises:
            AdminError: it refuses, or does not answer.
        """
        ...


def flip(task: TopicTask) -> FlipAnswer:
    """Make the topic scalable, if that can still be done as it was seen; complete it where it was begun.

    Raises:
        StoreConflict: policies are not held any more, or the record is empty or broken.
    """
    with task.store() as store:
        guard = task.topic_guard(store, task.name)
        guard.take()
        begun = read_scalable(store, task.name).state is not RecordState.ABSENT
        require_held(task.namespace_guard(store, task.name.namespace_path))
        if not begun and not task.input.force and (waiting := waits_for(task.read_topic(task.name))):
            return FlipAnswer(refused=waiting)
        try:
            return FlipAnswer(flipped=flip_of(task, store, guard, task.name).run(force=task.input.force))
        except AdminConflict as error:
            if read_scalable(store, task.name).state is not RecordState.ABSENT:
                raise
            # A broker has refused it, and no request is on its way.
            guard.note(stage=Stage.CLAIMED)
            return FlipAnswer(refused=str(error))


def flip_of(task: ClusterTask[ClusterInput], store: CasStore, guard: RecordGuard[TopicClaim], name: TopicName) -> Flip:
    """The flip of a topic, on behalf of an attempt."""
    access = task.runtime.admin_of(task.input.credentials)

    def migrate(fence: Callable[[], object], *, force: bool) -> None:
        change_or_never(
            access,
            task.input.admin_urls,
            look=lambda admin: admin.scalable_topics.names(name.namespace_path),
            fence=fence,
            change=lambda admin: admin.scalable_topics.migrate(name, force=force),
        )

    return Flip(task.admin, store, lambda: task.read_topic(name), guard, migrate)


@dataclass(frozen=True)
class Flip:
    """Makes one topic scalable. Each step can be done again, also behind one that died.

    Attributes:
        admin: of the cluster.
        store: the brokers' metadata store.
        read: reads the regular topic, which stays when it is scalable.
        guard: of the topic; asked before each change, since brokers cannot be fenced.
        migrate: has a broker make the topic scalable, and asks the fence that it is given right before.
    """

    admin: PulsarAdmin
    store: CasStore
    read: Callable[[], TopicInventory]
    guard: TopicGuard
    migrate: Migrate

    def run(self, *, force: bool = False) -> FlippedTopic:
        """Make the topic scalable, unless it is, and complete what that leaves out.

        Args:
            force: also under clients that cannot follow.

        Raises:
            AdminConflict: such clients are attached; nothing has changed.
            StoreConflict: the record is empty or broken, and people have to decide.
            AdminError: a broker refuses, or does not answer; another attempt goes on from there.
        """
        begun = time.monotonic()
        topic = self.read()
        asked = time.monotonic()
        layout = self._made_scalable(topic.name, topic.partitions, force=force)
        migrated = time.monotonic()
        known = durable_of(topic)
        self._register(topic.name, known)
        ended = sum(self._terminated(part) for part in regular_parts(topic))
        # Until the topic has ended, and is scalable for all brokers, clients may make more of them.
        late = [one for one in durable_of(self.read()) if one.name not in {before.name for before in known}]
        self._register(topic.name, late)
        for one in (*known, *late):
            self._require_cursors(topic.name, layout, one.name)
        registered = [one.name for one in (*known, *late)]
        release_parents(self.admin, self.read(), layout, registered, self.guard.require)
        self.guard.note(stage=Stage.FLIPPED)
        return FlippedTopic(
            segments=len(layout.active),
            registered=len(known) + len(late),
            terminated=ended,
            migrate_seconds=round(migrated - asked, 3),
            seconds=round(time.monotonic() - begun, 3),
            faults=tuple(migration_faults(layout, [str(part) for part in regular_parts(topic)])),
        )

    def _made_scalable(self, name: TopicName, partitions: int, *, force: bool) -> SegmentLayout:
        refusal: AdminError | None = None
        for _ in range(_TRIES):
            record = read_scalable(self.store, name)
            if record.layout is not None:
                return record.layout
            if record.state is RecordState.EMPTY:
                # A broker told the load of a new segment before another had written the record.
                clear_empty(self.store, name, self.guard.require)
            elif record.state is RecordState.BROKEN or isinstance(refusal, AdminConflict):
                break
            self.guard.note(stage=Stage.FLIPPING, partitions=partitions)
            try:
                self.migrate(self.guard.require, force=force)
            except (AdminUnreachable, AdminConflict) as error:
                # What the broker says proves nothing: it may have written the record, or another attempt may have.
                refusal = error
        record = read_scalable(self.store, name)
        if record.layout is not None:
            return record.layout
        if record.state is RecordState.ABSENT and refusal is not None:
            raise refusal
        raise StoreConflict(
            f"the record of {name} in the metadata store is {record.state}: no broker can read it. Delete "
            f"{name.scalable_path} with all beneath it, and start again"
        ) from refusal

    def _register(self, name: TopicName, subscriptions: Iterable[SubscriptionInventory]) -> None:
        for one in subscriptions:
            self.guard.require()
            self.admin.scalable_topics.register(name, one.name, kind_of(one))

    def _terminated(self, part: TopicName) -> bool:
        """Whether a regular topic had to be ended."""
        if is_terminated(self.admin, part):
            return False
        self.guard.require()
        self.admin.topics.terminate(part)
        if not is_terminated(self.admin, part):
            raise StoreConflict(f"{part} still takes messages, although its broker said that it was terminated")
        return True

    def _require_cursors(self, name: TopicName, layout: SegmentLayout, subscription: str) -> None:
        """See that a subscription has its place on each new segment, and make the segments that are missing."""
        for segment in layout.active:
            try:
                self.admin.scalable_topics.backlog(name, segment.descriptor, subscription)
            except AdminNotFound:
                self.guard.require()
                self.admin.scalable_topics.create_segment(name, segment.descriptor, [subscription])
                self.admin.scalable_topics.backlog(name, segment.descriptor, subscription)


def durable_of(topic: TopicInventory) -> list[SubscriptionInventory]:
    """Subscriptions that last."""
    return [one for one in topic.subscriptions.values() if one.durable]


def is_terminated(admin: PulsarAdminReader, part: TopicName) -> bool:
    """Whether a regular topic, or a partition, takes no messages any more."""
    return admin.topics.internal_stats(part).state == _TERMINATED


def regular_parts(topic: TopicInventory) -> list[TopicName]:
    """The partitions of a topic in their order, or itself."""
    return [topic.name.of_partition(number) for number in range(topic.partitions)] or [topic.name]

"""The segments for new messages: created before a topic becomes scalable, and deleted if it stays regular.

V5 consumers follow within milliseconds of the brokers' migration. A consumer that starts at the end (`Latest`) finds no
cursor of its subscription on segments that brokers have just created, and so misses earlier messages.

Late requests would create segments of a topic that stays regular, or delete segments of a scalable topic with their
messages. So each request arrives soon after its fence or never. After an attempt that died, a record says which
requests the next one must wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from activities.lifecycle.parallel import ItemMapper, map_sequential
from activities.scalable_topic.regular_topic import planned
from clients.cas.store import CasStore, Check
from clients.errors import StoreConflict, StoreContention
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.creation_locks import allow_creation, bar_creation, bar_path, creation_locks
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import Fence, RecordState, clear_empty, read_scalable
from models.lifecycle.failures import summarize
from models.scalable_topic.claims import Stage
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

HARMLESS = (RecordState.ABSENT, RecordState.EMPTY)
"""States of the record of a topic that is regular."""
_PROBED_SUBSCRIPTION = "pulsar-migrate-probe"
_LONGEST_CREATION, _POLL_INTERVAL = 60.0, 0.5
# A request that finds the name barred holds a lock node for a moment.
_LONGEST_REFUSAL = 5.0
# A write of a broker that is under way arrives within this time, even where its store is slow.
_LATE_CHECKS, _LATE_INTERVAL = 8, 0.25


class TopicGuard(Protocol):
    """The right to change one topic, with its record."""

    def require(self) -> object:
        """Raise if another attempt is in charge."""
        ...

    def check(self) -> Check:
        """Return the check as a part of a transaction."""
        ...

    def note(self, **fields: object) -> object:
        """Write fields of the record, before or after a change."""
        ...


def create_children(
    change: ChangeOrNever,
    name: TopicName,
    partitions: int,
    subscriptions: Sequence[str],
    fence: Callable[[], object],
    *,
    each: ItemMapper,
) -> None:
    """Create the segments that a migration will use, with cursors of the subscriptions; idempotent.

    Args:
        change: sends each change.
        name: the regular topic.
        partitions: of the regular topic; 0 for an unpartitioned one.
        subscriptions: durable ones.
        fence: raises if another attempt is in charge; called before each change.
        each: calls a function for many items.
    """

    def create(segment: SegmentInfo) -> None:
        change(
            connect=lambda admin: probe_segment(admin, name, segment),
            fence=fence,
            change=lambda admin: admin.scalable_topics.create_segment(name, segment.descriptor, subscriptions),
        )

    each(planned(name, partitions).active, create)


def delete_children(
    change: ChangeOrNever,
    store: CasStore,
    name: TopicName,
    partitions: int,
    guard: TopicGuard,
    *,
    each: ItemMapper,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Delete the segments of `create_children`, with the empty record that load reports of brokers create.

    Args:
        change: sends each change.
        store: the brokers' metadata store.
        name: the topic, which is regular; no request that makes it scalable can arrive any more.
        partitions: of the regular topic; 0 for an unpartitioned one.
        guard: of the topic; checked before each change.
        each: calls a function for many items.
        pause: waits for seconds.

    Raises:
        StoreConflict: the topic is scalable.
        StoreContention: brokers keep reporting.
    """

    def delete(segment: SegmentInfo) -> None:
        change(
            connect=lambda admin: probe_segment(admin, name, segment),
            fence=require,
            change=lambda admin: admin.scalable_topics.delete_segment(name, segment.descriptor),
        )

    def require() -> None:
        if (state := read_scalable(store, name).state) not in HARMLESS:
            raise StoreConflict(f"the record of {name} is {state}: its segments are not deleted")
        guard.require()

    guard.note(stage=Stage.WITHDRAWING)
    each(planned(name, partitions).active, delete)
    clear_late_records(store, name, guard.check, pause)


def clear_late_records(
    store: CasStore, name: TopicName, fence: Fence, pause: Callable[[float], object] = time.sleep
) -> None:
    """Remove the empty record of a topic that is regular, also one that a broker is about to create.

    A load report of a segment that was just deleted may be under way, and so may the election of a leader of a topic
    that is gone. Each creates a record without a value, and then no client finds the regular topic (5.0.1).

    Args:
        store: the brokers' metadata store.
        name: the topic.
        fence: see `Fence`.
        pause: waits for seconds.

    Raises:
        StoreContention: brokers keep reporting.
    """
    clear_empty(store, name, fence)
    for _ in range(_LATE_CHECKS):
        pause(_LATE_INTERVAL)
        clear_empty(store, name, fence)


def unexpected_segment_topics(layout: SegmentLayout, partitions: Sequence[TopicName]) -> list[str]:
    """Return a note about segments that were created for fewer partitions than brokers then migrated.

    Args:
        layout: written by brokers.
        partitions: the previous partitions, or the topic itself.
    """
    names = [str(partition) for partition in partitions]
    if {segment.legacy_topic_name for segment in layout.segments.values() if segment.legacy} <= {*names}:
        return []
    descriptors = {segment.descriptor for segment in layout.segments.values()}
    unused = [
        segment.descriptor
        for segment in SegmentLayout.migrated(names, 0).active
        if segment.descriptor not in descriptors
    ]
    return [
        f"partitions were added during the flip; the segments {summarize(unused)} that were created before are not used"
    ]


def probe_segment(admin: PulsarAdmin, name: TopicName, segment: SegmentInfo) -> None:
    """Open a connection to the broker of a segment, which may not exist, with a request that changes nothing."""
    admin.scalable_topics.backlog(name, segment.descriptor, _PROBED_SUBSCRIPTION)


@dataclass(frozen=True)
class Withdrawal:
    """Withdraws a flip, so that the topic stays regular. Each step can be repeated.

    A broker may still have the request: a frozen broker reads it when it continues, minutes later, and carries it out.
    Neither the worker nor a clock can tell when that is over. So no broker may create the scalable topic until each
    broker that may have the request has answered another one.

    Attributes:
        store: the brokers' metadata store.
        guard: of the topic; checked before each change.
        change: sends requests that must not arrive late.
        each: calls a function for many items.
        await_late_requests: waits until no request of a worker can arrive any more.
        answering: returns names of the brokers that answer now.
        pause: waits for seconds.
    """

    store: CasStore
    guard: TopicGuard
    change: ChangeOrNever
    each: ItemMapper = map_sequential
    await_late_requests: Callable[[], object] = lambda: None
    answering: Callable[[], Collection[str]] = frozenset
    pause: Callable[[float], object] = time.sleep

    def run(self, name: TopicName, partitions: int, asked: Collection[str]) -> str | None:
        """Keep a topic regular, and delete what was created for it.

        Args:
            name: the regular topic.
            partitions: of the regular topic; 0 for an unpartitioned one.
            asked: names of brokers that may still have a request to make it scalable.

        Returns:
            What remains to be done, empty for nothing; None if the topic is scalable, or its record cannot be read.
        """
        if not self.stop(name, partitions):
            return None
        before = self.answering() if asked else ()
        self.await_late_requests()
        return self.end(name, partitions, asked, before)

    def stop(self, name: TopicName, partitions: int) -> bool:
        """Keep brokers from making a topic scalable, and delete its segments; return false if it is too late.

        The segments are deleted at once: their load reports create a record without a value, and then no client finds
        the regular topic either (5.0.1).

        Raises:
            StoreContention: a broker has been making it scalable for too long.
        """
        bar_creation(self.store, name, self.guard.require)  # mutant: scalable-topic/a-frozen-broker-continues
        self._await_creation(name, _LONGEST_CREATION)  # mutant: scalable-topic/requests-under-way-are-not-waited-for
        if read_scalable(self.store, name).state not in HARMLESS:
            allow_creation(self.store, name, self.guard.check)
            return False
        self._delete_children(name, partitions)  # mutant: scalable-topic/segments-stay-while-requests-are-waited-for
        return True

    def end(self, name: TopicName, partitions: int, asked: Collection[str], answered: Collection[str]) -> str:
        """Delete what late requests created, and allow creation again if no broker has the request any more.

        Args:
            name: the regular topic.
            partitions: of the regular topic; 0 for an unpartitioned one.
            asked: names of brokers that may still have the request.
            answered: names of brokers that answered before the wait for late requests.

        Returns:
            What remains to be done; empty for nothing.

        Raises:
            StoreContention: a broker is making it scalable; see `stop`.
        """
        self._await_creation(name, _LONGEST_REFUSAL)  # mutant: scalable-topic/a-request-under-way-is-withdrawn-from
        self._delete_children(name, partitions)
        # mutant: scalable-topic/brokers-that-do-not-answer-have-no-request
        silent = {*asked} - ({*answered} & {*self.answering()}) if asked else set[str]()
        self.guard.note(stage=Stage.CLAIMED, asked=tuple(sorted(silent)))
        if silent:
            return self.describe_silent(name, silent)
        allow_creation(self.store, name, self.guard.check)
        return ""

    def describe_silent(self, name: TopicName, silent: Collection[str]) -> str:
        """Return the message about brokers that do not answer, and may have the request."""
        return (
            f"{summarize(sorted(silent))} may still have a request to make {name} scalable, and does not answer. The "
            f"node {bar_path(name)} in the metadata store keeps brokers from carrying it out, and from creating "
            f"topic://{name.local_path}; the next start of a migration or operation removes it once they answer. If "
            "such a broker is gone permanently, delete the node"
        )

    def _delete_children(self, name: TopicName, partitions: int) -> None:
        delete_children(self.change, self.store, name, partitions, self.guard, each=self.each, pause=self.pause)

    def _await_creation(self, name: TopicName, limit: float) -> None:
        """Wait for requests in flight; their lock nodes vanish with them, or with the session of their broker."""
        end = time.monotonic() + limit
        while locks := creation_locks(self.store, name):
            if time.monotonic() > end:
                raise StoreContention(
                    f"a broker has been making {name} scalable for {limit:g} s: it holds {summarize(locks)} in the "
                    "metadata store. Restart brokers until the node is gone, or delete it if no broker owns it, and "
                    "start a migration or operation again"
                )
            self.pause(_POLL_INTERVAL)

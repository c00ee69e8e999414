"""The segments that will take new messages, made before a topic becomes scalable, and taken back where it does not.

Consumers of V5 follow within milliseconds of the brokers' migration. One that starts at the end (`Latest`) finds no
cursor of its subscription on segments that brokers have just made, and so misses what was sent there before it came.

Late requests would make segments of a topic that stays regular, or delete those of one that has become scalable, with
their messages. So each arrives soon after its fence or never, and a record says what an attempt that follows one that
died must wait for.
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
from clients.pulsar.records.scalable_topics import RecordState, clear_empty, read_scalable
from models.lifecycle.failures import some
from models.scalable_topic.claims import Stage
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

HARMLESS = (RecordState.ABSENT, RecordState.EMPTY)
"""States of the record of a topic that is regular."""
_NOBODY = "nobody"
_LONGEST_CREATION, _LOOK_EVERY = 60.0, 0.5
# A request that finds the name barred has a node for a moment.
_LONGEST_REFUSAL = 5.0


class TopicGuard(Protocol):
    """The right to change one topic, with its record."""

    def require(self) -> object:
        """Raises where somebody else is in charge."""
        ...

    def check(self) -> Check:
        """Return the same as a part of a transaction."""
        ...

    def note(self, **fields: object) -> object:
        """Write into the record what is about to be done, or was."""
        ...


def make_children(
    change: ChangeOrNever,
    name: TopicName,
    partitions: int,
    subscriptions: Sequence[str],
    fence: Callable[[], object],
    *,
    each: ItemMapper,
) -> None:
    """Make the segments that a migration will make, with the places of subscriptions; harmless when done twice.

    Args:
        change: makes each change.
        name: the regular topic.
        partitions: of it; 0 for none.
        subscriptions: durable ones.
        fence: raises where somebody else is in charge; asked before each change.
        each: does the same for many items.
    """

    def make(segment: SegmentInfo) -> None:
        change(
            connect=lambda admin: look_at_segment(admin, name, segment),
            fence=fence,
            change=lambda admin: admin.scalable_topics.create_segment(name, segment.descriptor, subscriptions),
        )

    each(planned(name, partitions).active, make)


def take_back_children(
    change: ChangeOrNever, store: CasStore, name: TopicName, partitions: int, guard: TopicGuard, *, each: ItemMapper
) -> None:
    """Delete them again, with the record that brokers begin when they report their load.

    Args:
        change: makes each change.
        store: the brokers' metadata store.
        name: the regular topic, which has not become scalable; no request that makes it so can arrive any more.
        partitions: of it; 0 for none.
        guard: of the topic; asked before each change.
        each: does the same for many items.

    Raises:
        StoreConflict: the topic is scalable.
        StoreContention: brokers report again and again.
    """

    def take_back(segment: SegmentInfo) -> None:
        change(
            connect=lambda admin: look_at_segment(admin, name, segment),
            fence=require,
            change=lambda admin: admin.scalable_topics.delete_segment(name, segment.descriptor),
        )

    def require() -> None:
        if (state := read_scalable(store, name).state) not in HARMLESS:
            raise StoreConflict(f"the record of {name} is {state}: its segments are not taken back")
        guard.require()

    guard.note(stage=Stage.WITHDRAWING)
    each(planned(name, partitions).active, take_back)
    clear_empty(store, name, guard.check)


def unexpected_segment_topics(layout: SegmentLayout, parts: Sequence[TopicName]) -> list[str]:
    """Segments that were made for fewer partitions than brokers then found, in words; they are none of the topic's.

    Args:
        layout: as brokers wrote it.
        parts: the partitions that there were before, or the topic itself.
    """
    names = [str(part) for part in parts]
    if {segment.legacy_topic_name for segment in layout.segments.values() if segment.legacy} <= {*names}:
        return []
    known = {segment.descriptor for segment in layout.segments.values()}
    left = [one.descriptor for one in SegmentLayout.migrated(names, 0).active if one.descriptor not in known]
    return [
        f"partitions were added during the flip; the segments {some(left)} of before are left, and nobody uses them"
    ]


def look_at_segment(admin: PulsarAdmin, name: TopicName, segment: SegmentInfo) -> None:
    """Ask the broker that a change of the segment is sent on to; there may be no such segment."""
    admin.scalable_topics.backlog(name, segment.descriptor, _NOBODY)


@dataclass(frozen=True)
class Withdrawal:
    """Keeps a regular topic that was about to become scalable regular, for good. Each step can be done again.

    A broker may have the request still: one that was frozen reads it when it continues, minutes later, and carries it
    out. Neither the worker nor a clock can say when that is over. So no broker may create the scalable topic any more,
    until each broker that may have the request has answered another one.

    Attributes:
        store: the brokers' metadata store.
        guard: of the topic; asked before each change.
        change: makes what must not arrive late.
        each: does the same for many items.
        await_late_requests: waits until nothing arrives any more that a worker may have sent.
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
        """See that a topic stays regular, and delete what was made for it.

        Args:
            name: the regular topic.
            partitions: of it; 0 for none.
            asked: names of brokers that may still have a request to make it scalable.

        Returns:
            what is left, in words, empty for nothing; None where it is scalable, or its record cannot be read.
        """
        if not self.stop(name, partitions):
            return None
        before = self.answering() if asked else ()
        self.await_late_requests()
        return self.end(name, partitions, asked, before)

    def stop(self, name: TopicName, partitions: int) -> bool:
        """Keep brokers from making a topic scalable, and delete its segments; False where it is too late for that.

        The segments go at once: their load reports make a record without a value, with which no client finds the
        regular topic either (5.0.1).

        Raises:
            StoreContention: a broker has been about to make it scalable for long.
        """
        bar_creation(self.store, name, self.guard.require)  # mutant: scalable-topic/a-frozen-broker-continues
        self._await_creation(name, _LONGEST_CREATION)  # mutant: scalable-topic/requests-under-way-are-not-waited-for
        if read_scalable(self.store, name).state not in HARMLESS:
            allow_creation(self.store, name, self.guard.check)
            return False
        self._take_back(name, partitions)  # mutant: scalable-topic/segments-stay-while-requests-are-waited-for
        return True

    def end(self, name: TopicName, partitions: int, asked: Collection[str], answered: Collection[str]) -> str:
        """Delete what came late, and let brokers create such a topic again if none has the request any more.

        Args:
            name: the regular topic.
            partitions: of it; 0 for none.
            asked: names of brokers that may still have the request.
            answered: those that answered before nothing arrived any more that a worker may have sent.

        Returns:
            what is left, in words; empty for nothing.

        Raises:
            StoreContention: a broker is about to make it scalable; see `stop`.
        """
        self._await_creation(name, _LONGEST_REFUSAL)  # mutant: scalable-topic/a-request-under-way-is-withdrawn-from
        self._take_back(name, partitions)
        # mutant: scalable-topic/brokers-that-do-not-answer-have-no-request
        silent = {*asked} - ({*answered} & {*self.answering()}) if asked else set[str]()
        self.guard.note(stage=Stage.CLAIMED, asked=tuple(sorted(silent)))
        if silent:
            return self.left(name, silent)
        allow_creation(self.store, name, self.guard.check)
        return ""

    def left(self, name: TopicName, silent: Collection[str]) -> str:
        """Return what is left where brokers do not answer that may have the request, in words."""
        return (
            f"{some(sorted(silent))} may still have a request to make {name} scalable, and does not answer. The node "
            f"{bar_path(name)} in the metadata store keeps brokers from carrying it out, and from creating "
            f"topic://{name.local_path}; the next start of a migration or operation removes it once they answer. If "
            "such a broker is gone for good, delete the node"
        )

    def _take_back(self, name: TopicName, partitions: int) -> None:
        take_back_children(self.change, self.store, name, partitions, self.guard, each=self.each)

    def _await_creation(self, name: TopicName, limit: float) -> None:
        """Wait for requests that were under way; their nodes go with them, or with their broker's session."""
        end = time.monotonic() + limit
        while locks := creation_locks(self.store, name):
            if time.monotonic() > end:
                raise StoreContention(
                    f"a broker has been making {name} scalable for {limit:g} s: it holds {some(locks)} in the metadata "
                    "store. Restart brokers until the node is gone, or delete it if no broker has it as its own, and "
                    "start a migration or operation again"
                )
            self.pause(_LOOK_EVERY)

"""Sessions of consumers, which outlive their connections (PIP-468, "Consumer Session Lifecycle")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field

from models.base import Frozen, Result
from models.lifecycle.fields import Duration
from models.segments.layout import SegmentLayout
from models.segments.segment import HashRange, Stored
from models.topic_controller.assignment import Assignments, assign, changed
from models.topic_controller.input import SubscriptionName
from models.topic_controller.names import is_node_name, segment_topic
from models.topic_controller.record import ControlledLayout

GRACE = timedelta(seconds=60)
"""How long a session outlives its connection by default, which is also the default of brokers of Pulsar 5.0."""

MAX_CONSUMERS_PER_UPDATE = 500
"""Consumers of one update."""


def _consumer(name: str) -> str:
    if not is_node_name(name):
        raise ValueError(
            f"{name!r} is no name of a consumer; write at most 200 characters, without /, control characters, and what "
            "ZooKeeper takes in no name, such as emoji"
        )
    return name


ConsumerName = Annotated[str, AfterValidator(_consumer)]
"""The stable name of a consumer, which its client chooses."""


Instance = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""One life of a consumer, which its client chooses at random: the next process of the same name has another."""


class ConsumerKind(StrEnum):
    """How a consumer reads: in order, sharing segments with others, or all segments from positions of its own."""

    STREAM = "STREAM"
    CHECKPOINT = "CHECKPOINT"


class Registrations(Frozen):
    """Consumers that join a subscription, or return to it.

    Attributes:
        subscription: its name.
        consumers: their names.
        instances: of consumers, by name; a consumer without one can be ended by each process of its name.
    """

    subscription: SubscriptionName
    consumers: tuple[ConsumerName, ...] = Field(min_length=1, max_length=MAX_CONSUMERS_PER_UPDATE)
    instances: dict[ConsumerName, Instance] = Field(
        default_factory=dict[ConsumerName, Instance], exclude_if=lambda value: not value
    )


class Departures(Frozen):
    """Consumers that leave a subscription for good.

    Attributes:
        subscription: its name.
        consumers: their names.
        instances: by name; a session that another instance has registered since continues. Without one, the
            session of that name ends, of any instance.
    """

    subscription: SubscriptionName
    consumers: tuple[ConsumerName, ...] = Field(min_length=1, max_length=MAX_CONSUMERS_PER_UPDATE)
    instances: dict[ConsumerName, Instance] = Field(
        default_factory=dict[ConsumerName, Instance], exclude_if=lambda value: not value
    )


class GraceChange(Frozen):
    """How long sessions outlive their connections from now on."""

    grace: Duration = Field(ge=timedelta(seconds=1), le=timedelta(days=7))


class AssignedSegment(Stored):
    """A segment as a consumer is told of it.

    Attributes:
        segment_id: its id.
        hash_range: of its keys.
        topic: where its messages are, in full.
    """

    segment_id: int
    hash_range: HashRange
    topic: str


class ConsumerAssignment(Stored):
    """What one consumer reads from now on: the answer to its registration, and each message about it.

    Attributes:
        created_ms: of the topic, which tells topics of one name apart; 0 where that is not told.
        layout_epoch: of the layout that it follows from.
        generation: grows with each that is sent in this topic; clients never go back in it.
        segments: to be read, parents before children.
        evicted: the session has ended; the consumer must register again.
    """

    created_ms: int
    layout_epoch: int
    generation: int
    segments: tuple[AssignedSegment, ...] = ()
    evicted: bool = False


def assignment_of(topic: str, record: ControlledLayout, generation: int, segments: Iterable[int]) -> ConsumerAssignment:
    """What a consumer is told; segments that the layout does not name any more are consumed.

    Args:
        topic: the scalable one, in full.
        record: of it.
        generation: see `ConsumerAssignment`.
        segments: their ids.
    """
    return ConsumerAssignment(
        created_ms=record.created_ms,
        layout_epoch=record.epoch,
        generation=generation,
        segments=_assigned(topic, record, segments),
    )


def whole_assignment(topic: str, layout: SegmentLayout) -> ConsumerAssignment:
    """What a consumer with positions of its own is told: all segments, parents before children, without a session."""
    order = sorted(layout.segments)
    return ConsumerAssignment(
        created_ms=0, layout_epoch=layout.epoch, generation=layout.epoch, segments=_assigned(topic, layout, order)
    )


def _assigned(topic: str, layout: SegmentLayout, segments: Iterable[int]) -> tuple[AssignedSegment, ...]:
    there = [layout.segments[number] for number in segments if number in layout.segments]
    return tuple(
        AssignedSegment(
            segment_id=one.segment_id, hash_range=one.hash_range, topic=segment_topic(topic, one.descriptor)
        )
        for one in there
    )


class ConsumerSession(BaseModel):
    """One consumer.

    Attributes:
        segments: that it was told to read; None before it was told anything.
        gone_since: when its connection was missed; None while it is connected.
        instance: that registered last; empty where it did not say, or an earlier run of the workflow registered it.
    """

    segments: tuple[int, ...] | None = None
    gone_since: datetime | None = None
    instance: str = ""


class StoredSessions(Result):
    """Sessions of one subscription as the metadata store has them.

    Attributes:
        consumers: that have one.
        drained: sealed segments of which the subscription has consumed all.
    """

    consumers: tuple[str, ...]
    drained: tuple[int, ...] = ()


class Coordinator(BaseModel):
    """The sessions of one subscription.

    Attributes:
        consumers: by name.
        evicted: those whose end was not told yet.
        drained: sealed segments of which the subscription has consumed all.
        knows_drained: whether brokers were asked for them; nobody looks while there is no consumer.
    """

    consumers: dict[str, ConsumerSession] = Field(default_factory=dict[str, ConsumerSession])
    evicted: set[str] = Field(default_factory=set[str])
    drained: set[int] = Field(default_factory=set[int])
    knows_drained: bool = False

    def join(self, names: Iterable[str], instances: Mapping[str, str] | None = None) -> None:
        """Register consumers; one that returns keeps what it has, and its grace ends."""
        for name in names:
            self.evicted.discard(name)
            session = self.consumers.setdefault(name, ConsumerSession())
            session.gone_since, session.instance = None, (instances or {}).get(name, "")

    def leave(self, names: Iterable[str], instances: Mapping[str, str] | None = None) -> None:
        """End sessions, except those that another instance has taken over: a leave that is late is not for them."""
        for name in names:
            session, instance = self.consumers.get(name), (instances or {}).get(name, "")
            # mutant: topic-controller/a-late-leave-ends-the-successor
            if session is None or (instance and session.instance not in ("", instance)):
                continue
            del self.consumers[name]
            self.evicted.add(name)
        self.knows_drained = self.knows_drained and bool(self.consumers)

    def note_disconnected(self, gone: Iterable[str], now: datetime) -> None:
        """Note which of the consumers are not connected now."""
        missing = {*gone}
        for name, session in self.consumers.items():
            session.gone_since = (session.gone_since or now) if name in missing else None

    def note_drained(self, drained: Iterable[int], unconsumed_again: Iterable[int]) -> None:
        """Note which sealed segments are consumed, and which are not any more."""
        self.drained = (self.drained | {*drained}) - {*unconsumed_again}

    def restore_drained(self, drained: Iterable[int]) -> None:
        """Note which sealed segments are consumed, and no others."""
        self.drained, self.knows_drained = {*drained}, True

    @property
    def needs_recovery(self) -> bool:
        """Whether it has consumers, and brokers must be asked what is consumed."""
        return bool(self.consumers) and not self.knows_drained

    @classmethod
    def from_stored(cls, stored: StoredSessions) -> Self:
        """The sessions that another run has left, each with a fresh grace, and to be told again."""
        coordinator = cls()
        coordinator.join(stored.consumers)
        coordinator.restore_drained(stored.drained)
        return coordinator

    def is_disconnected(self, name: str) -> bool:
        """Whether a consumer has a session, and no connection."""
        session = self.consumers.get(name)
        return session is not None and session.gone_since is not None

    def disconnected_seconds(self, now: datetime) -> dict[str, float]:
        """For how many seconds consumers are missed, by their names."""
        return {
            name: (now - session.gone_since).total_seconds()
            for name, session in self.consumers.items()
            if session.gone_since is not None
        }

    def changes(self, layout: SegmentLayout) -> Assignments:
        """What consumers must be told."""
        told = {name: one.segments for name, one in self.consumers.items() if one.segments is not None}
        return changed(told, assign(layout, self.drained, self.consumers))

    def note_published(self, told: Mapping[str, tuple[int, ...]], ended: Iterable[str]) -> None:
        """Note what consumers were told; those that came meanwhile are told later."""
        for name, ids in told.items():
            if name in self.consumers:
                self.consumers[name].segments = ids
        self.evicted -= {*ended}


class DrainedSegments(Result):
    """What subscriptions have consumed, as brokers tell it.

    Attributes:
        drained: sealed segments of which a subscription has consumed all, by subscription.
    """

    drained: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])


class SubscriptionChanges(Result):
    """What is told to consumers of one subscription.

    Attributes:
        subscription: its name.
        assignments: ids of segments, by consumer.
        ended: consumers whose sessions are over.
    """

    subscription: str
    assignments: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    ended: tuple[str, ...] = ()


class AssignmentChanges(Result):
    """What is told to consumers at once.

    Attributes:
        generation: of all of it.
        epoch: of the layout by which segments were assigned.
        subscriptions: those with changes.
        layout: whether the layout must be told again, since it is not there any more.
        compact: whether the topic is to be compacted.
        forgotten: consumers of whom nothing is to be left there, `subscription/consumer`: they ended long ago.
    """

    generation: int
    epoch: int
    subscriptions: tuple[SubscriptionChanges, ...]
    layout: bool = False
    compact: bool = False
    forgotten: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, coordinators: Mapping[str, Coordinator], record: SegmentLayout, generation: int, *, layout: bool
    ) -> Self | None:
        """All that must be told now; None for nothing.

        Args:
            coordinators: by subscription.
            record: of the topic.
            generation: of what is told.
            layout: whether the layout must be told too.
        """
        found = [
            SubscriptionChanges(subscription=name, assignments=told, ended=tuple(sorted(one.evicted)))
            for name, one in sorted(coordinators.items())
            if (told := one.changes(record)) or one.evicted
        ]
        if not found and not layout:
            return None
        return cls(generation=generation, epoch=record.epoch, subscriptions=tuple(found), layout=layout)

"""Sessions of consumers, which outlive their connections (PIP-468, "Consumer Session Lifecycle")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import to_json

from models.base import Frozen, Result
from models.lifecycle.fields import Duration
from models.segments.layout import SegmentLayout
from models.segments.segment import HashRange, Stored
from models.topic_controller.assignment import Assignments, assign, changed
from models.topic_controller.input import SubscriptionName
from models.topic_controller.names import is_node_name, segment_topic
from models.topic_controller.record import ControlledLayout

GRACE = timedelta(seconds=60)
"""Default time that a session outlives its connection; the same as in brokers of Pulsar 5.0."""

MAX_CONSUMERS_PER_UPDATE = 500
"""Most consumers of one update."""


def _check_consumer(name: str) -> str:
    if not is_node_name(name):
        raise ValueError(
            f"invalid consumer name {name!r}; write at most 200 characters, without /, control characters, and "
            "characters that ZooKeeper does not allow, such as emoji"
        )
    return name


ConsumerName = Annotated[str, AfterValidator(_check_consumer)]
"""The stable name of a consumer, chosen by its client."""


Instance = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""Random id of a process that runs a consumer, chosen by its client: the next process of the same name has another."""


MAX_OWNER_BYTES = 136
"""Most bytes of an owner in JSON: the state has one for each consumer."""


def json_size(text: str) -> int:
    """Return the bytes of a text in JSON, without its quotation marks."""
    return len(to_json(text)) - 2


def _check_owner(name: str) -> str:
    if not 0 < json_size(name) <= MAX_OWNER_BYTES:  # mutant: topic-controller/owners-of-any-length
        raise ValueError(f"an owner has {json_size(name):,} bytes in JSON; write 1 to {MAX_OWNER_BYTES}")
    return name


Owner = Annotated[str, AfterValidator(_check_owner)]
"""Identity of a client of the gateway."""


class ConsumerKind(StrEnum):
    """How a consumer reads: its share of the segments in order, or all segments from its own positions."""

    STREAM = "STREAM"
    CHECKPOINT = "CHECKPOINT"


class Registrations(Frozen):
    """Consumers that join a subscription, or return to it.

    Attributes:
        subscription: name of the subscription.
        consumers: names of the consumers.
        instances: instances of consumers, by name; without one, any process can end the consumer's session.
        owners: clients to which new sessions belong, by name of the consumer. Without one, the sender may also return
            to sessions of others.
    """

    subscription: SubscriptionName
    consumers: tuple[ConsumerName, ...] = Field(min_length=1, max_length=MAX_CONSUMERS_PER_UPDATE)
    instances: dict[ConsumerName, Instance] = Field(
        default_factory=dict[ConsumerName, Instance], exclude_if=lambda value: not value
    )
    owners: dict[ConsumerName, Owner] = Field(
        default_factory=dict[ConsumerName, Owner], exclude_if=lambda value: not value
    )


class Departures(Frozen):
    """Consumers that leave a subscription permanently.

    Attributes:
        subscription: name of the subscription.
        consumers: names of the consumers.
        instances: instances of consumers, by name; a session that another instance has registered since then continues.
            Without an instance, the session ends in any case.
        owners: clients that ask, by name of the consumer; without one, sessions of all clients end.
    """

    subscription: SubscriptionName
    consumers: tuple[ConsumerName, ...] = Field(min_length=1, max_length=MAX_CONSUMERS_PER_UPDATE)
    instances: dict[ConsumerName, Instance] = Field(
        default_factory=dict[ConsumerName, Instance], exclude_if=lambda value: not value
    )
    owners: dict[ConsumerName, Owner] = Field(
        default_factory=dict[ConsumerName, Owner], exclude_if=lambda value: not value
    )


class GraceChange(Frozen):
    """A new time that sessions outlive their connections."""

    grace: Duration = Field(ge=timedelta(seconds=1), le=timedelta(days=7))


class AssignedSegment(Stored):
    """A segment in the assignment of a consumer.

    Attributes:
        segment_id: id of the segment.
        hash_range: hash range of its keys.
        topic: full name of the topic with its messages.
    """

    segment_id: int
    hash_range: HashRange
    topic: str


class ConsumerAssignment(Stored):
    """The segments that a consumer reads: the answer to its registration, and the content of each later message.

    Attributes:
        created_ms: creation time of the topic, which distinguishes topics of the same name; 0 if unknown.
        layout_epoch: epoch of the layout on which it is based.
        generation: increases with each assignment of this topic; clients ignore lower ones.
        segments: segments to read, parents before children.
        evicted: the session has ended; the consumer must register again.
    """

    created_ms: int
    layout_epoch: int
    generation: int
    segments: tuple[AssignedSegment, ...] = ()
    evicted: bool = False


def assignment_of(topic: str, record: ControlledLayout, generation: int, segments: Iterable[int]) -> ConsumerAssignment:
    """Return the assignment of a consumer; segments that left the layout are consumed, and left out.

    Args:
        topic: full name of the scalable topic.
        record: record of the topic.
        generation: see `ConsumerAssignment`.
        segments: ids of the segments.
    """
    return ConsumerAssignment(
        created_ms=record.created_ms,
        layout_epoch=record.epoch,
        generation=generation,
        segments=_assigned(topic, record, segments),
    )


def whole_assignment(topic: str, layout: SegmentLayout) -> ConsumerAssignment:
    """Return the assignment of a consumer with its own positions: all segments, parents before children, no session."""
    order = sorted(layout.segments)
    return ConsumerAssignment(
        created_ms=0, layout_epoch=layout.epoch, generation=layout.epoch, segments=_assigned(topic, layout, order)
    )


def _assigned(topic: str, layout: SegmentLayout, segments: Iterable[int]) -> tuple[AssignedSegment, ...]:
    segments_there = [layout.segments[segment_id] for segment_id in segments if segment_id in layout.segments]
    return tuple(
        AssignedSegment(
            segment_id=segment.segment_id,
            hash_range=segment.hash_range,
            topic=segment_topic(topic, segment.descriptor),
        )
        for segment in segments_there
    )


class ConsumerSession(BaseModel):
    """The session of a consumer.

    Attributes:
        segments: ids of the segments in its published assignment; None before the first one.
        gone_since: since when it has no connection; None while it is connected.
        instance: the instance that registered last; empty if unknown, or if an earlier run registered it.
        owner: the client that registered it first; empty for an admin, or if an earlier run registered it.
    """

    segments: tuple[int, ...] | None = None
    gone_since: datetime | None = None
    instance: str = ""
    owner: str = Field(default="", exclude_if=lambda value: not value)


class StoredSessions(Result):
    """Sessions of a subscription from the metadata store.

    Attributes:
        consumers: names of the consumers that have a session.
        drained: ids of sealed segments that the subscription has consumed completely.
    """

    consumers: tuple[str, ...]
    drained: tuple[int, ...] = ()


class Coordinator(BaseModel):
    """The sessions of a subscription.

    Attributes:
        consumers: sessions, by name of the consumer.
        evicted: consumers whose session has ended, which is not published yet.
        drained: ids of sealed segments that the subscription has consumed completely.
        knows_drained: whether brokers were asked for `drained`; nothing keeps it current while there is no consumer.
    """

    consumers: dict[str, ConsumerSession] = Field(default_factory=dict[str, ConsumerSession])
    evicted: set[str] = Field(default_factory=set[str])
    drained: set[int] = Field(default_factory=set[int])
    knows_drained: bool = False

    @property
    def names(self) -> set[str]:
        """Consumers with a session, and those whose session has ended, which is not published yet."""
        return {*self.consumers, *self.evicted}

    def join(
        self,
        names: Iterable[str],
        instances: Mapping[str, str] | None = None,
        owners: Mapping[str, str] | None = None,
    ) -> None:
        """Register consumers; one that returns keeps its session, and counts as connected."""
        for name in names:
            self.evicted.discard(name)
            session = self.consumers.setdefault(name, ConsumerSession())
            session.gone_since, session.instance = None, (instances or {}).get(name, "")
            session.owner = session.owner or (owners or {}).get(name, "")

    def leave(self, names: Iterable[str], instances: Mapping[str, str] | None = None) -> None:
        """End sessions, except those that another instance has taken over: a late leave is not meant for them."""
        for name in names:
            session, instance = self.consumers.get(name), (instances or {}).get(name, "")
            # mutant: topic-controller/a-late-leave-ends-the-successor
            if session is None or (instance and session.instance not in ("", instance)):
                continue
            del self.consumers[name]
            self.evicted.add(name)
        self.knows_drained = self.knows_drained and bool(self.consumers)

    def note_disconnected(self, gone: Iterable[str], now: datetime) -> None:
        """Note which consumers are not connected now."""
        disconnected = {*gone}
        for name, session in self.consumers.items():
            session.gone_since = (session.gone_since or now) if name in disconnected else None

    def note_drained(self, drained: Iterable[int], unconsumed_again: Iterable[int]) -> None:
        """Note which sealed segments are consumed, and which have messages again."""
        self.drained = (self.drained | {*drained}) - {*unconsumed_again}

    def restore_drained(self, drained: Iterable[int]) -> None:
        """Replace the set of consumed segments by what brokers report."""
        self.drained, self.knows_drained = {*drained}, True

    @property
    def needs_recovery(self) -> bool:
        """It has consumers, but brokers were not asked yet what is consumed."""
        return bool(self.consumers) and not self.knows_drained

    @classmethod
    def from_stored(cls, stored: StoredSessions) -> Self:
        """Return the sessions that another run has left, each with a new grace, and to be published again."""
        coordinator = cls()
        coordinator.join(stored.consumers)
        coordinator.restore_drained(stored.drained)
        return coordinator

    def is_disconnected(self, name: str) -> bool:
        """Return whether a consumer has a session, but no connection."""
        session = self.consumers.get(name)
        return session is not None and session.gone_since is not None

    def disconnected_seconds(self, now: datetime) -> dict[str, float]:
        """Return for how many seconds consumers have been disconnected, by name."""
        return {
            name: (now - session.gone_since).total_seconds()
            for name, session in self.consumers.items()
            if session.gone_since is not None
        }

    def changes(self, layout: SegmentLayout) -> Assignments:
        """Return the assignments that differ from the published ones."""
        published = {name: session.segments for name, session in self.consumers.items() if session.segments is not None}
        return changed(published, assign(layout, self.drained, self.consumers))

    def note_published(self, assignments: Mapping[str, tuple[int, ...]], ended: Iterable[str]) -> None:
        """Note which assignments were published; consumers that joined after that are published next time."""
        for name, ids in assignments.items():
            if name in self.consumers:
                self.consumers[name].segments = ids
        self.evicted -= {*ended}


class DrainedSegments(Result):
    """Segments that subscriptions have consumed, as brokers report them.

    Attributes:
        drained: ids of sealed segments that are consumed completely, by subscription.
    """

    drained: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])


class SubscriptionChanges(Result):
    """Changes to publish for consumers of a subscription.

    Attributes:
        subscription: name of the subscription.
        assignments: ids of segments, by consumer.
        ended: consumers whose sessions have ended.
    """

    subscription: str
    assignments: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    ended: tuple[str, ...] = ()


class AssignmentChanges(Result):
    """Changes to publish together for consumers of a topic.

    Attributes:
        generation: generation of the new assignments.
        epoch: epoch of the layout on which they are based.
        subscriptions: subscriptions with changes.
        layout: whether to publish the layout again, because its topic was deleted.
        compact: whether to compact the topic.
        forgotten: consumers whose sessions ended long ago, `subscription/consumer`; their messages are deleted from the
            topic.
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
        """Return all changes that must be published now; None for none.

        Args:
            coordinators: sessions, by subscription.
            record: layout of the topic.
            generation: generation of the new assignments.
            layout: whether to publish the layout too.
        """
        subscriptions = [
            SubscriptionChanges(subscription=name, assignments=assignments, ended=tuple(sorted(coordinator.evicted)))
            for name, coordinator in sorted(coordinators.items())
            if (assignments := coordinator.changes(record)) or coordinator.evicted
        ]
        if not subscriptions and not layout:
            return None
        return cls(generation=generation, epoch=record.epoch, subscriptions=tuple(subscriptions), layout=layout)

"""What the controller of a topic carries from one run of its workflow to the next, and what its steps answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Self

from pydantic import BaseModel, Field

from models.base import Result
from models.segments.segment import SegmentInfo, SubscriptionKind
from models.topic_controller.auto_scale import AutoScale
from models.topic_controller.pruning import Pruning
from models.topic_controller.record import ControlledLayout, Mutation
from models.topic_controller.sessions import GRACE, AssignmentChanges, Coordinator, StoredSessions


class OpenRequest(Result):
    """How a topic is opened.

    Attributes:
        recover_sessions: whether to look for sessions of consumers: a run that is continued hands them over.
    """

    recover_sessions: bool = False


class OpenedTopic(Result):
    """A topic as its controller finds it.

    Attributes:
        record: its layout, with a change that an earlier run left under way.
        subscriptions: that are registered, by name.
        sessions: of consumers, by subscription; none unless they were asked for.
        warnings: what the operator should know of the brokers' releases; none where sessions were not asked for.
    """

    record: ControlledLayout
    subscriptions: dict[str, SubscriptionKind]
    sessions: dict[str, StoredSessions] = Field(default_factory=dict[str, StoredSessions])
    warnings: tuple[str, ...] = ()


class PreparedChange(Result):
    """Whether a change has begun, or fits.

    Attributes:
        record: the layout as it stands, where it is not the one that the workflow has; None where it is. It grows with
            the topic, and so is told only then.
        refused: why it does not fit the layout, or why brokers do not make the new segments; the others are as before.
        fault: a `LayoutFault`, where it does not fit the layout.
        first_segment: the first id of the new segments, once they are there. Those of changes that were given up since
            the workflow saw the layout come no more.
    """

    record: ControlledLayout | None = None
    refused: str = ""
    fault: str = ""
    first_segment: int | None = None


class CommittedChange(Result):
    """The end of a change; all else of it follows from the layout with which it began.

    Attributes:
        at_ms: when the old segments were sealed in the layout, in milliseconds since 1970.
        record: the layout as it stands, where more has come behind the change.
    """

    at_ms: int = 0
    record: ControlledLayout | None = None


class LayoutChange(Result):
    """What a split or a merge did: the answer of its update.

    Attributes:
        epoch: of the new layout.
        sealed: ids of the old segments.
        made: the new ones.
    """

    epoch: int
    sealed: tuple[int, ...]
    made: tuple[SegmentInfo, ...]


class SegmentStats(Result):
    """A segment as its broker sees it.

    Attributes:
        segment: its id.
        descriptor: its part of the topic's name.
        active: whether it takes messages.
        messages_in: messages per second.
        bytes_in: bytes per second.
        stored_bytes: on bookies.
        producers: that are connected.
        backlog: messages that are not acknowledged, by subscription.
        consumers: that are connected, by subscription.
        unavailable_reason: why its broker does not say; empty where it does.
    """

    segment: int
    descriptor: str
    active: bool
    messages_in: float = 0.0
    bytes_in: float = 0.0
    stored_bytes: int = 0
    producers: int = 0
    backlog: dict[str, int] = Field(default_factory=dict[str, int])
    consumers: dict[str, int] = Field(default_factory=dict[str, int])
    unavailable_reason: str = ""


class TopicReport(Result):
    """A scalable topic as a whole (PIP-468, "Get aggregated stats").

    Attributes:
        epoch: of the layout.
        segments: all that the layout names.
        subscriptions: messages that each has not acknowledged, on all segments.
    """

    epoch: int
    segments: tuple[SegmentStats, ...]
    subscriptions: dict[str, int]


class Scaling(BaseModel):
    """How a topic scales by itself: the answer of the query `auto_scale`.

    Attributes:
        policy: None for not at all. Why nothing is done is told by the last failure of the pending activity
            `topic_controller_await_scale`.
        decision: the last one, with its reason; empty for none.
        decided_at: when. Cooldowns count from the last change of the layout; in a dry run, which changes nothing, from
            this.
    """

    policy: AutoScale | None = None
    decision: str = ""
    decided_at: datetime | None = None


MAX_UNCOMPACTED = 1000
"""Messages to consumers after which the layout topic is compacted; with more consumers, as many as these."""


class CompactionState(BaseModel):
    """What was told in the layout topic since it was compacted: clients that come read all of it.

    Attributes:
        told: messages to consumers.
        ended: consumers whose sessions have ended since then, `subscription/consumer`.
        ended_earlier: in the time before that. Whoever was away has read by now that its session has ended.
    """

    told: int = 0
    ended: tuple[str, ...] = ()
    ended_earlier: tuple[str, ...] = ()

    def with_published(self, changes: AssignmentChanges) -> Self:
        """With what was told."""
        kept = type(self)(ended_earlier=self.ended) if changes.compact else self
        told = sum(len(subscription.assignments) + len(subscription.ended) for subscription in changes.subscriptions)
        ended = tuple(
            f"{subscription.subscription}/{name}"
            for subscription in changes.subscriptions
            for name in subscription.ended
        )
        return kept.model_copy(update={"told": kept.told + told, "ended": (*kept.ended, *ended)})

    def with_compaction(self, changes: AssignmentChanges, coordinators: Mapping[str, Coordinator]) -> AssignmentChanges:
        """Changes, with the compaction of the topic where that is due."""
        if self.told < MAX_UNCOMPACTED:
            return changes
        here = {f"{subscription}/{name}" for subscription, one in coordinators.items() for name in one.consumers}
        if self.told < len(here):
            return changes
        forgotten = tuple(sorted({*self.ended_earlier} - here))
        return changes.model_copy(update={"compact": True, "forgotten": forgotten})


class ControllerState(BaseModel):
    """All that the controller knows.

    Attributes:
        started, epoch: order its attempts.
        record: the topic's layout, as it stands in the metadata store; None before the first look.
        subscriptions: that are registered, by name.
        coordinators: sessions of consumers, by subscription; those without any are left out.
        grace: how long a session outlives its connection.
        generation: of what consumers were told last.
        compaction: what was told since the layout topic was compacted.
        pruning: when sealed segments go; None for never.
        scaling: how it scales by itself.
        changes: splits and merges in the life of this workflow.
        waiting: what a change that is under way waits for; empty for nothing.
        doing: what is done now; empty for nothing.
        notes: the newest events.
    """

    started: datetime | None = None
    epoch: int = 0
    record: ControlledLayout | None = None
    subscriptions: dict[str, SubscriptionKind] = {}
    coordinators: dict[str, Coordinator] = {}
    grace: timedelta = GRACE
    generation: int = 0
    compaction: CompactionState = Field(default_factory=CompactionState)
    pruning: Pruning | None = None
    scaling: Scaling = Field(default_factory=Scaling)
    changes: int = 0
    waiting: str = ""
    doing: str = ""
    notes: list[str] = []

    def reset_for_next_run(self) -> Self:
        """What is left of it where Temporal has reset the workflow: the metadata store knows the topic better."""
        return type(self)(
            started=self.started,
            epoch=self.epoch,
            grace=self.grace,
            generation=self.generation,
            pruning=self.pruning,
            scaling=self.scaling,
            changes=self.changes,
            notes=self.notes,
        )


class ControllerStatus(Result):
    """The answer of the query `status`.

    Attributes:
        topic: `tenant/namespace/topic`.
        epoch: of the layout; -1 before the first look.
        active: descriptors of the segments that take messages, in the order of their hashes.
        sealed: how many segments are left that do not.
        subscriptions: that are registered, by name.
        consumers: how many sessions there are, by subscription.
        away: consumers that are not connected now, `subscription/consumer`, with the time since when; the first 20.
        changes: splits and merges in the life of this workflow.
        retired: how many pruned segments are left whose topics are still there.
        pruning: when sealed segments go; None for never.
        auto_scale: whether it scales by itself: `off`, `on` or `dry run`.
        pending: the change that is under way.
        doing: what is done now; empty for nothing.
        waiting: what that waits for; empty for nothing.
        notes: the newest events.
    """

    topic: str
    epoch: int
    active: tuple[str, ...] = ()
    sealed: int = 0
    subscriptions: dict[str, SubscriptionKind] = Field(default_factory=dict[str, SubscriptionKind])
    consumers: dict[str, int] = Field(default_factory=dict[str, int])
    away: dict[str, datetime] = Field(default_factory=dict[str, datetime])
    changes: int = 0
    retired: int = 0
    pruning: Pruning | None = None
    auto_scale: str = "off"
    pending: Mutation | None = None
    doing: str = ""
    waiting: str = ""
    notes: tuple[str, ...] = ()

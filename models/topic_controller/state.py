"""State that the controller of a topic passes to the next run of its workflow, and the results of its steps."""

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
        recover_sessions: whether to read sessions of consumers from the metadata store; a continued run has them
            already.
        epoch: epoch of the layout that a continued run has; an older record is refused. 0 for the first run.
    """

    recover_sessions: bool = False
    epoch: int = 0


class OpenedTopic(Result):
    """A topic when its controller starts.

    Attributes:
        record: its layout, possibly with a change that an earlier run has not finished.
        subscriptions: registered subscriptions, by name.
        sessions: sessions of consumers, by subscription; empty unless they were requested.
        warnings: notes on the brokers' releases for the operator; empty unless sessions were requested.
    """

    record: ControlledLayout
    subscriptions: dict[str, SubscriptionKind]
    sessions: dict[str, StoredSessions] = Field(default_factory=dict[str, StoredSessions])
    warnings: tuple[str, ...] = ()


class PreparedChange(Result):
    """Result of the preparation of a split or a merge.

    Attributes:
        record: the current layout, where the workflow has another one; else None, because it grows with the topic.
        refused: why the change does not fit the layout, or why brokers refuse the new segments; empty if neither.
        fault: a `LayoutFault`, where the change does not fit the layout.
        first_segment: first id of the new segments, once they exist. Ids of changes that were abandoned since then are
            not used again.
    """

    record: ControlledLayout | None = None
    refused: str = ""
    fault: str = ""
    first_segment: int | None = None


class CommittedChange(Result):
    """Result of the commit of a split or a merge; the rest follows from the layout before it.

    Attributes:
        at_ms: when the old segments were sealed in the layout, in milliseconds since 1970.
        record: the current layout, where it has changed again after the commit.
    """

    at_ms: int = 0
    record: ControlledLayout | None = None


class LayoutChange(Result):
    """Result of a split or a merge: the answer of its update.

    Attributes:
        epoch: epoch of the new layout.
        sealed: ids of the old segments.
        made: the new segments.
    """

    epoch: int
    sealed: tuple[int, ...]
    made: tuple[SegmentInfo, ...]


class ChangePreview(Result):
    """Dry run of a split or a merge, by the layout that the controller knows: the answer of its query.

    Attributes:
        accepted: whether the change fits the layout.
        why: reason of a refusal; empty if the change fits.
        epoch: epoch of the new layout.
        seals: ids of the old segments, which take no more messages; consumers read them to their end.
        makes: the new segments.
        subscriptions: number of subscriptions that get a cursor on each new segment.
        consumers: number of consumers of ordered subscriptions with a session, whose segments are assigned again.
        after: current operation, for whose end the change would wait; empty for none.
    """

    accepted: bool
    why: str = ""
    epoch: int
    seals: tuple[int, ...]
    makes: tuple[SegmentInfo, ...] = ()
    subscriptions: int
    consumers: int
    after: str = ""


class SegmentStats(Result):
    """Statistics of a segment from its broker.

    Attributes:
        segment: id of the segment.
        descriptor: the segment's part of the topic's name.
        active: whether the segment takes messages.
        messages_in: messages per second.
        bytes_in: bytes per second.
        stored_bytes: bytes on bookies.
        producers: number of connected producers.
        backlog: unacknowledged messages, by subscription.
        consumers: number of connected consumers, by subscription.
        unavailable_reason: why the broker gave no statistics; empty if it did.
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
    """Statistics of a scalable topic (PIP-468, "Get aggregated stats").

    Attributes:
        epoch: epoch of the layout.
        segments: all segments of the layout.
        subscriptions: unacknowledged messages on all segments, by subscription.
    """

    epoch: int
    segments: tuple[SegmentStats, ...]
    subscriptions: dict[str, int]


class Scaling(BaseModel):
    """How a topic scales automatically: the answer of the query `auto_scale`.

    Attributes:
        policy: None if it does not. The last failure of the pending activity `topic_controller_await_scale` says why
            nothing is due.
        decision: the last decision with its reason; empty for none.
        decided_at: time of that decision. Cooldowns start with the last change of the layout; in a dry run, which
            changes nothing, with this.
    """

    policy: AutoScale | None = None
    decision: str = ""
    decided_at: datetime | None = None


MAX_UNCOMPACTED = 1000
"""Messages to consumers after which the layout topic is compacted, or the number of consumers, if that is larger."""


MAX_ENDED_BYTES = 64 << 10
"""Bytes of names in `CompactionState.ended` after which the topic is compacted too: the state keeps them twice."""


class CompactionState(BaseModel):
    """Messages in the layout topic since its last compaction, all of which new clients read.

    Attributes:
        messages: number of messages to consumers.
        ended: consumers whose sessions have ended since then, `subscription/consumer`.
        ended_earlier: those that ended before that. Their clients have had time to read it.
    """

    messages: int = 0
    ended: tuple[str, ...] = ()
    ended_earlier: tuple[str, ...] = ()

    def with_published(self, changes: AssignmentChanges) -> Self:
        """Return the state after changes were published."""
        base = type(self)(ended_earlier=self.ended) if changes.compact else self
        messages = sum(len(change.assignments) + len(change.ended) for change in changes.subscriptions)
        ended = tuple(f"{change.subscription}/{name}" for change in changes.subscriptions for name in change.ended)
        return base.model_copy(update={"messages": base.messages + messages, "ended": (*base.ended, *ended)})

    def with_compaction(self, changes: AssignmentChanges, coordinators: Mapping[str, Coordinator]) -> AssignmentChanges:
        """Return changes that also compact the topic, if that is due."""
        registered = {
            f"{subscription}/{name}"
            for subscription, coordinator in coordinators.items()
            for name in coordinator.consumers
        }
        is_large = sum(len(name.encode()) for name in self.ended) >= MAX_ENDED_BYTES
        if self.messages < max(MAX_UNCOMPACTED, len(registered)) and not is_large:
            return changes
        forgotten = tuple(sorted({*self.ended_earlier} - registered))
        return changes.model_copy(update={"compact": True, "forgotten": forgotten})


class ControllerState(BaseModel):
    """The state of a controller.

    Attributes:
        started, epoch: order of its attempts.
        record: the topic's layout as it is in the metadata store; None before the topic is open.
        subscriptions: registered subscriptions, by name.
        coordinators: sessions of consumers, by subscription; subscriptions without sessions are left out.
        grace: how long a session outlives its connection.
        generation: generation of the assignments that were published last.
        compaction: what was published since the layout topic was compacted.
        pruning: when sealed segments are removed; None for never.
        scaling: how it scales automatically.
        changes: splits and merges since the workflow was started.
        waiting: what the current change waits for; empty for nothing.
        doing: the current operation; empty for none.
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
        """Return the state for the run after one that Temporal has reset; it reads the rest from the metadata store."""
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
        epoch: epoch of the layout; -1 before the topic is open.
        active: descriptors of the active segments, in the order of their hashes.
        sealed: number of sealed segments.
        subscriptions: registered subscriptions, by name.
        consumers: number of sessions, by subscription.
        away: the first 20 consumers without a connection, `subscription/consumer`, and since when.
        changes: splits and merges since the workflow was started.
        retired: number of pruned segments whose topics still exist.
        pruning: when sealed segments are removed; None for never.
        auto_scale: whether it scales automatically: `off`, `on` or `dry run`.
        pending: the change that is in progress.
        doing: the current operation; empty for none.
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

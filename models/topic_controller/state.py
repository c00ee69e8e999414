"""What the controller of a topic carries from one run of its workflow to the next, and what its steps answer."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import BaseModel, Field

from models.lifecycle.base import Result
from models.lifecycle.start import Start
from models.segment import SubscriptionKind
from models.topic_controller.input import ControllerInput
from models.topic_controller.record import ControlledLayout, Mutation
from models.topic_controller.sessions import GRACE, Coordinator


class Opened(Result):
    """A topic as its controller finds it.

    Attributes:
        record: its layout, with a change that an earlier run left under way.
        subscriptions: that are registered, by name.
    """

    record: ControlledLayout
    subscriptions: dict[str, SubscriptionKind]


class Sealed(Result):
    """What was sealed.

    Attributes:
        subscriptions: that have a place on each new segment.
    """

    subscriptions: tuple[str, ...]


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
        trouble: why its broker does not say; empty where it does.
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
    trouble: str = ""


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


class ControllerState(BaseModel):
    """All that the controller knows.

    Attributes:
        started, epoch: order its attempts.
        record: the topic's layout, as it stands in the metadata store; None before the first look.
        subscriptions: that are registered, by name.
        coordinators: sessions of consumers, by subscription; those without any are left out.
        grace: how long a session outlives its connection.
        generation: of what consumers were told last.
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
    changes: int = 0
    waiting: str = ""
    doing: str = ""
    notes: list[str] = []


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
    pending: Mutation | None = None
    doing: str = ""
    waiting: str = ""
    notes: tuple[str, ...] = ()


ControllerStart = Start[ControllerInput, ControllerState]
"""What the workflow is started with."""

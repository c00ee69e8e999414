"""Where a migration stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Generic

from pydantic import BaseModel
from typing_extensions import TypeVar

from models.lifecycle.base import Result
from models.lifecycle.verbs import Verb


class Undo(StrEnum):
    """How a phase is undone."""

    FREE = "free"
    METADATA = "metadata"
    COPY_BACK = "copy back"
    NONE = "none"


class Outcome(StrEnum):
    """How a phase, or the migration, stands."""

    RUNNING = "running"
    DONE = "done"
    DONE_WITH_FAILURES = "done with failures"
    PLANNED = "planned"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"


class WaitKind(StrEnum):
    """What a migration waits for, for whoever watches many of them."""

    WINDOW = "window"
    DECISION = "decision"
    PAUSE = "pause"
    RETRY = "retry"
    BROKERS = "brokers"
    PARTICIPANTS = "participants"
    CLIENTS = "clients"
    STORE = "store"
    THROTTLE = "throttle"
    SCAN = "scan"
    CHANGE_WINDOW = "change window"


class PhaseEntry(BaseModel):
    """One line of a migration's history."""

    phase: str
    started: datetime
    ended: datetime | None = None
    outcome: Outcome = Outcome.RUNNING
    undo: Undo
    note: str = ""

    def seconds(self, now: datetime) -> float:
        """How long the phase took, or has taken until now."""
        return ((self.ended or now) - self.started).total_seconds()


class Progress(Result):
    """How far the running phase is.

    Attributes:
        done: units done.
        total: units in all, where known.
        unit: what is counted, in the plural.
        detail: the same in other units, where one is not enough.
        rate: units per second over the life of the step.
        eta_seconds: time to the end; absent until there is a basis.
        basis: what the estimate rests on.
        as_of: when it was so, at most a second before the activity told it.
    """

    done: int
    total: int | None = None
    unit: str
    detail: str = ""
    rate: float = 0.0
    eta_seconds: float | None = None
    basis: str = ""
    as_of: datetime | None = None


class Waiting(Result):
    """Why nothing seems to happen.

    Attributes:
        kind: what is waited for.
        why: one sentence.
        action: what the operator is asked to do; empty where nothing is.
        since: when the wait began.
        until: when it ends by itself, if it does.
        ends_on: the verbs or events that end it earlier.
    """

    kind: WaitKind = WaitKind.STORE
    why: str
    action: str = ""
    since: datetime
    until: datetime | None = None
    ends_on: tuple[str, ...] = ()


class ProgressReport(Result):
    """What a running activity tells its workflow: progress, and what it waits for."""

    progress: Progress | None = None
    waiting_for: str = ""


FactsT = TypeVar("FactsT", default=dict[str, Any])
FiguresT = TypeVar("FiguresT", default=dict[str, Any])


class Status(BaseModel, Generic[FactsT]):
    """The answer of the query `status`.

    Attributes:
        legal_verbs: what would be accepted now.
        undo: how the running phase is undone, with `undo_cost` in a sentence.
        failed_items: what could not be migrated so far, with the reason.
        alarms: what makes this migration dangerous; shown in red.
        deadlines: names and times of the timers that run.
        notes: refused verbs, warnings and other events, oldest first.
        facts: what was found out, by name: a model of each migration.
    """

    kind: str
    cluster: str
    target: str
    phase: str
    outcome: Outcome
    history: list[PhaseEntry]
    progress: Progress | None
    waiting: Waiting | None
    paused: bool
    undo: Undo
    undo_cost: str
    legal_verbs: list[Verb]
    failed_items: list[str]
    alarms: list[str] = []
    deadlines: dict[str, datetime]
    notes: list[str]
    facts: FactsT

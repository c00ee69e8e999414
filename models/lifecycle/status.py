"""Where a migration stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from models.lifecycle.base import Frozen
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


class Progress(Frozen):
    """How far the running phase is.

    Attributes:
        done: units done.
        total: units in all, where known.
        unit: what is counted, in the plural.
        detail: the same in other units, where one is not enough.
        rate: units per second over the life of the step.
        eta_seconds: time to the end; absent until there is a basis.
        basis: what the estimate rests on.
    """

    done: int
    total: int | None = None
    unit: str
    detail: str = ""
    rate: float = 0.0
    eta_seconds: float | None = None
    basis: str = ""


class Waiting(Frozen):
    """Why nothing seems to happen.

    Attributes:
        why: one sentence.
        since: when the wait began.
        until: when it ends by itself, if it does.
        ends_on: the verbs or events that end it earlier.
    """

    why: str
    since: datetime
    until: datetime | None = None
    ends_on: tuple[str, ...] = ()


class ProgressReport(Frozen):
    """What a running activity tells its workflow: progress, and what it waits for."""

    progress: Progress | None = None
    waiting_for: str = ""


class Status(BaseModel):
    """The answer of the query `status`.

    Attributes:
        legal_verbs: what would be accepted now.
        undo: how the running phase is undone, with `undo_cost` in a sentence.
        failed_items: what could not be migrated so far, with the reason.
        alarms: what makes this migration dangerous; shown in red.
        deadlines: names and times of the timers that run.
        notes: refused verbs, warnings and other events, oldest first.
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
    facts: dict[str, Any]

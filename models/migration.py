"""What all migrations share: plans, phases, the operator's verbs, status and report."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SEARCH_ATTRIBUTES = ("MigrationKind", "MigrationPhase", "MigrationTarget")
"""Keyword search attributes that every migration sets; the worker registers them at its start."""

TASK_QUEUE = "pulsar-migrate"
"""The task queue that workers serve unless their settings say otherwise."""


BLOCKED_GAUGE = "pulsar_migrate_blocked_seconds"
"""Gauge of the time for which a migration blocked writes, or has blocked them so far."""


class Frozen(BaseModel):
    """Base of everything that workflows carry: immutable, and unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class MigrationPlan(Frozen):
    """Base of each migration's input.

    Attributes:
        cluster: name of the Pulsar cluster that is migrated; part of the workflow id.
        dry_run: end after the precheck with the plan; nothing is written anywhere.
    """

    cluster: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")
    dry_run: bool = False


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


class Verb(StrEnum):
    """What an operator can ask for while a migration runs."""

    ROLLBACK = "rollback"
    CLEANUP = "cleanup"
    PAUSE = "pause"
    RESUME = "resume"
    PROCEED = "proceed"


class FailureKind(StrEnum):
    """Types of the failures that end a workflow or an activity; part of the public interface."""

    PRECHECK_FAILED = "PrecheckFailed"
    VERIFICATION_FAILED = "VerificationFailed"
    CONFLICT = "Conflict"
    UNREACHABLE = "Unreachable"
    DENIED = "Denied"
    UNSUPPORTED = "Unsupported"
    NOT_READY = "ParticipantsNotReady"
    DEADLINE = "DeadlineExceeded"
    REFUSED = "Refused"
    IN_USE = "SourceInUse"
    NOT_WRITABLE = "RecordNotWritable"
    UNEXPECTED = "Unexpected"


class Steering(Frozen):
    """The argument of the `steer` update: a verb, and why it is given."""

    verb: Verb
    reason: str = ""


class Verdict(Frozen):
    """The answer to a verb.

    Attributes:
        accepted: whether it takes effect.
        why: the reason of a refusal, or what happens now.
        legal: the verbs that are legal at this moment.
    """

    verb: Verb
    accepted: bool
    why: str
    legal: tuple[Verb, ...]


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


class StepNote(Frozen):
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


class Report(BaseModel):
    """The result of a migration.

    Attributes:
        outcome: done, planned (dry run) or rolled back; a failed migration fails its workflow instead.
        figures: measured values by name, units in the names.
        certificate: what was compared, and what was found.
        failed_items: what could not be migrated, by name, with the reason.
    """

    kind: str
    cluster: str
    outcome: Outcome
    summary: str
    history: list[PhaseEntry]
    figures: dict[str, Any]
    certificate: dict[str, Any]
    notes: list[str]
    failed_items: list[str] = []


class WindowChange(Frozen):
    """Argument of the update `change_window`: the time that the window shall have left from now on."""

    remaining: timedelta = Field(ge=timedelta(0))


class SourceCleanup(StrEnum):
    """What `cleanup` does with the source: leave it as it is, or remove the migrated tree."""

    LEAVE = "leave"
    REMOVE = "remove"


class Blocker(Frozen):
    """Why a migration cannot start, and what to do about it."""

    code: str
    cause: str
    cure: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.cause} Cure: {self.cure}"


class Speed(Frozen):
    """Argument of the update `set_throttle`; None lifts the limit."""

    megabytes_per_second: float | None = Field(default=None, gt=0)

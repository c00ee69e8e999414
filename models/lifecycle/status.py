"""Where a migration stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Generic

from pydantic import BaseModel, Field
from typing_extensions import TypeVar

from models.base import Result
from models.lifecycle.failures import FailedItems
from models.lifecycle.units import Quantity, Unit
from models.lifecycle.verbs import Verb

_TIME = Unit(Quantity.TIME)


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


class ProgressUnit(StrEnum):
    """What a running activity counts; each has a gauge of its own."""

    RECORDS = "records"
    LEDGERS = "ledgers"
    ENTRIES = "entries"
    CURSORS = "cursors"
    BYTES = "bytes"
    TOPICS = "topics"
    SEGMENTS = "segments"
    NAMESPACES = "namespaces"


class ProgressTask(StrEnum):
    """What a running activity does with what it counts."""

    COPY = "copied"
    COMPARE = "compared"
    CATCH_UP = "caught up"
    PROMOTE = "promoted"
    DELETE = "deleted"
    MIGRATE = "migrated"
    LOAD = "loaded"
    TERMINATE = "terminated"
    DRAIN = "drained"
    PROVISION = "provisioned"
    OPERATE = "dealt with"


class Progress(Result):
    """How far a running activity is.

    Attributes:
        task: what is done.
        unit: what is counted.
        done: units done.
        total: units in all, where known.
        detail: the same in other units, where one is not enough.
        rate: units per second since the task began.
        eta_seconds: time to the end; absent until there is a basis.
        basis: what the estimate rests on.
        as_of: when all this was true; at most a second ago in the heartbeat of an activity that runs.
    """

    task: ProgressTask
    unit: ProgressUnit
    done: int
    total: int | None = None
    detail: str = ""
    rate: float = 0.0
    eta_seconds: float | None = None
    basis: str = ""
    as_of: datetime

    def __str__(self) -> str:
        """In one line: done, total, rate, and the estimate with its basis."""
        size = self.unit is ProgressUnit.BYTES
        unit = Unit(Quantity.SIZE if size else Quantity.NUMBER)
        total = f" of {unit.format(self.total)}" if self.total else ""
        share = f" ({100 * self.done / self.total:.0f} %)" if self.total else ""
        rate = f", {unit.format(round(self.rate))}/s" if self.rate else ""
        left = _TIME.format(round(self.eta_seconds)) if self.eta_seconds is not None else ""
        eta = f", {left} left ({self.basis})" if left else ""
        detail = f"; {self.detail}" if self.detail else ""
        noun = "" if size else f" {self.unit}"
        return f"{unit.format(self.done)}{total}{noun} {self.task}{share}{rate}{eta}{detail}"


class WaitKind(StrEnum):
    """What a migration waits for; programs decide by this."""

    PAUSE = "pause"
    """An operator's `resume`."""
    HOLD = "hold"
    """The cut-over's time, or an operator's `proceed` to it."""
    DECISION = "decision"
    """An operator's word on what was found."""
    WINDOW = "window"
    """The end of a window, or a verb that ends it."""
    RETRY = "retry"
    """The next attempt of what failed."""
    BROKERS_STOP = "brokers stop"
    """All brokers to be gone."""
    BROKERS_START = "brokers start"
    """The first broker to register."""
    BROKERS_PROOF = "brokers proof"
    """Proof that brokers write where they shall."""
    BROKERS_RETURNED = "brokers returned"
    """Brokers to go again that came while none may run."""
    PARTICIPANTS = "participants"
    """Brokers and bookies to recreate their registrations in the target."""
    BOOKIES = "bookies"
    """Bookies that do not answer, or take no entries."""
    STORE = "store"
    """Work of a store's own."""
    SCAN = "scan"
    """A scan of the whole source."""
    SPARK = "spark"
    """Spark, which starts with its worker, or has no slot free."""
    CLIENTS = "clients"
    """Clients to leave, or to follow."""
    MIGRATION = "migration"
    """Another migration of the same cluster to end."""
    THROTTLE = "throttle"
    """The limit on speed that the operator set."""
    CHANGE_WINDOW = "change window"
    """The time in which changes are allowed."""
    GATE = "gate"
    """An operator's `proceed` to the next wave."""
    ERROR_BUDGET = "error budget"
    """An operator's word on more failed items than are tolerated."""
    NOT_AFTER = "not after"
    """An operator's word on items that are left when no more may begin."""
    STOP_SWITCH = "stop switch"
    """Whoever forbids that items begin anywhere."""
    ITEMS = "items"
    """Items of a wave that run."""


_BACK = (Verb.ROLLBACK,)
_ON_OR_BACK = (Verb.PROCEED, Verb.ROLLBACK)

ENDERS: dict[WaitKind, tuple[Verb, ...]] = {
    WaitKind.PAUSE: (Verb.RESUME, Verb.ROLLBACK),
    WaitKind.HOLD: _ON_OR_BACK,
    WaitKind.DECISION: _ON_OR_BACK,
    WaitKind.WINDOW: (Verb.CLEANUP, Verb.PROCEED, Verb.ROLLBACK),
    WaitKind.RETRY: _ON_OR_BACK,
    WaitKind.BROKERS_STOP: _ON_OR_BACK,
    WaitKind.BROKERS_START: _ON_OR_BACK,
    WaitKind.BROKERS_PROOF: _ON_OR_BACK,
    WaitKind.BROKERS_RETURNED: _BACK,
    WaitKind.PARTICIPANTS: _BACK,
    WaitKind.BOOKIES: _ON_OR_BACK,
    WaitKind.STORE: _ON_OR_BACK,
    WaitKind.SCAN: _BACK,
    WaitKind.SPARK: _ON_OR_BACK,
    WaitKind.CLIENTS: _ON_OR_BACK,
    WaitKind.MIGRATION: _ON_OR_BACK,
    WaitKind.THROTTLE: _ON_OR_BACK,
    WaitKind.CHANGE_WINDOW: _BACK,
    WaitKind.GATE: _ON_OR_BACK,
    WaitKind.ERROR_BUDGET: _ON_OR_BACK,
    WaitKind.NOT_AFTER: _ON_OR_BACK,
    WaitKind.STOP_SWITCH: _BACK,
    WaitKind.ITEMS: _BACK,
}
"""The verbs that end each kind of wait, where they are legal; `proceed` also ends a cleanup with all its waits."""


class WaitReason(Result):
    """Why nothing seems to happen.

    Attributes:
        kind: what is waited for; programs decide by this.
        why: the same in one sentence, with names.
        action: what the operator is asked to do, as an order; empty where nothing is.
        until: when it ends by itself, if it does.
    """

    kind: WaitKind
    why: str
    action: str = ""
    until: datetime | None = None


class CutoverPlan(BaseModel):
    """When the cut-over must begin, as the operator last said.

    Attributes:
        hold: wait for `proceed`.
        at: begin no earlier; None for as soon as it can.
        begun: it has begun, and nothing of this can be changed any more.
    """

    hold: bool = False
    at: datetime | None = None
    begun: bool = False


class Waiting(WaitReason):
    """A reason to wait, with its time.

    Attributes:
        since: when the wait for this kind of thing began.
        ends_on: the verbs or events that end it earlier.
    """

    since: datetime
    ends_on: tuple[str, ...] = ()


class ProgressReport(Result):
    """What a running activity tells: by heartbeat to whoever asks Temporal, by signal to its workflow.

    Attributes:
        summary: both in a sentence, for people who look at heartbeats.
        progress: how far it is; None where it counts nothing.
        waiting: what it waits for; None while it works.
        noted: what the next attempt of the activity must know.
    """

    summary: str = ""
    progress: Progress | None = None
    waiting: WaitReason | None = None
    noted: dict[str, str] = Field(default_factory=dict[str, str])


FactsT = TypeVar("FactsT", default=dict[str, Any])
FiguresT = TypeVar("FiguresT", default=dict[str, Any])


class Status(BaseModel, Generic[FactsT, FiguresT]):
    """The answer of the query `status`.

    Attributes:
        progress: of the running activity, `as_of` the last time that its reason to wait changed; the command line and
            the pending activity's heartbeat know it to the second.
        legal_verbs: what would be accepted now.
        undo: how the running phase is undone, with `undo_cost` in a sentence.
        failed_items: what could not be migrated so far, with the reason.
        alarms: what makes this migration dangerous; shown in red.
        cutover: when the cut-over must begin.
        deadlines: names and times of the timers that run.
        notes: refused verbs, warnings and other events, oldest first.
        facts: what was found out: a model of each migration.
        figures: what was measured so far: a model of each migration.
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
    failed_items: list[FailedItems]
    alarms: list[str] = []
    cutover: CutoverPlan = CutoverPlan()
    deadlines: dict[str, datetime]
    notes: list[str]
    facts: FactsT
    figures: FiguresT

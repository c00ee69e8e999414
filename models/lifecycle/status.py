"""Status of a migration."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Generic

from pydantic import BaseModel, Field
from typing_extensions import TypeVar

from models.base import Result
from models.lifecycle.auto_throttle import Pause
from models.lifecycle.change_windows import Opening
from models.lifecycle.failures import FailedItems
from models.lifecycle.fields import Time
from models.lifecycle.units import Quantity, Unit
from models.lifecycle.verbs import ApprovalRequest, Verb
from models.text import short_line, shown

_TIME = Unit(Quantity.TIME)
_LONGEST_NOTE = 1_000
"""Characters. All notes go into the input of the next run, which Temporal limits to 2 MB."""


MOST = 2**63 - 1
"""Largest number that a report has."""


def dated_note(at: datetime, text: str) -> str:
    """Return a note with its time, in one line; a long text is cut."""
    return f"{at:%Y-%m-%d %H:%M:%S}Z {short_line(text, _LONGEST_NOTE)}"


def shown_reason(reason: str) -> str:
    """Return the reason of a verb in parentheses, to follow other words; a long one is cut. Empty for none."""
    return f" ({shown(reason)})" if reason else ""


class Undo(StrEnum):
    """How a phase is undone."""

    FREE = "free"
    METADATA = "metadata"
    COPY_BACK = "copy back"
    NONE = "none"


class Outcome(StrEnum):
    """Outcome of a phase or a migration."""

    RUNNING = "running"
    DONE = "done"
    DONE_WITH_FAILURES = "done with failures"
    PLANNED = "planned"
    REHEARSED = "rehearsed"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"


class PhaseEntry(BaseModel):
    """A phase in a migration's history."""

    phase: str
    started: datetime
    ended: datetime | None = None
    outcome: Outcome = Outcome.RUNNING
    undo: Undo
    note: str = ""

    def seconds(self, now: datetime) -> float:
        """Return how long the phase took, or has taken until now; the clocks of two machines may differ."""
        return max(0.0, ((self.ended or now) - self.started).total_seconds())


class ProgressUnit(StrEnum):
    """Units of progress."""

    RECORDS = "records"
    LEDGERS = "ledgers"
    ENTRIES = "entries"
    CURSORS = "cursors"
    BYTES = "bytes"
    TOPICS = "topics"
    SEGMENTS = "segments"
    NAMESPACES = "namespaces"


class ProgressTask(StrEnum):
    """Tasks of a running activity, as progress shows them."""

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
    """Progress of a running activity.

    Attributes:
        task: what is done.
        unit: what is counted.
        done: units done.
        total: units in all, where known.
        detail: the same in other units.
        rate: units per second since the start of the task.
        slowest: units per second in the slowest part of the recent time; None while that is not known.
        fastest: the same in its fastest part.
        eta_seconds: estimated time to the end, where possible.
        basis: of the estimate.
        as_of: time of these values; at most a second old in the heartbeat of a running activity.
    """

    task: ProgressTask
    unit: ProgressUnit
    done: int = Field(ge=0, le=MOST)
    total: int | None = Field(default=None, ge=0, le=MOST)
    detail: str = ""
    rate: float = Field(default=0.0, allow_inf_nan=False)
    slowest: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    fastest: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    eta_seconds: float | None = Field(default=None, allow_inf_nan=False)
    basis: str = ""
    as_of: Time

    def cut(self) -> Progress:
        """Return the same progress with short texts: any client that may signal can report progress."""
        return self.model_copy(update={"detail": shown(self.detail), "basis": shown(self.basis)})

    def __str__(self) -> str:
        """Return one line: done, total, rate, and the estimate with its basis."""
        size = self.unit is ProgressUnit.BYTES
        unit = Unit(Quantity.SIZE if size else Quantity.NUMBER)
        total = f" of {unit.format(self.total)}" if self.total else ""
        share = f" ({100 * self.done / self.total:.0f} %)" if self.total else ""
        rate = f", {unit.format(round(self.rate))}/s" if self.rate else ""
        remaining = _TIME.format(round(self.eta_seconds)) if self.eta_seconds is not None else ""
        eta = f", {remaining} left ({self.basis})" if remaining else ""
        detail = f"; {self.detail}" if self.detail else ""
        noun = "" if size else f" {self.unit}"
        return f"{unit.format(self.done)}{total}{noun} {self.task}{share}{rate}{eta}{detail}"


class WaitKind(StrEnum):
    """Kinds of waits, for programs."""

    PAUSE = "pause"
    """An operator's `resume`."""
    HOLD = "hold"
    """The cut-over's time, or an operator's `proceed` to it."""
    DECISION = "decision"
    """An operator's decision on a finding."""
    WINDOW = "window"
    """The end of a window, or a verb that ends it."""
    RETRY = "retry"
    """The next attempt after a failure."""
    BROKERS_STOP = "brokers stop"
    """The end of all brokers."""
    BROKERS_START = "brokers start"
    """The registration of the first broker."""
    BROKERS_PROOF = "brokers proof"
    """Proof that brokers write to the right cluster."""
    BROKERS_RETURNED = "brokers returned"
    """The end of brokers that came back while none may run."""
    PARTICIPANTS = "participants"
    """Brokers and bookies, which recreate their registrations in the target."""
    BOOKIES = "bookies"
    """Bookies that do not answer, or take no entries."""
    STORE = "store"
    """Internal work of a store."""
    SCAN = "scan"
    """A scan of the whole source."""
    SPARK = "spark"
    """Spark, which is starting or has no free slot."""
    CLIENTS = "clients"
    """Clients that must disconnect, or move."""
    MIGRATION = "migration"
    """The end of another migration of the same cluster."""
    THROTTLE = "throttle"
    """The speed limit that the operator set."""
    AUTO_THROTTLE = "automatic throttle"
    """Servers of the cluster, which are too busy, or sources that do not say how busy they are."""
    CHANGE_WINDOW = "change window"
    """The next change window."""
    VETO = "veto"
    """A hook that refuses the cut-over, or does not answer; `proceed` with a reason overrides it."""
    GATE = "gate"
    """An operator's `proceed` to the next wave."""
    ERROR_BUDGET = "error budget"
    """An operator's decision on more failed items than the budget allows."""
    NOT_AFTER = "not after"
    """An operator's decision on items that remain when the change windows have ended."""
    STOP_SWITCH = "stop switch"
    """The switch that stops new items everywhere."""
    ITEMS = "items"
    """Running items of a wave."""


_FOR_OPERATOR = frozenset(
    {
        WaitKind.PAUSE,
        WaitKind.DECISION,
        WaitKind.GATE,
        WaitKind.ERROR_BUDGET,
        WaitKind.NOT_AFTER,
        WaitKind.STOP_SWITCH,
    }
)
"""Waits that only an operator ends."""

_BACK = (Verb.ROLLBACK,)
_ON_OR_BACK = (Verb.PROCEED, Verb.ROLLBACK)

RESUME_IT = "give `resume` to continue"
"""What an operator can do about a pause."""

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
    WaitKind.AUTO_THROTTLE: _BACK,
    WaitKind.CHANGE_WINDOW: _BACK,
    WaitKind.VETO: _ON_OR_BACK,
    WaitKind.GATE: _ON_OR_BACK,
    WaitKind.ERROR_BUDGET: _ON_OR_BACK,
    WaitKind.NOT_AFTER: _ON_OR_BACK,
    WaitKind.STOP_SWITCH: _BACK,
    WaitKind.ITEMS: _BACK,
}
"""The verbs that end each kind of wait, where they are legal; `proceed` also ends a cleanup with all its waits."""


class WaitReason(Result):
    """Reason to wait.

    Attributes:
        kind: of the wait, for programs.
        why: what is waited for, with names.
        action: what the operator must do, as an imperative; empty for nothing.
        until: when the wait ends by itself, if it does.
    """

    kind: WaitKind
    why: str
    action: str = ""
    until: Time | None = None


class CutoverPlan(BaseModel):
    """When to cut over, as the operator set it last.

    Attributes:
        hold: wait for `proceed`.
        at: earliest start; None for as soon as possible.
        window: the change window in which it begins, as it was read last; None for at any time.
        begun: the cut-over has started, and the plan cannot be changed any more.
    """

    hold: bool = False
    at: datetime | None = None
    window: Opening | None = None
    begun: bool = False


class Waiting(WaitReason):
    """A reason to wait, with its start.

    Attributes:
        since: start of the wait of this kind.
        ends_on: verbs or events that end it earlier.
    """

    since: datetime
    ends_on: tuple[str, ...] = ()

    @property
    def needs_operator(self) -> bool:
        """True if the wait ends only when an operator acts."""
        held = self.kind is WaitKind.HOLD and self.until is None
        return bool(self.action) or held or self.kind in _FOR_OPERATOR


class ReadingName(StrEnum):
    """Values that a running activity reads of a side, for dashboards."""

    BACKLOG = "backlog messages"
    """Messages that subscriptions of moving topics have left."""
    PUBLISHERS = "publishers"
    """Producers that are connected to moving topics."""


class Side(StrEnum):
    """Sides of a blue-green migration."""

    BLUE = "blue"
    GREEN = "green"


class Reading(Result):
    """A value that a running activity has read.

    Attributes:
        name: what was read.
        side: where.
        value: newest value.
    """

    name: ReadingName
    side: Side
    value: int = Field(ge=0, le=MOST)


class ProgressReport(Result):
    """Report of a running activity: a heartbeat, and a signal to its workflow.

    Attributes:
        summary: progress and wait in one sentence, for readers of heartbeats.
        progress: None where nothing is counted.
        waiting: reason to wait; None while it works.
        noted: notes for the next attempt.
        readings: what it has read, for dashboards.
        blocked_since: since when metadata writes are blocked; None while they are not.
        item: workflow id of the item of a wave that tells its migration what it waits for; empty for an activity.
    """

    summary: str = ""
    progress: Progress | None = None
    waiting: WaitReason | None = None
    noted: dict[str, str] = Field(default_factory=dict[str, str])
    readings: tuple[Reading, ...] = ()
    blocked_since: Time | None = None
    item: str = ""


class HookStatus(Result):
    """Deliveries of events to a hook.

    Attributes:
        name: of the hook.
        pending: number of events that it has not taken yet.
        lost: number of events that it did not take, and will not get any more.
        failing_since: first failure of the delivery that is repeated; None if the last one succeeded.
        error: why the last delivery failed.
    """

    name: str
    pending: int = 0
    lost: int = 0
    failing_since: datetime | None = None
    error: str = ""


FactsT = TypeVar("FactsT", default=dict[str, Any])
FiguresT = TypeVar("FiguresT", default=dict[str, Any])


class Status(BaseModel, Generic[FactsT, FiguresT]):
    """The answer of the query `status`.

    Attributes:
        progress: of the running activity when its reason to wait last changed; the command line and the pending
            activity's heartbeat have newer values.
        pause: who has paused it, since when and why; None while it is not paused.
        committed: the point of no return has passed: a rollback is not possible any more.
        legal_verbs: verbs that would be accepted now.
        undo: how the running phase is undone; `undo_cost` says it in a sentence.
        failed_items: items that could not be migrated so far, with the reason.
        alarms: dangers of this migration; shown in red.
        request: a step that waits for another person's `approve`.
        started_by: who started it, as the sender names itself.
        cutover: when to cut over.
        last_phase: after which a dry run or a rehearsal ends; empty for a migration.
        deadlines: names and times of the running timers.
        hooks: deliveries of events to the hooks of the input.
        notes: refused verbs, warnings and other events, oldest first.
        facts: results of checks; each migration has its own model.
        figures: measured values so far; each migration has its own model.
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
    pause: Pause | None = None
    undo: Undo
    undo_cost: str
    committed: bool = False
    legal_verbs: list[Verb]
    failed_items: list[FailedItems]
    alarms: list[str] = []
    request: ApprovalRequest | None = None
    started_by: str = ""
    cutover: CutoverPlan = CutoverPlan()
    last_phase: str = ""
    deadlines: dict[str, datetime]
    hooks: list[HookStatus] = []
    notes: list[str]
    facts: FactsT
    figures: FiguresT

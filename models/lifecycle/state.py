"""State of a migration, which continue-as-new carries from one run of its workflow to the next."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypeVar

from models.base import Result
from models.lifecycle.audit import Audit
from models.lifecycle.auto_throttle import AutoThrottle
from models.lifecycle.change_windows import ChangeWindows
from models.lifecycle.failures import FailedItems
from models.lifecycle.hook_events import Outbox, Veto
from models.lifecycle.policy import VerbState
from models.lifecycle.report import CertificateT
from models.lifecycle.status import CutoverPlan, FactsT, FiguresT, Outcome, PhaseEntry, Progress, Waiting
from models.lifecycle.verbs import WindowsRequest

StateT = TypeVar("StateT", bound="MigrationState[Any, Any, Any]")


class Failure(Result):
    """Reason of a rollback, with which a later run of the workflow can still end.

    Attributes:
        how: `interrupted` by a verb or a deadline, `rehearsed`, `failed`, or `cancelled` from outside.
        why: one sentence.
        type: of a failure: a `FailureKind`.
        by_operator: an operator requested the rollback.
    """

    how: Literal["interrupted", "rehearsed", "failed", "cancelled"]
    why: str
    type: str = ""
    by_operator: bool = False


class MigrationState(BaseModel, Generic[FactsT, FiguresT, CertificateT]):
    """The state that all migrations share; each migration adds its own fields.

    Attributes:
        verbs: the accepted verbs, and the policy of the running phase.
        history: the phases so far; the last one runs while it has no end.
        passed: phases that are done; a later run of the workflow does not enter them again.
        started: when the first run of the workflow started; None before the first activity.
        epoch: grows with each scheduled activity.
        undoing: reason of the rollback; None while the migration goes forward.
        committed: a rollback is not possible any more.
        cancelled: the workflow was cancelled during work that must end first.
        cutover: when to cut over; None before the first run has read it from its input.
        change_windows: as the operator set them last; None before the first run has read its input.
        windows_asked: with two persons, the windows that one of them has asked for; None if none did.
        hold_reached: the phase before the cut-over has reached its hold.
        needs_catch_up: changes during the hold are not copied yet.
        failed: items that could not be migrated, by description; `accepted`: those that an operator accepted.
        deadlines: names and times of the running timers.
        lost_queues: queues of workers that stopped answering.
        started_by: who started it, as the sender names itself; empty if the sender gave no name.
        audit: the requests to it.
        outbox: events for hooks.
        veto: a hook's refusal of the next cut-over, or of the next wave; None if there is none.
        ask_again: when hooks are asked again after it.
        veto_overridden: an operator overrides vetoes of the cut-over.
        auto_throttle: of copies, as an operator set it last; None for that of the input.
    """

    verbs: VerbState
    outcome: Outcome = Outcome.RUNNING
    history: list[PhaseEntry] = []
    passed: set[str] = set()
    started: datetime | None = None
    epoch: int = 0
    undoing: Failure | None = None
    committed: bool = False
    cancelled: bool = False
    cutover: CutoverPlan | None = None
    change_windows: ChangeWindows | None = None
    windows_asked: WindowsRequest | None = None
    hold_reached: bool = False
    needs_catch_up: bool = False
    notes: list[str] = []
    alarms: list[str] = []
    failed: dict[str, FailedItems] = {}
    accepted: dict[str, FailedItems] = {}
    deadlines: dict[str, datetime] = {}
    progress: Progress | None = None
    waiting: Waiting | None = None
    activity_waiting: Waiting | None = None
    lost_queues: set[str] = Field(default_factory=set[str])
    started_by: str = ""
    audit: Audit = Audit()
    outbox: Outbox = Field(default_factory=Outbox)
    veto: Veto | None = None
    ask_again: datetime | None = None
    veto_overridden: bool = False
    auto_throttle: AutoThrottle | None = None
    facts: FactsT
    figures: FiguresT
    certificate: CertificateT

    @property
    def running_phase(self) -> str:
        """The running phase; empty between phases and at the end."""
        return next((entry.phase for entry in self.history[-1:] if not entry.ended), "")

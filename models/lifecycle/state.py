"""All that a migration knows of itself: what continue-as-new carries from one run of its workflow to the next."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypeVar

from models.base import Result
from models.lifecycle.failures import FailedItems
from models.lifecycle.policy import VerbState
from models.lifecycle.report import CertificateT
from models.lifecycle.status import CutoverPlan, FactsT, FiguresT, Outcome, PhaseEntry, Progress, Waiting

StateT = TypeVar("StateT", bound="MigrationState[Any, Any, Any]")


class Failure(Result):
    """Why the way back was taken, so that a later run of the workflow can still end for that reason.

    Attributes:
        how: `interrupted` by a rollback or a deadline, `failed`, or `cancelled` from outside.
        why: the reason in a sentence.
        type: of a failure, a `FailureKind`.
        by_operator: whether a rollback was asked for.
    """

    how: Literal["interrupted", "failed", "cancelled"]
    why: str
    type: str = ""
    by_operator: bool = False


class MigrationState(BaseModel, Generic[FactsT, FiguresT, CertificateT]):
    """The state that all migrations share; each migration adds its own fields.

    Attributes:
        verbs: what operators asked for, under the policy of the running phase.
        history: the phases so far; the last one runs while it has no end.
        passed: the phases that are done, which a later run of the workflow does not enter again.
        started: when the first run of the workflow began; None before the first activity.
        epoch: grows with each activity that is scheduled.
        undoing: why the way back was taken; None while the migration goes forward.
        committed: nothing is undone any more.
        cancelled: the workflow was cancelled when what ran had to come to its end first.
        cutover: when the cut-over must begin; None before the first run has read it from its input.
        hold_reached: the phase before the cut-over has come to its hold.
        needs_catch_up: what changed while the cut-over waited is not copied yet.
        failed: what could not be migrated, by what these are; `accepted` is what an operator decided to leave behind.
        deadlines: names and times of the timers that run.
        lost_queues: queues of workers that did not answer any more.
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
    facts: FactsT
    figures: FiguresT
    certificate: CertificateT

    @property
    def running_phase(self) -> str:
        """The phase that runs; empty between phases and at the end."""
        return next((entry.phase for entry in self.history[-1:] if not entry.ended), "")

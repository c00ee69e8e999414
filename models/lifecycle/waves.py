"""Models of waves: the policy that users set, the state that the workflow carries, and the status."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, Field, model_validator

from models.base import Frozen, Result
from models.lifecycle.failures import FailedItem, FailedItems
from models.lifecycle.fields import Duration
from models.lifecycle.status import WaitReason
from models.text import shown

CANARY = 0
"""Number of the canary wave; the others count from 1."""

CHANGE_NOTE = "waves: "
"""Start of the note of a change of waves."""

SHOWN_FAILURES = 10
"""Failed items in state and status; `failure_list` names the node with the complete list."""


class WaveGate(StrEnum):
    """Waves after which the operator must send `proceed`, from none to all."""

    NONE = "none"
    CANARY = "canary"
    EVERY_WAVE = "every wave"


class WhenHeld(StrEnum):
    """Action when failures exceed the budget, or time is up: wait for the operator, or end."""

    WAIT = "wait"
    STOP = "stop"


class ErrorBudget(Frozen):
    """How many items may fail before no more start. The canary has no budget: one failure exceeds it.

    Attributes:
        items: number of failed items; one more exceeds the budget.
        share: failed share of the ended items, or of one wave if fewer have ended. So an early failure is compared with
            the whole wave.
    """

    items: int | None = Field(default=None, ge=0)
    share: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.items is None and self.share is None:
            raise ValueError("give items, share or both")
        return self

    def allows_more_than(self, other: Self) -> bool:
        """Return whether it allows failures that another budget does not."""
        limits = ((self.items, other.items), (self.share, other.share))
        return any(old is not None and (new is None or new > old) for new, old in limits)

    def exceeded(self, failed: int, ended: int, wave_size: int) -> str:
        """Return why no more items may start; empty while they may."""
        if self.items is not None and failed > self.items:
            return f"{failed} items failed, and the error budget is {self.items}"
        # Rounded, because 0.29 * 100 is slightly less than 29.
        if self.share is not None and failed > round(self.share * max(ended, wave_size), 6):
            return f"{failed} of {ended} items failed, and the error budget is {self.share:.1%}"
        return ""


class WavePolicy(Frozen):
    """How items are migrated in waves: part of a migration's input.

    Attributes:
        canary: items of the first wave; 0 for no canary.
        wave_size: items of each later wave.
        batch_size: items of one child workflow.
        parallelism: child workflows at the same time.
        gate: where `proceed` is required.
        error_budget: failed items after which no more start.
        when_held: action when the budget is exceeded, or items remain at `change_windows.not_after`.
        deadline: longest run of a child workflow with all its attempts; then it is cancelled.
        cancel_grace: how long a cancelled child may take to end; then it counts as failed, and the wave continues.
        attempts: runs of a child workflow before it counts as failed; a final failure is not retried.
    """

    canary: int = Field(default=1, ge=0, le=100_000)
    wave_size: int = Field(default=100, ge=1, le=100_000)
    batch_size: int = Field(default=1, ge=1, le=1_000)
    parallelism: int = Field(default=10, ge=1, le=500)
    gate: WaveGate = WaveGate.CANARY
    error_budget: ErrorBudget = ErrorBudget(items=0)
    when_held: WhenHeld = WhenHeld.WAIT
    deadline: Duration = Field(default=timedelta(days=1), gt=timedelta(0))
    cancel_grace: Duration = Field(default=timedelta(hours=1), gt=timedelta(0))
    attempts: int = Field(default=3, ge=1, le=100)

    def loosened_from(self, old: Self) -> tuple[str, ...]:
        """Return the fields by which fewer items wait for an operator's decision than with the old policy.

        A smaller canary tries less before its gate, and a larger one begins more.
        """
        gates = list(WaveGate)
        looser = {
            "canary": self.canary != old.canary,
            "wave_size": self.wave_size > old.wave_size,
            "gate": gates.index(self.gate) < gates.index(old.gate),
            "error_budget": self.error_budget.allows_more_than(old.error_budget),
        }
        return tuple(field for field, is_looser in looser.items() if is_looser)

    def size_of(self, wave: int) -> int:
        """Return the number of items of a wave."""
        return self.canary if wave == CANARY else self.wave_size


class WaveItem(Result):
    """One item of a page.

    Attributes:
        name: unique among all items; part of its child workflow's id.
        cursor: start of the page after this item, as the source understands it; the name where empty.
    """

    name: str
    cursor: str = ""


class Page(Result):
    """A page of items, in their order, as an activity lists them.

    Attributes:
        items: those after the cursor; empty at the end of the list.
        total: number of all items, if known, for progress.
        hold: why no item may start now; the page is then requested again. Empty if items may start.
    """

    items: tuple[WaveItem, ...] = ()
    total: int | None = None
    hold: str = ""


def failed_item(item: str, reason: str) -> FailedItem:
    """Return an item that was not migrated, with its reason cut to a length that the state can carry."""
    return FailedItem(path=item, reason=shown(reason))


class BatchResult(Result):
    """Result of one child workflow; items that are neither skipped nor failed are done.

    Attributes:
        skipped: items that needed no work.
        failed: items that were not migrated; `path` is the item.
    """

    skipped: int = Field(default=0, ge=0)
    failed: tuple[FailedItem, ...] = ()


class Hold(WaitReason):
    """Reason why no item starts.

    Attributes:
        effect: what `proceed` does, where an operator decides.
        until: when the hold ends by itself, if it does.
    """

    effect: str = ""
    until: datetime | None = None


class WavesOutcome(StrEnum):
    """Outcome of waves: items remain, all items have run, or no more may start."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class WaveCounts(BaseModel):
    """Numbers of items by outcome; running items have begun and not ended."""

    begun: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    left_running: int = 0

    @property
    def ended(self) -> int:
        """Number of items that have ended."""
        return self.done + self.skipped + self.failed


class WaveState(BaseModel):
    """State of waves that one run of a workflow passes to the next: counts and a cursor, never a list of items.

    It is complete while no child workflow runs.

    Attributes:
        policy: as the operator set it last.
        cursor: after the last item that has started.
        wave: number of the running wave.
        begun_in_wave: started items of the wave.
        allowed_wave: number of the last wave that hooks allowed, or that an operator began against a veto.
        counts: of all waves.
        budget_failed: failed items since the operator last accepted failures; they count against the error budget.
        budget_ended: ended items since then.
        total: number of all items, if known.
        first_failures: a few, for status.
        recorded_failures: length of the complete list.
        failure_list: node with the complete list.
        why: why no more items start; empty while they do.
    """

    policy: WavePolicy
    cursor: str = ""
    wave: int = 1
    begun_in_wave: int = 0
    allowed_wave: int | None = None
    counts: WaveCounts = Field(default_factory=WaveCounts)
    budget_failed: int = 0
    budget_ended: int = 0
    total: int | None = None
    first_failures: list[FailedItem] = Field(default_factory=list[FailedItem])
    recorded_failures: int = 0
    failure_list: str = ""
    outcome: WavesOutcome = WavesOutcome.RUNNING
    why: str = ""

    @classmethod
    def begin(cls, policy: WavePolicy) -> Self:
        """Return the state before the first wave."""
        return cls(policy=policy, wave=CANARY if policy.canary else CANARY + 1)

    @property
    def wave_is_full(self) -> bool:
        """True once all items of the running wave have started."""
        return self.begun_in_wave >= self.policy.size_of(self.wave)

    @property
    def budget_exceeded(self) -> str:
        """Return why no more items may start; empty while they may."""
        if self.wave == CANARY and self.budget_failed:
            return f"{self.budget_failed} of {self.counts.begun} items of the canary failed"
        return self.policy.error_budget.exceeded(self.budget_failed, self.budget_ended, self.policy.wave_size)

    def count(self, items: int, result: BatchResult) -> None:
        """Add the result of one child workflow."""
        failed, counts = len(result.failed), self.counts
        skipped = min(result.skipped, items - failed)
        counts.failed += failed
        counts.skipped += skipped
        counts.done += items - failed - skipped
        self.budget_failed += failed
        self.budget_ended += items
        self.first_failures = [*self.first_failures, *result.failed][:SHOWN_FAILURES]

    def accept_failures(self) -> None:
        """Reset the error budget."""
        self.budget_failed = self.budget_ended = 0


class WaveStatus(BaseModel):
    """Status of waves, and in the end their result.

    Attributes:
        canary: the running wave is the canary.
        running: number of running items.
        hold: why no item starts now.
        first_failures: at most ten; `failure_list` names the node with the complete list.
    """

    outcome: WavesOutcome
    why: str
    wave: int
    canary: bool
    counts: WaveCounts
    running: int
    total: int | None
    hold: Hold | None
    first_failures: list[FailedItem]
    failure_list: str

    @property
    def failed_items(self) -> FailedItems:
        """The failed items, for the status and the report of a migration."""
        return FailedItems(
            what="item(s) failed",
            items=tuple(self.first_failures),
            count=self.counts.failed,
            listed_in=self.failure_list,
        )

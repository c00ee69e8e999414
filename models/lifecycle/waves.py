"""Many items that are migrated in waves: what users set, what the workflow carries, what status shows."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, Field, model_validator

from models.base import Frozen, Result
from models.lifecycle.change_windows import ChangeWindows
from models.lifecycle.failures import FailedItem, FailedItems
from models.lifecycle.fields import Duration
from models.lifecycle.status import WaitReason

CANARY = 0
"""Number of the first wave where there is a canary; the others count from 1."""

SHOWN_FAILURES = 10
"""Failed items that state and status hold; the whole list stands where `failure_list` says."""

_REASON_LIMIT = 300


class WaveGate(StrEnum):
    """After which waves the operator's `proceed` is asked for."""

    NONE = "none"
    CANARY = "canary"
    EVERY_WAVE = "every wave"


class WhenHeld(StrEnum):
    """What happens when failures exceed the budget, or time is up: wait for the operator, or end."""

    WAIT = "wait"
    STOP = "stop"


class ErrorBudget(Frozen):
    """How many items may fail before no more begin. The canary has none: one failure exceeds it.

    Attributes:
        items: a number of failed items; one more exceeds the budget.
        share: the same as a share of the items that ended, but at least of one wave, so that the first failure of a
            wave is judged against all that it holds.
    """

    items: int | None = Field(default=None, ge=0)
    share: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.items is None and self.share is None:
            raise ValueError("give items, share or both")
        return self

    def exceeded(self, failed: int, ended: int, wave_size: int) -> str:
        """Why no more items may begin; empty while they may."""
        if self.items is not None and failed > self.items:
            return f"{failed} items failed, and the error budget is {self.items}"
        # Rounded, since 0.29 of 100 would be a little less than 29.
        if self.share is not None and failed > round(self.share * max(ended, wave_size), 6):
            return f"{failed} of {ended} items failed, and the error budget is {self.share:.1%}"
        return ""


class WavePolicy(Frozen):
    """How many items are migrated: part of a migration's input.

    Attributes:
        canary: items of the first wave, which goes before all others; 0 for none.
        wave_size: items of each later wave.
        batch_size: items of one child workflow.
        parallelism: child workflows at once.
        gate: where `proceed` is asked for.
        error_budget: failed items after which no more begin.
        when_held: what happens then, and when `windows.not_after` passes with items left.
        windows: when items may begin; those that have begun continue.
        deadline: longest run of a child workflow with all its attempts; then it is cancelled.
        cancel_grace: how long a cancelled one may take to end; then it counts as failed, and the wave continues.
        attempts: how often a child workflow is run before it counts as failed; failures for good are not repeated.
    """

    canary: int = Field(default=1, ge=0, le=100_000)
    wave_size: int = Field(default=100, ge=1, le=100_000)
    batch_size: int = Field(default=1, ge=1, le=1_000)
    parallelism: int = Field(default=10, ge=1, le=500)
    gate: WaveGate = WaveGate.CANARY
    error_budget: ErrorBudget = ErrorBudget(items=0)
    when_held: WhenHeld = WhenHeld.WAIT
    windows: ChangeWindows = ChangeWindows()
    deadline: Duration = Field(default=timedelta(days=1), gt=timedelta(0))
    cancel_grace: Duration = Field(default=timedelta(hours=1), gt=timedelta(0))
    attempts: int = Field(default=3, ge=1, le=100)

    def size_of(self, wave: int) -> int:
        """Items of a wave, by its number."""
        return self.canary if wave == CANARY else self.wave_size


class WaveItem(Result):
    """One item of a page.

    Attributes:
        name: unique among all items; a part of its child workflow's id.
        cursor: where a later page begins that follows this item, in the source's own words; the name where empty.
    """

    name: str
    cursor: str = ""


class Page(Result):
    """Some items in their order, as an activity lists them.

    Attributes:
        items: those behind the cursor; none where all have been listed.
        total: all items as far as they are known, for progress.
        hold: why no item may begin now, whatever comes; the page is asked for again. Empty where nothing is wrong.
    """

    items: tuple[WaveItem, ...] = ()
    total: int | None = None
    hold: str = ""


def failed_item(item: str, reason: str) -> FailedItem:
    """An item that was not migrated, with a reason that is short enough to be carried."""
    return FailedItem(path=item, reason=reason if len(reason) <= _REASON_LIMIT else f"{reason[: _REASON_LIMIT - 1]}…")


class BatchResult(Result):
    """What became of the items of one child workflow; those that are neither skipped nor failed are done.

    Attributes:
        skipped: items for which nothing had to be done.
        failed: those that were not migrated; `path` is the item.
    """

    skipped: int = Field(default=0, ge=0)
    failed: tuple[FailedItem, ...] = ()


class Hold(WaitReason):
    """Why no item begins.

    Attributes:
        effect: what `proceed` does, where an operator decides.
        until: when it ends by itself, if it does.
    """

    effect: str = ""
    until: datetime | None = None


class WavesOutcome(StrEnum):
    """How waves stand: items are left, all were given their turn, or no more must begin."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class WaveCounts(BaseModel):
    """Items by what became of them; those that run have begun and not ended."""

    begun: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    left_running: int = 0

    @property
    def ended(self) -> int:
        """Items of which nothing more is expected."""
        return self.done + self.skipped + self.failed


class WaveState(BaseModel):
    """What waves carry from one run of a workflow to the next: counts and a place, never a list of items.

    It is complete whenever no child workflow runs.

    Attributes:
        policy: as the operator last set it.
        cursor: behind the last item that has begun.
        wave: number of the running wave.
        begun_in_wave: items of it that have begun.
        counts: of all waves.
        budget_failed: failed items that count against the error budget: those since the operator last accepted some.
        budget_ended: ended ones likewise.
        total: all items as far as they are known.
        first_failures: a few, for status.
        recorded_failures: how many the whole list holds.
        failure_list: where the whole list stands.
        why: why no more items begin, where they do not.
    """

    policy: WavePolicy
    cursor: str = ""
    wave: int = 1
    begun_in_wave: int = 0
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
        """The state before the first wave."""
        return cls(policy=policy, wave=CANARY if policy.canary else CANARY + 1)

    @property
    def wave_is_full(self) -> bool:
        """Whether all items of the running wave have begun."""
        return self.begun_in_wave >= self.policy.size_of(self.wave)

    @property
    def budget_exceeded(self) -> str:
        """Why no more items may begin; empty while they may."""
        if self.wave == CANARY and self.budget_failed:
            return f"{self.budget_failed} of {self.counts.begun} items of the canary failed"
        return self.policy.error_budget.exceeded(self.budget_failed, self.budget_ended, self.policy.wave_size)

    def count(self, items: int, result: BatchResult) -> None:
        """Add what became of the items of one child workflow."""
        failed, counts = len(result.failed), self.counts
        skipped = min(result.skipped, items - failed)
        counts.failed += failed
        counts.skipped += skipped
        counts.done += items - failed - skipped
        self.budget_failed += failed
        self.budget_ended += items
        self.first_failures = [*self.first_failures, *result.failed][:SHOWN_FAILURES]

    def accept_failures(self) -> None:
        """Give the error budget again."""
        self.budget_failed = self.budget_ended = 0


class WaveStatus(BaseModel):
    """Where waves stand, and in the end their result.

    Attributes:
        canary: whether the running wave is the canary.
        running: items that run.
        hold: why no item begins now.
        first_failures: at most ten; `failure_list` names the whole list.
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
        """The failed items as status and reports of migrations show them."""
        return FailedItems(
            what="item(s) failed",
            items=tuple(self.first_failures),
            count=self.counts.failed,
            listed_in=self.failure_list,
        )

"""Migration of many items in waves: a canary, waves of a size, an error budget, gates and change windows.

`Waves` is an attribute of a workflow, not a base class. It needs three small protocols of its workflow, so both a
migration and a workflow that runs for years can use it.

The state has counts and one cursor in the source's order, never a list of items. A run's history names only the items
that this run started, in its pages and its children's ids. Failed items go to a list outside of the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import islice

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from models.lifecycle.change_windows import ALWAYS
from models.lifecycle.failures import FailedItem
from models.lifecycle.status import ProgressReport, WaitKind
from models.lifecycle.waves import (
    CANARY,
    BatchResult,
    Hold,
    WaveGate,
    WaveItem,
    WavePolicy,
    WavesOutcome,
    WaveState,
    WaveStatus,
    WhenHeld,
)
from models.text import shown
from workflows.lifecycle.calendar import Calendar, Closed
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.wave_children import ChildPool
from workflows.lifecycle.wave_protocols import RunLimit, WaveSource, WaveSteering

PAGE = 200
"""Most items of one page, whose names and cursors are stored in the history."""

_FAILURES_AT_ONCE = 50
_SHORTEST_PAUSE = timedelta(seconds=30)
_LONGEST_PAUSE = timedelta(minutes=10)


class Waves:
    """Runs items in waves as child workflows.

    Args:
        source: of the items, and of their child workflows.
        steering: pauses, decisions and status.
        run_limit: when the workflow continues as new.
        state: `WaveState.begin(policy)`, or the state of the previous run.
        calendar: when items may start; running items continue.
    """

    def __init__(
        self,
        source: WaveSource,
        steering: WaveSteering,
        run_limit: RunLimit,
        state: WaveState,
        calendar: Calendar,
    ) -> None:
        self.state = state
        self._calendar = calendar
        self._source = source
        self._steering = steering
        self._run_limit = run_limit
        self._pool = ChildPool(source, run_limit, self._count)
        self._unrecorded: list[FailedItem] = []
        self._hold: Hold | None = None
        self._left_before = state.counts.left_running
        # A run without progress must not continue as new, even with a tiny limit.
        self._has_progress = False

    async def run(self) -> WaveStatus:
        """Run wave after wave until all items have run, or no more may start; return the status.

        When cancelled or failed, cancel the running children, and wait until they have ended.
        """
        try:
            while self._running:
                if self.state.wave_is_full:
                    await self._end_wave()
                else:
                    await self._begin_page()
            await self.drain()
        # Not BaseException: a worker that evicts a run throws one into it. The handler must not run then, because
        # another workflow's event loop may be the running one.
        except (Exception, asyncio.CancelledError):
            self._pool.cancel()
            why = f"after their cancellation at {workflow.now():%Y-%m-%d %H:%M:%S}Z"
            await self._until_ended(lambda: self._pool.ids, why)
            raise
        return self.status()

    @property
    def complete(self) -> bool:
        """True if the state is complete, and the workflow may continue as new: no child runs."""
        return not self._pool and not self._unrecorded

    def item_reports(self, report: ProgressReport) -> None:
        """Take note of what an item waits for: time in which the stop switch holds it does not count."""
        self._pool.hold(report.item, held=report.waiting is not None)

    def revise(self, policy: WavePolicy) -> None:
        """Use another policy from the next item on; a pending decision still waits for the operator."""
        self.state.policy = policy

    def status(self) -> WaveStatus:
        """Return the status of the waves."""
        state = self.state
        return WaveStatus(
            outcome=state.outcome,
            why=state.why,
            wave=state.wave,
            canary=state.wave == CANARY,
            counts=state.counts,
            running=self._pool.items,
            total=state.total,
            hold=self._hold,
            first_failures=state.first_failures,
            failure_list=state.failure_list,
        )

    # Items ----------------------------------------------------------------------------------------------------------

    async def _begin_page(self) -> None:
        """List the next items of the wave, and start them as soon as they may."""
        # Before the listing, so that the page is as new as possible when its items start.
        if not await self._may_begin():
            return
        # The operator may have made the wave smaller since.
        if self.state.wave_is_full:
            return
        state = self.state
        # The hold before the first wave has asked already.
        if state.counts.begun and not state.begun_in_wave and state.allowed_wave != state.wave:
            by_hooks = await self._steering.until_allowed(state.wave)
            # Where no item may start now, one may start hours later, and hooks are asked again then.
            if not (by_hooks and (self._steering.paused or self._calendar.closed())):
                state.allowed_wave = state.wave
            return
        room = self.state.policy.size_of(self.state.wave) - self.state.begun_in_wave
        items = iter(await self._list_items(min(PAGE, room)))
        batch = tuple(islice(items, self.state.policy.batch_size))
        if not batch:
            await self.drain()
            self._end(WavesOutcome.DONE)
        while batch and await self._may_begin() and not self.state.wave_is_full:
            self._begin(batch)
            batch = tuple(islice(items, self.state.policy.batch_size))

    def _begin(self, batch: tuple[WaveItem, ...]) -> None:
        state = self.state
        state.cursor = batch[-1].cursor or batch[-1].name
        state.begun_in_wave += len(batch)
        state.counts.begun += len(batch)
        self._has_progress = True
        self._pool.begin(tuple(item.name for item in batch), state.policy)

    async def _list_items(self, limit: int) -> tuple[WaveItem, ...]:
        """Return the next page, once its source allows items to start."""
        pause = _SHORTEST_PAUSE
        while True:
            page = await self._source.next_items(self.state.cursor, limit)
            self.state.total = page.total if page.total is not None else self.state.total
            if not page.hold:
                self._show(None)
                return page.items[:limit]
            self._show(Hold(kind=WaitKind.STOP_SWITCH, why=page.hold, until=workflow.now() + pause))
            await workflow.sleep(pause, summary="next check of the source of items")
            pause, self._has_progress = min(2 * pause, _LONGEST_PAUSE), True
            await self._continue_if_due()

    def _count(self, items: tuple[str, ...], result: BatchResult) -> None:
        self.state.count(len(items), result)
        self.state.counts.left_running = self._left_before + self._pool.left_running
        self._unrecorded += result.failed
        self._steering.show(self.status())

    async def _record_failures(self) -> None:
        while self._unrecorded:
            failures = self._unrecorded[:_FAILURES_AT_ONCE]
            self.state.failure_list = await self._source.record_failures(failures, self.state.recorded_failures)
            self.state.recorded_failures += len(failures)
            del self._unrecorded[: len(failures)]

    # Holds ----------------------------------------------------------------------------------------------------------

    async def _may_begin(self) -> bool:
        """Wait until an item may start; return False if none may any more."""
        while self._running:
            await self._wait_if_paused()
            await self._continue_if_due()
            await self._calendar.read()
            policy = self.state.policy
            if len(self._unrecorded) >= _FAILURES_AT_ONCE:
                await self._record_failures()
            elif self.state.budget_exceeded:
                await self._decide_over_failures()
            elif closed := self._calendar.closed():
                await self._wait_for_window(closed)
            elif len(self._pool) >= policy.parallelism:
                await self._pool.until_fewer_than(policy.parallelism)
            else:
                return True
        return False

    async def _wait_if_paused(self) -> None:
        while self._steering.paused:
            if self._pool:
                self._show(Hold(kind=WaitKind.ITEMS, why="items that run to end before the pause"))
            # `wait_if_paused` may continue as new, which needs a complete state: children that run end first, and
            # failed items are recorded.
            await workflow.wait_condition(lambda: not self._pool or not self._steering.paused)
            self._show(None)
            if self._steering.paused:
                await self._record_failures()
                await self._steering.wait_if_paused()

    async def _end_wave(self) -> None:
        """Wait for the end of the wave's items, and open the gate to the next wave."""
        await self.drain()
        if await self._all_listed():
            return
        state = self.state
        gates = {WaveGate.NONE: False, WaveGate.CANARY: state.wave == CANARY, WaveGate.EVERY_WAVE: True}
        if state.budget_exceeded:
            # One decision is enough: accepting the failures also opens the gate.
            await self._decide_over_failures()
        elif gates[state.policy.gate]:
            name = "the canary" if state.wave == CANARY else f"wave {state.wave}"
            why = f"the gate after {name}: {state.counts.failed} of {state.counts.ended} items failed so far"
            await self._decide(WaitKind.GATE, why, "begins the next wave")
        if self._running:
            state.wave += 1
            state.begun_in_wave = 0
            self._show(None)

    async def _decide_over_failures(self) -> None:
        # Running items may fail as well, and the decision is about all failures.
        await self.drain()
        if await self._all_listed():
            return
        why = self.state.budget_exceeded
        if self.state.policy.when_held is WhenHeld.STOP:
            self._end(WavesOutcome.STOPPED, why)
            return
        where = f", all listed in {self.state.failure_list}" if self.state.failure_list else ""
        effect = "accepts these failures and begins more items with a fresh error budget"
        await self._decide(WaitKind.ERROR_BUDGET, f"{why}{where}", effect)
        if self._running:
            self.state.accept_failures()

    async def _wait_for_window(self, closed: Closed) -> None:
        if closed.until is None:
            await self._decide_over_windows(closed)
            return
        self._show(Hold(kind=WaitKind.CHANGE_WINDOW, why=closed.why, until=closed.until))
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._calendar.closed() != closed,
                timeout=closed.until - workflow.now(),
                timeout_summary="next change window",
            )
        self._show(None)

    async def _decide_over_windows(self, closed: Closed) -> None:
        await self.drain()
        if await self._all_listed():
            return
        windows = self._calendar.windows
        why = f"items are left, and none may begin any more: {closed.why}"
        if self.state.policy.when_held is WhenHeld.STOP:
            self._end(WavesOutcome.STOPPED, why)
            return
        await self._decide(
            WaitKind.NOT_AFTER, why, "begins them all the same; set later change windows first if you want some"
        )
        if self._calendar.windows is windows:
            self._calendar.replace(ALWAYS)

    async def _all_listed(self) -> bool:
        """Return whether no item remains; then the waves are done."""
        if await self._list_items(1):
            return False
        self._end(WavesOutcome.DONE)
        return True

    async def _decide(self, kind: WaitKind, why: str, effect: str) -> None:
        hold = Hold(kind=kind, why=why, action=f"decide: proceed {effect}", effect=effect)
        self._show(hold)
        proceed = await self._steering.decide(hold)
        self._show(None)
        if not proceed:
            self._end(WavesOutcome.STOPPED, f"the operator decided to begin no more items: {why}")

    async def drain(self) -> None:
        """Wait for the end of all running items, and record the failed ones; the state is complete then."""
        if self._pool:
            self._show(Hold(kind=WaitKind.ITEMS, why="items that run to end"))
            await self._pool.until_fewer_than(1)
        await self._record_failures()
        self._show(None)

    async def drain_all(self) -> None:
        """Drain, and wait for the end of items that this run gave up: a rollback must not run next to them.

        Those of earlier runs are not known, since Temporal reports the end of a child to the run that started it.
        """
        if self.state.counts.begun:
            try:
                await self.drain()
            except (ActivityError, ApplicationError) as error:
                # A run that lost its claim may not write the list, and its rollback must end all the same.
                self._steering.note(f"{len(self._unrecorded)} failed items are not listed: {cause_of(error)}")
                self._show(None)
        # mutant: shared/rollback-next-to-a-child-that-was-given-up
        await self._until_ended(
            lambda: [*self._pool.given_up],
            "given up after the deadline",
            action="terminate these workflows if they do not end",
        )

    async def _continue_if_due(self) -> None:
        if self._has_progress and self._run_limit.due:
            await self.drain()
            await self._run_limit.checkpoint()

    # Inside ---------------------------------------------------------------------------------------------------------

    async def _until_ended(self, children: Callable[[], list[str]], why: str, action: str = "") -> None:
        """Wait until children have ended, and show their ids."""
        while ids := children():
            self._show(Hold(kind=WaitKind.ITEMS, why=f"{shown(', '.join(ids))} to end, {why}", action=action))
            # Cancelled again, which does not change what is waited for.
            with suppress(asyncio.CancelledError):
                await workflow.wait_condition(lambda seen=ids: children() != seen)
            self._show(None)

    @property
    def _running(self) -> bool:
        return self.state.outcome is WavesOutcome.RUNNING

    def _end(self, outcome: WavesOutcome, why: str = "") -> None:
        self.state.outcome, self.state.why = outcome, why

    def _show(self, hold: Hold | None) -> None:
        self._hold = hold
        self._steering.show(self.status())

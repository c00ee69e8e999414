"""A workflow that holds waves and nothing else, as an entity would, and the child workflows that it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from models.base import Frozen
from models.lifecycle.change_windows import ALWAYS, ChangeWindows
from models.lifecycle.failures import FailedItem
from models.lifecycle.status import ProgressReport, WaitKind, WaitReason
from models.lifecycle.waves import BatchResult, Hold, Page, WavePolicy, WaveState, WaveStatus, failed_item
from tests.workflows.lifecycle.wave_catalog import SHOWN, Begun, Behaviour
from workflows.lifecycle.calendar import Calendar
from workflows.lifecycle.wave_children import read_batch_result
from workflows.lifecycle.wave_protocols import ChildSpec
from workflows.lifecycle.waves import Waves

_SECONDS = timedelta(seconds=30)


class ManyInput(Frozen):
    """Input of `Many`: a catalog of items, and what an earlier run carried over."""

    catalog: str
    policy: WavePolicy
    windows: ChangeWindows = ALWAYS
    events: int = 10_000
    carried: WaveState | None = None
    is_paused: bool = False


class BatchInput(Frozen):
    """Input of `Batch`."""

    catalog: str
    items: tuple[str, ...]


@workflow.defn
class Batch:
    """Migrates some items."""

    @workflow.run
    async def run(self, input: BatchInput) -> Any:
        """Record the items, and end as they say."""
        begun = Begun(catalog=input.catalog, items=input.items, at=workflow.now(), attempt=workflow.info().attempt)
        todo: Behaviour = await workflow.execute_activity(
            "begin_items", begun, result_type=Behaviour, start_to_close_timeout=_SECONDS
        )
        if todo.crash:
            raise ApplicationError(todo.crash, non_retryable=todo.crash_for_good)
        if todo.stopped:
            await self._report(WaitReason(kind=WaitKind.STOP_SWITCH, why="the stop switch is set"))
            await workflow.sleep(todo.stopped)
            await self._report(None)
        await workflow.sleep(todo.sleep)
        while todo.hang:
            try:
                await workflow.wait_condition(lambda: False)
            except asyncio.CancelledError:
                if not todo.deaf:
                    await workflow.sleep(todo.undo)
                    raise
        if todo.answer is not None:
            return todo.answer
        return BatchResult(failed=tuple(failed_item(item, "it is a bad one") for item in todo.failed))

    async def _report(self, waiting: WaitReason | None) -> None:
        """Report to the waves what the items wait for, as a migration does."""
        parent = workflow.info().parent
        assert parent is not None
        handle = workflow.get_external_workflow_handle(parent.workflow_id, run_id=parent.run_id)
        await handle.signal("report_progress", ProgressReport(waiting=waiting, item=workflow.info().workflow_id))


@workflow.defn
class Many:
    """Migrates a catalog's items in waves."""

    @workflow.init
    def __init__(self, input: ManyInput) -> None:
        self._input = input
        self._paused = input.is_paused
        self._decision: bool | None = None
        self.change_windows: ChangeWindows | None = None
        self._calendar = Calendar(self, input.windows)
        self._waves = Waves(self, self, self, input.carried or WaveState.begin(input.policy), self._calendar)

    @workflow.run
    async def run(self, input: ManyInput) -> WaveStatus:
        """Run the waves."""
        return await self._waves.run()

    # The operator ---------------------------------------------------------------------------------------------------

    @workflow.query
    def status(self) -> WaveStatus:
        """Return the status of the waves."""
        return self._waves.status()

    @workflow.signal
    def decision(self, proceed: bool) -> None:
        """Answer what is waited for."""
        self._decision = proceed

    @workflow.signal
    def pause(self, wanted: bool) -> None:
        """Pause or resume."""
        self._paused = wanted

    @workflow.signal
    def report_progress(self, report: ProgressReport) -> None:
        """Take what an item reports."""
        self._waves.item_reports(report)

    @workflow.update
    def revise(self, policy: WavePolicy) -> None:
        """Change the policy."""
        self._waves.revise(policy)

    @workflow.update
    def set_windows(self, windows: ChangeWindows) -> None:
        """Change the windows."""
        self._calendar.replace(windows)

    # What the waves ask for -----------------------------------------------------------------------------------------

    async def next_items(self, cursor: str, limit: int) -> Page:
        """List items."""
        return await workflow.execute_activity(
            "list_items",
            args=[self._input.catalog, cursor, limit],
            result_type=Page,
            start_to_close_timeout=_SECONDS,
            retry_policy=RetryPolicy(maximum_attempts=3),
        )

    async def record_failures(self, failures: Sequence[FailedItem], offset: int) -> str:
        """Write failed items to a file."""
        return await workflow.execute_activity(
            "append_failures",
            args=[self._input.catalog, list(failures), offset],
            result_type=str,
            start_to_close_timeout=_SECONDS,
        )

    def child(self, items: tuple[str, ...]) -> ChildSpec:
        """Return the child workflow of some items."""
        return ChildSpec("Batch", BatchInput(catalog=self._input.catalog, items=items))

    async def on_terminated(self, items: tuple[str, ...], why: str) -> None:
        """Ignore the items: no child leaves anything to clean up."""

    def read_result(self, items: tuple[str, ...], result: Any) -> BatchResult:
        """Return what a child returned, as a result of its batch."""
        return read_batch_result(items, result)

    @property
    def paused(self) -> bool:
        """Whether a pause is on."""
        return self._paused

    async def wait_if_paused(self) -> None:
        """Wait for the end of a pause."""
        await workflow.wait_condition(lambda: not self._paused)

    async def until_allowed(self, wave: int) -> bool:
        """Allow every wave."""
        return True

    async def decide(self, hold: Hold) -> bool:
        """Wait for the signal."""
        self._decision = None
        await workflow.wait_condition(lambda: self._decision is not None)
        return bool(self._decision)

    def show(self, status: WaveStatus) -> None:
        """Show the counts."""
        SHOWN[workflow.info().workflow_id] = status.model_copy(deep=True)

    def note(self, text: str) -> None:
        """Ignore notes."""

    @property
    def due(self) -> bool:
        """Whether the history is as long as the test allows."""
        return workflow.info().get_current_history_length() >= self._input.events

    def wait_for(self, work: asyncio.Task[None]) -> None:
        """Ignore the work: no child leaves anything to clean up."""

    async def checkpoint(self) -> None:
        """Continue in a new run."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(
            self._input.model_copy(
                update={
                    "carried": self._waves.state,
                    "is_paused": self._paused,
                    "windows": self._calendar.windows,
                }
            )
        )

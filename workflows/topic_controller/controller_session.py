"""The shared part of a topic's controller: its state, the lock for changes, and how steps are run and shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.state import Failure
from models.lifecycle.status import dated_note
from models.topic_controller.input import ControllerInput
from models.topic_controller.record import ControlledLayout
from models.topic_controller.state import ControllerState
from workflows.lifecycle.activity_calls import FencedCalls
from workflows.lifecycle.failures import failure_of, to_exception
from workflows.lifecycle.log import log
from workflows.lifecycle.migration import refused
from workflows.lifecycle.search_attributes import PHASE_KEY, SearchAttributes
from workflows.lifecycle.tasks import LONGEST_RETRY_PAUSE, growing_pause
from workflows.topic_controller.details import render, status_of

_NOTES = 20
_FIRST_BACKOFF, _MAX_BACKOFF = timedelta(seconds=1), timedelta(minutes=1)
_NEXT_WORKFLOW_TASK = timedelta(milliseconds=1)
_IDLE = "IDLE"

STEP_FAILURES = (ActivityError, ApplicationError)
"""Exceptions of a step: it failed finally, or its answer cannot be read."""

ResultT = TypeVar("ResultT")


class ControllerSession:
    """Control of one topic by one run of its workflow.

    Args:
        input: input of the workflow.
        state: state of the workflow.

    Attributes:
        calls: runs activities.
        deleted: whether the topic is deleted.
        lost: error of the step that found another run in control; None before.
        is_reset: whether Temporal has reset this run: its state is old, and the next run reads the metadata store.
        repeated_failure: the last failure of the step that a change in progress repeats, if the attempt before it
            failed too.
        on_layout_change: callbacks for a new layout.
    """

    def __init__(self, input: ControllerInput, state: ControllerState) -> None:
        self.input = input
        self.state = state
        self.calls = FencedCalls(input, state)
        self.attributes = SearchAttributes()
        self.deleted = False
        self.lost: BaseException | None = None
        self.is_reset = False
        self.repeated_failure: Failure | None = None
        self.on_layout_change: list[Callable[[], None]] = []
        self._lock = asyncio.Lock()

    @property
    def is_finished(self) -> bool:
        """This run has nothing more to control."""
        return self.deleted or self.lost is not None

    @property
    def is_changing(self) -> bool:
        """A change is in progress."""
        return self._lock.locked()

    @property
    def record(self) -> ControlledLayout:
        """The layout; only once the topic is open."""
        record = self.state.record
        assert record is not None, "the topic is open"
        return record

    def set_layout(self, record: ControlledLayout) -> None:
        """Use a new layout, and notify the other parts."""
        self.state.record = record
        for notify in self.on_layout_change:
            notify()

    @asynccontextmanager
    async def hold_lock(self, what: str) -> AsyncGenerator[None]:
        """Hold the lock for changes, also before the topic is open, and show the operation."""
        async with self._lock:
            self.set_doing(what)
            try:
                yield
            finally:
                self.repeated_failure = None
                self.set_doing("")

    @asynccontextmanager
    async def exclusive(self, what: str) -> AsyncGenerator[None]:
        """Hold the lock for changes, once the topic is open.

        Raises:
            ApplicationError: the topic is deleted, another run is in control, or Temporal has reset this run.
        """
        await workflow.wait_condition(lambda: self.state.record is not None)
        async with self.hold_lock(what):
            await self.detect_reset()  # mutant: topic-controller/a-reset-makes-changes-again
            if self.is_finished:
                raise refused(f"{self.input.target_name} is deleted, or controlled by another run")
            yield

    async def detect_reset(self) -> None:
        """Wait until it is known whether Temporal has reset this run; called by updates that change more than settings.

        After a reset, Temporal delivers updates again that were answered long ago. By now a subscription may be
        deleted, there may be another one or another topic of the same name, and what was refused may be possible.

        Raises:
            ApplicationError: it was reset.
        """
        # Updates of the same workflow task are delivered before the reset itself is known.
        await workflow.sleep(_NEXT_WORKFLOW_TASK)
        self.require_current()

    def require_current(self) -> None:
        """Raise an ApplicationError, if it is known that Temporal has reset this run."""
        if self.is_reset:
            raise ApplicationError(
                f"the workflow of {self.input.target_name} was reset; check the topic, and repeat the update if needed",
                type=FailureKind.NOT_LEADER,
            )

    async def run_step(self, step: Awaitable[ResultT]) -> ResultT:
        """Run a step, and raise its failure without the wrapper of Temporal."""
        try:
            return await step
        except ActivityError as error:
            failure = failure_of(error)
            if failure.type == FailureKind.NOT_LEADER:
                self.lost = to_exception(failure)
            raise to_exception(failure) from error

    async def retry_until_done(
        self, step: Callable[[], Awaitable[ResultT]], on_conflict: Callable[[], Awaitable[None]] | None = None
    ) -> ResultT:
        """Run a step until it succeeds, or another run is in control; the status shows why it waits.

        Args:
            step: starts the step.
            on_conflict: repairs the cause of a conflict; if it raises, the step is not repeated.
        """
        started, backoff = workflow.now(), _FIRST_BACKOFF
        last: Failure | None = None
        while True:
            try:
                result = await self.run_step(step())
            except ApplicationError as error:
                if self.lost is not None:
                    raise
                if on_conflict is not None and error.type == FailureKind.CONFLICT:
                    await on_conflict()
                self.repeated_failure, last = last and failure_of(error), failure_of(error)
                self.set_waiting(f"the next attempt, since the last one failed: {error.message}")
                await workflow.sleep(backoff)
                # After hours more rarely: each attempt stays in the history, and no run ends before the step is done.
                longest = growing_pause(_MAX_BACKOFF, started, LONGEST_RETRY_PAUSE)
                backoff = min(backoff * 2, longest)
            else:
                self.repeated_failure = None
                self.set_waiting("")
                return result

    def set_doing(self, what: str) -> None:
        """Show the current operation; empty for none."""
        self.state.doing = what
        self.attributes.set(PHASE_KEY.value_set(what.partition(" ")[0].upper() or _IDLE))
        self.show_status()

    def set_waiting(self, why: str) -> None:
        """Show what the current operation waits for; empty for nothing."""
        self.state.waiting = why
        self.show_status()

    def note(self, text: str) -> None:
        """Add an event to the notes for operators, and to the log."""
        log(text)
        self.state.notes = [*self.state.notes, dated_note(workflow.now(), text)][-_NOTES:]
        self.show_status()

    def show_status(self) -> None:
        """Show the status in the Web UI."""
        workflow.set_current_details(render(status_of(self.input, self.state)))

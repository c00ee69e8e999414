"""What the parts of a topic's controller share: its state, its one turn, and how steps are run and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from models.lifecycle.failures import FailureKind
from models.topic_controller.input import ControllerInput
from models.topic_controller.record import ControlledLayout
from models.topic_controller.state import ControllerState
from workflows.lifecycle.activity_calls import FencedCalls
from workflows.lifecycle.failures import failure_of, raised_again
from workflows.lifecycle.migration import refused
from workflows.lifecycle.phases import PHASE_KEY, upsert
from workflows.topic_controller.details import render, status_of

_NOTES = 20
_FIRST_PATIENCE, _LONGEST_PATIENCE = timedelta(seconds=1), timedelta(minutes=1)
_NEXT_TASK = timedelta(milliseconds=1)
_IDLE = "IDLE"

ResultT = TypeVar("ResultT")


class ControllerSession:
    """The lead of one topic by one run of its workflow.

    Args:
        input: of the workflow.
        state: of it.

    Attributes:
        calls: runs activities.
        deleted: whether the topic is gone.
        lost: why this run leads no more, once another does.
        is_reset: whether Temporal has reset this run: what it knows is old, and the next one asks the metadata store.
        on_layout_change: called when there are other segments.
    """

    def __init__(self, input: ControllerInput, state: ControllerState) -> None:
        self.input = input
        self.state = state
        self.calls = FencedCalls(input, state)
        self.deleted = False
        self.lost: BaseException | None = None
        self.is_reset = False
        self.on_layout_change: list[Callable[[], None]] = []
        self._turn = asyncio.Lock()

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to controller."""
        return self.deleted or self.lost is not None

    @property
    def is_changing(self) -> bool:
        """Whether a change is under way."""
        return self._turn.locked()

    @property
    def record(self) -> ControlledLayout:
        """The layout; only once the topic is open."""
        record = self.state.record
        assert record is not None, "the topic is open"
        return record

    def set_layout(self, record: ControlledLayout) -> None:
        """The layout is another one."""
        self.state.record = record
        for tell in self.on_layout_change:
            tell()

    @asynccontextmanager
    async def hold_lock(self, what: str) -> AsyncGenerator[None]:
        """The turn of whoever makes the topic known."""
        async with self._turn:
            self.set_doing(what)
            try:
                yield
            finally:
                self.set_doing("")

    @asynccontextmanager
    async def exclusive(self, what: str) -> AsyncGenerator[None]:
        """One change at a time, and none before the topic is known.

        Raises:
            ApplicationError: the topic is deleted, or another run leads, or is about to.
        """
        await workflow.wait_condition(lambda: self.state.record is not None)
        async with self.hold_lock(what):
            self.require_current()
            if self.is_finished:
                raise refused(f"{self.input.target_name} is deleted, or led by another run")
            yield

    async def wait_for_reset_signal(self) -> None:
        """What would do harm where it is done again: wait until it is known whether Temporal has reset this run.

        It sends updates again that were answered long ago: a subscription, or a topic, of the same name may be there
        since, and what was refused may be possible by now.

        Raises:
            ApplicationError: it has.
        """
        # Updates of the same workflow task are heard of before the reset itself.
        await workflow.sleep(_NEXT_TASK)
        self.require_current()

    def require_current(self) -> None:
        """See that it is not known that Temporal has reset this run; raises as `wait_for_reset_signal`."""
        if self.is_reset:
            raise ApplicationError(
                f"the workflow of {self.input.target_name} was reset: look at the topic, and ask again what is missing",
                type=FailureKind.NOT_LEADER,
            )

    async def run_step(self, step: Awaitable[ResultT]) -> ResultT:
        """Run a step; what it fails with is told as it is."""
        try:
            return await step
        except ActivityError as error:
            failure = failure_of(error)
            if failure.type == FailureKind.NOT_LEADER:
                self.lost = raised_again(failure)
            raise raised_again(failure) from error

    async def retry_until_done(
        self, step: Callable[[], Awaitable[ResultT]], on_conflict: Callable[[], Awaitable[None]] | None = None
    ) -> ResultT:
        """Run a step until it succeeds, or somebody else leads; status says why it waits.

        Args:
            step: begins it.
            on_conflict: mends what the step found in the way; gives the step up where it raises.
        """
        patience = _FIRST_PATIENCE
        while True:
            try:
                result = await self.run_step(step())
            except ApplicationError as error:
                if self.lost is not None:
                    raise
                if on_conflict is not None and error.type == FailureKind.CONFLICT:
                    await on_conflict()
                self.set_waiting(f"the next try, since the last failed: {error.message}")
                await workflow.sleep(patience)
                patience = min(patience * 2, _LONGEST_PATIENCE)
            else:
                self.set_waiting("")
                return result

    def set_doing(self, what: str) -> None:
        """Something begins, or ends."""
        self.state.doing = what
        upsert(PHASE_KEY.value_set(what.partition(" ")[0].upper() or _IDLE))
        self.show_status()

    def set_waiting(self, why: str) -> None:
        """What is done now waits for something, or no more."""
        self.state.waiting = why
        self.show_status()

    def note(self, text: str) -> None:
        """An event that operators see."""
        self.state.notes = [*self.state.notes, f"{workflow.now():%Y-%m-%d %H:%M:%S}Z {text}"][-_NOTES:]
        self.show_status()

    def show_status(self) -> None:
        """Show how the topic stands in the Web UI."""
        workflow.set_current_details(render(status_of(self.input, self.state)))

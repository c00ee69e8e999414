"""The operator of a test: starts migrations, watches and steers them, from ordinary code and with limits."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from cli.rendering import headline
from models.lifecycle.input import MigrationInput
from models.lifecycle.names import TASK_QUEUE
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Progress, Status, WaitKind
from models.lifecycle.verbs import Speed, Verb, VerbRequest, VerbResponse, WindowChange
from temporal.converter import DATA_CONVERTER
from tests.support.waiting import timeout_for, wait_for
from views.migration import View, read_view
from worker.catalog import KINDS

ResultT = TypeVar("ResultT")

LIMIT = 120.0
"""Seconds that a test waits for a phase, or for the end, unless it says otherwise."""

_CALL = timedelta(seconds=10)
# A worker answers, which a busy machine may keep from it.
_QUERY = timedelta(seconds=60)


class Operator:
    """A client of Temporal with a loop of its own; a context manager.

    Args:
        address: Temporal's `host:port`.
    """

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="operator", daemon=True)
        self._thread.start()
        self.client = self.wait(Client.connect(address, data_converter=DATA_CONVERTER), 30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_for(10))

    def wait(self, work: Coroutine[Any, Any, ResultT], limit: float) -> ResultT:
        """Run a coroutine on the operator's loop, and wait for its result; `limit` seconds on a calm machine."""
        limit = timeout_for(limit)
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, limit), self._loop).result(limit + 5)

    def start(self, input: MigrationInput) -> Run:
        """Start the migration that this plan is the input of.

        Raises:
            WorkflowAlreadyStartedError: one of this cluster runs.
        """
        kind = next(kind for kind in KINDS.values() if kind.input is type(input))
        handle = self.wait(
            self.client.start_workflow(
                kind.workflow, input, id=input.workflow_id, task_queue=TASK_QUEUE, result_type=Report
            ),
            30,
        )
        return Run(self, handle)

    def histories(self) -> list[bytes]:
        """Return the histories of all workflows, as Temporal keeps them: at the end of a session many hundreds."""
        return self.wait(self._histories(), LIMIT)

    async def _histories(self) -> list[bytes]:
        histories = [
            await self.client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
            async for run in self.client.list_workflows()
        ]
        return [b"".join(event.SerializeToString() for event in history.events) for history in histories]

    def run(self, input: MigrationInput, limit: float = LIMIT) -> Report:
        """Start a migration and wait for its report.

        Raises:
            AssertionError: it did not end in time; the history is in the message.
        """
        run = self.start(input)
        try:
            return run.result(limit)
        except TimeoutError as error:
            raise AssertionError(f"it has not ended after {limit:.0f} s: {run.story()}") from error

    def wait_for_batch(self, input: MigrationInput, first: str, phase: str, limit: float = LIMIT) -> Run:
        """Wait until the batch that begins with an item has begun a phase; returns its run.

        A worker that is busy may answer when the phase, if it is a short one, is over.

        Raises:
            AssertionError: it did not come to it in time.
        """
        batch = self.batch(input, first)

        def reached() -> bool:
            try:
                return any(entry.phase == phase for entry in batch.status().history)
            except (RPCError, TimeoutError):
                return False

        wait_for(f"{phase} of {first}", reached, limit)
        return batch

    def batch(self, input: MigrationInput, first: str) -> Run:
        """Return the batch that starts with an item."""
        return Run(self, self.client.get_workflow_handle(f"{input.workflow_id}/{first}"))

    def refusal(self, input: MigrationInput, limit: float = LIMIT) -> ApplicationError:
        """Start a migration that must fail, and return why."""
        return self.start(input).failure(limit)

    def reset(
        self,
        handle: WorkflowHandle[Any, Any],
        activity: str = "",
        *,
        updates: bool = True,
        incomplete: bool = False,
    ) -> str:
        """Reset the workflow to the task that scheduled an activity for the first time.

        Args:
            handle: of the workflow.
            activity: its name; without one from the last task on.
            updates: whether those that came since are sent again.
            incomplete: reset to the last task before the activity completed, instead.

        Returns:
            Id of the run that continues.
        """
        return self.wait(self._reset(handle, activity, updates=updates, incomplete=incomplete), 30)

    async def _reset(self, handle: WorkflowHandle[Any, Any], activity: str, *, updates: bool, incomplete: bool) -> str:
        task, scheduled = 0, 0
        async for event in handle.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                task = event.event_id
            elif activity and event.activity_task_scheduled_event_attributes.activity_type.name == activity:
                if not incomplete:
                    break
                scheduled = scheduled or event.event_id
            elif scheduled and event.activity_task_completed_event_attributes.scheduled_event_id == scheduled:
                break
        left_out = [] if updates else [ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE]
        reset = await self.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                reason="a test",
                workflow_task_finish_event_id=task,
                request_id=str(uuid.uuid4()),
                reset_reapply_exclude_types=left_out,
            )
        )
        return reset.run_id


class Run:
    """One run of a migration."""

    def __init__(self, operator: Operator, handle: WorkflowHandle[Any, Report]) -> None:
        self._operator = operator
        # The SDK's annotations of updates are partly untyped.
        self._handle: Any = handle

    def status(self) -> Status:
        """Return the answer of the query `status`."""
        return self.query("status", Status)

    def story(self) -> str:
        """Return the events so far, for messages of failed tests."""
        try:
            status = self.status()
            children = self.view().children
        except (RPCError, TimeoutError) as error:
            return f"no status: {error}"
        why = f"; waits for {status.waiting.why}" if status.waiting else ""
        return "\n".join([f"{_story(status)}{why}", *map(headline, children)])

    def wait_until(self, what: str, holds: Callable[[Status], bool], limit: float = LIMIT) -> Status:
        """Ask for the status until it is as wanted.

        Raises:
            AssertionError: it did not become so in time, or the migration ended before; the history is in the message.
        """

        def seen() -> Status | None:
            # A worker that is killed or busy does not answer; the limit is what counts.
            try:
                status = self.status()
            except (RPCError, TimeoutError):
                return None
            if holds(status):
                return status
            assert status.outcome is Outcome.RUNNING, f"ended without {what}: {_story(status)}"
            return None

        return wait_for(what, seen, limit)

    def wait_until_it_waits_for(self, kind: WaitKind, limit: float = LIMIT, *, phase: str = "") -> Status:
        """Wait until the migration waits for something of this kind, in this phase where one is named."""
        return self.wait_until(
            f"a wait for {kind}",
            lambda status: status.waiting is not None and status.waiting.kind is kind and phase in ("", status.phase),
            limit,
        )

    def wait_for_progress(self, phase: str, limit: float = LIMIT) -> Progress:
        """Wait until a step of this phase reports its progress by heartbeat."""

        def progress_of_step() -> Progress | None:
            steps = self.view().steps
            return next((step.progress for step in steps if step.progress), None)

        self.wait_for_phase(phase, limit)
        return wait_for(f"progress in {phase}", progress_of_step, limit)

    def view(self) -> View:
        """Return what the command line shows of the migration."""
        return self._operator.wait(read_view(self._operator.client, self._handle.id), 30)

    def wait_for_phase(self, phase: str, limit: float = LIMIT) -> Status:
        """Wait until a phase has begun."""
        return self.wait_until(f"phase {phase}", lambda status: any(e.phase == phase for e in status.history), limit)

    def result(self, limit: float = LIMIT) -> Report:
        """Wait for the report of a migration that does not fail."""
        return self._operator.wait(self._handle.result(), limit)

    def failure(self, limit: float = LIMIT) -> ApplicationError:
        """Wait for the failure of a migration that must fail.

        Raises:
            AssertionError: it ended with a report, or without a typed failure.
        """
        try:
            report = self.result(limit)
        except WorkflowFailureError as error:
            if isinstance(error.cause, ApplicationError):
                return error.cause
            raise AssertionError(f"a failure without a type: {error.cause}") from error
        raise AssertionError(f"it did not fail: {report.outcome}, {report.summary}")

    def signal(self, verb: Verb, reason: str = "") -> None:
        """Send a verb; the answer shows in the status only."""
        self._operator.wait(self._handle.signal(verb.value, reason, rpc_timeout=_CALL), 15)

    def steer(self, verb: Verb, reason: str = "") -> VerbResponse:
        """Give a verb and get the answer.

        Raises:
            WorkflowUpdateFailedError: it is refused.
        """
        return self.update("steer", VerbRequest(verb=verb, reason=reason), VerbResponse)

    def set_throttle(self, megabytes_per_second: float | None) -> None:
        """Change the speed of the copy that runs."""
        self.update("set_throttle", Speed(megabytes_per_second=megabytes_per_second), Speed)

    def change_window(self, remaining: timedelta) -> datetime:
        """Set the time that the open window has left; what the window checks is checked again."""
        return self.update("change_window", WindowChange(remaining=remaining), datetime)

    def update(self, name: str, argument: object, answer: type[ResultT]) -> ResultT:
        """Send an update and wait for its answer.

        Raises:
            WorkflowUpdateFailedError: it is refused.
        """
        return self._operator.wait(self._handle.execute_update(name, argument, result_type=answer), 30)

    def query(self, name: str, answer: type[ResultT]) -> ResultT:
        """Ask a query."""
        return self._operator.wait(self._handle.query(name, result_type=answer, rpc_timeout=_QUERY), 65)

    def reset(self, activity: str = "") -> None:
        """Reset the workflow to the task that scheduled an activity for the first time.

        Without a name from the last task on: activities that run are kept, and begin with their first attempt again.
        """
        self._operator.reset(self._handle, activity)
        # The handle of the start follows the run that it started, which the reset ended.
        self._handle = self._operator.client.get_workflow_handle(self._handle.id, result_type=Report)

    def terminate(self) -> None:
        """End the workflow without a rollback."""
        self._operator.wait(self._handle.terminate(rpc_timeout=_CALL), 15)


def _story(status: Status) -> str:
    phases = [f"{entry.phase} {entry.outcome} {entry.note}".strip() for entry in status.history]
    return "; ".join([*phases, *status.notes])

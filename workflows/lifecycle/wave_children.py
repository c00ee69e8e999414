"""Child workflows of a wave: started, limited in time, cancelled, and counted when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ChildWorkflowError, FailureError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.exceptions import TimeoutError as TemporalTimeoutError

from models.base import faults
from models.lifecycle.names import bounded_id, summary_line
from models.lifecycle.waves import BatchResult, WavePolicy, failed_item
from workflows.lifecycle.wave_protocols import Children, ChildSpec, RunLimit

_SHORTEST_PAUSE = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(minutes=10)


class _Child:
    """One child workflow from its first start to its end."""

    def __init__(self, items: tuple[str, ...], policy: WavePolicy) -> None:
        self.items = items
        self.policy = policy
        self.id = child_id(workflow.info().workflow_id, items[0])
        self.due = workflow.now() + policy.deadline
        #: Since when the stop switch holds it; None while it does not.
        self.held_since: datetime | None = None
        #: Why it was cancelled; empty if it was not.
        self.cancelled = ""
        #: Whether Temporal has started it as our child.
        self.started = False
        #: Whether another workflow runs under its id, so that it cannot start.
        self.blocked = False
        #: Set to the reason when the wave stops waiting for it.
        self.given_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # The event loop alone does not keep tasks alive.
        self.tasks: list[asyncio.Task[None]] = []

    def give_up(self, why: str) -> None:
        if not self.given_up.done():
            self.given_up.set_result(why)


class ChildPool:
    """Runs child workflows concurrently, and calls `ended` for each.

    Temporal reports a child's end only to the run of the parent that started it. So a parent continues as new only
    while the pool is empty. Finding children again by their ids would not give their results: each would need to signal
    its parent, and a terminated child never does.

    When a parent is closed while children run, they are cancelled (`REQUEST_CANCEL`): each undoes its work or, after
    its point of no return, completes it. Terminating them would leave half-finished items; abandoning them would ignore
    the operator who terminated the parent. Temporal does the same at continue-as-new, where only children can be left
    that were already cancelled.

    Args:
        children: of the migration.
        run_limit: when the parent continues as new.
        ended: gets the items of one child, and their outcome.

    Attributes:
        left_running: number of items that were given up.
        given_up: children by id that this run gave up, and that still run or are cleaned up after.
    """

    def __init__(
        self, children: Children, run_limit: RunLimit, ended: Callable[[tuple[str, ...], BatchResult], None]
    ) -> None:
        self.left_running = 0
        self.given_up: dict[str, _Child] = {}
        self._children = children
        self._run_limit = run_limit
        self._ended = ended
        self._running: dict[str, _Child] = {}
        self._watch: asyncio.Task[None] | None = None
        self._defect: BaseException | None = None
        self._holds = 0
        self._cancelled = False

    @property
    def ids(self) -> list[str]:
        """Ids of the running children."""
        return [*self._running]

    @property
    def items(self) -> int:
        """Number of running items."""
        return sum(len(child.items) for child in self._running.values())

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, items: tuple[str, ...], policy: WavePolicy) -> None:
        """Start the child workflow of some items."""
        child = _Child(items, policy)
        self._running[child.id] = child
        child.tasks.append(asyncio.create_task(self._run(child)))
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_deadlines())

    def hold(self, child_id: str, *, held: bool) -> None:
        """Stop the deadline of a child, or let it continue where it was; harmless when done twice, and for others."""
        child = self._running.get(child_id)
        if child is None or child.cancelled or held == (child.held_since is not None):
            return
        now = workflow.now()
        child.due += now - (child.held_since or now)
        child.held_since = now if held else None
        self._holds += 1

    async def until_fewer_than(self, count: int) -> None:
        """Wait until fewer children run.

        Raises:
            Exception: the migration's own code failed over a child.
        """
        await workflow.wait_condition(lambda: len(self._running) < count or self._defect is not None)
        if self._defect is not None:
            raise self._defect

    def cancel(self) -> None:
        """Cancel all children; wait then until none runs, however long that takes.

        A rollback must not run next to a child, so none is given up from now on. An operator can terminate a child that
        does not end.
        """
        self._cancelled = True  # mutant: shared/rollback-next-to-a-child
        for child in self._running.values():
            self._request_cancel(child, "cancelled with its parent")

    # Inside ---------------------------------------------------------------------------------------------------------

    async def _run(self, child: _Child) -> None:
        try:
            result = await self._outcome(child)
            del self._running[child.id]
            self._ended(child.items, result)
        except Exception as error:  # noqa: BLE001 - raised again where the wave waits
            self._running.pop(child.id, None)
            self._defect = error

    async def _outcome(self, child: _Child) -> BatchResult:
        try:
            spec = self._children.child(child.items)
        except ValidationError as error:
            # Servers have names that no input may have, such as `x-partition-1` for a whole topic.
            return _all_failed(child.items, faults(error))
        handle = await self._start(child, spec)
        if handle is None:
            return _all_failed(child.items, child.given_up.result())
        child.started = True
        if child.cancelled or child.given_up.done():
            await self._send_cancel(child)
        await workflow.wait([handle, child.given_up], return_when=asyncio.FIRST_COMPLETED)
        if not handle.done():
            self.left_running += len(child.items)
            self.given_up[child.id] = child
            handle.add_done_callback(lambda ended: self._given_up_ended(child, ended))
            return _all_failed(child.items, child.given_up.result())
        try:
            # Decoded here and not by the SDK, which would fail the whole parent for one invalid result.
            return self._children.read_result(child.items, handle.result())
        except ChildWorkflowError as error:
            await self._clean_up(child, error)  # mutant: blue-green/batch-that-was-terminated
            return _all_failed(child.items, child.cancelled or _cause(error))
        except ValueError as error:
            return _all_failed(child.items, f"the result of {child.id} cannot be read: {error}")

    def _given_up_ended(self, child: _Child, handle: asyncio.Future[Any]) -> None:
        # Retrieved also where nothing is to be cleaned up, or asyncio would log an error.
        error = None if handle.cancelled() else handle.exception()
        clean_up = asyncio.create_task(self._forget_given_up(child, error))
        child.tasks.append(clean_up)
        self._run_limit.wait_for(clean_up)

    async def _forget_given_up(self, child: _Child, error: BaseException | None) -> None:
        try:
            await self._clean_up(child, error)  # mutant: shared/child-that-was-given-up-and-terminated
        except Exception as defect:  # noqa: BLE001 - raised again where the wave waits
            self._defect = defect
        finally:
            del self.given_up[child.id]

    async def _clean_up(self, child: _Child, error: BaseException | None) -> None:
        """Clean up after a child that has ended with an error, if it could not do so itself."""
        if isinstance(error, ChildWorkflowError) and isinstance(error.cause, TerminatedError | TemporalTimeoutError):
            await self._children.on_terminated(child.items, child.cancelled or _cause(error))

    async def _start(self, child: _Child, spec: ChildSpec) -> workflow.ChildWorkflowHandle[Any, Any] | None:
        """Start a child. If a child of an earlier parent still runs under its id, wait until that has ended."""
        pause = _SHORTEST_PAUSE
        retries = RetryPolicy(
            initial_interval=_SHORTEST_PAUSE,
            maximum_interval=_LONGEST_PAUSE,
            maximum_attempts=child.policy.attempts,
        )
        while not child.given_up.done():
            # A cancellation during the start must not give up a child that then starts.
            child.blocked = False
            try:
                return await workflow.start_child_workflow(
                    spec.workflow,
                    spec.input,
                    id=child.id,
                    parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                    retry_policy=retries,
                    static_summary=summary_line(spec.summary) or None,
                )
            except WorkflowAlreadyStartedError:
                child.blocked = True
            if child.cancelled:
                child.give_up(child.cancelled)
            await workflow.wait([child.given_up], timeout=pause.total_seconds())
            pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    async def _watch_deadlines(self) -> None:
        """Cancel overdue children, and give up those that do not end then; one timer serves all."""
        while self._running:
            due, seen = self._next_due(), self._holds
            try:
                # An operator may have given later children a shorter deadline.
                await workflow.wait_condition(
                    lambda due=due, seen=seen: (
                        not self._running
                        or self._holds != seen
                        or ((earlier := self._next_due()) is not None and (due is None or earlier < due))
                    ),
                    timeout=due and due - workflow.now(),
                    timeout_summary="deadline of an item",
                )
            except TimeoutError:
                for child in self._with_deadline():
                    if child.due <= workflow.now():
                        self._handle_overdue(child)

    def _next_due(self) -> datetime | None:
        return min((child.due for child in self._with_deadline()), default=None)

    def _with_deadline(self) -> list[_Child]:
        """Return the children whose time counts: none once all are cancelled, since their end is waited for."""
        return [] if self._cancelled else [child for child in self._running.values() if child.held_since is None]

    def _handle_overdue(self, child: _Child) -> None:
        limit = child.policy.deadline
        if child.blocked:
            child.give_up(f"{child.id} was running already, and did not end within {limit}")
        elif child.cancelled:
            child.give_up(f"{child.cancelled}; it did not end within {child.policy.cancel_grace} and still runs")
        else:
            self._request_cancel(child, f"cancelled, since it did not end within {limit}")
        child.due = workflow.now() + child.policy.cancel_grace

    def _request_cancel(self, child: _Child, why: str) -> None:
        if child.cancelled:
            return
        self.hold(child.id, held=False)
        child.cancelled = why
        if child.started:
            child.tasks.append(asyncio.create_task(self._send_cancel(child)))
        elif child.blocked:
            child.give_up(why)

    async def _send_cancel(self, child: _Child) -> None:
        # By its id: cancelling the handle would lose the result of a child that ends at the same moment.
        try:
            await workflow.get_external_workflow_handle(child.id).cancel()
        except FailureError as error:
            workflow.logger.info("%s had ended when it was to be cancelled: %s", child.id, error)


def child_id(parent: str, item: str) -> str:
    """Return the id of the child workflow of a batch: `<parent's id>/<first item>`, cut if it is too long."""
    return bounded_id(f"{parent}/{item}")


def read_batch_result(items: tuple[str, ...], result: Any) -> BatchResult:
    """Read the result of a child workflow that returns a `BatchResult`; None means that all its items are done.

    Raises:
        ValueError: it is something else, or names items of other children.
    """
    batch = BatchResult.model_validate({} if result is None else result)
    foreign = {failure.path for failure in batch.failed} - set(items)
    if foreign:
        raise ValueError(f"{len(foreign)} failed items belong to other child workflows")
    return batch


def _all_failed(items: tuple[str, ...], reason: str) -> BatchResult:
    return BatchResult(failed=tuple(failed_item(item, reason) for item in items))


def _cause(error: BaseException) -> str:
    while isinstance(error, FailureError) and error.cause is not None:
        error = error.cause
    return str(error) or type(error).__name__

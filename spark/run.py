"""Run of a function over items: a Spark job for each item, as many at once as the slots allow."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from spark.slots import SlotScheduler

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

    from spark.tally import Held, Tally

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

# How often the driver checks whether a task reported an error, or the run was stopped.
_CHECK_SECONDS = 0.1


class RunStopped(Exception):
    """The run was cancelled."""

    def __init__(self) -> None:
        super().__init__("the run was cancelled")


class _RunState(NamedTuple, Generic[ItemT, ResultT]):
    """State that the threads of a run share."""

    context: SparkContext
    work: Callable[[Iterable[ItemT]], Iterable[ResultT | Held]]
    todo: deque[tuple[int, ItemT]]
    take: Callable[[int, ResultT], object]
    taking: threading.Lock


class Run:
    """Run that starts with `collect`, and can be stopped before and during it.

    Args:
        tag: runs with the same tag share the limit of one run.
        urgent: whether clients or brokers are blocked until it ends.
    """

    def __init__(self, tag: str, *, urgent: bool) -> None:
        self.tag = tag
        self.stopped = threading.Event()
        self._urgent = urgent
        # Unique for this run: its error must not stop other runs with the same tag.
        self._own_tag = f"{tag}-{uuid.uuid4().hex[:8]}"
        self._tally: Accumulator[Tally] | None = None

    @property
    def counted(self) -> int:
        """Records that its finished tasks reported."""
        return 0 if self._tally is None else self._tally.value.records

    def collect(
        self,
        context: SparkContext,
        items: Sequence[ItemT],
        task: Callable[[ItemT], ResultT],
        take: Callable[[int, ResultT], object],
        *,
        tries: int,
        slots: SlotScheduler,
        jobs: Executor,
    ) -> None:
        """Run the task for each item; `take` gets the item's index and each result as it arrives.

        Raises:
            StoreError: the first one of a task.
            RunStopped: the run was stopped.
            Exception: Spark's error, where a task failed otherwise.
        """
        from spark.tally import Tally, TallyParam, with_error_capture

        tally = self._tally = context.accumulator(Tally(), TallyParam())
        state = _RunState[ItemT, ResultT](
            context, with_error_capture(task, tally, tries), deque(enumerate(items)), take, threading.Lock()
        )
        limits = slots.limits
        threads = min(len(items), limits.urgent if self._urgent else limits.each)
        running = {jobs.submit(self._run_worker_thread, state, slots) for _ in range(threads)}
        failure = self._await(context, running, tally)
        # The task's own error says what to do; Spark's text about it does not.
        if errors := tally.value.errors:
            raise errors[0] from None
        if failure:
            raise failure
        if self.stopped.is_set():
            raise RunStopped

    def _await(
        self, context: SparkContext, running: set[Future[None]], tally: Accumulator[Tally]
    ) -> BaseException | None:
        """Wait until all threads have ended; return the first failure, which stops the others."""
        failure: BaseException | None = None
        while running:
            ended, running = wait(running, timeout=_CHECK_SECONDS, return_when=FIRST_COMPLETED)
            failure = failure or next(filter(None, (future.exception() for future in ended)), None)
            if failure or tally.value.errors:
                self.stopped.set()
            if running and self.stopped.is_set():
                # Repeated: a job that is about to start is not cancelled the first time.
                context.cancelJobsWithTag(self._own_tag)
        return failure

    def _run_worker_thread(self, state: _RunState[ItemT, ResultT], slots: SlotScheduler) -> None:
        """Run items one after the other until none remains."""
        while not self.stopped.is_set():
            with slots.slot(self.tag, self.stopped, urgent=self._urgent) as has_slot:
                try:
                    index, item = state.todo.popleft()
                except IndexError:
                    return
                if has_slot:
                    self._run_job(state, index, item)

    def _run_job(self, state: _RunState[ItemT, ResultT], index: int, item: ItemT) -> None:
        from spark.tally import Held

        context = state.context
        context.addJobTag(self._own_tag)
        try:
            # A task that reported its error has no result.
            for result in context.parallelize([item], 1).mapPartitions(state.work).collect():
                if isinstance(result, Held):
                    state.todo.append((index, item))
                    continue
                with state.taking:
                    state.take(index, result)
        finally:
            context.removeJobTag(self._own_tag)

"""One run of a function over items: a Spark job for each item, as many at once as the lanes allow."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from spark.lanes import Lanes

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

    from spark.tally import Tally

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

# How often the driver looks whether a task has told an error, or the run was stopped.
_LOOK_SECONDS = 0.1


class RunStopped(Exception):
    """The run was cancelled."""

    def __init__(self) -> None:
        super().__init__("the run was cancelled")


class _Spread(NamedTuple, Generic[ItemT, ResultT]):
    """What the threads of a run share."""

    context: SparkContext
    work: Callable[[Iterable[ItemT]], Iterable[ResultT]]
    todo: deque[tuple[int, ItemT]]
    take: Callable[[int, ResultT], object]
    taking: threading.Lock


class Run:
    """A run that begins with `collect`, and can be stopped before and meanwhile.

    Args:
        tag: runs with the same tag share what one may have.
        urgent: whether somebody is blocked until it ends.
    """

    def __init__(self, tag: str, *, urgent: bool) -> None:
        self.tag = tag
        self.stopped = threading.Event()
        self._urgent = urgent
        # Of this run alone: an error here must not stop others with the same tag.
        self._own_tag = f"{tag}-{uuid.uuid4().hex[:8]}"
        self._tally: Accumulator[Tally] | None = None

    @property
    def counted(self) -> int:
        """Records that its finished tasks report."""
        return 0 if self._tally is None else self._tally.value.records

    def collect(
        self,
        context: SparkContext,
        items: Sequence[ItemT],
        task: Callable[[ItemT], ResultT],
        take: Callable[[int, ResultT], object],
        *,
        tries: int,
        lanes: Lanes,
        jobs: Executor,
    ) -> None:
        """Run the task for each item; `take` gets the item's number and the result as soon as there is one.

        Raises:
            StoreError: the first that a task raised.
            RunStopped: the run was stopped.
            Exception: Spark's error, where a task failed otherwise.
        """
        from spark.tally import Tally, TallyParam, telling

        tally = self._tally = context.accumulator(Tally(), TallyParam())
        spread = _Spread[ItemT, ResultT](
            context, telling(task, tally, tries), deque(enumerate(items)), take, threading.Lock()
        )
        limits = lanes.limits
        threads = min(len(items), limits.urgent if self._urgent else limits.each)
        running = {jobs.submit(self._work_off, spread, lanes) for _ in range(threads)}
        failure = self._await(context, running, tally)
        # The task's own error, which says what to do, before Spark's text about it.
        if errors := tally.value.errors:
            raise errors[0] from None
        if failure:
            raise failure
        if self.stopped.is_set():
            raise RunStopped

    def _await(
        self, context: SparkContext, running: set[Future[None]], tally: Accumulator[Tally]
    ) -> BaseException | None:
        """Wait until all threads have ended; the first failure stops the others, and is returned."""
        failure: BaseException | None = None
        while running:
            ended, running = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            failure = failure or next(filter(None, (one.exception() for one in ended)), None)
            if failure or tally.value.errors:
                self.stopped.set()
            if running and self.stopped.is_set():
                # Again and again: a job that was about to begin is not found the first time.
                context.cancelJobsWithTag(self._own_tag)
        return failure

    def _work_off(self, spread: _Spread[ItemT, ResultT], lanes: Lanes) -> None:
        """Run one item after the other, until none is left."""
        while not self.stopped.is_set():
            with lanes.slot(self.tag, self.stopped, urgent=self._urgent) as mine:
                try:
                    index, item = spread.todo.popleft()
                except IndexError:
                    return
                if mine:
                    self._run_job(spread, index, item)

    def _run_job(self, spread: _Spread[ItemT, ResultT], index: int, item: ItemT) -> None:
        context = spread.context
        context.addJobTag(self._own_tag)
        try:
            # A task that has told its error has no result.
            for result in context.parallelize([item], 1).mapPartitions(spread.work).collect():
                with spread.taking:
                    spread.take(index, result)
        finally:
            context.removeJobTag(self._own_tag)

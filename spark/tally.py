"""What tasks tell the driver as they end: how many records they did, and the typed errors that stopped them.

Spark hands a task's exception to the driver as text. An accumulator carries the object itself, and arrives with each
task that ends, so that the driver need not wait for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from clients.errors import RetryableError, StoreError

if TYPE_CHECKING:
    from pyspark import Accumulator

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Tally(NamedTuple):
    """The sum of what tasks told.

    Attributes:
        records: that they did.
        errors: that stopped them, in the order of their arrival.
    """

    records: int = 0
    errors: tuple[StoreError, ...] = ()


class TallyParam(AccumulatorParam[Tally]):
    """How Spark adds tallies up."""

    def zero(self, value: Tally) -> Tally:
        """Nothing told yet."""
        del value
        return Tally()

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802 - Spark's name
        """Both together."""
        return Tally(value1.records + value2.records, value1.errors + value2.errors)


def telling(
    task: Callable[[ItemT], ResultT], tally: Accumulator[Tally], tries: int
) -> Callable[[Iterable[ItemT]], Iterable[ResultT]]:
    """The task for one partition, which tells its records, or the typed error that stopped it.

    Args:
        task: run for each item.
        tally: told to.
        tries: how often Spark runs a task that fails. What may pass is left to Spark until the last time.
    """

    def run(items: Iterable[ItemT]) -> Iterator[ResultT]:
        for item in items:
            try:
                result = task(item)
            except StoreError as error:
                if isinstance(error, RetryableError) and _attempt() < tries:
                    raise
                tally.add(Tally(errors=(error,)))
                return
            tally.add(Tally(records=getattr(result, "records", 0)))
            yield result

    return run


def _attempt() -> int:
    """The number of this try of the task, from 1."""
    context = TaskContext.get()
    return context.attemptNumber() + 1 if context else 1

"""Reports of tasks to the driver: how many records they processed, and the typed errors that stopped them.

Spark passes a task's exception to the driver as text. An accumulator carries the object itself, and arrives with each
task that ends, so the driver does not wait for the others.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from clients.errors import RetryableError, StoreError
from models.redaction import redacted
from spark.fence import CopyHeld

if TYPE_CHECKING:
    from pyspark import Accumulator

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Tally(NamedTuple):
    """Sum of the reports of tasks.

    Attributes:
        records: how many were processed.
        errors: those that stopped tasks, in the order of their arrival.
    """

    records: int = 0
    errors: tuple[StoreError, ...] = ()


class Held(NamedTuple):
    """The result of a task that has given its slot back; see `CopyHeld`."""


class TallyParam(AccumulatorParam[Tally]):
    """Spark's rule for adding tallies."""

    def zero(self, value: Tally) -> Tally:
        """Return an empty tally."""
        del value
        return Tally()

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802 - Spark's name
        """Return the sum of both."""
        return Tally(value1.records + value2.records, value1.errors + value2.errors)


def with_error_capture(
    task: Callable[[ItemT], ResultT], tally: Accumulator[Tally], tries: int
) -> Callable[[Iterable[ItemT]], Iterable[ResultT | Held]]:
    """Wrap a task for one partition so that it reports its records, or the typed error that stopped it.

    Args:
        task: run for each item.
        tally: accumulator for the reports.
        tries: how often Spark runs a failing task. A retryable error is left to Spark until the last try.
    """

    def run(items: Iterable[ItemT]) -> Iterator[ResultT | Held]:
        for item in items:
            try:
                result = task(item)
            except CopyHeld:
                yield Held()
                return
            except Exception as error:
                passing = isinstance(error, RetryableError) and _attempt() < tries
                if isinstance(error, StoreError) and not passing:
                    tally.add(Tally(errors=(error,)))
                    return
                # Spark writes the text of the whole chain to its logs.
                text = "".join(traceback.format_exception(error))
                if (harmless := redacted(text)) != text:
                    raise RuntimeError(harmless) from None
                raise
            tally.add(Tally(records=getattr(result, "records", 0)))
            yield result

    return run


def _attempt() -> int:
    """Return the number of this try of the task, from 1."""
    context = TaskContext.get()
    return context.attemptNumber() + 1 if context else 1

"""Results that a task of a Spark job reports to the driver, and errors that it leaves to Spark."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from pyspark import Accumulator

from clients.errors import StoreConflict, StoreError, StoreUnreachable
from spark.fence import CopyHeld
from spark.tally import Held, Tally, TallyParam, with_error_capture

numbers = itertools.count()


class Done(NamedTuple):
    """A result that counts."""

    records: int


def new_tally() -> Accumulator[Tally]:
    """Return an accumulator that no driver knows."""
    return Accumulator(-1 - next(numbers), Tally(), TallyParam())


def fail(error: StoreError) -> Done:
    """Return a task that raises its item."""
    raise error


def test_records_are_counted() -> None:
    """A task tells the records of its result; a result that counts nothing counts as none."""
    tally = new_tally()
    assert list(with_error_capture(Done, tally, 1)([3, 4])) == [Done(3), Done(4)]
    assert list(with_error_capture(str, tally, 1)([3])) == ["3"]
    assert tally.value == Tally(records=7)


def test_retryable_errors_are_left_to_spark_until_the_last_try() -> None:
    """Spark retries a task whose store did not answer; the last try reports the error instead."""
    error = StoreUnreachable("no answer")
    tally = new_tally()
    with pytest.raises(StoreUnreachable):
        list(with_error_capture(fail, tally, 4)([error]))
    assert tally.value == Tally()
    assert list(with_error_capture(fail, tally, 1)([error])) == []
    assert tally.value == Tally(errors=(error,))


def test_a_final_error_is_reported_at_once() -> None:
    """Another try would end the same way."""
    error = StoreConflict("another migration holds it")
    tally = new_tally()
    assert list(with_error_capture(fail, tally, 4)([error])) == []
    assert tally.value.errors == (error,)


def test_a_held_task_has_neither_a_result_nor_an_error() -> None:
    """The driver runs it again when the copy continues, and counts it then."""

    def release_slot(_: int) -> Done:
        raise CopyHeld

    tally = new_tally()
    assert list(with_error_capture(release_slot, tally, 4)([1])) == [Held()]
    assert tally.value == Tally()

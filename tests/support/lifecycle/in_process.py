"""Bulk jobs without Spark, where a test counts what they ask of the stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from spark.engine import SparkEngine

WIDTH = 2

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class _InProcess:
    """Runs jobs in this process, one task after the other, where requests can be counted."""

    may_lose_tasks = False

    def width(self, *, tag: str) -> int:
        """Return the number of slots; see `SparkEngine.width`."""
        del tag
        return WIDTH

    def new_tag(self, name: str) -> str:
        """Return a new tag; see `SparkEngine.new_tag`."""
        return name

    def hold(self, tag: str) -> None:
        """Ignore it; see `SparkEngine.hold`."""

    def release(self, tag: str) -> None:
        """Ignore it; see `SparkEngine.release`."""

    def cancel(self, tag: str) -> None:
        """Ignore it; see `SparkEngine.cancel`."""

    def counted(self, tag: str) -> int:
        """Count jobs; see `SparkEngine.counted`."""
        del tag
        return 0

    def run(
        self, items: Sequence[ItemT], task: Callable[[ItemT], ResultT], *, tag: str, urgent: bool = False
    ) -> list[ResultT]:
        """Run a job; see `SparkEngine.run`."""
        del tag, urgent
        return [task(item) for item in items]

    def fold(
        self,
        items: Sequence[ItemT],
        task: Callable[[ItemT], ResultT],
        take: Callable[[ItemT, ResultT], object],
        *,
        tag: str,
        urgent: bool = False,
    ) -> None:
        """Fold results; see `SparkEngine.fold`."""
        del tag, urgent
        for item in items:
            take(item, task(item))


def in_process() -> SparkEngine:
    """Return a double of a Spark session, for jobs in this process."""
    return cast("SparkEngine", _InProcess())

"""Steps of the bookie cluster switch, called without Temporal: what a step does is seen before workflows steer it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from temporalio.client import Client

from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from models.bookie_cluster.input import KIND, BookieClusterInput, Direction
from models.lifecycle.execution import Execution
from models.settings import Settings

ResultT = TypeVar("ResultT")

_STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class Steps:
    """One process that carries out steps, with Spark in it where it is asked for; a context manager.

    Args:
        spark: whether steps run Spark jobs; a process can have one such context at a time.
        settings: lines of the settings that win over the tests' own.

    Attributes:
        run_id: the run that steps are of, unless they say otherwise.
    """

    def __init__(self, *, spark: bool = False, **settings: Any) -> None:
        own = {"spark_master": "local[2]", "metrics_address": "", **settings}
        # Only notes to workflows go to Temporal, and there is no workflow.
        self.runtime = Runtime(Settings.model_validate(own), cast("Client", None), "steps")
        self.run_id = "run-1"
        self._spark = spark
        self._epoch = 0

    def __enter__(self) -> Self:
        if self._spark:
            self.runtime.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spark:
            self.runtime.stop()

    def execution(self, input: BookieClusterInput, *, run_id: str | None = None) -> Execution[BookieClusterInput]:
        """What the next activity of this migration would get."""
        self._epoch += 1
        return Execution(input=input, run_id=run_id or self.run_id, started=_STARTED, epoch=self._epoch)

    def task(
        self, input: BookieClusterInput, direction: Direction = Direction.FORWARD, *, run_id: str | None = None
    ) -> BookieClusterTask:
        """What a step of this migration gets."""
        execution = self.execution(input, run_id=run_id)
        return BookieClusterTask(self.runtime, execution, direction, f"{KIND}/{input.cluster}")

    def run(
        self,
        step: Callable[[BookieClusterTask, ActivityContext], ResultT],
        input: BookieClusterInput,
        direction: Direction = Direction.FORWARD,
        *,
        run_id: str | None = None,
    ) -> ResultT:
        """Carry out one step to its end."""
        return step(self.task(input, direction, run_id=run_id), ActivityContext())

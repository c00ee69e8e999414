"""Steps of the bookie cluster switch, called without Temporal: what a step does is seen before workflows steer it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from temporalio.client import Client

from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from models.bookie_cluster.input import KIND, BookieClusterInput, Direction
from models.lifecycle.execution import Execution
from models.settings import Settings
from spark.engine import SparkEngine

ResultT = TypeVar("ResultT")

_STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class Steps:
    """One process that carries out steps.

    Args:
        engine: runs the Spark jobs of steps; whoever started it ends it.
        settings: lines of the settings that win over the tests' own.

    Attributes:
        run_id: the run that steps are of, unless they say otherwise.
    """

    def __init__(self, engine: SparkEngine, **settings: Any) -> None:
        # Only notes to workflows go to Temporal, and there is no workflow.
        own = Settings.model_validate({"metrics_address": "", **settings})
        self.runtime = Runtime(own, cast("Client", None), "steps")
        self.runtime.engine = engine
        self.run_id = "run-1"
        self._epoch = 0

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

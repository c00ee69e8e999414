"""Call the steps of the bookie cluster migration without Temporal, to see what a step does without a workflow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from temporalio.client import Client

from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from models.bookie_cluster.input import KIND, BookieClusterInput, Direction
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.settings import Settings
from spark.engine import SparkEngine

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")

_STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class Steps:
    """One process that carries out steps.

    Args:
        engine: runs the Spark jobs of steps; the caller ends it.
        settings: lines of the settings that win over the tests' own.

    Attributes:
        run_id: the run that steps are of, unless they say otherwise.
    """

    def __init__(self, engine: SparkEngine, **settings: Any) -> None:
        # Only notes to workflows go to Temporal, and there is no workflow. Without it no step is repeated whose broker
        # was busy for some seconds.
        own = Settings.model_validate({"metrics_address": "", "admin_timeout": "PT30S", **settings})
        self.runtime = Runtime(own, cast("Client", None), "steps")
        self.runtime.engine = engine
        self.run_id = "run-1"
        self._epoch = 0
        self._runs: dict[str, int] = {}

    def task(
        self,
        input: BookieClusterInput,
        direction: Direction = Direction.FORWARD,
        *,
        run_id: str | None = None,
        epoch: int | None = None,
        attempt: int = 1,
    ) -> BookieClusterTask:
        """Return the task of this migration's next activity, or of an earlier one by its epoch."""
        run = run_id or self.run_id
        self._epoch += epoch is None
        # Runs begin in the order in which they are seen first.
        started = _STARTED + timedelta(seconds=self._runs.setdefault(run, len(self._runs)))
        execution = Execution(input=input, run_id=run, started=started, epoch=self._epoch if epoch is None else epoch)
        workflow_id = f"{KIND}/{input.cluster}"
        task = BookieClusterTask(
            self.runtime, execution, Attempt.of(execution, workflow_id, attempt), ActivityContext()
        )
        return task.toward(direction)

    def run(
        self,
        step: Callable[Concatenate[BookieClusterTask, ArgsT], ResultT],
        input: BookieClusterInput,
        *args: ArgsT.args,
        **kwargs: ArgsT.kwargs,
    ) -> ResultT:
        """Run one step to its end."""
        return step(self.task(input), *args, **kwargs)

"""Steps of the bookie cluster switch, called without Temporal: what a step does is seen before workflows steer it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from temporalio.client import Client

from activities.bookie_cluster.context import SwitchWork
from activities.lifecycle.runner import StepControl
from activities.lifecycle.runtime import Runtime
from models.bookie_cluster.input import KIND, BookieClusterPlan, Direction
from models.settings import Settings

ResultT = TypeVar("ResultT")


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

    def __enter__(self) -> Self:
        if self._spark:
            self.runtime.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spark:
            self.runtime.stop()

    def work(
        self, plan: BookieClusterPlan, direction: Direction = Direction.FORWARD, *, run_id: str | None = None
    ) -> SwitchWork:
        """What a step of this migration gets."""
        return SwitchWork(self.runtime, plan, direction, f"{KIND}/{plan.cluster}", run_id or self.run_id)

    def run(
        self,
        step: Callable[[SwitchWork, StepControl], ResultT],
        plan: BookieClusterPlan,
        direction: Direction = Direction.FORWARD,
        *,
        run_id: str | None = None,
    ) -> ResultT:
        """Carry out one step to its end."""
        return step(self.work(plan, direction, run_id=run_id), StepControl())

"""Steps of a migration in a process like a worker's, without Temporal: `… steps KIND INPUT`.

INPUT is the migration's input as JSON. Prints READY when Spark is, and then for each line of its standard input, the
name of a step, one line of JSON: what the step has done.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar, cast

from models.lifecycle.execution import Execution
from models.lifecycle.input import MigrationInput
from models.settings import Settings
from worker import catalog

if TYPE_CHECKING:
    from temporalio.client import Client

    from activities.lifecycle.runtime import Runtime

InputT = TypeVar("InputT", bound=MigrationInput)
Steps = Mapping[str, Callable[[], Mapping[str, float]]]

RUN = "bench"


class Scheduler:
    """What Temporal says of activities: each is of the same run, and newer than the one before."""

    def __init__(self) -> None:
        self._started = datetime.now(UTC)
        self._epoch = 0

    def next(self, input: InputT) -> Execution[InputT]:
        """The next activity."""
        self._epoch += 1
        return Execution[InputT](input=input, run_id=RUN, started=self._started, epoch=self._epoch)


def main(arguments: list[str]) -> None:
    """Serve orders until the end of the standard input."""
    kind, text = arguments
    from activities.lifecycle.runtime import Runtime

    # Only notes to workflows go to Temporal, and there is no workflow.
    runtime = Runtime(Settings(metrics_address=""), cast("Client", None), RUN)
    # A worker has all migrations' code in memory, whichever it carries out.
    catalog.activities(runtime)
    catalog.workflows()
    runtime.start()
    steps = _steps(kind, text, runtime)
    print("READY", flush=True)
    try:
        for line in sys.stdin:
            print(json.dumps(dict(steps[line.strip()]())), flush=True)
    finally:
        runtime.stop()


def _steps(kind: str, text: str, runtime: Runtime) -> Steps:
    if kind == "metadata-store":
        from bench.memory.metadata_store import steps

        return steps(runtime, text)
    from bench.memory.bookie_cluster import steps as bookie_steps

    return bookie_steps(runtime, text)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Steps of a migration in a process like a worker's, without Temporal: `… steps KIND INPUT`.

INPUT is the migration's input as JSON. Prints READY when Spark is, and then for each line of its standard input, the
name of a step, one line of JSON: what the step has done.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

from bench.memory.scheduler import RUN, Steps
from models.settings import Settings
from worker import catalog

if TYPE_CHECKING:
    from temporalio.client import Client


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
    # Each kind has a module of its name, as in the catalog.
    steps: Steps = import_module(f"bench.memory.{kind.replace('-', '_')}").steps(runtime, text)
    print("READY", flush=True)
    try:
        for line in sys.stdin:
            print(json.dumps(dict(steps[line.strip()]())), flush=True)
    finally:
        runtime.stop()


if __name__ == "__main__":
    main(sys.argv[1:])

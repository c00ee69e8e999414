"""The real worker with few places for steps, so that few that last indefinitely would take them all.

`python -m … worker --ready-file FILE`, with the number of places in SMALL_WORKER_PLACES.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from models.settings import Settings
from tests.support.lifecycle.worker import WorkerProcess
from worker import process

_PLACES = "SMALL_WORKER_PLACES"


class SmallWorkerProcess(WorkerProcess):
    """A worker with few places.

    Args:
        temporal_address: `host:port`.
        folder: for the log and the ready file.
        places: for steps that run at once, on each queue but that of observers.
        settings: the worker's settings besides, `PULSAR_MIGRATE_…` to text.
    """

    def __init__(self, temporal_address: str, folder: Path, *, places: int, **settings: str) -> None:
        program = (sys.executable, "-m", "tests.support.lifecycle.small_worker")
        super().__init__(temporal_address, folder, program=program)
        self._environment.update(settings | {_PLACES: str(places)})


def main() -> None:
    """Run the worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["worker"])
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    process.ACTIVITIES = int(os.environ[_PLACES])
    process.run_worker(Settings(), ready_file=options.ready_file)


if __name__ == "__main__":
    main()

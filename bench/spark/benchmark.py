"""Starvation and throughput of one Spark session, by how work is handed to it: `make bench-spark`.

Two ways, each in a process and a JVM of its own: `ours` is `SparkEngine`, one job per item with slots of ours; `pools`
is one Spark job per run, with FAIR pools `bulk` and `urgent` and a minimum share for `urgent`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bench.lifecycle.machine import importable, positive, tell
from spark.engine import SparkEngine

CORES = 2
#: Seconds that a task of a bulk copy takes. A throttled one sleeps in between, and holds its slot.
BULK_SECONDS = 2.0
BULK_ITEMS = 16
URGENT_ITEMS = 2
SHORT_ITEMS, SHORT_SECONDS = 200, 0.02
_POOLS = """<allocations>
  <pool name="bulk"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
  <pool name="urgent"><schedulingMode>FAIR</schedulingMode><weight>1000</weight><minShare>{share}</minShare></pool>
</allocations>
"""


class Mode(Protocol):
    """A way to hand work to Spark."""

    def run(self, seconds: Sequence[float], *, urgent: bool) -> None:
        """Run one task for each duration, and return when all have ended."""
        ...


class Figures(NamedTuple):
    """Measurements of one process, in seconds.

    Attributes:
        urgent: an urgent run of two short tasks, while one bulk run has more tasks than there are cores.
        second: the first short task of a second bulk run at the same time.
        short: all of many short tasks, with nothing else.
    """

    urgent: float
    second: float
    short: float


class Slots:
    """`SparkEngine`: one job per item; urgent items need no slot."""

    def __init__(self) -> None:
        self._engine = SparkEngine(f"local[{CORES}]")
        self._engine.start()

    def run(self, seconds: Sequence[float], *, urgent: bool) -> None:
        """Run the tasks; see `Mode`."""
        self._engine.run(list(seconds), _work, tag=self._engine.new_tag("bench"), urgent=urgent)


class Pools:
    """One job per run in a FAIR pool, on as many slots as there are cores, or on several for each."""

    def __init__(self, slots: int) -> None:
        from pyspark import SparkConf, SparkContext

        folder = Path(tempfile.mkdtemp(prefix="bench-spark-"))
        (folder / "pools.xml").write_text(_POOLS.format(share=CORES))
        conf = SparkConf().setMaster(f"local[{slots}]").setAppName("bench")
        conf.set("spark.scheduler.mode", "FAIR").set("spark.scheduler.allocation.file", f"file:{folder}/pools.xml")
        conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
        self._context = SparkContext(conf=conf)
        self._context.setLogLevel("ERROR")

    def run(self, seconds: Sequence[float], *, urgent: bool) -> None:
        """Run the tasks; see `Mode`."""
        self._context.setLocalProperty("spark.scheduler.pool", "urgent" if urgent else "bulk")
        self._context.parallelize(list(seconds), len(seconds)).foreach(_work)


MODES: dict[str, Callable[[], Mode]] = {
    "ours": Slots,
    "pools": lambda: Pools(CORES),
    "pools, 4 slots a core": lambda: Pools(4 * CORES),
}


def measure(mode: Mode) -> Figures:
    """Measure one way, in this process."""
    mode.run([SHORT_SECONDS] * 2 * CORES, urgent=True)
    with ThreadPoolExecutor(1) as pool:
        bulk = pool.submit(mode.run, [BULK_SECONDS] * BULK_ITEMS, urgent=False)
        time.sleep(BULK_SECONDS / 4)
        urgent = _timed(lambda: mode.run([SHORT_SECONDS] * URGENT_ITEMS, urgent=True))
        second = _timed(lambda: mode.run([SHORT_SECONDS], urgent=False))
        bulk.result()
    return Figures(urgent, second, _timed(lambda: mode.run([SHORT_SECONDS] * SHORT_ITEMS, urgent=False)))


def _work(seconds: float) -> None:
    time.sleep(seconds)


def _timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def main(arguments: Sequence[str]) -> None:
    """Measure each way, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench spark")
    parser.add_argument("--runs", type=positive, default=3, help="of each way (default: %(default)s)")
    parser.add_argument("--mode", choices=MODES, help="measure one way in this process, and print its figures as JSON")
    options = parser.parse_args(arguments)
    if options.mode:
        print(json.dumps(measure(MODES[options.mode]())))
        return
    measured: dict[str, list[Figures]] = {name: [] for name in MODES}
    for run in range(options.runs):
        for name, figures in measured.items():
            tell(f"run {run + 1}: {name}")
            figures.append(_in_process(name))
    columns = {name: zip(*figures, strict=True) for name, figures in measured.items()}
    print(table({name: Figures(*map(statistics.median, column)) for name, column in columns.items()}))


def table(medians: dict[str, Figures]) -> str:
    """Return the table of medians, each with its ratio to ours."""
    ours = medians["ours"]
    lines = ["| seconds (other / ours) | " + " | ".join(medians) + " |", "|---|" + "--:|" * len(medians)]
    titles = (
        "an urgent run while a bulk run has more tasks than cores",
        "a task of a second bulk run at the same time",
        f"{SHORT_ITEMS} short tasks, nothing else",
    )
    for title, base, row in zip(titles, ours, zip(*medians.values(), strict=True), strict=True):
        lines.append(f"| {title} | {' | '.join(f'{value:.2f} ({value / base:.1f})' for value in row)} |")
    return "\n".join(lines)


def _in_process(mode: str) -> Figures:
    command: list[Any] = [sys.executable, "-m", "bench", "spark", "--mode", mode]
    variables = {**os.environ, **importable(), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return Figures(*json.loads(done.stdout.splitlines()[-1]))

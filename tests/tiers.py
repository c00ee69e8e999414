"""Run the checks, provision the servers, and run the four tiers of tests, four or five jobs side by side.

`python -m tests.tiers [--jobs N] [--exhaustive] [--keep-going] [NAME]...`, where a name is one of checks, servers,
unit, workflows, integration, faults and releases, or an area of a tier such as faults/clients; all tiers by default. A
job's output is shown when the job has ended. After a failure no further job begins unless `--keep-going` is given,
those that run continue to their end, and the exit code is the first failed job's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO, NamedTuple, Self

from tests.releases import SELECTIONS

PYTEST = [sys.executable, "-m", "pytest", "-q", "--durations=12"]
SIDE_BY_SIDE = 3
"""Jobs with servers at once on two cores, next to one without. With two, processors idled while tests waited."""

APART = ("tests/image", "tests/kubernetes")
"""Tests of no tier: they need a container engine and root (`make test-image`), or an API server (`make test-chart`)."""

_TESTS = Path(__file__).parent
_CLIENT = "scalable_client/tests"
"""The tests of the distribution pulsar-scalable."""
_SPLIT = ("workflows", "faults", "integration")
"""Tiers whose areas are jobs of their own, because no two share a server; the largest of a tier begin first.

The smallest areas of the last tier come at the end, so that no job slot waits long for another one.
"""
_SERVERLESS = frozenset({"checks", "unit", "workflows"})
"""Tiers that start no dev stack: one job of them fills what jobs with servers leave of two cores."""
_LESS_URGENT = 5
"""Niceness of a job without servers: servers have limits for their start, and it has time."""
_LOOK_EVERY = 30.0
"""Seconds between two looks whether a job more may begin."""
_IDLE = slice(3, 5)
"""Idle time, and idle time that waits for disks, among the times of processors."""
_SPARE_PROCESSORS = 0.1
"""Share of the processors that idles when a job more may begin. With a fixed number they idle, or are overloaded."""
_SPARE_MEMORY = 4 << 20
"""KiB that must be free for that: a job with servers takes one to two GiB."""
_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "bytecode")}
"""Tests start Python hundreds of times, which takes twice as long where each start compiles all modules again."""

_FOLDERS = Path(tempfile.gettempdir()) / f"pulsar-migrate-tests-{os.getuid()}"
"""Where the folders of tests are, those of each job below its name; the logs of servers stay there after a failure."""


class Job(NamedTuple):
    """Commands that run one after the other.

    Attributes:
        name: of the tier, with the area if it is one of several.
        commands: program and arguments of each.
    """

    name: str
    commands: list[list[str]]

    @property
    def tier(self) -> str:
        """To which it belongs."""
        return self.name.partition("/")[0]

    @property
    def serverless(self) -> bool:
        """Return whether it starts no servers but Temporal's, which is small."""
        return self.tier in _SERVERLESS


class Result(NamedTuple):
    """How a job ended.

    Attributes:
        job: which one.
        code: exit code of its first command that failed, else 0.
        seconds: how long it took.
        output: what it printed; empty where that was shown at once.
    """

    job: Job
    code: int
    seconds: float
    output: bytes


def stages(more: Sequence[str] = ()) -> list[list[Job]]:
    """Return all jobs by stage: a stage starts when the previous one has passed.

    Args:
        more: arguments for the tests.
    """
    checks = [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["tests.prose"], ["pyright"]]
    # The one check that cannot be run as a module of Python.
    imports = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    # Outside of pytest, whose time limits are made for tests: the first time it builds for minutes.
    servers = [[sys.executable, "-m", "pulsar_migrate", "dev", "provision"]]
    folders = {f"{tier}/{folder.name}": f"tests/{tier}/{folder.name}" for tier in _SPLIT for folder in _areas(tier)}
    folders["integration/scalable_client"] = f"{_CLIENT}/integration"
    tests = [Job(name, [[*PYTEST, *more, folder]]) for name, folder in folders.items()]
    releases = [
        Job(each.job, [each.command([*PYTEST, *more], exhaustive=bool(more))])
        for each in SELECTIONS
        if more or each.sample
    ]
    return [
        [Job("servers", servers)],
        [
            Job("checks", [*([sys.executable, "-m", *check] for check in checks), imports]),
            Job("unit", [[*PYTEST, "tests/unit", f"{_CLIENT}/unit"]]),
            *releases,
            *tests,
        ],
    ]


def _areas(tier: str) -> list[Path]:
    sizes: dict[Path, int] = defaultdict(int)
    for file in (_TESTS / tier).glob("*/test_*.py"):
        sizes[file.parent] += file.stat().st_size
    return sorted(sizes, key=lambda area: -sizes[area])


class Machine:
    """The machine of the jobs, as far as Linux describes it."""

    def __init__(self) -> None:
        self._at, self._before = time.monotonic(), _processor_times()

    def is_idle(self) -> bool:
        """Return whether processors have idled since the last look; False if that was a moment ago."""
        if time.monotonic() - self._at < _LOOK_EVERY:
            return False
        now = _processor_times()
        passed = [after - before for after, before in zip(now, self._before, strict=True)]
        self._at, self._before = time.monotonic(), now
        return sum(passed[_IDLE]) > _SPARE_PROCESSORS * sum(passed) and _available_memory() > _SPARE_MEMORY


def _processor_times() -> list[int]:
    """Return how long processors did what, in the order of Linux; nothing on other systems."""
    try:
        return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        return []


def _available_memory() -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0])


class Jobs:
    """Runs jobs, and ends what they have started when it is left early; a context manager.

    Args:
        side_by_side: how many with servers at once. With two or more, another job is added to them: one without
            servers, as long as there is one. Two without servers run at once only while the machine idles.
        is_idle: returns whether the machine has time for one job more; see `Machine`.
    """

    def __init__(self, side_by_side: int, is_idle: Callable[[], bool] | None = None) -> None:
        self._usual = side_by_side + (side_by_side > 1)
        self._pool = ThreadPoolExecutor(self._usual + (side_by_side > 1), thread_name_prefix="job")
        self._is_idle = is_idle or Machine().is_idle
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._changed = threading.Condition()
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        with self._changed:
            for process in self._processes:
                process.terminate()
        self._pool.shutdown()

    def stop(self) -> None:
        """Begin no further job."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """Run all jobs; yields each result when it is there, and nothing for jobs that were not begun."""
        shown = len(jobs) == 1
        self._waiting = [*jobs]
        for future in as_completed([self._pool.submit(self._run_next, shown) for _ in jobs]):
            if result := future.result():
                yield result

    def _run_next(self, shown: bool) -> Result | None:
        with self._changed:
            while (job := self._choose()) is None:
                if self._stopped or not self._waiting:
                    return None
                self._changed.wait(_LOOK_EVERY)
            self._waiting.remove(job)
            self._running.append(job)
        try:
            return self._run(job, shown)
        finally:
            with self._changed:
                self._running.remove(job)
                self._changed.notify_all()

    def _choose(self) -> Job | None:
        """Return a job that may run now: one without servers, unless one of these runs, before one with servers.

        While the machine idles, that is one job more than usual, and a second one without servers.
        """
        if self._stopped:
            return None
        with_servers = next((job for job in self._waiting if not job.serverless), None)
        serverless = next((job for job in self._waiting if job.serverless), None)
        one_runs = any(job.serverless for job in self._running)
        usual = with_servers if one_runs else serverless or with_servers
        if usual and len(self._running) < self._usual:
            return usual
        return serverless or with_servers if self._is_idle() else None

    def _run(self, job: Job, shown: bool) -> Result:
        _print(f"begin  {job.name}\n")
        begun = time.monotonic()
        with tempfile.TemporaryFile() as output:
            code = 0
            for command in job.commands:
                code = code or self._call(job, command, None if shown else output, nice=job.serverless and not shown)
            output.seek(0)
            return Result(job, code, time.monotonic() - begun, output.read())

    def _call(self, job: Job, command: list[str], output: IO[bytes] | None, *, nice: bool) -> int:
        # pytest keeps the folders of three runs below one root: with a common one, the last jobs delete the logs of
        # those that failed.
        folders = _FOLDERS / job.name.replace("/", "-")
        folders.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **_BYTECODE, "PYTEST_DEBUG_TEMPROOT": str(folders)}
        with self._changed:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
            self._processes.append(process)
        if nice:
            os.setpriority(os.PRIO_PROCESS, process.pid, _LESS_URGENT)
        code = process.wait()
        # As a shell says that a signal ended it.
        return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    """Run the jobs of the named tiers and areas; returns the exit code of the first that fails, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.tiers", description="Run tiers of tests.")
    parser.add_argument(
        "--jobs",
        type=int,
        default=SIDE_BY_SIDE,
        help="how many with servers side by side; from 2 on, next to one more (default: %(default)s)",
    )
    parser.add_argument("--exhaustive", action="store_true", help="also what is left out for time")
    parser.add_argument("--keep-going", action="store_true", help="begin further jobs after one has failed")
    parser.add_argument("names", nargs="*", help="tiers, or areas such as integration/clients (default: all)")
    options = parser.parse_args(arguments)
    all_stages = stages(["--exhaustive"] if options.exhaustive else [])
    if unknown := set(options.names) - {name for stage in all_stages for job in stage for name in (job.name, job.tier)}:
        parser.error(f"there is no tier or area {', '.join(sorted(unknown))}")
    chosen = {*options.names} or {job.tier for stage in all_stages for job in stage}
    wanted = [[job for job in stage if {job.name, job.tier} & chosen] for stage in all_stages]
    return execute(wanted, options.jobs, keep_going=options.keep_going)


def execute(stages: Sequence[Sequence[Job]], side_by_side: int, *, keep_going: bool = False) -> int:
    """Run stage after stage; returns the exit code of the first job that fails, else 0."""
    begun = time.monotonic()
    results: list[Result] = []
    with Jobs(side_by_side) as jobs:
        for stage in stages:
            for result in jobs.run(stage):
                results.append(result)
                _show(result)
                if result.code and not keep_going:
                    jobs.stop()
    _summarize(results, time.monotonic() - begun)
    return next((result.code for result in results if result.code), 0)


def _show(result: Result) -> None:
    _print(f"\n== {result.job.name} ==\n{result.output.decode(errors='replace')}")
    _print(f"{'FAILED' if result.code else 'passed'} {result.job.name} in {result.seconds:.1f} s\n\n")


def _summarize(results: list[Result], seconds: float) -> None:
    _print(f"\n{'job':<32} seconds\n")
    for result in results:
        _print(f"{result.job.name:<32} {result.seconds:>7.1f}{'  FAILED' if result.code else ''}\n")
    failed = any(result.code for result in results)
    _print(f"{'start to end':<32} {seconds:>7.1f}  {'FAILED' if failed else 'passed'}\n")


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Try mutants: each must be noticed by its tests.

`python -m tests.mutants [--jobs N] [--only NAME]`. First all tests that are needed run on the code as it is. The exit
code is 1 where a mutant survives that is not known to, and 2 where tests fail without one or the list is stale.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TypeVar

from tests.mutants.marks import Stale
from tests.mutants.mutant import Mutant
from tests.mutants.table import chosen
from tests.mutants.working_copy import Run, WorkingCopy

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_KILLED, _SURVIVED, _KNOWN = "killed", "SURVIVED", "known"


class Trial:
    """Mutants, and the copies of the tree in which they are tried, as many at once as there are copies."""

    def __init__(self, copies: Iterable[WorkingCopy]) -> None:
        self._free: SimpleQueue[WorkingCopy] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)
        self._usual: dict[tuple[str, ...], float] = {}

    def pass_unchanged(self, tests: tuple[str, ...]) -> None:
        """Run tests on the code as it is.

        Raises:
            Stale: they do not pass.
        """
        run = self._in_a_copy(lambda copy: copy.unchanged(tests))
        if not run.passed:
            raise Stale(f"{' '.join(tests)}: does not pass without a mutant either\n{run.output}")
        self._usual[tests] = run.seconds

    def verdict(self, mutant: Mutant) -> str:
        """Try one, and print what came of it.

        Raises:
            Stale: its tests could not run.
        """
        run = self._in_a_copy(lambda copy: copy.changed(mutant, self._usual[mutant.selection]))
        if not run.passed and not run.noticed:
            raise Stale(f"{mutant.name}: pytest ended with {run.code}\n{run.output}")
        verdict = _KILLED if run.noticed else _KNOWN if mutant.survives else _SURVIVED
        _print(f"{verdict:<9} {mutant.name:<58} {run.seconds:5.1f} s  {_said(mutant, run)}")
        return verdict

    def _in_a_copy(self, work: Callable[[WorkingCopy], Run]) -> Run:
        copy = self._free.get()
        try:
            return work(copy)
        finally:
            self._free.put(copy)


def main(arguments: list[str]) -> int:
    """Try the chosen mutants; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Try mutants.")
    parser.add_argument("--jobs", type=int, default=2, help="how many side by side (default: %(default)s)")
    parser.add_argument("--only", default="*", metavar="NAME", help="a name, in which * matches any text")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        mutants = chosen(options.only)
        for mutant in mutants:
            mutant.applied()
        survivors = _try(mutants, options.jobs)
    except Stale as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _print(
        f"{len(mutants)} mutants: {survivors[_KILLED]} killed, {survivors[_SURVIVED]} survived, "
        f"{survivors[_KNOWN]} known to survive; {time.monotonic() - begun:.0f} s"
    )
    return 1 if survivors[_SURVIVED] else 0


def _try(mutants: list[Mutant], jobs: int) -> Counter[str]:
    with ExitStack() as opened:
        # Left last: where this is interrupted, no thread waits for tests any more.
        pool = opened.enter_context(ThreadPoolExecutor(jobs))
        trial = Trial([opened.enter_context(WorkingCopy()) for _ in range(jobs)])
        _all(pool, trial.pass_unchanged, dict.fromkeys(mutant.selection for mutant in mutants))
        return Counter(_all(pool, trial.verdict, mutants))


def _all(pool: ThreadPoolExecutor, work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    futures = [pool.submit(work, item) for item in items]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def _said(mutant: Mutant, run: Run) -> str:
    if run.noticed:
        return f"{run.by}{' (expected to survive: correct the list)' if mutant.survives else ''}"
    return mutant.survives or "{}:{}".format(*mutant.mark)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

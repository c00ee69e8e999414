"""Check how the project writes: `python -m tests.prose [PATH...]`, of the whole project by default.

It prints a line for each problem, and a summary; the exit code is 1 if there is a problem. CONTRIBUTING.md gives the
rules, `banned_words.txt` the idioms with what to write instead, and `verbs.txt` how docstrings of functions may start.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.prose import idioms, pages, source
from tests.prose.problem import Problem

_ROOT = Path(__file__).parents[2]


def problems(paths: list[Path]) -> Iterator[Problem]:
    """Yield the problems of files, idioms first."""
    yield from idioms.in_files(paths)
    for path in paths:
        if path.suffix == ".py":
            yield from source.problems(path)
        elif path.suffix == ".md":
            yield from pages.problems(path)


def main(arguments: list[str]) -> int:
    """Print the problems of the named paths; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.prose", description="Check how the project writes.")
    parser.add_argument("paths", nargs="*", help="files or folders (default: all, and commit messages)")
    options = parser.parse_args(arguments)
    files = idioms.files_below(options.paths or ["."])
    found: Counter[str] = Counter()
    everything = not options.paths
    for problem in (*problems(files), *(idioms.in_commits() if everything else ())):
        found[problem.kind] += 1
        print(problem)
    print(f"{sum(found.values())} problems in {len(files)} files", dict(found) or "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

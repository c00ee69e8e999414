"""Run a benchmark, of one migration or of memory: `python -m bench NAME [OPTION]...`; the start of its name is enough.

`metadata` is the migration's, `memory` that of a worker's memory.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pulsar_devstack.machine import export_java_home
from worker.catalog import KINDS

_NAMES = {
    **{kind.package.replace("_", "-"): kind.package for kind in KINDS.values()},
    "controller": "topic_controller",
    "memory": "memory",
    "spark": "spark",
}


def main(arguments: list[str]) -> int:
    """Run what was asked for; returns the exit code."""
    packages = [package for name, package in _NAMES.items() if arguments and name.startswith(arguments[0])]
    if len(packages) != 1:
        sys.stderr.write(f"usage: python -m bench {' | '.join(_NAMES)} [OPTION]...\n")
        return 2
    export_java_home()
    import_module(f"bench.{packages[0]}.benchmark").main(arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Run one demonstration: `python -m demos NAME`, or end what one left running with `down`."""

from __future__ import annotations

import sys
from importlib import import_module

from demos.stage import run_demo, take_down
from pulsar_devstack.machine import export_java_home
from worker.catalog import KINDS

_DEMOS = {
    **{kind.package.replace("_", "-"): kind.demo for kind in KINDS.values()},
    "topic-controller": "demos.topic_controller",
}


def main(arguments: list[str]) -> int:
    """Run what was asked for; returns the exit code."""
    if arguments == ["down"]:
        return run_demo(_end)
    if len(arguments) != 1 or arguments[0] not in _DEMOS:
        sys.stderr.write(f"usage: python -m demos {' | '.join([*_DEMOS, 'down'])}\n")
        return 2
    export_java_home()
    return run_demo(import_module(_DEMOS[arguments[0]]).demo)


def _end() -> int:
    take_down()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

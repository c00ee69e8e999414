"""Shared parts of benchmarks: description of the machine, options, and paths of child processes."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulsar_devstack.servers.provision import Toolchain

_ROOT = Path(__file__).resolve().parents[2]


def machine(tools: Toolchain) -> dict[str, Any]:
    """Return the machine, the time, and the versions of Java and Python of a benchmark."""
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_at_begin": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "java": tools.java_version,
    }


def importable() -> dict[str, str]:
    """Return the variables by which a child process finds the packages of this checkout."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))}


def positive(text: str) -> int:
    """Return an option that is a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}; expected a whole number above 0")
    return int(text)


def positives(text: str) -> list[int]:
    """Return an option that is whole numbers above 0, separated by commas."""
    return [positive(number) for number in text.split(",")]


def tell(line: str) -> None:
    """Print a line of progress, separate from the result."""
    print(f"[bench] {line}", file=sys.stderr, flush=True)

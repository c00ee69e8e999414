"""What benchmarks share around their measurements: the machine they ran on, their options, their children's path."""

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
    """What a benchmark ran on, when, and with which Java and Python."""
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
    """Variables by which a child finds the packages of this checkout."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))}


def positive(text: str) -> int:
    """An option that is a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def positives(text: str) -> list[int]:
    """An option that is whole numbers above 0, separated by commas."""
    return [positive(part) for part in text.split(",")]


def tell(line: str) -> None:
    """A line for whoever waits for the benchmark, beside what it prints as its result."""
    print(f"[bench] {line}", file=sys.stderr, flush=True)

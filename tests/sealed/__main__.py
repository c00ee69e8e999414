"""Run a command in a sealed network: `python -m tests.sealed COMMAND…`; see the package."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sealed.network import serve
from tests.sealed.products import Products, fetch, unavailable_reason

_NAMESPACES = [
    "unshare",
    "--net",
    "--mount",
    "--propagation",
    "private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
_INSIDE = "--inside"


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code; 0, with the reason, where this machine cannot seal a network."""
    if arguments[:1] == [_INSIDE]:
        engine, base, packages, folder = map(Path, arguments[1:5])
        return serve(Products(engine, base, packages), folder, arguments[5:])
    if reason := unavailable_reason():
        print(f"skipped: {reason}")
        return 0
    products = fetch()
    folder = Path(tempfile.mkdtemp(prefix="pulsar-migrate-sealed-"))
    inside = [
        sys.executable,
        "-m",
        "tests.sealed",
        _INSIDE,
        *map(str, (products.engine, products.base, products.packages, folder)),
    ]
    try:
        with subprocess.Popen([*_NAMESPACES, *inside, *arguments]) as process:
            # Ctrl-C reaches the command itself, which ends all others.
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
            code = process.wait()
            signal.signal(signal.SIGINT, handler)
            return code
    finally:
        shutil.rmtree(folder)
        _remove_groups(folder.name)


def _remove_groups(name: str) -> None:
    """Remove the control groups that the engine leaves empty."""
    for parent in {path.parent for path in Path("/sys/fs/cgroup").glob(f"*/{name}")} | {Path("/sys/fs/cgroup")}:
        for group, _, _ in os.walk(parent / name, topdown=False):
            Path(group).rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

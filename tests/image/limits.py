"""Print as JSON what this process may do; run in a container by a test, which reads it."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path


def refusal(action: Callable[[], object]) -> str | None:
    """Return the error of an action; None if it is allowed."""
    try:
        action()
    except OSError as error:
        return error.strerror or str(error)
    return None


def main(secret: str, outside: str) -> None:
    """Print the limits.

    Args:
        secret: a folder whose files the process must be able to read.
        outside: an address that it must not reach.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    folders = [Path(folder) for folder in ("/", "/etc", "/opt/pulsar-migrate", os.environ["HOME"], "/tmp")]
    limits = {
        "user": os.getuid(),
        "groups": os.getgroups(),
        "capabilities": int(status["CapBnd"], 16),
        "no_new_privileges": status["NoNewPrivs"],
        "seccomp": status["Seccomp"],
        "writable": {str(folder): refusal((folder / "file").touch) for folder in folders},
        "secret": refusal(lambda: [file.read_bytes() for file in Path(secret).iterdir()]),
        "outside": refusal(lambda: socket.create_connection((outside, 443), timeout=1)),
    }
    print(json.dumps(limits))


if __name__ == "__main__":
    main(*sys.argv[1:])

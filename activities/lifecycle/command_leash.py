"""Runs one command for a worker, and ends it with all that it began when the worker falls silent; a program of its own.

    python command_leash.py ISSUED INPUT COMMAND [ARGUMENT…]

`ISSUED` is when the order was given, in seconds since the epoch, and `INPUT` the number of an open file that becomes
the command's standard input; -1 for none. As long as the worker wants the command to run, it
writes bytes to the standard input. It imports the standard library alone, since it starts with each command.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

LEASH = 5.0
"""Seconds of silence after which a worker counts as lost; below the silence after which Temporal starts an attempt."""
GRACE = 5.0
"""Seconds between the request to end and the end by force."""
STALE, ENDED, ABSENT = 251, 252, 127
"""Exit codes: the order was too old to begin; the worker released the command or fell silent; it cannot be run."""

_LOOK = 0.05


def main(issued: float, given: int, command: list[str]) -> int:
    """Run the command, with an open file as its input unless the number is negative.

    Return its exit code, as a shell would tell it, or `STALE`, `ENDED` or `ABSENT`.
    """
    # By the clock of the wall: a machine that was suspended has let an attempt pass that its own clock does not know.
    if not 0 <= time.time() - issued < LEASH:  # mutant: shared/old-order-is-started
        return STALE
    try:
        child = subprocess.Popen(command, stdin=given if given >= 0 else subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(error, file=sys.stderr)
        return ABSENT
    heard = time.time()
    while child.poll() is None:
        if select.select([0], [], [], _LOOK)[0]:
            if not os.read(0, 4096):
                return _end(child)  # mutant: shared/command-outlives-a-dead-worker
            heard = time.time()
        elif time.time() - heard > LEASH:  # mutant: shared/command-outlives-a-frozen-worker
            return _end(child)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _end(child: subprocess.Popen[bytes]) -> int:
    for number in (signal.SIGTERM, signal.SIGKILL):  # mutant: shared/command-is-never-killed
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)  # mutant: shared/children-of-a-command-live-on
        if _gone(child):
            break
    return ENDED


def _gone(child: subprocess.Popen[bytes]) -> bool:
    """Wait a while for the whole group; whether it has ended."""
    end = time.monotonic() + GRACE
    while time.monotonic() < end:
        child.poll()
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(_LOOK)
    return False


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

"""Run a program that ends with its parent: `python child.py PARENT_PID PROGRAM ARGUMENT...`.

The kernel's request to be killed survives exec but not fork, so it is made here, between the two. PARENT_PID 0 asks for
none. Runs without the project on its path.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process by the command.

    Raises:
        SystemExit: the parent has gone already, or the program cannot be run.
    """
    if parent and sys.platform == "linux":
        # SIGKILL, because a paused server would not act on anything milder.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            raise SystemExit("the parent has ended already")
    try:
        os.execv(command[0], command)  # noqa: S606 - the point of this module
    except OSError as error:
        raise SystemExit(f"cannot run {command[0]}: {error}") from error


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

"""Keep secrets in the memory of a process from files and from other processes."""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def protect_memory() -> None:
    """Turn off core dumps, and, on Linux, hide memory and environment from processes of the same user.

    Programs that the process starts have no core dumps either.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

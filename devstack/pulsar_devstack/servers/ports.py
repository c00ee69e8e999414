"""Free ports that stay one's own: below the range of outgoing connections, in blocks that one stack holds at a time.

A port from bind(0) may be taken by any outgoing connection while its server is down, and a stack's servers go down on
purpose. A block is held by a file lock for as long as the stack's process lives.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

from pulsar_devstack.errors import StackConflict

_FIRST, _LAST, _BLOCK = 20_000, 32_000, 64


def free_port() -> int:
    """Return a free port, for a server that starts immediately and is not stopped in between."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PortBlock:
    """Ports of one stack, in the order in which they are asked for.

    Args:
        first: the block to take again after a stop; None takes any free one.
    """

    def __init__(self, first: int | None = None) -> None:
        blocks = (
            [first] if first is not None else random.sample(range(_FIRST, _LAST, _BLOCK), (_LAST - _FIRST) // _BLOCK)
        )
        for start in blocks:
            if lock := _hold(start):
                self.first, self._lock = start, lock
                break
        else:
            wanted = f"the block of ports from {first}" if first is not None else "every block of ports"
            raise StackConflict(f"{wanted} is held by another stack of this machine; end one (pulsar-migrate dev down)")

    def take(self, used: set[int]) -> int:
        """Return the next unused port of the block that can be bound on 127.0.0.1.

        Raises:
            StackConflict: the block has none left.
        """
        for port in range(self.first, self.first + _BLOCK):
            if port not in used and _can_bind(port):
                return port
        raise StackConflict(f"no free port is left between {self.first} and {self.first + _BLOCK}; use a smaller stack")

    def release(self) -> None:
        """Release the block for other stacks."""
        self._lock.close()


def _hold(start: int) -> IO[bytes] | None:
    folder = Path(tempfile.gettempdir()) / f"pulsar-migrate-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    lock = (folder / str(start)).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

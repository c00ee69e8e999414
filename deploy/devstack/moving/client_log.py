"""When consumers of the C++ library lost their connections, read from its log.

Asking the consumer (`is_connected`) can stop the whole process: the Python library 3.13 waits there for a lock of the
consumer while it holds the interpreter's, and who has the first may wait for the second (seen during a flip).
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime
from pathlib import Path

_LOST = re.compile(
    r"^(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) .*\[(?P<topic>[a-z-]+://[^,\]]+?)(-partition-\d+)?, "
    r"(?P<subscription>[^,\]]+), \d+\] Schedule reconnection"
)


class ClientLog:
    """A log that grows.

    Args:
        path: of the log; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._breaks: dict[tuple[str, str], list[float]] = defaultdict(list)

    def breaks(self, topic: str, subscription: str) -> list[float]:
        """When a consumer of a topic and subscription had to connect anew, in seconds since the epoch."""
        self._go_on()
        return list(self._breaks[topic, subscription])

    def _go_on(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._read)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.decode(errors="replace").splitlines():
            if found := _LOST.match(line):
                # The library writes local time.
                when = datetime.fromisoformat(found["when"]).astimezone().timestamp()
                self._breaks[found["topic"], found["subscription"]].append(when)

"""When consumers of the C++ library and of V5 lost their connections, read from their logs.

Asking the consumer (`is_connected`) can stop the whole process: the Python library 3.13 waits there for a lock of the
consumer while it holds the interpreter's, and who has the first may wait for the second (seen during a flip). A
consumer of V5 does not tell.
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
_LOST_V5 = re.compile(
    r"^(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d+) .*"
    r"(ConnectionHandler - Closed connection|ClientCnx - Broker notification of closed consumer)"
)


class _GrowingLog:
    """A log that is read once.

    Args:
        path: of the log; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def news(self) -> list[str]:
        """Return the complete lines since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._read)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        return whole.decode(errors="replace").splitlines()


class ClientLog:
    """The log of the C++ library.

    Args:
        path: of the log; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._log = _GrowingLog(path)
        self._breaks: dict[tuple[str, str], list[float]] = defaultdict(list)

    def breaks(self, topic: str, subscription: str) -> list[float]:
        """Return the times at which a consumer of a topic and subscription reconnected, in seconds since the epoch."""
        for line in self._log.news():
            if match := _LOST.match(line):
                self._breaks[match["topic"], match["subscription"]].append(_time(match["when"]))
        return list(self._breaks[topic, subscription])


class V5Log:
    """The log of V5 clients, whose lines do not name their client.

    Args:
        path: of the log; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._log = _GrowingLog(path)

    def news(self) -> list[float]:
        """Return the times at which a client lost its connection, or its session at a broker, since the last call."""
        return sorted({_time(match["when"]) for line in self._log.news() if (match := _LOST_V5.match(line))})


def _time(local: str) -> float:
    """Parse a time; libraries write local time."""
    return datetime.fromisoformat(local).astimezone().timestamp()

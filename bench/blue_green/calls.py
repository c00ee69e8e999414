"""Requests that brokers answered, counted in their logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

_REQUEST = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}) \[.*\] INFO +JettyRequestLogFactory - HTTP request")


def count_calls(logs: Iterable[Path], begin: float, end: float) -> int:
    """How many requests of the admin interface brokers logged in a time.

    Args:
        logs: of brokers.
        begin: in seconds since the epoch.
        end: the same.
    """
    return sum(begin <= at <= end for log in logs for at in _times(log))


def _times(log: Path) -> Iterable[float]:
    with log.open(errors="replace") as lines:
        for line in lines:
            if found := _REQUEST.match(line):
                # Brokers write local time.
                yield datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S,%f").astimezone().timestamp()

"""Limits of rates: token buckets by key, of which a bounded number is remembered."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MAX_KEYS = 10_000
"""Most keys that are remembered; the one that was used longest ago is forgotten first."""


@dataclass(slots=True)
class _Bucket:
    allowed: float
    at: float


class Rates:
    """Allows each key a burst, and then a rate.

    Args:
        rate: per second.
        burst: how many at once.
        clock: seconds.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str) -> bool:
        """Return whether one more is allowed now, and count it."""
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(self._burst, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        bucket.allowed = min(self._burst, bucket.allowed + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.allowed < 1:
            return False
        bucket.allowed -= 1
        return True

"""What holds a writing task: it stops when its attempt is superseded, and keeps to the throttle."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from clients.errors import StoreConflict

_CLAIM_EVERY = 1.0
_LEAST_WAIT = 0.05


class FenceState(NamedTuple):
    """What the claim says now.

    Attributes:
        attempt: the one that may write.
        throttle: megabytes per second of all tasks together; None for no limit.
    """

    attempt: int
    throttle: float | None


class WriteFence:
    """Account of what one task writes.

    Args:
        read_claim: reads the claim anew; None if nobody claims the target any more.
        attempt: the attempt of this task.
        lanes: how many tasks share the throttle.
        sleep: waits for at most so many seconds.
    """

    def __init__(
        self,
        read_claim: Callable[[], FenceState | None],
        *,
        attempt: int,
        parallelism: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_claim = read_claim
        self._attempt = attempt
        self._parallelism = parallelism
        self._sleep = sleep
        self._due = 0.0
        self._rate: float | None = None
        self._spent_until = time.monotonic()

    def check(self, size: int) -> None:
        """Account for bytes that are written next; waits while they are more than the throttle allows.

        Raises:
            StoreConflict: another attempt holds the claim, or nobody does.
        """
        now = time.monotonic()
        if now >= self._due:
            self._look()
        if self._rate:
            self._spent_until = max(self._spent_until, now) + size / self._rate
            while (wait := self._spent_until - time.monotonic()) > _LEAST_WAIT and self._rate:
                self._sleep(min(wait, _CLAIM_EVERY))
                self._look()

    def _look(self) -> None:
        claim = self._read_claim()
        if claim is None:
            raise StoreConflict("nobody claims the target any more; this attempt to write it stops")
        if claim.attempt != self._attempt:
            raise StoreConflict(f"attempt {self._attempt} was superseded by attempt {claim.attempt}")
        self._rate = claim.throttle * 1e6 / self._parallelism if claim.throttle else None
        self._due = time.monotonic() + _CLAIM_EVERY

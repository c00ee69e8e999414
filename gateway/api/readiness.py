"""Readiness: whether Temporal answers, asked once for all requests of a short time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from gateway.errors import HTTPProblem, unavailable

MAX_AGE_SECONDS = 2.0
"""Seconds for which an answer of Temporal counts."""

_log = logging.getLogger(__name__)


class Readiness:
    """Answers whether the gateway is ready.

    Args:
        check: asks Temporal; raises `HTTPProblem` if it does not answer.
        clock: seconds.
    """

    def __init__(self, check: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._clock = clock
        self._lock = asyncio.Lock()
        self._until = float("-inf")
        self._problem = ""

    async def require(self) -> None:
        """Check that the gateway is ready.

        Raises:
            HTTPProblem: it is not; the reason is in the log, because requests for this have no token.
        """
        async with self._lock:
            if self._clock() >= self._until:
                await self._ask()
                self._until = self._clock() + MAX_AGE_SECONDS
        if self._problem:
            raise unavailable("not ready; the gateway's log has the reason")

    async def _ask(self) -> None:
        try:
            await self._check()
        except HTTPProblem as problem:
            if problem.reason != self._problem:
                _log.warning("not ready: %s", problem.reason)
            self._problem = problem.reason
        else:
            self._problem = ""

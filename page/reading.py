"""Views of migrations for all browsers: each is read from Temporal once in a while, however many browsers show it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar

from temporalio.service import RPCError

from process.exit_codes import CommandFailed, ExitCode
from temporal.encryption import unreadable_because

MAX_MIGRATIONS = 100
"""Most migrations whose last view is kept."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Problem:
    """Reason for an old state on the page, or for none.

    Attributes:
        cause: in one sentence.
        cure: what to do.
        missing: there is no such migration, in contrast to a Temporal that does not answer.
    """

    cause: str
    cure: str
    missing: bool = False


@dataclass
class Reading(Generic[ValueT]):
    """The last value that was read, and what went wrong since.

    Attributes:
        value: None before the first one.
        at: time of the value.
        problem: None if the value is current.
    """

    value: ValueT | None = None
    at: datetime | None = None
    problem: Problem | None = None
    read_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Readings(Generic[ValueT]):
    """Reads values by name, and keeps the last one of each.

    Args:
        read: reads one; raises `CommandFailed` or `RPCError`.
        max_age: seconds for which a value is shown to other browsers too.
        clock: seconds.
    """

    def __init__(
        self, read: Callable[[str], Awaitable[ValueT]], max_age: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._max_age = max_age
        self._clock = clock
        self._kept: OrderedDict[str, Reading[ValueT]] = OrderedDict()

    async def get(self, name: str) -> Reading[ValueT]:
        """Return a value that is young enough, or the last one with the reason why it is older."""
        reading = self._kept.setdefault(name, Reading())
        self._kept.move_to_end(name)
        while len(self._kept) > MAX_MIGRATIONS:
            self._kept.popitem(last=False)
        async with reading.lock:
            if self._clock() >= reading.read_at + self._max_age:
                await self._renew(name, reading)
                reading.read_at = self._clock()
        return reading

    async def _renew(self, name: str, reading: Reading[ValueT]) -> None:
        try:
            reading.value = await self._read(name)
        except CommandFailed as error:
            reading.problem = Problem(error.cause, error.cure, missing=error.code is ExitCode.USAGE)
        except RPCError as error:
            cause = f"Temporal does not answer ({error.message})."
            reading.problem = Problem(cause, "check the server and TEMPORAL_ADDRESS; the page tries again")
        except RuntimeError as error:
            if not (why := unreadable_because(error)):
                raise
            reading.problem = Problem(f"{why}.", "check PULSAR_MIGRATE_PAYLOAD_KEYS_FILE of the page")
        else:
            reading.at, reading.problem = datetime.now(UTC), None

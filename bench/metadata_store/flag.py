"""The migration flag seen from outside: how long did brokers stand still."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Protocol, Self

from kazoo.client import KazooClient

from models.migration_flag import FLAG, FlagPhase

_TIMEOUT = 10


class _Times(Protocol):
    ctime: int
    mtime: int


class FlagError(Exception):
    """The flag did not go the way that it has to."""


class FlagWatch:
    """Notes when the flag of a ZooKeeper entered its phases, by the server's clock (milliseconds, in the node's times).

    The flag must not exist before: its creation is the begin of PREPARATION, from which on brokers refuse to write.
    """

    def __init__(self, address: str) -> None:
        """`address`: `host:port`."""
        self._client = KazooClient(hosts=address, timeout=_TIMEOUT)
        self._changed = threading.Condition()
        self._entered: dict[FlagPhase, int] = {}

    def __enter__(self) -> Self:
        self._client.start(timeout=_TIMEOUT)
        self._client.DataWatch(FLAG, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()

    def await_completed(self, seconds: float) -> None:
        """Wait for COMPLETED.

        Raises:
            FlagError: FAILED came instead, or nothing in `seconds`.
        """
        ends = (FlagPhase.COMPLETED, FlagPhase.FAILED)
        with self._changed:
            self._changed.wait_for(lambda: any(end in self._entered for end in ends), seconds)
            if FlagPhase.COMPLETED not in self._entered:
                raise FlagError(f"the migration flag is not COMPLETED but went through {', '.join(self._entered)}")

    def seconds(self, since: FlagPhase, until: FlagPhase) -> float | None:
        """Time between the entries of two phases; None if one was too short to be seen."""
        with self._changed:
            if since not in self._entered or until not in self._entered:
                return None
            return (self._entered[until] - self._entered[since]) / 1_000

    def _note(self, data: bytes | None, stat: _Times | None) -> None:
        if data is None or stat is None:
            return
        with self._changed:
            self._entered.setdefault(FlagPhase.PREPARATION, stat.ctime)
            self._entered.setdefault(FlagPhase(json.loads(data)["phase"]), stat.mtime)
            self._changed.notify_all()

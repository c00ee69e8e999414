"""Sessions of this process, so that its own are not mistaken for those of other clients of a ZooKeeper."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from clients.errors import StoreUnreachable


def unsigned(session_id: int) -> int:
    """Return a session's id without a sign, as servers print it."""
    return session_id & (1 << 64) - 1


class Holder(Protocol):
    """Holder of a session."""

    @property
    def session_id(self) -> int:
        """Its id."""
        ...


_lock = threading.Lock()
_holders: WeakSet[Holder] = WeakSet()


def register(holder: Holder) -> None:
    """Remember the holder of a session that was opened, until the holder is gone."""
    with _lock:
        _holders.add(holder)


def own_sessions() -> set[int]:
    """Return ids of the sessions of this process, without a sign as servers print them; some may have ended."""
    with _lock:
        holders = list(_holders)
    ids: set[int] = set()
    for holder in holders:
        # One that has lost its session has none to tell of.
        with suppress(StoreUnreachable):
            ids.add(unsigned(holder.session_id))
    return ids

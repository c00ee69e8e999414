"""Waiting for conditions, with limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

_PAUSE = 0.04


def wait_for(what: str, seen: Callable[[], ResultT | None], limit: float) -> ResultT:
    """Ask until there is an answer that counts as true, and return it.

    Args:
        what: names the condition in the failure.
        seen: asks once.
        limit: seconds.

    Raises:
        AssertionError: there was none in time.
    """
    deadline = time.monotonic() + limit
    while True:
        if found := seen():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {limit:g} s: {what}; last answer: {found!r}")
        time.sleep(_PAUSE)

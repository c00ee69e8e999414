"""Waiting for conditions, with limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

_PAUSE = 0.04
_ON_BUSY_MACHINES = 4


def timeout_for(limit: float) -> float:
    """Return how long to wait for what a calm machine does within a limit: on a busy one nothing is late so soon.

    A limit ends a wait that would not end otherwise. A test measures what must happen within a time.
    """
    return _ON_BUSY_MACHINES * limit


def wait_for(what: str, seen: Callable[[], ResultT | None], limit: float) -> ResultT:
    """Ask until there is an answer that counts as true, and return it.

    Args:
        what: names the condition in the failure.
        seen: asks once.
        limit: seconds on a calm machine.

    Raises:
        AssertionError: there was none in time.
    """
    limit = timeout_for(limit)
    deadline = time.monotonic() + limit
    while True:
        # Before the question: a thread that waits for a processor may ask before the limit, and continue after it.
        is_last = time.monotonic() > deadline
        if result := seen():
            return result
        if is_last:
            raise AssertionError(f"not seen within {limit:g} s: {what}; last answer: {result!r}")
        time.sleep(_PAUSE)


def wait_until_equal(what: str, ask: Callable[[], object], expected: object, limit: float) -> None:
    """Ask until the answer equals the expected value.

    Args:
        what: names the value in the failure.
        ask: returns the actual value.
        expected: what it becomes.
        limit: seconds on a calm machine.

    Raises:
        AssertionError: it did not become equal in time; shows the expected value and the last actual one.
    """
    limit = timeout_for(limit)
    deadline = time.monotonic() + limit
    while True:
        is_last = time.monotonic() > deadline
        if (actual := ask()) == expected:
            return
        if is_last:
            raise AssertionError(f"not equal within {limit:g} s: {what}\nexpected: {expected!r}\nactual:   {actual!r}")
        time.sleep(_PAUSE)

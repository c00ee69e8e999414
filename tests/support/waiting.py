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
        if result := seen():
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {limit:g} s: {what}; last answer: {result!r}")
        time.sleep(_PAUSE)


def wait_until_equal(what: str, ask: Callable[[], object], expected: object, limit: float) -> None:
    """Ask until the answer equals the expected value.

    Args:
        what: names the value in the failure.
        ask: returns the actual value.
        expected: what it becomes.
        limit: seconds.

    Raises:
        AssertionError: it did not become equal in time; shows the expected value and the last actual one.
    """
    deadline = time.monotonic() + limit
    while (actual := ask()) != expected:
        if time.monotonic() > deadline:
            raise AssertionError(f"not equal within {limit:g} s: {what}\nexpected: {expected!r}\nactual:   {actual!r}")
        time.sleep(_PAUSE)

"""The same work for many items, some at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from activities.lifecycle.context import ActivityContext

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
OtherT = TypeVar("OtherT")

MAX_CONCURRENT_REQUESTS = 8
"""Requests to brokers that run at once."""


class ItemMapper(Protocol):
    """Does the same for many items."""

    def __call__(self, items: Iterable[ItemT], work: Callable[[ItemT], ResultT], /) -> list[ResultT]:
        """Do it; returns what came of each, in their order."""
        ...


def map_sequential(items: Iterable[ItemT], work: Callable[[ItemT], ResultT], /) -> list[ResultT]:
    """Do the same for many items, one after the other."""
    return [work(item) for item in items]


def run_both(one: Callable[[], ResultT], other: Callable[[], OtherT], /) -> tuple[ResultT, OtherT]:
    """Do two things at once; returns what came of both, when both have ended.

    Raises:
        Exception: one of them failed.
    """
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(one)
        other_found = other()
        return found.result(), other_found


def map_concurrent(context: ActivityContext, items: Iterable[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
    """Do the same for many items, some at once; stops where the activity was cancelled.

    Args:
        context: of the activity.
        items: for which it is done.
        work: for one of them; in a thread of a pool.

    Raises:
        Cancelled: it was.
    """

    def checked(item: ItemT) -> ResultT:
        context.check()
        return work(item)

    with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as pool:
        futures = [pool.submit(checked, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

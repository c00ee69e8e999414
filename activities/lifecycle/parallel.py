"""Map a function over many items, one after the other or concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from activities.lifecycle.context import ActivityContext

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
OtherT = TypeVar("OtherT")

MAX_CONCURRENT_REQUESTS = 8
"""Most requests to brokers at the same time."""


class ItemMapper(Protocol):
    """A function such as `map_sequential`, which calls `work` for every item."""

    def __call__(self, items: Iterable[ItemT], work: Callable[[ItemT], ResultT], /) -> list[ResultT]:
        """Return the results in the order of the items."""
        ...


def map_sequential(items: Iterable[ItemT], work: Callable[[ItemT], ResultT], /) -> list[ResultT]:
    """Call `work` for one item after the other, and return the results."""
    return [work(item) for item in items]


def run_both(first: Callable[[], ResultT], second: Callable[[], OtherT], /) -> tuple[ResultT, OtherT]:
    """Run two functions concurrently, and return both results.

    Raises:
        Exception: one of them failed.
    """
    with ThreadPoolExecutor(1) as pool:
        first_result = pool.submit(first)
        second_result = second()
        return first_result.result(), second_result


def map_concurrent(context: ActivityContext, items: Iterable[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
    """Call `work` for all items, at most `MAX_CONCURRENT_REQUESTS` at a time, and return the results in their order.

    Args:
        context: of the activity.
        items: arguments of `work`.
        work: runs in a thread of a pool.

    Raises:
        Cancelled: the activity was cancelled.
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

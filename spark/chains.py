"""Concurrent work on items that depend on each other; one thread does an item's own work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)

_CHECK_SECONDS = 0.5


def run_chains(
    items: Mapping[ItemT, Collection[ItemT]],
    work: Callable[[ItemT], None],
    *,
    width: int,
    check: Callable[[], None],
    give_up: Callable[[], None],
) -> None:
    """Run `work` for each item as soon as all items that it depends on have ended.

    Args:
        items: each item with those that it depends on; dependencies that are not items are ignored.
        work: called in another thread, once for each item.
        width: how many items run at once.
        check: called in this thread about twice a second; an exception of it ends everything.
        give_up: called after a failure, to stop the items that still run.

    Raises:
        Exception: the first exception of `work` or `check`; nothing runs any more then.
    """
    waiting = {item: {other for other in others if other in items} for item, others in items.items()}
    with ThreadPoolExecutor(width, thread_name_prefix="chains") as pool:
        running: dict[Future[None], ItemT] = {}
        try:
            while waiting or running:
                ready = [item for item, others in waiting.items() if not others]
                for item in ready:
                    del waiting[item]
                    running[pool.submit(work, item)] = item
                ended, _ = wait(running, timeout=_CHECK_SECONDS, return_when=FIRST_COMPLETED)
                for future in ended:
                    item = running.pop(future)
                    future.result()
                    for others in waiting.values():
                        others.discard(item)
                check()
        except BaseException:
            # Running items would otherwise write for an attempt that has given up.
            pool.shutdown(wait=False, cancel_futures=True)
            give_up()
            raise

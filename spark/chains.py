"""Work on many items at once, of which some wait for others; each item's own work is done by one thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)

_LOOK_SECONDS = 0.5


def run_chains(
    items: Mapping[ItemT, Collection[ItemT]],
    work: Callable[[ItemT], None],
    *,
    width: int,
    check: Callable[[], None],
    give_up: Callable[[], None],
) -> None:
    """Run `work` for each item, as soon as all that it waits for have ended.

    Args:
        items: each with those that it waits for; what is no item itself is not waited for.
        work: called in another thread, once for each item.
        width: how many run at once.
        check: called in this thread about twice a second; what it raises ends all.
        give_up: called when something failed, so that what still runs stops.

    Raises:
        Exception: the first that `work` or `check` raised, when nothing runs any more.
    """
    left = {item: {one for one in others if one in items} for item, others in items.items()}
    with ThreadPoolExecutor(width, thread_name_prefix="chains") as pool:
        running: dict[Future[None], ItemT] = {}
        try:
            while left or running:
                ready = [item for item, others in left.items() if not others]
                for item in ready:
                    del left[item]
                    running[pool.submit(work, item)] = item
                ended, _ = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                for future in ended:
                    item = running.pop(future)
                    future.result()
                    for others in left.values():
                        others.discard(item)
                check()
        except BaseException:
            # What still runs would write for an attempt that has given up.
            pool.shutdown(wait=False, cancel_futures=True)
            give_up()
            raise

"""Ids that were deleted from a bookie cluster, kept in the registry for as long as its bookies may refuse them.

BookKeeper 4.18 remembers in memory which ledgers a garbage collection took, until seven days after the last request for
one of them, and refuses entries for these ids. A restart clears that memory; but ledgers that the journal replays are
collected and refused again, unless the metadata has a ledger of that id.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate, pairwise

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.progress import pack, read_lists
from clients.json_text import read_json
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.store import StoreReader
from models.bookie_cluster.input import BookieCluster
from models.bookie_registry import progress_node

_DAY = 24 * 3600
# A day more than bookies remember them, whose period begins with the last request.
_REMEMBERED = 8 * _DAY


def note_deleted(
    task: BookieClusterTask, registry: BookieRegistry, cluster: BookieCluster, ids: Collection[int]
) -> None:
    """Add ids that are going to be deleted from a cluster.

    Raises:
        StoreConflict: a newer attempt has taken over.
    """
    top = _node(task, cluster)
    last = max((int(child) for child in registry.store.children(top)), default=0)
    stored = registry.store.get(f"{top}/{last:010d}")
    ranges: list[list[int]] = read_json(stored.value) if stored and stored.value else []
    now = int(time.time())
    for first, end in id_ranges(ids):
        # Chunks of one cleanup are adjacent, so that a whole cluster takes a few numbers only.
        if ranges and ranges[-1][1] == first - 1 and now - ranges[-1][2] < _DAY:
            ranges[-1][1] = end
        else:
            ranges.append([first, end, now])
    for number, chunk in enumerate(pack(ranges), last):
        registry.put(f"{top}/{number:010d}", chunk)


def refused_ids(task: BookieClusterTask, store: StoreReader, cluster: BookieCluster, ids: Iterable[int]) -> list[int]:
    """Return the ids that bookies of a cluster may refuse, because they were deleted there a few days ago.

    Raises:
        StoreError: the registry cannot be read.
    """
    since = time.time() - _REMEMBERED
    ranges = sorted((first, last) for first, last, at in read_lists(store, _node(task, cluster)) if at > since)
    # If ranges overlap, after a second cleanup, a later range may end before an earlier one.
    ends = list(accumulate((last for _, last in ranges), max))
    starts = [first for first, _ in ranges]
    return [id_ for id_ in ids if (number := bisect_right(starts, id_)) and id_ <= ends[number - 1]]


def id_ranges(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last id of each range of consecutive ids."""
    ordered = sorted(ids)
    ends = [ledger_id for ledger_id, following in pairwise([*ordered, -1]) if following != ledger_id + 1]
    starts = [ledger_id for before, ledger_id in pairwise([-1, *ordered]) if before != ledger_id - 1 or before < 0]
    yield from zip(starts, ends, strict=True)


def _node(task: BookieClusterTask, cluster: BookieCluster) -> str:
    return progress_node(task.input.registry_path, f"deleted-from-{cluster.name}")

"""How lists of ledgers are cut into nodes, and who may write them; the store is in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.bookie_cluster.progress import NODE_BYTES, SwitchProgress, pack, read_begun, read_verified
from clients.bookkeeper.copy_result import Begun
from clients.cas.claims import ClaimKeeper
from clients.errors import Superseded
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.store import Record, StoreReader
from models.bookie_cluster.input import LedgerScope
from models.bookie_registry import REGISTRY, SwitchClaim
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.records import input
from tests.support.clients.memory_store import MemoryStore

TOP = f"{REGISTRY}/orchestrator/a-to-b"


class _Reader:
    """The part of a `StoreReader` that lists are read by."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def children(self, path: bytes) -> list[bytes]:
        """Return the paths of the direct children."""
        return [b"%s/%s" % (path, name.encode()) for name in self._store.children(path.decode())]

    def read(self, paths: Sequence[bytes]) -> list[Record | None]:
        """Return the records."""
        nodes = [self._store.get(path.decode()) for path in paths]
        return [
            Record(path, node.value, node.version, 0, 0, 0, 0) if node else None
            for path, node in zip(paths, nodes, strict=True)
        ]


class _Crash(Exception):
    """The worker ended."""


def _crash() -> None:
    raise _Crash


class Attempts:
    """Attempts at steps of one run, and the store that they share."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._steps = Steps(cast("SparkEngine", None))

    def begin(self, epoch: int | None = None, attempt: int = 1) -> SwitchProgress:
        """Begin an attempt that holds the claim."""
        task = self._steps.task(input(), epoch=epoch, attempt=attempt)
        registry = BookieRegistry(self.store, REGISTRY, ClaimKeeper(self.store, SwitchClaim, task.attempt))
        registry.claim.take()
        return SwitchProgress(task, registry)

    def reader(self) -> StoreReader:
        """Return the store as steps read it."""
        return cast("StoreReader", _Reader(self.store))

    def listed(self, name: str) -> list[list[object]]:
        """Return the items of a list."""
        return [
            item
            for child in self.store.children(f"{TOP}/{name}")
            for item in json.loads(self.store.nodes[f"{TOP}/{name}/{child}"].value)
        ]


@pytest.mark.parametrize("list_exists", [True, False])
def test_a_late_attempt_writes_no_progress(list_exists: bool) -> None:
    """A superseded attempt adds no results, and does not delete those of the newer attempt."""
    attempts = Attempts()
    late = attempts.begin()
    if list_exists:
        late.add_verified({1: 1})
        late.add_failed({5: "lost"})
    newer = attempts.begin()
    before = dict(attempts.store.nodes)
    for act in (
        lambda: late.add_verified({2: 1}),
        lambda: late.take_back([1]),
        lambda: late.add_failed({6: "lost"}),
        late.forget_failed,
        lambda: late.keep_scope(LedgerScope.ALL),
        lambda: late.set_cutover_ledger_id(9),
        lambda: late.note_deleted(3),
    ):
        with pytest.raises(Superseded):
            act()
    assert attempts.store.nodes == before
    newer.add_verified({3: 1})
    assert [3, 1] in attempts.listed("verified")


def test_a_later_comparison_decides() -> None:
    """A ledger that was equal once, and differed when it was compared again, is not known to be equal any more."""
    attempts = Attempts()
    progress = attempts.begin()
    progress.add_verified({1: 11, 2: 12, 3: 13})
    progress.take_back([2, 3])
    progress.add_verified({3: 23})
    assert dict(read_verified(attempts.reader(), TOP)) == {1: 11, 3: 23}


@pytest.mark.parametrize("writes", range(4))
def test_open_copies_are_known_wherever_an_attempt_ends(writes: int) -> None:
    """An attempt that ends while it records how far open copies are leaves the earlier record, or the new one."""
    attempts = Attempts()
    progress = attempts.begin()
    old, new = ({number: Begun(through, 0, 5) for number in (1, 2)} for through in (3, 7))
    progress.set_begun(old)
    attempts.store.before_next_writes(*[lambda: None] * writes, _crash)
    with suppress(_Crash):
        progress.set_begun(new)
    assert read_begun(attempts.reader(), TOP) in (old, new)
    attempts.store.before_next_writes(lambda: None)
    progress.set_begun(new)
    progress.set_begun({1: Begun(8, 0, 5)})
    assert read_begun(attempts.reader(), TOP) == {1: Begun(8, 0, 5)}
    progress.set_begun({})
    assert read_begun(attempts.reader(), TOP) == {}


def test_another_scope_starts_again() -> None:
    """A start with another choice of ledgers forgets what was compared; a start with the same choice keeps it."""
    attempts = Attempts()
    first = attempts.begin()
    first.keep_scope(LedgerScope.REFERENCED)
    first.add_verified({1: 1})
    first.keep_scope(LedgerScope.REFERENCED)
    assert attempts.listed("verified") == [[1, 1]]
    attempts.begin().keep_scope(LedgerScope.ALL)
    assert attempts.listed("verified") == []


def test_deletions_count_for_all_attempts_at_a_step() -> None:
    """A repeated attempt continues with the count, and the next step begins at nothing."""
    attempts = Attempts()
    step = 3
    attempts.begin(step).note_deleted(7)
    assert attempts.begin(step, attempt=2).deleted() == 7
    assert attempts.begin(step + 1).deleted() == 0


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=200))
def test_lists_survive(items: list[tuple[int, int]]) -> None:
    """The nodes contain all items in their order."""
    nodes = [json.loads(node) for node in pack(items)]

    assert [tuple(item) for node in nodes for item in node] == items


def test_nodes_are_filled_up_to_their_limit() -> None:
    """No node is larger than its limit, and none but the last one has space for another item."""
    items = [(number << 32, 1 << 40) for number in range(40_000)]
    nodes = list(pack(items))
    longest = max(len(json.dumps(item, separators=(",", ":"))) for item in items)

    assert len(nodes) > 2
    assert max(map(len, nodes)) <= NODE_BYTES
    assert min(map(len, nodes[:-1])) > NODE_BYTES - longest - 2

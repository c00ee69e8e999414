"""Others who act between a look at flag and claim and the write that follows it, in a store in memory.

What a real ZooKeeper does with flag and claim is shown in tests/integration/metadata_store/test_flag.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from activities.metadata_store import context
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.flag import FlagKeeper
from clients.cas.store import Node
from clients.errors import StoreConflict, Superseded
from models.lifecycle.claim import CLAIM
from models.migration_flag import BLOCKING_PHASES, FLAG, Flag, FlagPhase
from tests.support.clients.claims import attempt_of
from tests.support.clients.memory_store import MemoryStore

TARGET = "oxia://127.0.0.1:6648/default"
WORKFLOW = "metadata-store/c"


def keeper(store: MemoryStore, *, run: int = 1, epoch: int = 1) -> FlagKeeper:
    """Return the keeper of the flag for an attempt."""
    return FlagKeeper(store, attempt_of(WORKFLOW, run=run, epoch=epoch))


def set_by_hand(store: MemoryStore, phase: FlagPhase) -> None:
    """Set the flag as an operator or Pulsar's own command does."""
    value, current = Flag(phase=phase, targetUrl=TARGET).encode(), store.get(FLAG)
    if current is None:
        store.create(FLAG, value)
    else:
        store.set(FLAG, value, current.version)


def phase(store: MemoryStore) -> FlagPhase:
    """Return the phase of the flag."""
    return keeper(store).state().flag.phase


@pytest.mark.parametrize("before", [None, FlagPhase.FAILED])
def test_a_concurrent_move_of_the_flag_is_detected(before: FlagPhase | None) -> None:
    """A flag that another coordinator creates or moves in the moment before ours is not overwritten."""
    store = MemoryStore()
    if before:
        set_by_hand(store, before)
    mine = keeper(store)
    mine.take()
    store.before_next_writes(lambda: set_by_hand(store, FlagPhase.COPYING))
    with pytest.raises(StoreConflict, match="did not set it"):
        mine.advance(FlagPhase.PREPARATION, TARGET)
    assert phase(store) is FlagPhase.COPYING


@pytest.mark.parametrize("to", BLOCKING_PHASES)
def test_a_concurrent_claim_is_detected(to: FlagPhase) -> None:
    """A late attempt moves no flag once a newer one has taken the claim, though it saw its own before."""
    store = MemoryStore()
    mine, newer = keeper(store), keeper(store, epoch=2)
    mine.take()
    if to is FlagPhase.COPYING:
        mine.advance(FlagPhase.PREPARATION, TARGET)
    before = store.get(FLAG)
    store.before_next_writes(newer.renew)
    with pytest.raises(Superseded):
        mine.advance(to, TARGET)
    assert store.get(FLAG) == before


def test_concurrent_commit_and_rollback() -> None:
    """If a commit and a rollback both saw COPYING, only the first is done, and the second one detects it."""
    for first, second, expected in (
        ("unblock", "commit", FlagPhase.FAILED),
        ("commit", "unblock", FlagPhase.COMPLETED),
        ("expire", "commit", FlagPhase.FAILED),
    ):
        store = MemoryStore()
        mine, back = keeper(store), keeper(store, epoch=2)
        mine.take()
        mine.advance(FlagPhase.PREPARATION, TARGET)
        mine.advance(FlagPhase.COPYING, TARGET)
        acts = {
            "commit": lambda mine=mine: mine.advance(FlagPhase.COMPLETED, TARGET),
            "unblock": back.unblock,
            "expire": mine.expire,
        }
        store.before_next_writes(acts[first])
        if second == "commit":
            with pytest.raises(StoreConflict):
                acts[second]()
        else:
            acts[second]()
        assert phase(store) is expected


def test_a_mark_belongs_to_its_attempt() -> None:
    """The transaction id of a mark is that of the claim's change by this attempt, and never that of a later attempt."""
    store = MemoryStore()
    mine = keeper(store)
    mine.take()
    read, set_before = store.get, False

    def get(path: str) -> Node | None:
        nonlocal set_before
        claim = read(path)
        # Between the write and its check: in the second read of the claim.
        if path == CLAIM and claim is not None and claim.version == 1 and not set_before:
            set_before = True
            keeper(store, epoch=2).mark()
            claim = read(path)
        return claim

    store.get = get
    with pytest.raises(Superseded):
        mine.mark()
    assert set_before


def test_a_mark_of_a_late_attempt_is_refused() -> None:
    """A newer attempt that takes the claim in the moment before the mark keeps it."""
    store = MemoryStore()
    mine, newer = keeper(store), keeper(store, epoch=2)
    mine.take()
    store.before_next_writes(newer.mark)
    with pytest.raises(Superseded):
        mine.mark()
    claim = newer.state().claim
    assert claim is not None
    assert claim.epoch == 2


def test_a_repeated_flag_takes_nothing_over() -> None:
    """FAILED is not set again over what a run that begins in this moment sets."""
    store = MemoryStore()
    mine, next_run = keeper(store), keeper(store, run=2)
    mine.take()
    mine.advance(FlagPhase.PREPARATION, TARGET)
    mine.release()

    def begin() -> None:
        next_run.take()
        next_run.advance(FlagPhase.PREPARATION, TARGET)

    store.before_next_writes(begin)
    assert not mine.rebroadcast()
    assert next_run.state().blocked_by(WORKFLOW)


def test_a_release_leaves_nothing_blocked() -> None:
    """A claim is released only together with its blocked writes, even if they were blocked just before."""
    store = MemoryStore()
    mine, back = keeper(store), keeper(store, epoch=2)
    mine.take()
    store.before_next_writes(lambda: mine.advance(FlagPhase.PREPARATION, TARGET))
    back.release()
    assert store.get(CLAIM) is None
    assert phase(store) is FlagPhase.FAILED


def test_the_fence_asks_for_claim_and_phase() -> None:
    """Neither an attempt that was superseded passes, nor one that comes when the flag has continued."""
    store = MemoryStore()
    mine, newer = keeper(store), keeper(store, epoch=2)
    mine.take()
    mine.advance(FlagPhase.PREPARATION, TARGET)
    mine.require(FlagPhase.PREPARATION)
    with pytest.raises(Superseded, match="too late"):
        mine.require(FlagPhase.COPYING)
    newer.renew()
    with pytest.raises(Superseded, match="was superseded"):
        mine.require(FlagPhase.PREPARATION)


@pytest.mark.parametrize("to", [FlagPhase.PREPARATION, FlagPhase.COPYING])
def test_the_blocked_time_counts_from_the_flag(to: FlagPhase) -> None:
    """A process that takes over counts the time that writes were blocked before, by the clock of the source."""
    store = MemoryStore()
    mine = keeper(store)
    mine.take()
    assert mine.blocked_seconds() == 0
    mine.advance(FlagPhase.PREPARATION, TARGET)
    if to is FlagPhase.COPYING:
        mine.advance(to, TARGET)
    # The clock of this store counts its writes.
    elapsed = 0.001 if to is FlagPhase.PREPARATION else 0.002
    assert keeper(store, epoch=2).blocked_seconds() == elapsed
    store.create("/later", b"")
    assert keeper(store, epoch=3).blocked_seconds() == pytest.approx(elapsed + 0.002)
    keeper(store, epoch=4).unblock()
    assert keeper(store, epoch=5).blocked_seconds() == 0


def test_a_process_that_takes_over_keeps_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It unblocks writes as early as the process that blocked them would have done."""
    monkeypatch.setattr(context, "_GRACE", 10.0)
    due: list[float] = []

    def schedule(_: str, pauses: Iterable[float], __: object) -> None:
        due.append(next(iter(pauses)))

    background = SimpleNamespace(schedule=schedule)
    task: Any = SimpleNamespace(
        input=SimpleNamespace(blocked_deadline=timedelta(seconds=60)), run_id="run", _background=background
    )
    for blocked in (0.0, 50.0, 100.0):
        flag: Any = SimpleNamespace(blocked_seconds=lambda blocked=blocked: blocked)
        MetadataStoreTask.watch_deadline(task, flag)
    assert due == [70.0, 20.0, 0.0]


def test_a_new_run_uses_nothing_of_the_previous_run() -> None:
    """The position of the commit and the owned flag belong to a single run."""
    store = MemoryStore()
    mine = keeper(store)
    mine.take()
    mine.advance(FlagPhase.PREPARATION, TARGET)
    mine.advance(FlagPhase.COPYING, TARGET, copied_zxid=7, target_mark=9, target_marks={1: 9})
    taken = keeper(store, run=2).take()
    assert taken.flag.phase is FlagPhase.FAILED
    assert taken.claim is not None
    assert (taken.claim.copied_zxid, taken.claim.target_mark, taken.claim.blocked_since_ms) == (0, 0, 0)
    assert taken.claim.target_marks == {}

"""How ledgers are packed into batches, and batches into Spark jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.ledger_table import LedgerFacts, LedgerTable
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.errors import StoreConflict
from clients.stores import Access
from models.store_url import parse_store_url
from spark.bookie_cluster import jobs as ledger_jobs
from spark.bookie_cluster.spec import BATCH_BYTES, BATCH_LEDGERS, Batch, LedgerPair, batches
from spark.bookie_cluster.tasks import copy_batches, copy_unit
from spark.engine import SparkEngine
from tests.support.waiting import timeout_for

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

URL = parse_store_url("zk:127.0.0.1:1")
PAIR = LedgerPair(URL, URL, Access(), 5.0, URL, "/claim")


def record(ledger_id: int, length: int | None) -> LedgerFacts:
    """Return a ledger of this length; None makes an open one."""
    state = LedgerState.OPEN if length is None else LedgerState.CLOSED
    segments = (Segment(0, ("a:1",)),)
    metadata = LedgerMetadata(1, 1, 1, state, length or 0, -1 if length is None else 0, segments, DigestType.CRC32C)
    return LedgerRecord(ledger_id, metadata, 0, 1, 1).facts


LENGTHS = st.lists(st.one_of(st.none(), st.integers(0, 1_000), st.integers(0, 3 * BATCH_BYTES)), max_size=60)


@given(lengths=LENGTHS, recover=st.booleans())
def test_every_ledger_is_in_one_batch(lengths: list[int | None], recover: bool) -> None:
    """None is left out or taken twice, and only a ledger alone is larger than a batch may be."""
    packed = batches(LedgerTable(record(number, length) for number, length in enumerate(lengths)), recover=recover)
    assert sorted(ledger_id_ for batch in packed for ledger_id_ in batch.ledger_ids) == list(range(len(lengths)))
    assert all(len(batch.ledger_ids) == 1 or batch.entry_bytes <= BATCH_BYTES for batch in packed)
    assert all(batch.recover is recover for batch in packed)
    assert all(list(batch.ledger_ids) == sorted(batch.ledger_ids) for batch in packed)


def test_small_ledgers_share_batches_and_large_ones_come_first() -> None:
    """Neighbours stay together, and the largest ledger is begun before all others."""
    records = [record(number, 300) for number in range(2 * BATCH_LEDGERS + 1)]
    records += [record(10_000, BATCH_BYTES), record(10_001, 5 * BATCH_BYTES)]
    packed = batches(LedgerTable(records), recover=False)
    assert [batch.ledger_ids for batch in packed[:2]] == [(10_001,), (10_000,)]
    assert [len(batch.ledger_ids) for batch in packed[2:]] == [BATCH_LEDGERS, BATCH_LEDGERS, 1]
    assert packed[2].ledger_ids == tuple(range(BATCH_LEDGERS))


def test_open_ledgers_count_although_their_length_is_unknown() -> None:
    """They do not all end up in one batch."""
    assert len(batches(LedgerTable(record(number, None) for number in range(100)), recover=True)) > 5


class Engine(SparkEngine):
    """Double of executors that copy everything; runs tasks in the threads that ask for them.

    Args:
        width: how many tasks run at once.
        wait_for: how many tasks continue together; each continues alone if 0.

    Attributes:
        most: how many ran at once.
        parallelism: the parallelism that each task was given.
    """

    def __init__(self, width: int, *, wait_for: int = 0) -> None:
        super().__init__("local")
        self._width = width
        self.cancelled: list[str] = []
        self.most = 0
        self.parallelism: list[int] = []
        self._now = 0
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(wait_for) if wait_for else None

    def width(self, *, tag: str) -> int:
        """Return how many tasks run at once."""
        return self._width

    def run(
        self, items: Sequence[ItemT], task: Callable[[ItemT], ResultT], *, tag: str, urgent: bool = False
    ) -> list[ResultT]:
        """Take units, together with as many others as are waited for."""
        # As an executor gets it: the function, and both clusters.
        assert isinstance(task, partial)
        assert task.func is copy_unit
        pair: LedgerPair = task.args[0]
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.parallelism.append(pair.parallelism)
        if self._barrier:
            self._barrier.wait(timeout=timeout_for(30))
        with self._lock:
            self._now -= 1
        units = cast("Sequence[Sequence[Batch]]", items)
        outcomes = [[CopyOutcome(ledger_id, Verdict.COPIED) for ledger_id in ids_of(unit)] for unit in units]
        return cast("list[ResultT]", outcomes)

    def cancel(self, tag: str) -> None:
        """Note that."""
        self.cancelled.append(tag)


def ids_of(unit: Sequence[Batch]) -> list[int]:
    """Return the ledgers of some batches."""
    return [ledger_id for batch in unit for ledger_id in batch.ledger_ids]


def test_open_ledgers_of_a_job_are_recovered_together() -> None:
    """They share round trips, whatever batch they are in; those that cannot be closed are not copied."""
    recovered: list[Sequence[int]] = []
    copied: list[Sequence[int]] = []

    def recover(ids: Sequence[int]) -> list[CopyOutcome]:
        recovered.append(ids)
        return [CopyOutcome(2, Verdict.UNREADABLE)]

    def copy(ids: Sequence[int], **_: object) -> list[CopyOutcome]:
        copied.append(ids)
        return [CopyOutcome(ledger_id, Verdict.COPIED) for ledger_id in ids]

    unit = [Batch((1, 2), 0, recover=True), Batch((3,), 0, recover=True), Batch((4,), 0)]
    outcomes = copy_batches(unit, lambda _: None, recover, copy)
    assert (recovered, copied) == ([[1, 2, 3]], [[1], [3], [4]])
    assert sorted(outcome.ledger_id for outcome in outcomes) == [1, 2, 3, 4]


def large(count: int) -> list[Batch]:
    """Return batches of which each is its own job, because it costs more than the time of one job allows."""
    return [Batch((number,), (64 << 20) * 40**number) for number in range(count)]


def test_as_many_jobs_run_as_are_allowed() -> None:
    """A new value of `concurrency` counts from the next job on, limited by the session; all outcomes arrive."""
    engine = Engine(5, wait_for=2)
    seen: list[int] = []

    def note(outcomes: list[CopyOutcome]) -> None:
        seen.extend(outcome.ledger_id for outcome in outcomes)

    ledger_jobs.copy(engine, PAIR, large(20), tag="t", on_outcomes=note, concurrency=lambda: 2)
    assert (sorted(seen), engine.most, set(engine.parallelism)) == (list(range(20)), 2, {2})
    for wanted, at_most in ((0, 1), (9, 3)):
        engine = Engine(3)
        ledger_jobs.copy(
            engine, PAIR, large(9), tag="t", on_outcomes=lambda _: None, concurrency=lambda wanted=wanted: wanted
        )
        assert set(engine.parallelism) == {at_most}
        assert engine.most <= at_most


def test_an_error_of_on_outcomes_ends_the_job() -> None:
    """No further job is begun, and those that run are cancelled."""
    engine = Engine(1)

    def refuse(outcomes: list[CopyOutcome]) -> None:
        if outcomes:
            raise StoreConflict("superseded")

    with pytest.raises(StoreConflict, match="superseded"):
        ledger_jobs.copy(engine, PAIR, large(20), tag="t", on_outcomes=refuse, concurrency=lambda: 1)
    assert (len(engine.parallelism), engine.cancelled) == (1, ["t"])

"""The bulk jobs of the bookie cluster migration: copy ledgers, and compare them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

from clients.bookkeeper.copy_result import CopyOutcome
from spark.bookie_cluster import tasks as ledger_tasks
from spark.bookie_cluster.spec import Batch, LedgerPair
from spark.engine import SparkEngine

OnOutcomes = Callable[[list[CopyOutcome]], None]
Concurrency = Callable[[], int]
Task = Callable[[LedgerPair, Sequence[Batch]], list[CopyOutcome]]

#: Aim for the duration of a Spark job: longer than its start, short enough to show progress.
_SECONDS = 3.0
# The speed is not measured yet: small enough that the first figure comes soon.
_FIRST_COST = 8 << 20
#: Cost of a ledger in addition to its bytes, in bytes that take as long.
_LEDGER_COST = 20 << 10


def copy(
    engine: SparkEngine,
    pair: LedgerPair,
    batches: Sequence[Batch],
    *,
    tag: str,
    on_outcomes: OnOutcomes,
    concurrency: Concurrency,
) -> None:
    """Copy ledgers, and compare each in full with its source; ledgers that the target has are only compared.

    Args:
        engine: the Spark engine.
        pair: both clusters.
        batches: ledgers to copy, in this order.
        tag: for `SparkEngine.cancel`.
        on_outcomes: called in this thread, first with nothing, then after each Spark job (some seconds) with the
                outcomes of its ledgers. An exception of it ends the copy.
        concurrency: returns how many jobs may run at once; called after each call of `on_outcomes`.

    Raises:
        StoreConflict: another attempt holds the claim, or others keep changing the same ledgers in the target.
        StoreError: a store or too many bookies failed; copied ledgers stay, and the job can be repeated. The failure of
                a single ledger is an outcome instead.
    """
    _run(engine, pair, batches, ledger_tasks.copy_unit, tag=tag, on_outcomes=on_outcomes, concurrency=concurrency)


def copy_open(
    engine: SparkEngine,
    pair: LedgerPair,
    batches: Sequence[Batch],
    *,
    tag: str,
    on_outcomes: OnOutcomes,
    concurrency: Concurrency,
) -> None:
    """Copy the confirmed entries of open ledgers, whose writers continue.

    Arguments and errors are those of `copy`. A ledger that could not be copied has no outcome.
    """
    _run(engine, pair, batches, ledger_tasks.copy_open_unit, tag=tag, on_outcomes=on_outcomes, concurrency=concurrency)


def compare(
    engine: SparkEngine,
    pair: LedgerPair,
    batches: Sequence[Batch],
    *,
    tag: str,
    on_outcomes: OnOutcomes,
    concurrency: Concurrency,
) -> None:
    """Compare closed ledgers of the source in full with those of the target; only reads.

    Arguments and errors are those of `copy`. A ledger that the target lacks is `different`.
    """
    _run(engine, pair, batches, ledger_tasks.compare_unit, tag=tag, on_outcomes=on_outcomes, concurrency=concurrency)


def _run(
    engine: SparkEngine,
    pair: LedgerPair,
    batches: Sequence[Batch],
    task: Task,
    *,
    tag: str,
    on_outcomes: OnOutcomes,
    concurrency: Concurrency,
) -> None:
    """Keep as many Spark jobs of one task each running as allowed, so that a long job does not delay others."""
    waiting = deque(batches)
    most = max(1, engine.width(tag=tag))
    running: set[Future[_Done]] = set()
    limit = _FIRST_COST
    with ThreadPoolExecutor(most, thread_name_prefix="ledgers") as pool:
        try:
            on_outcomes([])
            parallelism = min(most, max(1, concurrency()))
            while waiting or running:
                while waiting and len(running) < parallelism:
                    unit = _take(waiting, limit)
                    running.add(pool.submit(_run_unit, engine, replace(pair, parallelism=parallelism), unit, task, tag))
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    outcomes, cost, seconds = future.result()
                    limit = max(1, int(cost / max(seconds, 0.1) * _SECONDS))
                    on_outcomes(outcomes)
                    parallelism = min(most, max(1, concurrency()))
        except BaseException:
            # Running jobs would otherwise write for an attempt that has given up.
            engine.cancel(tag)
            raise


_Done = tuple[list[CopyOutcome], int, float]


def _run_unit(engine: SparkEngine, pair: LedgerPair, unit: list[Batch], task: Task, tag: str) -> _Done:
    started = time.monotonic()
    (outcomes,) = engine.run([unit], partial(task, pair), tag=tag, urgent=pair.urgent)
    return outcomes, sum(map(_cost, unit)), time.monotonic() - started


def _take(waiting: deque[Batch], limit: int) -> list[Batch]:
    """Remove batches of about this cost from the queue and return them; at least one."""
    unit = [waiting.popleft()]
    cost = _cost(unit[0])
    while waiting and (cost := cost + _cost(waiting[0])) <= limit:
        unit.append(waiting.popleft())
    return unit


def _cost(batch: Batch) -> int:
    return batch.entry_bytes + _LEDGER_COST * len(batch.ledger_ids)

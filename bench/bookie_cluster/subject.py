"""Our copy of ledgers in processes, as a Spark executor runs it: `… ours SOURCE TARGET STORE`.

SOURCE and TARGET are metadata service URIs, STORE is the metadata store that holds the claim. Prints READY, and then
for each line of its standard input one line of JSON:

`copy FIRST LEDGERS`: copy ledgers, without reading them back. `compare FIRST LEDGERS`: compare them in full.
`jobs SLOTS FIRST LEDGERS`: copy and compare them by Spark jobs, with as many tasks at once; the session starts before
the time is taken.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.compare import compare_batch
from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.ledger_table import LedgerTable
from clients.stores import Access
from models.ledger_store import parse_ledger_store_uri
from models.lifecycle.claim import Attempt
from models.store_url import parse_store_url
from spark.bookie_cluster import jobs as ledger_jobs
from spark.bookie_cluster.spec import BATCH_LEDGERS, LedgerPair, batches
from spark.bookie_cluster.tasks import TaskResources, open_task
from spark.engine import SparkEngine

CLAIM = "/bench/claim"
BENCH = Attempt("bench", "bench", 0, 0, 0)


class OursFailed(Exception):
    """Our copy is not what it must be: then its speed is worth nothing."""


_HANDS = ExitStack()
_held: list[TaskResources] = []


def _take_hands(pair: LedgerPair) -> None:
    _held.append(_HANDS.enter_context(open_task(pair)))


def _copy_part(ids: range) -> list[CopyOutcome]:
    source, target, fence = _held[0]
    return copy_batch(source, target, ids, verify=False, check=fence.check)


class Copier:
    """Carries out orders.

    Args:
        pair: both clusters.
        hands: what one task works with.
    """

    def __init__(self, pair: LedgerPair, resources: TaskResources) -> None:
        self._pair, self._hands = pair, resources
        self._engine: SparkEngine | None = None
        self._parallelism = 0
        # As a Spark executor: one process for each core, up and connected.
        context = multiprocessing.get_context("spawn")
        self._processes = context.Pool(os.cpu_count(), initializer=_take_hands, initargs=(pair,))

    def copy(self, first: int, ledgers: int) -> list[CopyOutcome]:
        """Copy ledgers, batch by batch."""
        parts = self._processes.map(_copy_part, _packed(first, ledgers), chunksize=1)
        return [outcome for batch in parts for outcome in batch]

    def compare(self, first: int, ledgers: int) -> list[CopyOutcome]:
        """Compare ledgers."""
        source, target, fence = self._hands
        return [
            outcome
            for ids in _packed(first, ledgers)
            for outcome in compare_batch(source, target, ids, check=fence.check)
        ]

    def jobs(self, first: int, ledgers: int) -> list[CopyOutcome]:
        """Copy and compare ledgers by Spark jobs."""
        assert self._engine is not None, "the session was started"
        outcomes: list[CopyOutcome] = []

        ledgers_read = self._hands.source.directory.read(range(first, first + ledgers))
        packed = batches(LedgerTable(record.facts for record in ledgers_read if record), recover=False)
        ledger_jobs.copy(
            self._engine,
            self._pair,
            packed,
            tag="bench",
            on_outcomes=outcomes.extend,
            concurrency=lambda: self._parallelism,
        )
        return outcomes

    def start_session(self, parallelism: int) -> None:
        """Start a Spark session with this many slots, in place of the previous one."""
        self.close()
        self._parallelism = parallelism
        self._engine = SparkEngine(f"local[{parallelism}]")
        self._engine.start()

    def close(self) -> None:
        """End the session."""
        if self._engine:
            self._engine.stop()
            self._engine = None

    def end(self) -> None:
        """End the session and the processes."""
        self.close()
        self._processes.terminate()
        self._processes.join()


def _packed(first: int, ledgers: int) -> list[range]:
    """Return ids in batches, as the plan of a job groups small ledgers."""
    end = first + ledgers
    return [range(start, min(end, start + BATCH_LEDGERS)) for start in range(first, end, BATCH_LEDGERS)]


def main(arguments: Sequence[str]) -> None:
    """Serve orders until the end of the standard input."""
    source, target, store = arguments
    pair = LedgerPair(
        source=parse_ledger_store_uri(source).url,
        target=parse_ledger_store_uri(target).url,
        access=Access(),
        read_timeout=30.0,
        store=parse_store_url(store),
        claim=CLAIM,
        attempt=BENCH,
    )
    with open_task(pair) as resources:
        copier = Copier(pair, resources)
        try:
            print("READY", flush=True)
            for line in sys.stdin:
                print(json.dumps(_carry_out(copier, line)), flush=True)
        finally:
            copier.end()


def _carry_out(copier: Copier, line: str) -> dict[str, float]:
    what, *numbers = line.split()
    first, ledgers = (int(number) for number in numbers[-2:])
    orders = {"copy": copier.copy, "compare": copier.compare, "jobs": copier.jobs}
    wanted = Verdict.EQUAL if what == "compare" else Verdict.COPIED
    if what == "jobs":
        copier.start_session(int(numbers[0]))
    begun = time.perf_counter()
    outcomes = orders[what](first, ledgers)
    seconds = time.perf_counter() - begun
    wrong = [outcome for outcome in outcomes if outcome.verdict is not wanted]
    if wrong or len(outcomes) != ledgers:
        raise OursFailed(f"{len(outcomes)} of {ledgers} ledgers, of which not {wanted}: {wrong[:3]}")
    return {"seconds": seconds, "entries": sum(outcome.entries for outcome in outcomes)}


if __name__ == "__main__":
    main(sys.argv[1:])

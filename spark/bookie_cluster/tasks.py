"""What one task of a bulk job over ledgers does on an executor."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.bulk_recovery import recover_batch
from clients.bookkeeper.cluster import Cluster, open_clusters, sleep_polling
from clients.bookkeeper.compare import compare_batch
from clients.bookkeeper.copy_result import CopyOutcome
from clients.stores import open_reader
from models.lifecycle.claim import PacedClaim
from spark.bookie_cluster.spec import Batch, LedgerPair
from spark.fence import WriteFence, claim_in


class TaskResources(NamedTuple):
    """What a task works with."""

    source: Cluster
    target: Cluster
    fence: WriteFence


def copy_unit(pair: LedgerPair, unit: Sequence[Batch]) -> list[CopyOutcome]:
    """Copy the ledgers of some batches and compare each with its source; an outcome for each."""
    outcomes: list[CopyOutcome] = []
    with open_task(pair) as (source, target, fence):
        for batch in unit:
            # An attempt that was given up may wake up here, and recovery fences writers.
            fence.check(0)
            lost = recover_batch(source, batch.ledger_ids) if batch.recover else []
            outcomes += lost
            left = set(batch.ledger_ids).difference(outcome.ledger_id for outcome in lost)
            # Bookies do not check digests of what they are sent; only reading back shows that the copy can be read.
            outcomes += copy_batch(source, target, sorted(left), verify=True, check=fence.check)
    return outcomes


def compare_unit(pair: LedgerPair, unit: Sequence[Batch]) -> list[CopyOutcome]:
    """Compare the closed ledgers of some batches in full; an outcome for each."""
    outcomes: list[CopyOutcome] = []
    with open_task(pair) as (source, target, fence):
        for batch in unit:
            outcomes += compare_batch(source, target, batch.ledger_ids, check=fence.check)
    return outcomes


@contextmanager
def open_task(pair: LedgerPair) -> Generator[TaskResources]:
    """Connect to both clusters and to the claim, as each task does for itself."""
    with ExitStack() as stack:
        source, target = stack.enter_context(
            open_clusters(
                pair.source,
                pair.target,
                pair.access,
                pair.tls,
                pair.read_timeout,
                source_may_be_down=pair.source_may_be_down,
            )
        )
        store = open_reader(pair.store, pair.access)
        stack.callback(store.close)
        claim = partial(claim_in, store, pair.claim, PacedClaim)
        sleep = partial(sleep_polling, source.bookies.loop)
        yield TaskResources(
            source,
            target,
            WriteFence(claim, attempt=pair.attempt, what=str(pair.store), parallelism=pair.parallelism, sleep=sleep),
        )

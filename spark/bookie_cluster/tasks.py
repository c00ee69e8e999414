"""Tasks of a bulk job over ledgers on an executor."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.cluster import Cluster, open_clusters, sleep_polling
from clients.bookkeeper.compare import Check, compare_batch
from clients.bookkeeper.copy_result import CopyOutcome
from clients.bookkeeper.open_copy import copy_open
from clients.bookkeeper.recovery import recover_batch
from clients.stores import open_reader
from models.lifecycle.claim import PacedClaim
from spark.bookie_cluster.spec import Batch, LedgerPair
from spark.fence import WriteFence, claim_in

_RECOVERED_AT_ONCE = 64


class TaskResources(NamedTuple):
    """Connections and fence of a task."""

    source: Cluster
    target: Cluster
    fence: WriteFence


def copy_unit(pair: LedgerPair, unit: Sequence[Batch]) -> list[CopyOutcome]:
    """Copy the ledgers of some batches and compare each with its source; return an outcome for each."""
    with open_task(pair) as (source, target, fence):
        return copy_batches(unit, fence.check, partial(recover_batch, source), partial(copy_batch, source, target))


def copy_batches(
    unit: Sequence[Batch],
    check: Check,
    recover: Callable[[Sequence[int]], list[CopyOutcome]],
    copy: Callable[..., list[CopyOutcome]],
) -> list[CopyOutcome]:
    """Recover the open ledgers of some batches, and copy what could be recovered; return an outcome for each ledger.

    Args:
        unit: the batches.
        check: raises if the attempt must no longer write.
        recover: `recover_batch` in the source.
        copy: `copy_batch` from the source to the target.
    """
    outcomes: list[CopyOutcome] = []
    # Together: few open ledgers share a batch, and recoveries share their round trips.
    unsealed = [ledger_id for batch in unit if batch.recover for ledger_id in batch.ledger_ids]
    for start in range(0, len(unsealed), _RECOVERED_AT_ONCE):
        # An attempt that was given up may wake up here, and recovery fences writers.
        check(0)  # mutant: bookie-cluster/recovery-without-a-check-of-the-claim
        outcomes += recover(unsealed[start : start + _RECOVERED_AT_ONCE])
    lost = {outcome.ledger_id for outcome in outcomes}
    for batch in unit:
        check(0)  # mutant: bookie-cluster/a-copy-without-a-check-of-the-claim
        recoverable = set(batch.ledger_ids) - lost  # mutant: bookie-cluster/what-could-not-be-recovered-is-copied
        # Bookies do not check the digests of added entries; only reading back proves that the copy can be read.
        outcomes += copy(sorted(recoverable), verify=True, check=check, begun=dict(batch.begun))
    return outcomes


def copy_open_unit(pair: LedgerPair, unit: Sequence[Batch]) -> list[CopyOutcome]:
    """Copy the confirmed entries of the open ledgers of some batches; return an outcome for each copied one."""
    outcomes: list[CopyOutcome] = []
    with open_task(pair) as (source, target, fence):
        for batch in unit:
            outcomes += copy_open(source, target, batch.ledger_ids, dict(batch.begun), check=fence.check)
    return outcomes


def compare_unit(pair: LedgerPair, unit: Sequence[Batch]) -> list[CopyOutcome]:
    """Compare the closed ledgers of some batches in full; return an outcome for each."""
    outcomes: list[CopyOutcome] = []
    with open_task(pair) as (source, target, fence):
        for batch in unit:
            outcomes += compare_batch(source, target, batch.ledger_ids, check=fence.check)
    return outcomes


@contextmanager
def open_task(pair: LedgerPair) -> Generator[TaskResources]:
    """Connect to both clusters and to the claim; each task has connections of its own."""
    with ExitStack() as stack:
        source, target = stack.enter_context(
            open_clusters(
                pair.source,
                pair.target,
                pair.access,
                pair.read_timeout,
                source_may_be_down=pair.source_may_be_down,
                claims=pair.store,
            )
        )
        store = open_reader(pair.store, pair.access)
        stack.callback(store.close)
        claim = partial(claim_in, store, pair.claim, PacedClaim)
        sleep = partial(sleep_polling, source.bookies.loop)
        yield TaskResources(
            source,
            target,
            WriteFence(
                claim,
                attempt=pair.attempt,
                what=str(pair.store),
                parallelism=pair.parallelism,
                paced=not pair.urgent,
                sleep=sleep,
            ),
        )

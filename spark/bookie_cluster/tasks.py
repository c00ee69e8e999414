"""What one task of a bulk job over ledgers does on an executor."""

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
    """What a task works with."""

    source: Cluster
    target: Cluster
    fence: WriteFence


def copy_unit(pair: LedgerPair, unit: Sequence[Batch]) -> list[CopyOutcome]:
    """Copy the ledgers of some batches and compare each with its source; an outcome for each."""
    with open_task(pair) as (source, target, fence):
        return copy_batches(unit, fence.check, partial(recover_batch, source), partial(copy_batch, source, target))


def copy_batches(
    unit: Sequence[Batch],
    check: Check,
    recover: Callable[[Sequence[int]], list[CopyOutcome]],
    copy: Callable[..., list[CopyOutcome]],
) -> list[CopyOutcome]:
    """Recover what is open in some batches, and copy all but what could not be recovered; an outcome for each ledger.

    Args:
        unit: the batches.
        check: raises where the attempt may write no more.
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
        left = set(batch.ledger_ids) - lost  # mutant: bookie-cluster/what-could-not-be-recovered-is-copied
        # Bookies do not check digests of what they are sent; only reading back shows that the copy can be read.
        outcomes += copy(sorted(left), verify=True, check=check, begun=dict(batch.begun))
    return outcomes


def copy_open_unit(pair: LedgerPair, unit: Sequence[Batch]) -> list[CopyOutcome]:
    """Copy what is confirmed of the open ledgers of some batches; an outcome for each that could be copied."""
    outcomes: list[CopyOutcome] = []
    with open_task(pair) as (source, target, fence):
        for batch in unit:
            outcomes += copy_open(source, target, batch.ledger_ids, dict(batch.begun), check=fence.check)
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

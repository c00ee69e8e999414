"""The description of a bulk job over ledgers: plain data that travels to executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clients.bookkeeper.copy_result import Begun
from clients.bookkeeper.ledger_table import LedgerTable
from clients.stores import Access
from models.lifecycle.claim import CLAIM, READ_ONLY, Attempt
from models.store_url import StoreUrl

#: Most ledgers and bytes of a batch; a larger ledger is a batch of its own.
BATCH_LEDGERS, BATCH_BYTES = 2_000, 16 << 20

#: Assumed bytes of an open ledger, whose metadata has no length: few of them share a batch.
_OPEN_BYTES = 2 << 20


@dataclass(frozen=True)
class LedgerPair:
    """Both clusters of a switch, with how to access them.

    Attributes:
        source: root of the ledgers that are read.
        target: root of the ledgers that are written.
        access: credentials, TLS settings and timeout.
        read_timeout: seconds until the next replica is asked for an entry.
        store: the brokers' metadata store.
        claim: path of the claim in the store; the claim has the writing attempt and the throttle.
        attempt: attempt of the writing tasks; a task stops when the claim has a newer one.
        parallelism: most tasks that run at once; they share the throttle.
        urgent: whether writes are blocked until the job is done; then there is no throttle and no wait for other runs.
        source_may_be_down: whether ledgers count as unreadable if no bookie of the source answers; else the job fails.
    """

    source: StoreUrl
    target: StoreUrl
    access: Access
    read_timeout: float
    store: StoreUrl
    claim: str = CLAIM
    attempt: Attempt = READ_ONLY
    parallelism: int = 1
    urgent: bool = False
    source_may_be_down: bool = False


class Batch(NamedTuple):
    """Ledgers of one task.

    Attributes:
        ledger_ids: ascending.
        entry_bytes: sum of the lengths in their metadata.
        recover: whether to recover open ledgers at the source first, which fences their writers.
        begun: progress of open copies, by ledger id.
    """

    ledger_ids: tuple[int, ...]
    entry_bytes: int
    recover: bool = False
    begun: tuple[tuple[int, Begun], ...] = ()


_NOTHING: Mapping[int, Begun] = {}


def batches(records: LedgerTable, *, recover: bool, begun: Mapping[int, Begun] = _NOTHING) -> list[Batch]:
    """Pack all ledgers into batches.

    Large ledgers come first, so that no task still copies one when all others are done. Small neighbours share a batch,
    because they share nodes in ZooKeeper.

    Args:
        records: the ledgers.
        recover: whether to recover open ledgers first; else their outcome is `open`.
        begun: progress of open copies.
    """
    large = sorted((sized for sized in _sized(records) if sized[1] >= BATCH_BYTES), key=lambda sized: -sized[1])
    small = (sized for sized in _sized(records) if sized[1] < BATCH_BYTES)
    return [_batch(group, begun, recover=recover) for group in (*([sized] for sized in large), *_packed(small))]


def _packed(ledgers: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    group: list[tuple[int, int]] = []
    size = 0
    for ledger in ledgers:
        if group and (len(group) == BATCH_LEDGERS or size + ledger[1] > BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(ledger)
        size += ledger[1]
    if group:
        yield group


def _batch(ledgers: Sequence[tuple[int, int]], begun: Mapping[int, Begun], *, recover: bool) -> Batch:
    ids = tuple(ledger for ledger, _ in ledgers)
    progress = tuple((ledger, begun[ledger]) for ledger in ids if ledger in begun)
    return Batch(ids, sum(size for _, size in ledgers), recover, progress)


def _sized(records: LedgerTable) -> Iterator[tuple[int, int]]:
    return ((record.ledger_id, record.length if record.closed else _OPEN_BYTES) for record in records.values())

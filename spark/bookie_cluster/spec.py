"""The description of a bulk job over ledgers: plain data that travels to executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clients.bookkeeper.copy_result import Begun
from clients.bookkeeper.ledger_table import LedgerTable
from clients.stores import Access
from clients.tls import Tls
from models.lifecycle.claim import CLAIM, READ_ONLY, Attempt
from models.store_url import StoreUrl

#: What a batch holds at most; a ledger that has more by itself is a batch of its own.
BATCH_LEDGERS, BATCH_BYTES = 2_000, 16 << 20

#: Bytes of an open ledger, which its metadata does not tell: few of them share a batch.
_OPEN_BYTES = 2 << 20


@dataclass(frozen=True)
class LedgerPair:
    """Both clusters of a switch, and how to talk to them.

    Attributes:
        source: root of the ledgers that are read.
        target: root of the ledgers that are written.
        access: credentials and timeout for ZooKeeper.
        tls: how TLS to bookies is done; None for none.
        read_timeout: seconds until the next replica is asked for an entry.
        store: the brokers' metadata store.
        claim: path of the claim in it, which says who may write, and how fast.
        attempt: on behalf of which tasks write; a task that finds a newer one in the claim stops.
        parallelism: how many tasks run at once; they share the throttle.
        urgent: whether somebody is blocked until it is done: there is no throttle then, and no wait for other runs.
        source_may_be_down: whether ledgers count as unreadable when no bookie of the source answers, or the job fails.
    """

    source: StoreUrl
    target: StoreUrl
    access: Access
    tls: Tls | None
    read_timeout: float
    store: StoreUrl
    claim: str = CLAIM
    attempt: Attempt = READ_ONLY
    parallelism: int = 1
    urgent: bool = False
    source_may_be_down: bool = False


class Batch(NamedTuple):
    """Ledgers that one task takes together.

    Attributes:
        ledger_ids: ascending.
        entry_bytes: sum of their lengths, as their metadata say.
        recover: whether open ones are recovered at the source first, which fences their writers.
        begun: how far open copies of some of them have come, by id.
    """

    ledger_ids: tuple[int, ...]
    entry_bytes: int
    recover: bool = False
    begun: tuple[tuple[int, Begun], ...] = ()


_NOTHING: Mapping[int, Begun] = {}


def batches(records: LedgerTable, *, recover: bool, begun: Mapping[int, Begun] = _NOTHING) -> list[Batch]:
    """Pack ledgers into batches; none is left out.

    Large ledgers come first, so that no task is left with one when all others are done. Of the small ones neighbours
    share a batch, because they share nodes in ZooKeeper.

    Args:
        records: the ledgers.
        recover: whether open ones are recovered first; else their outcome is `open`.
        begun: how far open copies have come.
    """
    large = sorted((one for one in _sized(records) if one[1] >= BATCH_BYTES), key=lambda one: -one[1])
    small = (one for one in _sized(records) if one[1] < BATCH_BYTES)
    return [_batch(part, begun, recover=recover) for part in (*([one] for one in large), *_packed(small))]


def _packed(ledgers: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    part: list[tuple[int, int]] = []
    size = 0
    for ledger in ledgers:
        if part and (len(part) == BATCH_LEDGERS or size + ledger[1] > BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(ledger)
        size += ledger[1]
    if part:
        yield part


def _batch(ledgers: Sequence[tuple[int, int]], begun: Mapping[int, Begun], *, recover: bool) -> Batch:
    ids = tuple(ledger for ledger, _ in ledgers)
    known = tuple((ledger, begun[ledger]) for ledger in ids if ledger in begun)
    return Batch(ids, sum(size for _, size in ledgers), recover, known)


def _sized(records: LedgerTable) -> Iterator[tuple[int, int]]:
    return ((record.ledger_id, record.length if record.closed else _OPEN_BYTES) for record in records.values())

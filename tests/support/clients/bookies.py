"""Ledgers made by this project's own client, for tests of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from clients.bookkeeper import pool
from clients.bookkeeper.digests import pack_entry
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.recovery import recover_ledgers
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import LedgerUnreadable
from clients.stores import Access
from models.store_url import parse_store_url
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack
from tests.support.waiting import wait_for

_SESSION_LIMIT = 60.0

# Far from the ids that a generator gives.
_IDS = itertools.count(1_000_000)


@dataclass(frozen=True)
class Written:
    """A ledger with its entries.

    Attributes:
        ledger_id: its id.
        metadata: as stored in ZooKeeper.
        bodies: of all entries.
    """

    ledger_id: int
    metadata: LedgerMetadata
    bodies: list[bytes]


class Cluster:
    """One cluster's ledgers and bookies.

    Args:
        directory: its ledgers' metadata.
        bookies: its bookies.
    """

    def __init__(self, directory: LedgerDirectoryWriter, bookies: Bookies) -> None:
        self.directory, self.bookies = directory, bookies

    def open(
        self,
        segments: Sequence[tuple[int, Sequence[str]]],
        quorums: tuple[int, int] = (2, 2),
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        *,
        asked_first: str | None = None,
    ) -> Written:
        """Create an open, empty ledger.

        Args:
            segments: first entries and bookies.
            quorums: those of writes and of acknowledgements.
            digest: of its entries.
            password: of the ledger.
            asked_first: the bookie that readers ask first, which follows from the ledger's id.
        """
        metadata = LedgerMetadata(
            ensemble_size=len(segments[0][1]),
            write_quorum=quorums[0],
            ack_quorum=quorums[1],
            state=LedgerState.OPEN,
            length=0,
            last_entry=-1,
            segments=tuple(Segment(first, tuple(ensemble)) for first, ensemble in segments),
            digest=digest,
            password=password,
        )
        replicas = sorted(segments[0][1])
        ledger_id = next(id_ for id_ in _IDS if asked_first in (None, replicas[id_ % len(replicas)]))
        assert self.directory.create([(ledger_id, metadata)]) == [True]
        return Written(ledger_id, metadata, [])

    def fill(self, ledger: Written, datas: Sequence[bytes]) -> Written:
        """Write entries and leave the ledger open."""
        bodies = pack(ledger, datas)
        writer = LedgerWriter(self.bookies)
        writer.add(ledger.ledger_id, ledger.metadata, 0, bodies)
        writer.flush()
        return replace(ledger, bodies=bodies)

    def close(self, ledger: Written, datas: Sequence[bytes]) -> Written:
        """Write entries and close the ledger."""
        filled = self.fill(ledger, datas)
        metadata = replace(
            ledger.metadata, state=LedgerState.CLOSED, last_entry=len(datas) - 1, length=sum(map(len, datas))
        )
        self.directory.update([(ledger.ledger_id, metadata, 0)])
        return replace(filled, metadata=metadata)

    def record(self, ledger: Written) -> LedgerRecord:
        """Return the current metadata of the ledger."""
        (record,) = self.directory.read([ledger.ledger_id])
        assert record
        return record

    def read(self, ledger: Written) -> list[bytes]:
        """Return all bodies of a closed ledger."""
        record = self.record(ledger)
        return [
            body for batch in LedgerReader(self.bookies).entries(ledger.ledger_id, record.metadata) for body in batch
        ]

    def put(self, ledger: Written, entry: int, body: bytes, bookie_id: str) -> None:
        """Write an entry to one bookie only."""
        others = set(ledger.metadata.replicas(entry)) - {bookie_id}
        writer = LedgerWriter(self.bookies, leave_out=others)
        writer.add(ledger.ledger_id, ledger.metadata, entry, [body])
        writer.flush()

    def holds(self, ledger: Written, entry: int, bookie_id: str) -> bytes | None:
        """Return an entry as a single bookie has it."""
        alone = replace(
            ledger.metadata, ensemble_size=1, write_quorum=1, ack_quorum=1, segments=(Segment(0, (bookie_id,)),)
        )
        try:
            return LedgerReader(self.bookies, verify=False).read_entry(ledger.ledger_id, alone, entry)
        except LedgerUnreadable:
            return None


def recover_ledger(directory: LedgerDirectoryWriter, bookies: Bookies, ledger_id: int) -> LedgerRecord:
    """Close one ledger as a switch does; raises the error that `recover_ledgers` gives for it."""
    result = recover_ledgers(directory, bookies, [ledger_id])[ledger_id]
    if isinstance(result, LedgerRecord):
        return result
    raise result


def failures_of(bookies: Bookies, patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the id of a bookie each time that it fails; until the test ends it is not asked again."""
    failures: list[str] = []
    quarantine = bookies.quarantine

    def noted(bookie_id: str, reason: str) -> None:
        failures.append(bookie_id)
        quarantine(bookie_id, reason)

    patch.setattr(bookies, "quarantine", noted)
    patch.setattr(pool, "QUARANTINE_SECONDS", 600.0)
    return failures


def start_killed(stack: Stack, name: str) -> None:
    """Start a bookie of the first cluster that was killed, once its registration has ended.

    One that meets its former registration as that expires shuts down, and its process stays (seen).
    """
    with LedgerDirectory(parse_store_url(f"{stack.zk_url}/ledgers"), Access()) as directory:
        wait_for(f"the end of the session of {name}", lambda: name not in directory.bookies(), _SESSION_LIMIT)
    stack[name].start()


def resume_frozen(bookie: Server) -> None:
    """Continue a frozen bookie, with a registration that stays.

    The one it had may still be there although its session is about to expire; a restart ends the session.
    """
    bookie.resume()
    bookie.restart()


def pack(ledger: Written, datas: Sequence[bytes], first: int = 0, before: int = 0) -> list[bytes]:
    """Return bodies of consecutive entries.

    Args:
        ledger: to which they belong.
        datas: what they hold.
        first: id of the first.
        before: bytes of data of the entries before it.
    """
    lengths = itertools.accumulate(map(len, datas), initial=before)
    next(lengths)
    return [
        pack_entry(
            ledger.ledger_id,
            entry,
            data,
            length=length,
            digest=ledger.metadata.digest,
            password=ledger.metadata.password,
        )
        for entry, (data, length) in enumerate(zip(datas, lengths, strict=True), first)
    ]

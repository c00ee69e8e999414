"""One BookKeeper cluster as bulk work uses it: its metadata, and connections to its bookies."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.bookkeeper.metadata import LedgerMetadata, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.transport import EventLoop
from clients.stores import Access
from models.store_url import StoreUrl

_LOOK_EVERY = 0.02


class Cluster(NamedTuple):
    """A cluster; for one thread at a time.

    Attributes:
        directory: ledgers' metadata. Of a cluster that is only read, nothing is ever changed.
        bookies: connections to the bookies.
        may_be_down: whether ledgers count as unreadable, one by one, when no bookie answers; else the work fails.
    """

    directory: LedgerDirectoryWriter
    bookies: Bookies
    may_be_down: bool = False

    def require_replicas(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Read the first, middle and last entry of a closed ledger from every bookie that should have it.

        Usually the first replica that answers is enough.

        Raises:
            LedgerUnreadable: a bookie lacks one of them, or has a bad copy; the message names it.
            StoreUnreachable: a bookie does not answer.
            StoreError: a bookie refuses.
        """
        reader = LedgerReader(self.bookies)
        last = metadata.last_entry
        for entry in sorted({0, last // 2, last}) if last >= 0 else ():
            for bookie_id in metadata.replicas(entry):
                alone = replace(
                    metadata, ensemble_size=1, write_quorum=1, ack_quorum=1, segments=(Segment(0, (bookie_id,)),)
                )
                reader.read_entry(ledger_id, alone, entry)


@contextmanager
def open_clusters(
    source: StoreUrl,
    target: StoreUrl,
    access: Access,
    read_timeout: float,
    *,
    source_may_be_down: bool = False,
    claims: StoreUrl | None = None,
) -> Generator[tuple[Cluster, Cluster]]:
    """Open two clusters whose connections share an event loop, so that reads from one and writes to the other overlap.

    Args:
        source: root of the ledgers of the first.
        target: root of the ledgers of the second.
        access: credentials, TLS settings and timeout for both clusters.
        read_timeout: seconds until the next replica is asked for an entry.
        source_may_be_down: see `Cluster`.
        claims: see `LedgerDirectoryWriter`.
    """
    with ExitStack() as stack:
        loop = stack.enter_context(EventLoop())
        first = stack.enter_context(open_cluster(source, access, read_timeout, loop, claims=claims))
        yield (
            first._replace(may_be_down=source_may_be_down),
            stack.enter_context(open_cluster(target, access, read_timeout, loop, claims=claims)),
        )


@contextmanager
def open_cluster(
    url: StoreUrl,
    access: Access,
    read_timeout: float,
    loop: EventLoop | None = None,
    *,
    claims: StoreUrl | None = None,
) -> Generator[Cluster]:
    """Open one cluster.

    Args:
        url: root of its ledgers.
        access: credentials, TLS settings and timeout.
        read_timeout: seconds until the next replica is asked for an entry.
        loop: shared with another cluster.
        claims: see `LedgerDirectoryWriter`.
    """
    with (
        LedgerDirectoryWriter(url, access, claims) as directory,
        Bookies(directory.bookies, access=access.to(url).bookies, read_timeout=read_timeout, loop=loop) as bookies,
    ):
        yield Cluster(directory, bookies)


def sleep_polling(loop: EventLoop, seconds: float) -> None:
    """Wait, and receive answers while waiting: an unread answer would make its bookie look slow."""
    # The loop returns at once where nothing is awaited, so the rest of the time is slept in small pieces.
    until = time.monotonic() + seconds
    while (remaining := until - time.monotonic()) > 0:
        loop.poll()
        time.sleep(min(remaining, _LOOK_EVERY))

"""The entries of a topic of blue, from its bookies or through its brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from clients.bookkeeper.digests import read_data
from clients.bookkeeper.ledgers import LedgerDirectory
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.closeable import Closeable
from clients.errors import StoreError, StoreUnreachable, StoreUnsupported
from clients.pulsar.wire.frames import Message, message
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.reader import RawReader
from spark.blue_green.positions import places_after
from spark.blue_green.spec import CopyEnds, TopicCopy

Entries = Iterator[tuple[EntryPosition, Message]]


class BlueSource(Closeable):
    """Reads one topic of blue, up to what was confirmed when the task was made; for one thread.

    Args:
        ends: both clusters.
        copy: the topic.
    """

    def __init__(self, ends: CopyEnds, copy: TopicCopy) -> None:
        self._ends = ends
        self._copy = copy
        self._stack = ExitStack()

    def close(self) -> None:
        """End all connections."""
        self._stack.close()

    def entries(self, after: EntryPosition) -> Entries:
        """Places and messages behind a place.

        Raises:
            StoreUnsupported: an entry is of a kind that is not copied.
            StoreError: one cannot be read.
        """
        direct = self._ends.ledgers is not None and not self._copy.through_broker
        for place, one in self._from_bookies(after) if direct else self._from_brokers(after):
            if one.is_marker or one.in_transaction:
                what = "a mark of the brokers" if one.is_marker else "a message of a transaction"
                raise StoreUnsupported(
                    f"{self._copy.topic}: entry {place} is {what}, which means nothing on another cluster; have its "
                    "idle subscriptions consumed on the old one (`wait`), or give up their backlog (`skip`)"
                )
            yield place, one

    def _from_bookies(self, after: EntryPosition) -> Entries:
        ends = self._ends
        assert ends.ledgers is not None
        directory = self._stack.enter_context(LedgerDirectory(ends.ledgers, ends.access))
        bookies = self._stack.enter_context(
            Bookies(directory.bookies, tls=ends.bookies_tls, read_timeout=ends.read_timeout)
        )
        reader = LedgerReader(bookies)
        for ledger_id, entries in self._copy.ledgers:
            first = after.entry_id + 1 if ledger_id == after.ledger_id else 0
            if ledger_id < after.ledger_id or first >= entries:
                continue
            (record,) = directory.read([ledger_id])
            if record is None:
                # Somebody consumed: the next look at the topic does not have the ledger any more.
                raise StoreUnreachable(f"{self._copy.topic}: ledger {ledger_id} was deleted meanwhile; try again")
            place = EntryPosition(ledger_id, first)
            # An open ledger is read as far as its broker said that it is confirmed; its writer continues.
            for bodies in reader.entries(ledger_id, record.metadata, first, entries - 1):
                for body in bodies:
                    yield place, self._read(place, read_data(body, record.metadata.digest))
                    place = place.moved(1)

    def _from_brokers(self, after: EntryPosition) -> Entries:
        due = places_after(self._copy.ledgers, after)
        expected = next(due, None)
        last = next(
            (EntryPosition(number, length - 1) for number, length in reversed(self._copy.ledgers) if length), None
        )
        if expected is None or last is None:
            return
        ends = self._ends
        reader = RawReader(ends.blue_url, self._copy.topic, ends.blue_access, after=after, notes=ends.notes)
        self._stack.enter_context(reader)
        for place, one in reader.entries(last):
            if place != expected:
                raise StoreUnsupported(
                    f"{self._copy.topic}: the broker gives {place} where {expected} is due, so it keeps back entries "
                    "(transactions, marks of its own); have its idle subscriptions consumed on the old cluster"
                )
            yield place, one
            expected = next(due, None)

    def _read(self, place: EntryPosition, data: bytes) -> Message:
        try:
            return message(data)
        except StoreError as cause:
            raise cause.saying(f"{self._copy.topic}, entry {place}: {cause}") from cause

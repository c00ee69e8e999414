"""Entries of a topic of blue, read from its bookies or through its brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from clients.bookkeeper.digests import read_data
from clients.bookkeeper.ledgers import LedgerDirectory
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.closeable import Closeable
from clients.errors import StoreError, StoreUnreachable, StoreUnsupported
from clients.pulsar.wire.frames import Message, parse_message
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.reader import RawReader
from spark.blue_green.positions import positions_after
from spark.blue_green.spec import CopyEnds, TopicCopy

Entries = Iterator[tuple[EntryPosition, Message]]


class BlueSource(Closeable):
    """Reader of one topic of blue, up to what was confirmed when the task was made; for one thread.

    Args:
        ends: both clusters.
        copy: the topic.
    """

    def __init__(self, ends: CopyEnds, copy: TopicCopy) -> None:
        self._ends = ends
        self._copy = copy
        self._stack = ExitStack()

    def close(self) -> None:
        """Close all connections."""
        self._stack.close()

    def entries(self, after: EntryPosition) -> Entries:
        """Yield positions and messages after a position.

        Raises:
            StoreUnsupported: an entry cannot be copied because of its kind.
            StoreError: an entry cannot be read.
        """
        direct = self._ends.ledgers is not None and not self._copy.through_broker
        for position, message in self._from_bookies(after) if direct else self._from_brokers(after):
            if message.is_marker or message.in_transaction:
                what = "a marker of the brokers" if message.is_marker else "a message of a transaction"
                raise StoreUnsupported(
                    f"{self._copy.topic}: entry {position} is {what}, which has no meaning on another cluster; have "
                    "its idle subscriptions consumed on the old one (`wait`), or give up their backlog (`skip`)"
                )
            yield position, message

    def _from_bookies(self, after: EntryPosition) -> Entries:
        ends = self._ends
        assert ends.ledgers is not None
        directory = self._stack.enter_context(LedgerDirectory(ends.ledgers, ends.access))
        bookies = self._stack.enter_context(
            Bookies(directory.bookies, access=ends.access.to(ends.ledgers).bookies, read_timeout=ends.read_timeout)
        )
        reader = LedgerReader(bookies)
        for ledger_id, entries in self._copy.ledgers:
            first = after.entry_id + 1 if ledger_id == after.ledger_id else 0
            if ledger_id < after.ledger_id or first >= entries:
                continue
            (record,) = directory.read([ledger_id])
            if record is None:
                # A client consumed the ledger: the next snapshot of the topic no longer has it.
                raise StoreUnreachable(f"{self._copy.topic}: ledger {ledger_id} was deleted during the copy; try again")
            position = EntryPosition(ledger_id, first)
            # An open ledger is read up to the entry that its broker confirmed; its writer continues.
            for bodies in reader.entries(ledger_id, record.metadata, first, entries - 1):
                for body in bodies:
                    yield position, self._read(position, read_data(body, record.metadata.digest))
                    position = position.moved(1)

    def _from_brokers(self, after: EntryPosition) -> Entries:
        due = positions_after(self._copy.ledgers, after)
        expected = next(due, None)
        last = next(
            (EntryPosition(number, length - 1) for number, length in reversed(self._copy.ledgers) if length), None
        )
        if expected is None or last is None:
            return
        ends = self._ends
        reader = RawReader(ends.blue_url, self._copy.topic, ends.blue_access, after=after, notes=ends.notes)
        self._stack.enter_context(reader)
        for position, message in reader.entries(last):
            if position != expected:
                raise StoreUnsupported(
                    f"{self._copy.topic}: the broker returned entry {position} instead of {expected}, so it "
                    "withholds entries (transactions, markers of its own); have its idle "
                    "subscriptions consumed on the old cluster"
                )
            yield position, message
            expected = next(due, None)

    def _read(self, position: EntryPosition, data: bytes) -> Message:
        try:
            return parse_message(data)
        except StoreError as cause:
            raise cause.saying(f"{self._copy.topic}, entry {position}: {cause}") from cause

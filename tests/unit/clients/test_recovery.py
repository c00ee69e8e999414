"""Decisions of a ledger's recovery by bookies' answers, without a bookie; real ones are in the integration tier."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import pytest

from clients.bookkeeper import wire_v2
from clients.bookkeeper.connection import Refused
from clients.bookkeeper.digests import pack_entry
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.recovery import Added, Additions, Questions, Recovery
from clients.errors import BookieNotWritable, LedgerUnreadable, StoreUnreachable

LEDGER = 5
THREE = ("one:3181", "two:3181", "three:3181")
SIZE = 4


def body(entry: int) -> bytes:
    """Return an entry that tells that the one before it is confirmed."""
    return pack_entry(LEDGER, entry, b"data", length=SIZE * (entry + 1))


class Ensemble:
    """Three bookies, each with some entries.

    Args:
        held: the last entry of each that it has, with all before it; -1 for none.
        quorums: those of writes and of acknowledgements.

    Attributes:
        lost: bookies that do not answer.
        full: bookies that take no entry.
        corrupt: (bookie, entry) whose bytes are damaged.
        written: entries that were written again.
        spare: bookies that may take the place of others.
    """

    def __init__(self, held: Sequence[int], quorums: tuple[int, int] = (3, 2)) -> None:
        self.held: dict[str, int] = dict(zip(THREE, held, strict=True))
        self.quorums = quorums
        self.lost: set[str] = set()
        self.full: set[str] = set()
        self.corrupt: Collection[tuple[str, int]] = ()
        self.written: list[int] = []
        self.spare: list[str] = []
        self.fenced: set[str] = set()

    def writable(self) -> list[str]:
        """Return the bookies that take entries."""
        return [*(bookie for bookie in THREE if bookie not in self.full), *self.spare]

    def recover(self) -> LedgerMetadata:
        """Run a recovery; returns what the ledger is closed with."""
        metadata = LedgerMetadata(
            ensemble_size=3,
            write_quorum=self.quorums[0],
            ack_quorum=self.quorums[1],
            state=LedgerState.IN_RECOVERY,
            length=0,
            last_entry=-1,
            segments=(Segment(0, THREE),),
            digest=DigestType.CRC32C,
            custom=(),
        )
        steps = Recovery(cast("Bookies", self), LEDGER, metadata).run()
        try:
            step = next(steps)
            while True:
                step = steps.send(self._answers(step) if isinstance(step, Questions) else self._add(step))
        except StopIteration as end:
            return end.value

    def _answers(self, asked: Questions) -> dict[tuple[str, int], list[bytes] | Refused]:
        return {(bookie, entry): self._answer(bookie, entry) for bookie, entry in asked.wanted}

    def _answer(self, bookie: str, entry: int) -> list[bytes] | Refused:
        if bookie in self.lost:
            return Refused(wire_v2.LOST, "does not answer")
        self.fenced.add(bookie)
        last = self.held[bookie]
        wanted = last if entry == wire_v2.LAST_ENTRY else entry
        if wanted < 0 or wanted > last:
            return Refused(wire_v2.NO_ENTRY, "has no such entry")
        stored = body(wanted)
        return [stored[:-1] + b"!"] if (bookie, wanted) in self.corrupt else [stored]

    def _add(self, wanted: Additions) -> Added:
        ensemble = set(wanted.metadata.segments[-1].ensemble) - wanted.leave_out
        if failing := sorted(ensemble & (self.full | self.lost)):
            return Added(failing[0], BookieNotWritable(f"{failing[0]} is full", ledger_id=LEDGER))
        self.written += range(wanted.first_entry, wanted.first_entry + len(wanted.bodies))
        return Added()


def test_the_end_includes_every_entry_that_a_reader_may_have_seen() -> None:
    """An entry that one bookie has may have been acknowledged: it is kept, and written to all of them again."""
    ensemble = Ensemble((9, 9, 10))
    done = ensemble.recover()
    assert (done.state, done.last_entry, done.length) == (LedgerState.CLOSED, 10, SIZE * 11)
    assert ensemble.fenced == set(THREE)
    assert 10 in ensemble.written


def test_an_entry_that_no_bookie_has_ends_the_ledger() -> None:
    """The ledger ends before the first entry that too many bookies lack, and may be empty."""
    assert Ensemble((-1, -1, -1)).recover().last_entry == -1
    assert Ensemble((9, 8, 8), (3, 3)).recover().last_entry == 9


def test_a_writer_that_can_continue_is_not_closed() -> None:
    """As long as an ack quorum of bookies is not fenced, the writer may still be acknowledged."""
    ensemble = Ensemble((9, 9, 9))
    ensemble.lost = set(THREE[:2])
    with pytest.raises(StoreUnreachable, match="cannot be fenced"):
        ensemble.recover()


def test_silence_is_no_absence() -> None:
    """A bookie that does not answer may have the entry that the others lack: nothing is decided."""
    ensemble = Ensemble((9, 9, 9), (3, 2))
    ensemble.lost = {THREE[2]}
    # Two of three lack entry 10, so that no two can have acknowledged it.
    assert ensemble.recover().last_entry == 9
    ensemble = Ensemble((9, 9, 9), (3, 1))
    ensemble.lost = {THREE[2]}
    with pytest.raises(StoreUnreachable):
        ensemble.recover()


def test_a_damaged_copy_is_no_absence() -> None:
    """A copy whose digest is wrong shows that there was an entry; another copy of it counts."""
    ensemble = Ensemble((10, 9, 10))
    ensemble.corrupt = [(THREE[0], 10)]
    assert ensemble.recover().last_entry == 10
    ensemble = Ensemble((10, -1, 10), (3, 2))
    ensemble.corrupt = [(THREE[0], 10), (THREE[2], 10)]
    with pytest.raises(LedgerUnreadable):
        ensemble.recover()


def test_too_few_that_take_entries() -> None:
    """Recovered entries reach at least an ack quorum, or the ledger is not closed; a spare bookie helps."""
    ensemble = Ensemble((9, 9, 10))
    ensemble.full = set(THREE[1:])
    with pytest.raises(BookieNotWritable, match="ack quorum of 2"):
        ensemble.recover()
    ensemble = Ensemble((9, 9, 10))
    ensemble.full = set(THREE[1:])
    ensemble.spare = ["four:3181"]
    done = ensemble.recover()
    assert done.last_entry == 10
    assert "four:3181" in done.segments[-1].ensemble
    assert 10 in ensemble.written

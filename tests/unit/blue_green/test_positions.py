"""Positions of copied entries, and the entries among them that cursors have acknowledged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.blue_green.copy.copied_cursors import acknowledged
from clients.errors import StoreUnsupported
from clients.pulsar.admin.topics import CursorStats
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from spark.blue_green.copy_record import CopyRecord, copy_record
from spark.blue_green.positions import LedgerLength, PositionMap, Run, count_after, joined, positions_after

LEDGERS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def _places(lengths: list[int], first_ledger: int, *, count: int | None = None) -> list[EntryPosition]:
    ledgers = [LedgerLength(first_ledger + 2 * number, length) for number, length in enumerate(lengths)]
    return list(positions_after(ledgers, EARLIEST))[:count]


@given(LEDGERS, LEDGERS)
def test_map_finds_every_entry(blue_lengths: list[int], green_lengths: list[int]) -> None:
    """However ledgers roll on both sides, each entry has its number and its copy, also after the record was stored."""
    blue, green = _places(blue_lengths, 10), _places(green_lengths, 3)
    pairs = list(zip(blue, green, strict=False))
    positions = PositionMap()
    for pair in pairs:
        positions.append(*pair)
    record = CopyRecord(start=(-1, -1)).with_positions(positions, messages=1, size=1)
    again = CopyRecord.model_validate_json(record.encode()).positions
    assert again.runs == positions.runs
    assert len(positions.runs) <= len(blue_lengths) + len(green_lengths)
    assert (len(again), again.last) == (len(pairs), pairs[-1])
    for number, (mine, theirs) in enumerate(pairs):
        assert again.green_at(number) == theirs
        assert again.number_of(mine) == number
        assert again.up_to_on_blue(mine) == again.up_to_on_green(theirs) == number + 1
        assert again.up_to_on_blue(mine.moved(-1)) == number
    assert again.up_to_on_blue(EARLIEST) == 0
    assert again.up_to_on_blue(EntryPosition(10**9, 0)) == len(pairs)
    assert again.number_of(blue[-1].moved(1)) is None


def test_order_is_kept() -> None:
    """An entry that does not come after the last one, on either side, cannot be part of a copy."""
    positions = PositionMap([Run(EntryPosition(1, 0), EntryPosition(5, 0), 3)])
    for blue, green in (
        (EntryPosition(1, 2), EntryPosition(5, 3)),
        (EntryPosition(1, 3), EntryPosition(5, 2)),
        (EntryPosition(0, 9), EntryPosition(6, 0)),
    ):
        with pytest.raises(ValueError, match="do not come after"):
            positions.append(blue, green)


@given(LEDGERS, st.integers(0, 40))
def test_entries_after_a_position(lengths: list[int], number: int) -> None:
    """Entries after a position are counted without being listed."""
    ledgers = [LedgerLength(number, length) for number, length in enumerate(lengths)]
    places = list(positions_after(ledgers, EARLIEST))
    after = places[min(number, len(places) - 1)]
    assert list(positions_after(ledgers, after)) == [place for place in places if place > after]
    assert count_after(ledgers, after) == len([place for place in places if place > after])
    assert count_after(ledgers, EARLIEST) == len(places) == sum(lengths)


def test_acknowledged() -> None:
    """A cursor's text becomes the numbers of copied entries, on both sides alike, across ledgers too."""
    positions = PositionMap(
        [Run(EntryPosition(3, 5), EntryPosition(1, 0), 5), Run(EntryPosition(4, 0), EntryPosition(1, 5), 5)]
    )
    blue = CursorStats(mark_delete_position="3:6", individually_deleted_messages="[(3:7..3:8],(3:9..4:1],(4:3..4:9]]")
    assert acknowledged(blue, positions.up_to_on_blue) == [(0, 2), (3, 4), (5, 7), (9, 10)]
    green = CursorStats(mark_delete_position="1:1", individually_deleted_messages="[(1:2..1:3],(1:4..1:6],[1:9..1:10)]")
    assert acknowledged(green, positions.up_to_on_green) == [(0, 2), (3, 4), (5, 7), (9, 10)]
    nothing = CursorStats(mark_delete_position="3:4", individually_deleted_messages="[]")
    assert acknowledged(nothing, positions.up_to_on_blue) == []
    with pytest.raises(StoreUnsupported, match="unknown form"):
        acknowledged(CursorStats(mark_delete_position="3:4", individually_deleted_messages="7 of them"), lambda _: 0)


def test_joined() -> None:
    """Spans that touch or overlap are one, empty ones none."""
    assert joined([(5, 7), (0, 2), (7, 9), (3, 3), (1, 3)]) == [(0, 3), (5, 9)]


def test_records_have_paths_of_their_own() -> None:
    """No two topics share a record, whatever characters their names have."""
    names = ["persistent://a/b/c", "persistent://a/b/c%2Fd", "persistent://a/b/c/d", "persistent://a/b/c d"]
    assert len({copy_record(name) for name in names}) == len(names)

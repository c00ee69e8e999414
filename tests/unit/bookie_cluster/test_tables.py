"""The tables that hold all ledgers, references and verified ledgers at once: what they say, and what they take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.bookie_cluster.progress import IdNumbers
from clients.bookkeeper.ledger_table import LedgerFacts, LedgerTable
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference, ReferenceKind
from tests.support.bookie_cluster.records import ledger

MANY = 60_000
IDS = st.integers(0, 40)
METADATA = LedgerMetadata(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    state=LedgerState.CLOSED,
    length=1,
    last_entry=0,
    segments=(Segment(0, ("one:3181", "two:3181")),),
    digest=DigestType.CRC32C,
)


def named(number: int) -> LedgerFacts:
    """Return a ledger whose metadata differ from those of all others."""
    metadata = replace(
        METADATA,
        length=number << 20,
        segments=(Segment(0, (f"one-{number % 1_000}:3181", "two:3181")),),
        custom=(("application", b"pulsar"), ("pulsar/managed-ledger", b"public/default/%d" % number)),
    )
    return LedgerRecord(1 << 33 | number, metadata, 1, 1 << 40 | number, 1 << 40 | number).facts


def mention(number: int) -> LedgerReference:
    """Return one of four hundred references of a topic."""
    path = f"/managed-ledgers/public/default/persistent/{number // 400}"
    return LedgerReference(1 << 33 | number, ReferenceKind.DATA, path)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        pytest.param(lambda: LedgerTable(map(named, range(MANY))), 80, id="ledgers"),
        pytest.param(lambda: ReferenceTable(map(mention, range(MANY))), 40, id="references"),
        pytest.param(
            lambda: IdNumbers((1 << 33 | number, 1 << 40 | number) for number in range(MANY)), 24, id="verified"
        ),
    ],
)
def test_many_take_some_bytes_each(make: Callable[[], object], most: int) -> None:
    """Each item takes fewer than `most` bytes, whatever its metadata: all of a cluster are in memory at once."""
    tracemalloc.start()
    try:
        table = make()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == MANY  # type: ignore[arg-type]
    assert held / MANY < most


@given(ids=st.lists(IDS))
def test_ledgers_are_found_by_id(ids: list[int]) -> None:
    """A table says what a dictionary of the same ledgers says, in the order of ids; the later of two counts."""
    facts = [ledger(number, mzxid=place) for place, number in enumerate(ids)]
    wanted = {fact.ledger_id: fact for fact in facts}
    table = LedgerTable(facts)
    assert list(table.items()) == sorted(wanted.items())
    assert list(table.values()) == [wanted[number] for number in table]
    assert [table.get(number) for number in range(41)] == [wanted.get(number) for number in range(41)]
    assert [number in table for number in range(41)] == [number in wanted for number in range(41)]
    assert table.highest == max(ids, default=-1)
    assert set(table.only({3, 5})) == wanted.keys() & {3, 5}


def test_content_is_compared_by_what_is_kept() -> None:
    """Custom metadata, in any order, password and digest type are part of a ledger's content."""
    mine = replace(METADATA, custom=(("a", b"1"), ("b", b"2")))

    def facts(metadata: LedgerMetadata) -> LedgerFacts:
        return LedgerRecord(1, metadata, 0, 1, 1).facts

    assert facts(mine).same_content(facts(replace(mine, custom=(("b", b"2"), ("a", b"1")), write_quorum=1)))
    for other in (
        replace(mine, custom=(("a", b"1"),)),
        replace(mine, custom=(("a", b"1b"), ("", b"2"))),
        replace(mine, password=b"secret"),
        replace(mine, digest=DigestType.CRC32),
        replace(mine, length=2),
        replace(mine, last_entry=1),
        replace(mine, state=LedgerState.OPEN),
    ):
        assert not facts(mine).same_content(facts(other))
        assert not mine.same_content(other)


@given(ids=st.lists(IDS))
def test_references_are_found_by_ledger(ids: list[int]) -> None:
    """Each is found by its ledger, in any order the digest is the same, and with one more it is another."""
    references = [LedgerReference(number, ReferenceKind.DATA, f"/{place}", "a") for place, number in enumerate(ids)]
    table = ReferenceTable(references)
    assert list(table) == references
    assert [table.of(number) for number in range(41)] == [
        [reference for reference in references if reference.ledger_id == number] for number in range(41)
    ]
    assert table.ids == set(ids)
    assert ReferenceTable(reversed(references)).digest == table.digest
    assert table.plus([mention(1)]).digest != table.digest


@given(changes=st.lists(st.tuples(IDS, st.one_of(st.none(), st.integers(0, 9)))), recent=st.integers(1, 5))
def test_numbers_are_kept_as_in_a_dictionary(changes: list[tuple[int, int | None]], recent: int) -> None:
    """The table equals a dictionary after any sequence of changes, however often they are merged."""
    table, wanted = IdNumbers(), dict[int, int]()
    for count, (number, value) in enumerate(changes, 1):
        if value is None:
            assert table.pop(number, None) == wanted.pop(number, None)
        else:
            table[number] = wanted[number] = value
        assert table.get(number) == wanted.get(number)
        assert (number in table) == (number in wanted)
        # To count them merges what has changed.
        assert count % recent or len(table) == len(wanted)
    assert dict(table) == wanted
    assert len(table) == len(wanted)


def test_many_numbers_are_kept_as_in_a_dictionary() -> None:
    """Numbers that are merged while others are still set are all there, and the later one of an id counts."""
    wanted = {number * 7 % MANY: number for number in range(MANY)} | dict.fromkeys(range(0, MANY, 2), -1)
    table = IdNumbers((number * 7 % MANY, number) for number in range(MANY))
    for number in range(0, MANY, 2):
        table[number] = -1
    assert {number: table[number] for number in wanted} == wanted
    assert dict(table) == wanted

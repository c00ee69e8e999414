"""Choice of the ledgers that a bookie cluster migration moves, and of those that are known to be equal."""

from __future__ import annotations

import pytest

from activities.bookie_cluster.ledgers import (
    Verified,
    dangling,
    misattributed,
    moving,
    require_decodable,
    undecodable_references,
)
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.metadata import LedgerState
from clients.errors import StoreUnsupported
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import ReferenceKind
from models.bookie_cluster.input import Routing
from models.bookie_registry import BootstrapMarker
from tests.support.bookie_cluster.records import by_id, input, ledger, reference


def test_restart_moves_what_is_referred_to() -> None:
    """Only what this cluster's metadata name moves; compacted ledgers of other clusters do not."""
    ledgers = by_id([ledger(1), ledger(2), ledger(3, component="compacted-ledger")])
    named = [reference(2, ReferenceKind.DATA), reference(9, ReferenceKind.DATA)]

    assert sorted(moving(input(), "a", ledgers, named)) == [2]


@pytest.mark.parametrize(
    ("source", "target", "needed"),
    [({}, {}, []), ({8: "8"}, {}, ["8"]), ({9: "9"}, {}, []), ({}, {1: "1"}, ["1"]), ({}, {8: "8"}, ["8"])],
    ids=["none", "referred to", "of another program", "in the place of a copy", "referred to, in the target"],
)
def test_ledgers_that_cannot_be_decoded(source: dict[int, str], target: dict[int, str], needed: list[str]) -> None:
    """A ledger that cannot be decoded is an error only if something refers to it, or a copy would take its place."""
    sides = by_id([ledger(1)]), by_id([])
    sides[0].undecodable, sides[1].undecodable = source, target
    named = ReferenceTable([reference(8)])

    assert undecodable_references(*sides, named) == needed
    if needed:
        with pytest.raises(StoreUnsupported, match=f"1 ledgers that are needed cannot be decoded: {needed[0]}"):
            require_decodable(*sides, named)
    else:
        require_decodable(*sides, named)


def test_restart_moves_all_of_an_exclusive_cluster() -> None:
    """With `ledgers: all` every ledger of the cluster moves, whether or not something refers to it."""
    plan = input(ledgers="all", exclusive=True)

    assert sorted(moving(plan, "a", by_id([ledger(1), ledger(2)]), [])) == [1, 2]


def test_attribution_moves_schemas_and_cursors_of_the_source() -> None:
    """With routing `attribution` schema and cursor ledgers move that are said to be in the source, or nowhere."""
    named = [
        reference(1, ReferenceKind.SCHEMA),
        reference(2, ReferenceKind.CURSOR, cluster="a"),
        reference(3, ReferenceKind.CURSOR, cluster="b"),
        reference(4, ReferenceKind.DATA),
    ]
    ledgers = by_id(ledger(number) for number in (1, 2, 3, 4))

    assert sorted(moving(input(Routing.ATTRIBUTION), "a", ledgers, named)) == [1, 2]


def test_the_bootstrap_marker_is_read() -> None:
    """The marker has the form of PIP-477, "Cluster Registry"."""
    value = b'{ "bootstrapClusterName": "old-cluster", "recordedAt": 1716256800000 }'

    assert BootstrapMarker.model_validate_json(value).bootstrapClusterName == "old-cluster"


@pytest.mark.parametrize("value", [b"", b"old", b'"old"', b"{}", b'{"name": "old"}', b'{"bootstrapClusterName": "/a"}'])
def test_a_marker_that_names_no_cluster_is_refused(value: bytes) -> None:
    """A marker of another form says nothing about any ledger."""
    with pytest.raises(ValueError, match="BootstrapMarker"):
        BootstrapMarker.model_validate_json(value)


@pytest.mark.parametrize(
    ("bootstrap", "misplaced"),
    [(None, []), ("a", [2]), ("b", [1]), ("c", [1, 2, 3])],
    ids=["no marker", "source", "target", "another cluster"],
)
def test_ledgers_that_the_marker_misplaces(bootstrap: str | None, misplaced: list[int]) -> None:
    """A ledger without an attribution is misplaced if another cluster has it, and the one of the marker does not."""
    named = [
        reference(1, ReferenceKind.SCHEMA),
        reference(2, ReferenceKind.CURSOR),
        reference(3, ReferenceKind.DATA),
        reference(4, ReferenceKind.DATA, offloaded=True),
        reference(5, ReferenceKind.SCHEMA, cluster="a"),
        reference(6, ReferenceKind.COMPACTED),
        reference(9, ReferenceKind.DATA),
    ]
    ledgers = {"a": {1, 3, 4, 6}, "b": {2, 3, 5}}

    assert [item.ledger_id for item in misattributed(named, bootstrap, ledgers)] == misplaced


def test_dangling_positions() -> None:
    """A position dangles if the cluster lacks its ledger, unless the entries are in tiered storage."""
    named = [reference(1), reference(2), reference(3, offloaded=True)]

    assert [position.ledger_id for position in dangling({1}, named)] == [2]


class TestVerified:
    """A ledger counts as equal while both sides have the content, and the compared one the znode, of the comparison."""

    def test_unchanged(self) -> None:
        """The copy's znode is as it was when both were compared."""
        assert Verified(copies={1: 7}).holds(ledger(1), ledger(1, mzxid=7))

    @pytest.mark.parametrize("created", [6, 7])
    def test_moved_by_autorecovery(self, created: int) -> None:
        """Its znode was changed since, but not created since: its bookies are others, and its entries the same."""
        moved = ledger(1, mzxid=9, czxid=created)
        assert Verified(copies={1: 7}).holds(ledger(1), moved)
        assert Verified(originals={1: 7}).holds(moved, ledger(1))
        other = ledger(1, mzxid=9, czxid=created, length=5)
        assert not Verified(copies={1: 7}).holds(ledger(1), other)
        assert not Verified(originals={1: 7}).holds(other, ledger(1))

    def test_copies_of_the_other_direction_are_recognized(self) -> None:
        """A rollback does not copy a ledger that came from its target and has not changed since."""
        assert Verified(originals={1: 7}).holds(ledger(1, mzxid=7), ledger(1, mzxid=3))
        assert not Verified(originals={1: 7}).holds(ledger(1, mzxid=8), ledger(1, mzxid=3)), "created since"

    @pytest.mark.parametrize(
        ("record", "current"),
        [
            (ledger(1), None),
            (ledger(1), ledger(1, mzxid=8)),
            (ledger(1), ledger(1, mzxid=9, czxid=8)),
            (ledger(1), ledger(1, mzxid=6, czxid=5)),
            (ledger(1, length=5), ledger(1, mzxid=7)),
            (ledger(1, state=LedgerState.OPEN), ledger(1, state=LedgerState.OPEN, mzxid=7)),
            (ledger(1), ledger(1, state=LedgerState.OPEN, mzxid=7)),
            (ledger(2), ledger(2, mzxid=7)),
        ],
        ids=[
            "absent",
            "created since",
            "created and changed since",
            "in another ZooKeeper",
            "other content",
            "open",
            "copy unfinished",
            "never compared",
        ],
    )
    def test_unknown(self, record: LedgerFacts, current: LedgerFacts | None) -> None:
        """A ledger that is not the verified copy is compared again."""
        assert not Verified(copies={1: 7}).holds(record, current)

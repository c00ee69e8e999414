"""Restamping the bookie cluster of schemas and cursors (PIP-477, "Phase 5: PROMOTE", I9 and I10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.errors import StoreProtocolError
from clients.pulsar.attribution import ATTRIBUTION, attribution, set_schema_attribution
from clients.pulsar.formats_pb2 import SchemaLocator
from tests.unit.clients.test_pulsar_formats import COMPACTION_OPEN, SCHEMA

#: Fields that no version knows, in the middle and at the end.
LATER = b"\xa2\x06\x03abc"

clusters = st.none() | st.sampled_from(["A", "B", "C", ""])


def locator(*stamps: str | None, later: bool = False) -> bytes:
    """Return a schema's node with one version for each stamp, the last of them the newest."""
    made = SchemaLocator()
    for number, stamp in enumerate(stamps):
        entry = made.index.add(version=number, hash=b"h%d" % number)
        entry.position.ledgerId, entry.position.entryId = 100 + number, 0
        if stamp is not None:
            entry.position.properties.add(key="other", value="kept")
            entry.position.properties.add(key=ATTRIBUTION, value=stamp)
        if later:
            entry.position.MergeFromString(LATER)
            entry.MergeFromString(LATER)
    made.info.CopyFrom(made.index[-1])
    return LATER * later + made.SerializeToString()


def stamps_of(value: bytes) -> list[str | None]:
    """Return the attribution of each version; the newest one is first, and again at its position."""
    made = SchemaLocator.FromString(value)
    return [attribution(entry.position.properties) for entry in (made.info, *made.index)]


def without_stamps(value: bytes) -> bytes:
    """Return the node with every attribution taken away."""
    for cluster in ("A", "B", "C", ""):
        value = set_schema_attribution(value, cluster, None, absent=False) or value
    return value


def test_node_of_a_real_broker() -> None:
    """The newest version and the index are stamped, and taking the stamps away gives the broker's bytes back."""
    stamped = set_schema_attribution(SCHEMA, "A", "B")
    assert stamped
    assert stamps_of(stamped) == ["B", "B"]
    assert set_schema_attribution(stamped, "A", "B") is None
    assert set_schema_attribution(stamped, "B", None) == SCHEMA


def test_only_the_old_cluster_is_moved() -> None:
    """Versions that are on a third cluster, or on the new one already, are left alone."""
    value = locator("A", "C", None, "B", "A")
    assert stamps_of(set_schema_attribution(value, "A", "B") or b"") == ["B", "B", "C", "B", "B", "B"]
    assert stamps_of(set_schema_attribution(value, "A", "B", absent=False) or b"") == ["B", "B", "C", None, "B", "B"]
    assert stamps_of(set_schema_attribution(value, None, "A") or b"") == ["A", "A", "C", "A", "B", "A"]
    assert set_schema_attribution(locator("C", "B"), "A", "B") is None


def test_only_some_ledgers_are_moved() -> None:
    """Versions whose ledgers were not built on the new cluster stay where they are."""
    value = locator("A", None, "A")
    assert stamps_of(set_schema_attribution(value, "A", "B", ledgers={100, 101}) or b"") == ["A", "B", "B", "A"]
    assert set_schema_attribution(value, "A", "B", ledgers=()) is None


@given(st.lists(clusters, min_size=1, max_size=6), clusters, clusters, st.booleans(), st.booleans())
def test_nothing_else_changes(
    stamps: list[str | None], old: str | None, new: str | None, absent: bool, later: bool
) -> None:
    """Setting an attribution leaves every other byte as it was, including unknown fields at their positions."""
    value = locator(*stamps, later=later)
    moved = set_schema_attribution(value, old, new, absent=absent)
    assert (moved is None) == (stamps_of(moved or value) == stamps_of(value))
    assert without_stamps(moved or value) == without_stamps(value)
    expected = [new if stamp == old or (stamp is None and absent) else stamp for stamp in stamps]
    assert stamps_of(moved or value) == [expected[-1], *expected]


@given(st.lists(clusters, min_size=1, max_size=6))
def test_rollback(stamps: list[str | None]) -> None:
    """Versions on the old cluster alone come back from the new one byte for byte."""
    value = locator(*(stamp if stamp == "A" else "C" for stamp in stamps), later=True)
    moved = set_schema_attribution(value, "A", "B")
    assert moved is None or set_schema_attribution(moved, "B", "A") == value


def test_other_nodes_are_refused() -> None:
    """A node of another kind is an error of the store, and gets no attribution."""
    with pytest.raises(StoreProtocolError):
        set_schema_attribution(COMPACTION_OPEN[2:], "A", "B")
    with pytest.raises(StoreProtocolError):
        set_schema_attribution(SCHEMA[:-1], "A", "B")

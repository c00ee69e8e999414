"""Rules for a record of one store that is copied to another, as tables."""

from __future__ import annotations

import pytest

from clients.store import Record
from models.store_url import parse_store_url
from spark.metadata_store.equivalence import Equivalence, is_coordination, migrates

STORES = {"zk": "zk:a:1", "oxia": "oxia://b:2"}
PAIRS = ["zk-oxia", "zk-zk", "oxia-oxia", "oxia-zk"]

PLAIN, PARENT = b"/admin/policies/public", b"/ledgers/idgen"


def pair(name: str) -> Equivalence:
    """Return the rules of a pair of stores, by its name."""
    source, _, target = name.partition("-")
    return Equivalence(parse_store_url(STORES[source]), parse_store_url(STORES[target]))


def record(path: bytes = PLAIN, value: bytes = b"v", version: int = 0, count: int = 0) -> Record:
    """Return a persistent record."""
    return Record(path, value, version, count, owner=0, changed=9, children_changed=8)


@pytest.mark.parametrize(
    ("name", "source", "wanted"),
    [
        # To Oxia the version is kept; the modification count is the version or the next child's number.
        ("zk-oxia", record(PLAIN, b"v", 5, 2), (5, 5)),
        ("zk-oxia", record(PLAIN, b"v", 5, 9), (5, 5)),
        ("zk-oxia", record(PLAIN, b"", 0, 9), (0, 9)),
        ("zk-oxia", record(PLAIN, b"", 5, 2), (5, 5)),
        ("zk-oxia", record(PARENT, b"v", 1, 40), (1, 40)),
        ("zk-oxia", record(b"/ledgers/idgen-long/HOB-0000000001", b"v", 1, 40), (1, 40)),
        ("zk-oxia", record(b"/counters/producer-name", b"v", 1, 40), (1, 40)),
        ("zk-oxia", record(b"/counters/producer-name/x", b"v", 1, 40), (1, 1)),
        # Within a kind of store a record stays what it is.
        ("zk-zk", record(PLAIN, b"v", 5, 2), (5, 2)),
        ("oxia-oxia", record(PLAIN, b"v", 5, 2), (5, 2)),
        # Back to ZooKeeper versions begin again; Oxia's next number is one above its count.
        ("oxia-zk", record(PLAIN, b"v", 5, 2), (0, 0)),
        ("oxia-zk", record(PLAIN, b"", 5, 2), (0, 3)),
        ("oxia-zk", record(PARENT, b"v", 5, 40), (0, 41)),
    ],
)
def test_wanted(name: str, source: Record, wanted: tuple[int, int]) -> None:
    """The target must hold the same path and value, and version and count by the rule of the pair."""
    expected = pair(name).wanted(source)
    assert (expected.version, expected.count) == wanted
    assert (expected.path, expected.value) == (source.path, source.value)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("path", "value"), [(PLAIN, b"v"), (PLAIN, b""), (PARENT, b"v")])
@pytest.mark.parametrize(("version", "count"), [(0, 0), (3, 7), (7, 3)])
def test_wanted_is_equal(name: str, path: bytes, value: bytes, version: int, count: int) -> None:
    """The record that the target must hold counts as equal; with another value it does not."""
    rules, source = pair(name), record(path, value, version, count)
    wanted = rules.wanted(source)
    assert rules.equal(source, wanted)
    assert not rules.equal(source, wanted._replace(value=b"other"))


@pytest.mark.parametrize(
    ("name", "version_matters", "less_counts", "more_counts"),
    [
        ("zk-oxia", True, False, False),
        ("zk-zk", True, False, True),
        ("oxia-oxia", True, False, False),
        ("oxia-zk", False, False, True),
    ],
)
def test_what_differs(name: str, version_matters: bool, less_counts: bool, more_counts: bool) -> None:
    """Versions matter, except in a copy back to ZooKeeper; a znode may count more children than needed, never less."""
    rules, source = pair(name), record(value=b"", version=4, count=6)
    wanted = rules.wanted(source)
    assert rules.equal(source, wanted._replace(version=wanted.version + 1)) is not version_matters
    assert rules.equal(source, wanted._replace(count=wanted.count - 1)) is less_counts
    assert rules.equal(source, wanted._replace(count=wanted.count + 1)) is more_counts


def test_children_of_plain_records_do_not_matter_in_zookeeper() -> None:
    """A znode with a value that is not a counter may have had any number of children."""
    rules, source = pair("zk-zk"), record(version=4, count=6)
    assert rules.equal(source, source._replace(count=0))
    assert rules.counter(source) == 0


@pytest.mark.parametrize(
    ("name", "source", "steps"),
    [
        ("zk-oxia", record(version=9, count=4), 0),
        ("oxia-oxia", record(version=9, count=4), 0),
        ("zk-zk", record(version=9, count=4), 9),
        ("zk-zk", record(value=b"", version=2, count=4), 4),
        ("oxia-zk", record(version=9, count=4), 0),
        ("oxia-zk", record(value=b"", version=9, count=4), 5),
    ],
)
def test_steps(name: str, source: Record, steps: int) -> None:
    """Only ZooKeeper must count up, to the version or the next number, whichever is higher."""
    assert pair(name).raise_needed(source) == steps


@pytest.mark.parametrize("name", PAIRS)
def test_hashes_agree_with_equality(name: str) -> None:
    """The numbers that bulk sums are made of agree for a record and its copy."""
    rules = pair(name)
    for source in (record(version=3, count=7), record(value=b"", version=3, count=7), record(PARENT, b"v", 3, 7)):
        assert rules.source_numbers(source) == rules.target_numbers(rules.wanted(source))


@pytest.mark.parametrize("name", PAIRS)
def test_parents_without_a_record(name: str) -> None:
    """Only ZooKeeper needs parents that Oxia does not have: without a value, and with children."""
    rules = pair(name)
    assert rules.may_exist_alone(record(value=b"", count=1)) is (name == "oxia-zk")
    assert not rules.may_exist_alone(record(value=b"v", count=1))
    assert not rules.may_exist_alone(record(value=b"", count=0))


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        (b"/pulsar/migration-coordinator", True),
        (b"/pulsar/migration-coordinator/migration", True),
        (b"/pulsar/migration-coordinator-2", False),
        (b"/pulsar", False),
        (b"/admin/pulsar/migration-coordinator", False),
    ],
)
def test_coordination_is_not_metadata(path: bytes, ours: bool) -> None:
    """The migration's own subtree is never copied or compared, and its neighbours are."""
    assert is_coordination(path) is ours
    assert migrates(record(path)) is not ours


def test_ephemerals_are_not_metadata() -> None:
    """A record that belongs to a session is not copied."""
    assert not migrates(record()._replace(owner=0x10001))


@pytest.mark.parametrize("name", PAIRS)
def test_an_ephemeral_is_not_a_copy(name: str) -> None:
    """An ephemeral that a failed attempt left at the path of a persistent record ends with its session."""
    rules, source = pair(name), record()
    assert not rules.equal(source, rules.wanted(source)._replace(owner=7))

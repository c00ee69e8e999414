"""The benchmark's ZooKeeper snapshot: format, mix and repeatability."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.metadata_store.dataset import Dataset, cached, generate

_MB = 5
_CLOSING = struct.pack(">i", 1) + b"/"


class _Node(NamedTuple):
    value: bytes
    version: int
    created: int


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A small dataset."""
    return generate(_MB, tmp_path_factory.mktemp("dataset") / "snapshot")


@pytest.fixture(scope="module")
def nodes(made: Dataset) -> dict[bytes, _Node]:
    """Its nodes by path, in the file's order."""
    return _parse(made.snapshot.read_bytes())


def _parse(content: bytes) -> dict[bytes, _Node]:
    nodes: dict[bytes, _Node] = {}
    at = 24
    while content[at : at + 5] != _CLOSING:
        (path_size,) = struct.unpack_from(">i", content, at)
        path = content[at + 4 : at + 4 + path_size]
        at += 4 + path_size
        (value_size,) = struct.unpack_from(">i", content, at)
        value = content[at + 4 : at + 4 + value_size]
        at += 4 + value_size
        *_, version, created, _aversion, _owner, _pzxid = struct.unpack_from(">qqqqqiiiqq", content, at)
        at += struct.calcsize(">qqqqqiiiqq")
        assert path not in nodes
        nodes[path] = _Node(value, version, created)
    return nodes


def _records(nodes: dict[bytes, _Node]) -> dict[bytes, _Node]:
    return {path: node for path, node in nodes.items() if path and not path.startswith(b"/zookeeper")}


def test_header_and_sum_are_those_of_a_snapshot(made: Dataset) -> None:
    """The file begins with ZooKeeper's magic and version and ends with the Adler-32 sum of all before it."""
    content = made.snapshot.read_bytes()
    assert struct.unpack_from(">4siqii", content) == (b"ZKSN", 2, -1, 0, 0)
    assert content.endswith(_CLOSING)
    (checksum,) = struct.unpack_from(">q", content, len(content) - 13)
    assert checksum == zlib.adler32(content[:-13])


def test_parents_come_first_and_count_their_children(nodes: dict[bytes, _Node]) -> None:
    """Every node comes after its parent, and each parent has counted as many creations as it has children."""
    children = dict.fromkeys(nodes, 0)
    seen: set[bytes] = set()
    for path in nodes:
        if path:
            parent = path.rpartition(b"/")[0]
            assert parent in seen
            children[parent] += 1
        seen.add(path)
    counted = {path: node.created for path, node in nodes.items() if path != b"/ledgers/idgen"}
    assert counted == {path: count for path, count in children.items() if path != b"/ledgers/idgen"}


def test_counts_are_those_of_the_file(made: Dataset, nodes: dict[bytes, _Node]) -> None:
    """Records and bytes that the dataset claims are in its file, and the size is the one asked for within a percent."""
    records = _records(nodes)
    assert made.records == len(records) == sum(made.kinds.values())
    assert made.value_bytes == sum(len(node.value) for node in records.values())
    assert made.value_bytes == pytest.approx(_MB * 1_000_000, rel=0.01)


def test_mix_is_that_of_a_cluster(made: Dataset, nodes: dict[bytes, _Node]) -> None:
    """Each topic has two cursors, half a schema and eight ledgers, and about three nodes in ten were changed."""
    topics = made.kinds["managed ledger"]
    assert made.kinds["cursor"] == 2 * topics
    assert made.kinds["schema"] == (topics + 1) // 2
    assert made.kinds["ledger"] == 8 * topics
    assert made.kinds["policies"] == made.kinds["local policies"] == -(-topics // 200)
    changed = sum(node.version > 0 for node in nodes.values())
    assert 0.25 < changed / made.records < 0.38


def test_ledgers_are_numbered_without_a_gap(made: Dataset, nodes: dict[bytes, _Node]) -> None:
    """Ledger ids run from 0 to the number that the id generator has counted, and each value names its ledger."""
    ledgers = [(path, node) for path, node in nodes.items() if path.rpartition(b"/")[2].startswith(b"L")]
    ids = [int(path.removeprefix(b"/ledgers/").replace(b"/L", b"").replace(b"/", b"")) for path, _ in ledgers]
    assert ids == list(range(made.kinds["ledger"]))
    assert nodes[b"/ledgers/idgen"].created == made.kinds["ledger"]
    assert all(node.value.startswith(b"%08d" % number) for number, (_, node) in zip(ids, ledgers, strict=True))


def test_sizes_stay_within_their_kinds(nodes: dict[bytes, _Node]) -> None:
    """Ledgers have 300 to 1,000 bytes, cursors 20 to 200."""
    ledgers = [len(node.value) for path, node in nodes.items() if path.rpartition(b"/")[2].startswith(b"L")]
    cursors = [len(node.value) for path, node in nodes.items() if path.rpartition(b"/")[2].startswith(b"sub-")]
    assert ledgers
    assert min(ledgers) >= 300
    assert max(ledgers) <= 1_000
    assert cursors
    assert min(cursors) >= 20
    assert max(cursors) <= 200


def test_every_generation_is_the_same(made: Dataset, tmp_path: Path) -> None:
    """Two generations of one size are equal to the byte."""
    again = generate(_MB, tmp_path / "again")
    assert again.snapshot.read_bytes() == made.snapshot.read_bytes()
    assert (again.records, again.value_bytes, again.kinds) == (made.records, made.value_bytes, made.kinds)


def test_second_request_takes_the_cached_file(tmp_path: Path) -> None:
    """A dataset that is there is not written again, and is described as it was."""
    first = cached(1, tmp_path)
    written = first.snapshot.stat()
    assert cached(1, tmp_path) == first
    assert first.snapshot.stat() == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata-1mb-v1.json", "metadata-1mb-v1.snapshot"]


@pytest.mark.parametrize("mb", [0, -1, 10_001])
def test_sizes_out_of_range_are_refused(mb: int, tmp_path: Path) -> None:
    """A size that holds nothing, or that the fixed-width names cannot number, is refused before anything is written."""
    with pytest.raises(ValueError, match="invalid dataset size"):
        generate(mb, tmp_path / "snapshot")
    assert list(tmp_path.iterdir()) == []

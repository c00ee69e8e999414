"""The ops that bring a znode to a record, played on a model of ZooKeeper's rules."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.errors import RecordNotWritable
from clients.store import Record
from clients.zookeeper import wire
from clients.zookeeper.ops import (
    REQUEST_BYTES,
    UNFINISHED,
    ExistingNode,
    Ops,
    ancestors,
    count_ops,
    is_no_data,
    requests,
    write_ops,
)

PATH = b"/a/node"


@dataclass
class Node:
    """A znode's value and version."""

    value: bytes
    version: int = 0


def record(value: bytes = b"v", version: int = 0, owner: int = 0) -> Record:
    """Return a record of the one path."""
    return Record(PATH, value, version, 0, owner, 1, 1)


def play(body: bytes, tree: dict[bytes, Node], births: list[bytes]) -> None:
    """Apply a multi as a server does; a step that a server would refuse fails the test."""
    offset = 0
    while True:
        op, done, _ = struct.unpack_from(">ibi", body, offset)
        offset += 9
        if done:
            assert offset == len(body)
            return
        path, offset = wire.read_buffer(body, offset)
        if op == wire.CREATE:
            assert path not in tree
            value, offset = wire.read_buffer(body, offset)
            offset += len(wire.OPEN_ACL) + 4
            tree[path] = Node(value)
            births.append(path)
            continue
        value = b""
        if op == wire.SET_DATA:
            value, offset = wire.read_buffer(body, offset)
        (expected,) = struct.unpack_from(">i", body, offset)
        offset += 4
        # Of the node itself only what was read is replaced; the child that no client sees has only one version.
        assert expected == tree[path].version or (expected == -1 and path != PATH)
        if op == wire.DELETE:
            del tree[path]
        else:
            tree[path] = Node(value, tree[path].version + 1)


def play_ops(ops: Ops | None, tree: dict[bytes, Node]) -> list[bytes]:
    """Play the ops, each request within the bytes that are aimed at; returns the paths created."""
    births: list[bytes] = []
    for body in requests([ops] if ops else []):
        assert len(body) < 1_040_000
        play(body, tree, births)
    return births


@given(
    wanted=st.builds(record, st.sampled_from([b"", b"v", b"w" * 600_000]), st.integers(0, 40)),
    existing=st.none() | st.builds(record, st.sampled_from([b"", b"v"]), st.integers(0, 40)),
)
def test_reaches_value_and_version(wanted: Record, existing: Record | None) -> None:
    """Any existing node without children becomes the record, with value and version."""
    tree = {PATH: Node(existing.value, existing.version)} if existing else {}
    node = ExistingNode(existing, 0) if existing else None
    play_ops(write_ops(wanted, node, keep_version=True, max_raise=100), tree)
    assert tree == {PATH: Node(wanted.value, wanted.version)}


@given(existing=st.none() | st.builds(record, st.sampled_from([b"", b"v"]), st.integers(0, 5)))
def test_without_versions_one_step(existing: Record | None) -> None:
    """Without versions at most one step brings the value."""
    tree = {PATH: Node(existing.value, existing.version)} if existing else {}
    ops = write_ops(
        record(version=1 << 40), ExistingNode(existing, 0) if existing else None, keep_version=False, max_raise=1
    )
    assert len(list(ops.parts if ops else [])) <= 1
    ops = write_ops(
        record(version=1 << 40), ExistingNode(existing, 0) if existing else None, keep_version=False, max_raise=1
    )
    play_ops(ops, tree)
    assert tree[PATH].value == b"v"


def test_equal_takes_no_step() -> None:
    """A node that equals the record is not touched."""
    assert write_ops(record(version=3), ExistingNode(record(version=3), 2), keep_version=True, max_raise=0) is None


def test_long_raise_is_spread_and_marked() -> None:
    """A version that takes several requests is marked as unfinished until its last step."""
    ops = write_ops(record(version=30_000), None, keep_version=True, max_raise=30_000)
    assert ops
    assert ops.spread
    tree: dict[bytes, Node] = {}
    bodies = list(requests([ops]))
    for body in bodies[:-1]:
        assert len(body) <= REQUEST_BYTES + 1024
        play(body, tree, [])
        assert tree[PATH].value == UNFINISHED
        assert is_no_data(ExistingNode(record(UNFINISHED, tree[PATH].version), 0))
    play(bodies[-1], tree, [])
    assert tree[PATH] == Node(b"v", 30_000)


def test_limit_names_path_and_number() -> None:
    """A version or count out of reach is refused with path and number."""
    with pytest.raises(RecordNotWritable, match=r"/a/node has version 11, which takes 11 sets .* 10 are"):
        write_ops(record(version=11), None, keep_version=True, max_raise=10)
    with pytest.raises(RecordNotWritable, match=r"/a/node had 50 children, which takes 20 creations"):
        count_ops(PATH, 30, 50, max_raise=19)


def test_negative_version_is_refused() -> None:
    """A version that has overflowed cannot be reached, and is refused."""
    with pytest.raises(RecordNotWritable, match="-2147483648"):
        write_ops(record(version=-(1 << 31)), None, keep_version=True, max_raise=10)


def test_ephemeral_is_not_overwritten() -> None:
    """A node that belongs to a session in the target is not turned into data."""
    with pytest.raises(RecordNotWritable, match="0x77"):
        write_ops(record(), ExistingNode(record(owner=0x77), 0), keep_version=True, max_raise=10)


@given(current=st.integers(0, 50), wanted=st.integers(0, 50))
def test_count_is_reached_and_leaves_nothing(current: int, wanted: int) -> None:
    """A count that is short is raised by children that are gone afterwards."""
    tree = {PATH: Node(b"")}
    births = play_ops(count_ops(PATH, current, wanted, max_raise=50), tree)
    assert len(births) == max(0, wanted - current)
    assert list(tree) == [PATH]


def test_mere_parents_are_no_data() -> None:
    """Only a node without value and history that has children counts as a mere parent."""
    assert is_no_data(ExistingNode(record(b""), 1))
    assert not is_no_data(ExistingNode(record(b""), 0))
    assert not is_no_data(ExistingNode(record(b"", version=1), 1))
    assert not is_no_data(ExistingNode(record(b"v"), 1))


def test_ancestors() -> None:
    """The paths above a node are listed from the nearest up, without the root."""
    assert list(ancestors(b"/a/b/c")) == [b"/a/b", b"/a"]
    assert list(ancestors(b"/a")) == []

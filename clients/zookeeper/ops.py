"""What must be done to make a znode equal to a record, as parts of a multi. Pure: no server is asked here.

ZooKeeper has no call that sets a version or a count. A node's version grows by one with each set, and its count by one
with each child created, so both are brought up step by step; a version that is too high needs a new node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from clients.errors import RecordNotWritable
from clients.store import Record
from clients.zookeeper import wire

#: Value of a node whose version is still on its way up over several requests: whoever finds it continues with it.
UNFINISHED = b"\0pulsar-migrate: this copy is not finished"
#: Bytes of a multi that are aimed at: servers keep the last 500 transactions in memory, several times as large there.
REQUEST_BYTES = 128 << 10
#: Bytes that one record's parts may take before they are spread over several multis.
_RECORD_BYTES = 1_000_000
#: Bytes of a set, create or delete besides path and value; never less than what the wire takes.
_OVERHEAD = 64
#: Characters that ZooKeeper refuses in a path; those beyond the basic plane are surrogates there.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_DUMMY = b"/.pulsar-migrate-count"


class Standing(NamedTuple):
    """A node as it stands in the target."""

    record: Record
    children: int


class Ops(NamedTuple):
    """Parts of a multi, in order, and their size in bytes at most; `spread` if several multis must take them."""

    parts: Iterable[bytes]
    size: int
    spread: bool = False


def ancestors(path: bytes) -> Iterator[bytes]:
    """The paths above this one, nearest first, without the root."""
    end = path.rfind(b"/")
    while end > 0:
        path = path[:end]
        yield path
        end = path.rfind(b"/")


def check_path(path: bytes) -> None:
    """Refuse a path that ZooKeeper would refuse.

    Raises:
        RecordNotWritable: it would.
    """
    name = _name(path)
    parts = name.split("/")
    if parts[0] or len(parts) < 2 or not {"", ".", ".."}.isdisjoint(parts[1:]) or _REFUSED.search(name):
        raise RecordNotWritable(f"{name!r} is no path in ZooKeeper; leave this record out, or rename it in the source")


def is_no_data(standing: Standing) -> bool:
    """Whether the node is an attempt that was not finished, or stands only because something beneath it needed it."""
    value, version = standing.record.value, standing.record.version
    return value == UNFINISHED or (not value and not version and standing.children > 0)


def needs_new_node(record: Record, standing: Standing) -> bool:
    """Whether the node stands with a version that no number of sets can turn into the record's."""
    ahead = standing.record.version - record.version
    return ahead > 0 or (ahead == 0 and standing.record.value != record.value)


def create_op(path: bytes) -> Ops:
    """Create a node that is a mere parent."""
    return Ops([wire.op_create(path, b"")], len(path) + _OVERHEAD)


def delete_op(path: bytes, version: int = -1) -> Ops:
    """Delete a node that has no children by then, at a version or (-1) at any."""
    return Ops([wire.op_delete(path, version)], len(path) + _OVERHEAD)


def write_ops(record: Record, standing: Standing | None, *, keep_version: bool, max_raise: int) -> Ops | None:
    """Create the node, set it, or replace it where it has no children and its version is too high.

    Args:
        record: path on the server, value and version wanted.
        standing: the node in the target, None if there is none.
        keep_version: whether the version matters.
        max_raise: sets that are too many.

    Returns:
        None if nothing is to be done.

    Raises:
        RecordNotWritable: the node belongs to a session, or the version is out of reach.
    """
    path, value = record.path, record.value
    if standing and standing.record.owner:
        owner = standing.record.owner
        raise RecordNotWritable(
            f"{_name(path)} is an ephemeral node of session {owner:#x} in the target; end that session first",
            path=path,
        )
    if not keep_version:
        return _set_once(record, standing)
    before = b""
    if standing and needs_new_node(record, standing):
        before = wire.op_delete(path, standing.record.version)
        standing = None
    first = standing.record.version if standing else 0
    raised = record.version - first
    # Negative where the source's version has wrapped around at 2^31: as many sets would be needed here.
    if not 0 <= raised <= max_raise:
        raise RecordNotWritable(
            f"{_name(path)} has version {record.version}, which takes {raised} sets in the target where {max_raise} "
            "are allowed; raise that limit, or copy this store to Oxia",
            path=path,
        )
    if standing and not raised:
        return None
    size = len(value) + (raised + 2) * (len(path) + _OVERHEAD)
    if size <= _RECORD_BYTES or not raised:
        return Ops(_raise(before, record, standing, b""), size)
    return Ops(_raise(before, record, standing, UNFINISHED), size + raised * len(UNFINISHED), spread=True)


def _set_once(record: Record, standing: Standing | None) -> Ops | None:
    size = len(record.path) + len(record.value) + _OVERHEAD
    if standing is None:
        return Ops([wire.op_create(record.path, record.value)], size)
    if standing.record.value == record.value:
        return None
    return Ops([wire.op_set(record.path, record.value, standing.record.version)], size)


def _raise(before: bytes, record: Record, standing: Standing | None, filler: bytes) -> Iterator[bytes]:
    """Each set names the version that it expects, so that nothing continues from a step that failed."""
    path, value, last = record.path, record.value, record.version
    if before:
        yield before
    if standing is None:
        yield wire.op_create(path, filler if last else value)
    for version in range(standing.record.version if standing else 0, last):
        # mutant: metadata-store/sets-of-any-version
        yield wire.op_set(path, value if version + 1 == last else filler, version)


def count_ops(path: bytes, standing_count: int, wanted: int, max_raise: int) -> Ops | None:
    """Create and delete a child that nobody sees, as often as the count is short.

    Raises:
        RecordNotWritable: that is too often.
    """
    short = wanted - standing_count
    if short <= 0:
        return None
    if short > max_raise:
        raise RecordNotWritable(
            f"{_name(path)} had {wanted} children, which takes {short} creations in the target where {max_raise} are "
            "allowed; raise that limit, or copy this store to Oxia",
            path=path,
        )
    child = path + _DUMMY
    pair = wire.op_create(child, b"") + wire.op_delete(child)
    return Ops((pair for _ in range(short)), short * len(pair), spread=True)


def requests(ops: Sequence[Ops], first: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Bodies of multis: what belongs together stays together, unless it is to be spread; `first` begins each."""
    parts: list[bytes] = []
    size = 0
    for one in ops:
        if not one.spread:
            if parts and size + one.size > REQUEST_BYTES:
                yield wire.multi([*first, *parts])
                parts, size = [], 0
            parts += one.parts
            size += one.size
            continue
        for part in one.parts:
            if parts and size + len(part) > REQUEST_BYTES:
                yield wire.multi([*first, *parts])
                parts, size = [], 0
            parts.append(part)
            size += len(part)
    if parts:
        yield wire.multi([*first, *parts])


def _name(path: bytes) -> str:
    return path.decode(errors="replace")

"""Operations of a multi that make a znode equal to a record. Pure: no server is asked here.

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

#: Value of a node whose version is raised by several requests: the attempt that finds it continues with it.
UNFINISHED = b"\0pulsar-migrate: this copy is not finished"
#: Bytes of a multi that are aimed at: servers keep the last 500 transactions in memory, several times as large there.
REQUEST_BYTES = 128 << 10
#: Bytes that one record's parts, or a replacement, may take before they are spread over several multis.
RECORD_BYTES = 1_000_000
#: Bytes of a set, create or delete besides path and value; never less than what the wire takes.
_OVERHEAD = 64
#: Characters that ZooKeeper refuses in a path; those beyond the basic plane are surrogates there.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_DUMMY = b"/.pulsar-migrate-count"


class ExistingNode(NamedTuple):
    """Node that exists in the target."""

    record: Record
    children: int


class Ops(NamedTuple):
    """Parts of a multi, in order, and their size in bytes at most; `spread` if several multis must take them."""

    parts: Iterable[bytes]
    size: int
    spread: bool = False


def ancestors(path: bytes) -> Iterator[bytes]:
    """Yield the paths above this one, nearest first, without the root."""
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
        raise RecordNotWritable(
            f"{name!r} is not a valid path in ZooKeeper; leave this record out, or rename it in the source"
        )


def is_no_data(existing: ExistingNode) -> bool:
    """Return whether a node was left unfinished by an attempt, or was created only as the parent of another node."""
    value, version = existing.record.value, existing.record.version
    return value == UNFINISHED or (not value and not version and existing.children > 0)


def needs_new_node(record: Record, existing: ExistingNode) -> bool:
    """Return whether the node has a version that no number of sets can turn into the record's."""
    ahead = existing.record.version - record.version
    return ahead > 0 or (ahead == 0 and existing.record.value != record.value)


def create_op(path: bytes) -> Ops:
    """Create a node that is a mere parent."""
    return Ops([wire.op_create(path, b"")], len(path) + _OVERHEAD)


def delete_op(path: bytes, version: int = -1) -> Ops:
    """Delete a node that has no children by then, at a version or (-1) at any."""
    return Ops([wire.op_delete(path, version)], len(path) + _OVERHEAD)


def write_ops(record: Record, existing: ExistingNode | None, *, keep_version: bool, max_raise: int) -> Ops | None:
    """Create the node, set it, or replace it where it has no children and its version is too high.

    Args:
        record: path on the server, value and version wanted.
        existing: the node in the target, None if there is none.
        keep_version: whether the version matters.
        max_raise: sets that are too many.

    Returns:
        None if nothing is to be done.

    Raises:
        RecordNotWritable: the node belongs to a session, or the version is out of reach.
    """
    path, value = record.path, record.value
    if existing and existing.record.owner:
        owner = existing.record.owner
        raise RecordNotWritable(
            f"{_name(path)} is an ephemeral node of session {owner:#x} in the target; end that session first",
            path=path,
        )
    if not keep_version:
        return _set_once(record, existing)
    before = b""
    if existing and needs_new_node(record, existing):
        before = wire.op_delete(path, existing.record.version)
        existing = None
    first = existing.record.version if existing else 0
    raised = record.version - first
    # Negative where the source's version has wrapped around at 2^31: as many sets would be needed here.
    if not 0 <= raised <= max_raise:
        raise RecordNotWritable(
            f"{_name(path)} has version {record.version}, which takes {raised} sets in the target where {max_raise} "
            "are allowed; raise that limit, or copy this store to Oxia",
            path=path,
        )
    if existing and not raised:
        return None
    size = len(value) + (raised + 2) * (len(path) + _OVERHEAD)
    if size <= RECORD_BYTES or not raised:
        return Ops(_raise(before, record, existing, b""), size)
    return Ops(_raise(before, record, existing, UNFINISHED), size + raised * len(UNFINISHED), spread=True)


def _set_once(record: Record, existing: ExistingNode | None) -> Ops | None:
    size = len(record.path) + len(record.value) + _OVERHEAD
    if existing is None:
        return Ops([wire.op_create(record.path, record.value)], size)
    if existing.record.value == record.value:
        return None
    return Ops([wire.op_set(record.path, record.value, existing.record.version)], size)


def _raise(before: bytes, record: Record, existing: ExistingNode | None, filler: bytes) -> Iterator[bytes]:
    """Yield each set names the version that it expects, so that nothing continues from a step that failed."""
    path, value, last = record.path, record.value, record.version
    if before:
        yield before
    if existing is None:
        yield wire.op_create(path, filler if last else value)
    for version in range(existing.record.version if existing else 0, last):
        # mutant: metadata-store/sets-of-any-version
        yield wire.op_set(path, value if version + 1 == last else filler, version)


def count_ops(path: bytes, existing_count: int, wanted: int, max_raise: int) -> Ops | None:
    """Create and delete a child within one multi, so that no client sees it, as often as the count is short.

    Raises:
        RecordNotWritable: that is too often.
    """
    short = wanted - existing_count
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


def requests(ops: Sequence[Ops], first: Sequence[bytes] = (), most: int = REQUEST_BYTES) -> Iterator[bytes]:
    """Yield bodies of multis of about `most` bytes: what belongs together stays together, unless it is to be spread.

    `first` begins each.
    """
    parts: list[bytes] = []
    size = 0
    for op in ops:
        if not op.spread:
            if parts and size + op.size > most:
                yield wire.multi([*first, *parts])
                parts, size = [], 0
            parts += op.parts
            size += op.size
            continue
        for piece in op.parts:
            if parts and size + len(piece) > most:
                yield wire.multi([*first, *parts])
                parts, size = [], 0
            parts.append(piece)
            size += len(piece)
    if parts:
        yield wire.multi([*first, *parts])


def _name(path: bytes) -> str:
    return path.decode(errors="replace")

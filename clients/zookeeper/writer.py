"""Bulk writer of a ZooKeeper store: keeps versions and sequence counters, with many nodes in each of many requests."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from clients.closeable import Closeable
from clients.errors import RecordNotWritable, StoreConflict, StoreDenied, StoreError, StoreUnreachable
from clients.store import ABSENT, Guard, Record, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.acl import is_own
from clients.zookeeper.connection import Connection, error_for
from clients.zookeeper.counters import keeps_count
from clients.zookeeper.ops import (
    RECORD_BYTES,
    REQUEST_BYTES,
    ExistingNode,
    Ops,
    ancestors,
    check_path,
    count_ops,
    create_op,
    delete_op,
    is_no_data,
    needs_new_node,
    requests,
    write_ops,
)
from clients.zookeeper.permit import Permit
from clients.zookeeper.scan import TreeScan, read_records
from models.store_url import StoreUrl

#: Batches at work, records in a batch, and requests of one batch in flight.
_WINDOW, _BATCH_RECORDS, _BATCH_WINDOW = 8, 500, 2
_SESSION_TIMEOUT = 60.0
#: Parents remembered as existing.
_PARENTS = 100_000
#: What a server takes by default (jute.maxbuffer).
_SERVER_LIMIT = 0xFFFFF - 8
#: Failures of a multi that reading the nodes again may cure.
_RACES = (wire.NO_NODE, wire.NODE_EXISTS, wire.BAD_VERSION, wire.NOT_EMPTY)
#: Rounds of reading and writing before others are said to change the same nodes.
_ROUNDS = 20


class ZooKeeperWriter(Closeable):
    """Writes records into a ZooKeeper store (`clients.store.StoreWriter`).

    A node gets the open ACL, its value, and its version by as many sets as that takes. A node that has a higher
    version, or another value at the same version, is replaced, and what is beneath it is kept. Parents that are
    missing are created. Whatever `keeps_count` names has at least the record's count after `flush`.

    Put over `ABSENT`, an existing node is left alone, except for two kinds that hold no data yet: one whose version
    another attempt was raising, and one that was created as a mere parent (no value, version 0, with children).

    Between two flushes no order is kept: a path belongs into one call.

    Args:
        url: the servers and the chroot, which is created when missing.
        access: credentials and TLS settings.
        timeout: seconds without a byte from the server before a call fails.
        max_raise: sets that a version, and creations that a count, may take.
        keep_versions: False where the source's versions mean nothing here, as Oxia's version ids.
        guard: what must hold while it writes; see `clients.zookeeper.permit`.
        shared: whether services write there too. Then a node is replaced in one request, or not at all.
    """

    def __init__(
        self,
        url: StoreUrl,
        *,
        access: ZooKeeperAccess = ANONYMOUS,
        timeout: float = 30,
        max_raise: int = 200_000,
        keep_versions: bool = True,
        guard: Guard | None = None,
        shared: bool = False,
    ) -> None:
        self.url = url
        self._shared = shared
        self._servers = url.model_copy(update={"root": ""})
        self._access = access
        self._timeout = timeout
        self._max_raise = max_raise
        self._keep_versions = keep_versions
        self._chroot = url.root.encode()
        self._permit = Permit(guard)
        self._link: Connection | None = None
        self._collected: dict[bytes, _Item] = {}
        self._size = 0
        self._pending: deque[_Batch] = deque()
        # What batches on their way create. It current for their answers, so that children need not wait for parents.
        self._recent: deque[set[bytes]] = deque(maxlen=2 * _WINDOW)
        self._parents: set[bytes] = set()
        self._later: list[_Item] = []
        self._parents_to_delete: dict[bytes, _Item] = {}
        self._counts: dict[bytes, Record] = {}
        self._own: set[bytes] = set()
        self._written = 0

    def put(self, record: Record, *, over: int | None) -> None:
        """Write value, version and count of a persistent record over nothing (`ABSENT`), a version, or anything.

        Blocks while too much is in flight.

        Raises:
            RecordNotWritable: ZooKeeper cannot hold this record or an earlier one.
            StoreError: this or an earlier write failed.
        """
        check_path(record.path)
        if self._chroot:
            record = record._replace(path=self._chroot + record.path)
        self._note_count(record)
        if is_own(record.path[len(self._chroot) :]):
            self._own.add(record.path)
        self._collect(_Item(record.path, record, over), len(record.value))

    def delete(self, path: bytes, *, expected: int | None = None) -> None:
        """Delete a node, of one version where that is given; one that has children by the flush stays.

        Raises:
            StoreError: this or an earlier write failed.
        """
        path = self._chroot + path
        self._counts.pop(path, None)
        self._collect(_Item(path, None, expected), 0)

    def flush(self) -> int:
        """Wait until everything is acknowledged.

        Returns:
            The records written, found equal, or deleted since the last flush.

        Raises:
            StoreConflict: a node had another version than the expected one.
            StoreError: a write failed; which ones were done is not known, and all can be repeated.
        """
        self._drain()
        self._delete_parents()
        while self._later:
            self._link, again = replace(
                self._connection(),
                self._open,
                self._permit,
                self._later.pop(),
                keep_version=self._keep_versions,
                max_raise=self._max_raise,
                shared=self._shared,
            )
            for record in again:
                self._note_count(record)
        # Counts come last: each child that the copy itself creates raises its parent's as well.
        counted = [_Item(path, record) for path, record in self._counts.items()]
        for start in range(0, len(counted), _BATCH_RECORDS):
            self._start(_Batch(counted[start : start + _BATCH_RECORDS], counts=True))
        self._drain()
        self._counts.clear()
        self._protect()
        written, self._written = self._written, 0
        return written

    def close(self) -> None:
        """Free the connection without a flush; harmless when done twice."""
        if self._link:
            self._permit.revoke(self._link)
            self._link.close()

    def _protect(self) -> None:
        """Give nodes of ours their ACL: they were written like all others."""
        if not self._own:
            return
        link, paths = self._connection(), sorted(self._own)
        for start in range(0, len(paths), _BATCH_RECORDS):
            batch = paths[start : start + _BATCH_RECORDS]
            for path in batch:
                link.submit(wire.SET_ACL, wire.set_acl(path, link.own_acl))
            for path, answer in [(path, link.receive()) for path in batch]:
                if answer.error not in (wire.OK, wire.NO_NODE):
                    raise error_for(answer.error, "setting the ACL of a node", server=link.host, path=path)
        self._own.clear()

    def _note_count(self, record: Record) -> None:
        if record.count > 0 and keeps_count(record.path[len(self._chroot) :], record.value):
            self._counts[record.path] = record

    def _collect(self, item: _Item, size: int) -> None:
        self._collected[item.path] = item
        self._size += size
        if len(self._collected) >= _BATCH_RECORDS or self._size >= REQUEST_BYTES:
            self._start_collected()

    def _start_collected(self) -> None:
        """Start puts from the top down, then deletions from the bottom up: sorted paths have parents first."""
        if self._collected:
            items = sorted(self._collected.values(), key=lambda item: item.path)
            puts = [item for item in items if item.record]
            deletions = [item for item in reversed(items) if not item.record]
            self._collected, self._size = {}, 0
            self._start(_Batch(puts + deletions))

    def _start(self, batch: _Batch) -> None:
        while len(self._pending) >= _WINDOW:
            self._take_answer()
        self._submit_read(batch)

    def _drain(self) -> None:
        while self._pending or self._collected:
            if not self._pending:
                self._start_collected()
            self._take_answer()
        self._recent.clear()

    def _delete_parents(self) -> None:
        """Try nodes that had children again, now that all is acknowledged, until no more of them can go."""
        while self._parents_to_delete:
            tried, self._parents_to_delete = self._parents_to_delete, {}
            self._collected.update(tried)
            self._drain()
            if len(self._parents_to_delete) == len(tried):
                self._parents_to_delete.clear()

    def _open(self) -> Connection:
        """Return a session on the whole server: all paths in here are absolute."""
        link = Connection(self._servers, access=self._access, timeout=self._timeout, session_timeout=_SESSION_TIMEOUT)
        try:
            self._permit.grant(link, self._chroot)
        except StoreError:
            link.close()
            raise
        return link

    def _connection(self) -> Connection:
        if not self._link or not (self._pending or self._link.usable):
            self.close()
            self._link = self._open()
        return self._link

    def _submit(self, batch: _Batch, op: int, body: bytes) -> None:
        batch.oversize = batch.oversize or len(body) > _SERVER_LIMIT
        connection = self._connection()
        self._pending.append(batch)
        try:
            connection.submit(op, body)
        except StoreUnreachable as cause:
            raise self._lost(cause) from cause

    def _lost(self, cause: StoreUnreachable) -> StoreError:
        """Return a server ends the connection over a request that is too large; repeating that would never end."""
        for batch in self._pending:
            if batch.oversize:
                return RecordNotWritable(
                    f"{batch.largest.decode(errors='replace')} is larger than ZooKeeper takes by default, and the "
                    f"server ended the connection ({cause}); raise jute.maxbuffer on the target's servers"
                )
        return cause

    def _submit_read(self, batch: _Batch) -> None:
        """Read the nodes of a batch, and those of their parents that were not read yet."""
        batch.rounds += 1
        if batch.rounds > _ROUNDS:
            raise error_for(batch.error, f"others keep changing what is being written, {batch}")
        wanted = dict.fromkeys(item.path for item in batch.items)
        for item in batch.items:
            for parent in ancestors(item.path) if item.record and not batch.counts else ():
                if parent in wanted or parent in self._parents:
                    break
                wanted[parent] = None
        batch.reads = list(wanted)
        batch.reading, batch.error = True, wire.OK
        self._submit(batch, wire.MULTI_READ, wire.multi_read(wire.GET_DATA, batch.reads))

    def _take_answer(self) -> None:
        """Take one answer and continue with its batch."""
        connection = self._connection()
        try:
            answer = connection.receive()
        except StoreUnreachable as cause:
            raise self._lost(cause) from cause
        batch = self._pending.popleft()
        if answer.error:
            raise error_for(answer.error, f"writing at {connection.host}, {batch}", server=connection.host)
        if batch.reading:
            existing = _read_existing(answer.frame, batch.reads)
            planned = self._raise_counts(batch, existing) if batch.counts else self._plan(batch, existing)
            batch.requests = requests(planned, self._permit.parts)
            batch.reading = False
        else:
            batch.open -= 1
            batch.error = batch.error or self._permit.read_failure(answer.frame)[1]
        self._advance(batch)

    def _advance(self, batch: _Batch) -> None:
        while not batch.error and batch.open < _BATCH_WINDOW:
            body = next(batch.requests, None)
            if body is None:
                break
            batch.open += 1
            self._submit(batch, wire.MULTI, body)
        if batch.open:
            return
        if not batch.error:
            self._written += batch.written
            return
        if batch.error not in _RACES:
            raise error_for(batch.error, f"writing, {batch}")
        batch.created.clear()
        for item in batch.items:
            # A parent that was remembered may be gone by now: the next round looks again.
            self._parents.difference_update(ancestors(item.path))
        for half in batch.split():
            self._submit_read(half)

    def _plan(self, batch: _Batch, existing: dict[bytes, ExistingNode]) -> list[Ops]:
        batch.written, batch.created = 0, set()
        self._recent.append(batch.created)
        ops: list[Ops] = []
        gone: Counter[bytes] = Counter()
        deferred: list[_Item] = []
        for item in batch.items:
            node = existing.get(item.path)
            # Not even where the values differ: an attempt that wakes up late must not overwrite what services wrote.
            if item.over == ABSENT and node and not is_no_data(node):
                continue
            item.check(node)
            if node is None and any(item.path in created for created in self._recent):
                deferred.append(item)
                continue
            batch.written += 1
            if item.record:
                if self._keep_versions and node and node.children and needs_new_node(item.record, node):
                    self._later.append(item)
                else:
                    ops += self._put_ops(batch, item.record, node, existing)
            elif node is None:
                batch.written -= 1
            elif node.children > gone[item.path]:
                self._parents_to_delete[item.path] = item
                batch.written -= 1
            else:
                ops.append(delete_op(item.path, -1 if item.over is None else item.over))
                gone[item.path[: item.path.rindex(b"/")]] += 1
        if deferred:  # another batch on its way creates these as parents: read them again after that one
            self._collected |= {item.path: item for item in deferred}
            batch.items = [item for item in batch.items if item.path not in self._collected]
        return ops

    def _put_ops(
        self, batch: _Batch, record: Record, node: ExistingNode | None, existing: dict[bytes, ExistingNode]
    ) -> Iterator[Ops]:
        if node is None:
            missing = list(takewhile(lambda parent: not self._exists(parent, existing), ancestors(record.path)))
            batch.created.update(missing, (record.path,))
            yield from (create_op(parent) for parent in reversed(missing))
        ops = write_ops(record, node, keep_version=self._keep_versions, max_raise=self._max_raise)
        if ops:
            yield ops

    def _exists(self, parent: bytes, existing: dict[bytes, ExistingNode]) -> bool:
        """Return whether a parent exists, or will when what was sent already is done."""
        if parent in existing and parent not in self._parents:
            if len(self._parents) >= _PARENTS:
                self._parents.clear()
            self._parents.add(parent)
        return parent in self._parents or any(parent in created for created in self._recent)

    def _raise_counts(self, batch: _Batch, existing: dict[bytes, ExistingNode]) -> list[Ops]:
        nodes = [(item, existing[item.path].record) for item in batch.items if item.path in existing]
        return [
            ops
            for item, current in nodes
            if item.record and not current.owner
            if (ops := count_ops(item.path, current.count, item.record.count, self._max_raise))
        ]


def replace(
    connection: Connection,
    connect: Callable[[], Connection],
    permit: Permit,
    item: _Item,
    *,
    keep_version: bool,
    max_raise: int,
    shared: bool,
) -> tuple[Connection, list[Record]]:
    """Delete a node with all that is beneath it, and create it again with all that was beneath it.

    In one multi, and so all or nothing, as long as it fits into one. Writes of other clients at the same time are kept.

    Args:
        connection: idle.
        connect: opens another one.
        permit: of the connection.
        item: what the node must be, and which version of it may be replaced.
        keep_version: whether the versions of what is created again matter.
        max_raise: sets that a version may take.
        shared: whether services write there too. A process that dies between two requests loses what it had deleted,
            and only what the source has is copied again.

    Returns:
        The connection to continue with, and the records created again, whose counts have begun at nothing.

    Raises:
        RecordNotWritable: an ephemeral node exists beneath a node to be replaced; or services write there too, and
            one multi is too small.
        StoreConflict: the node has another version than the expected one.
        StoreError: the server refuses or fails, or others keep changing the nodes.
    """
    assert item.record, "only a record is replaced"
    taken: dict[bytes, Record] = {}
    error = wire.OK
    for _ in range(_ROUNDS):
        scan = TreeScan(connection, connect, (), (item.path,))
        present = _readable(record for batch in scan.batches() for record in batch)
        connection = scan.connection
        if not taken:
            node = ExistingNode(present[item.path], 0) if item.path in present else None
            item.check(node)  # mutant: metadata-store/a-node-of-any-version-is-replaced
        rewritten = sorted((present | taken | {item.path: item.record}).values())
        # mutant: metadata-store/a-replacement-deletes-any-version
        ops = [delete_op(path, record.version) for path, record in sorted(present.items(), reverse=True)]
        ops += [
            write_ops(new, None, keep_version=keep_version, max_raise=max_raise) or create_op(new.path)
            for new in rewritten
        ]
        bodies = list(requests(ops, permit.parts, RECORD_BYTES))
        if shared and len(bodies) > 1:  # mutant: metadata-store/a-replacement-in-two-requests
            raise RecordNotWritable(
                f"{item.path.decode(errors='replace')} must be replaced together with {len(present) - 1:,} nodes "
                "beneath it, which does not fit into one request, and services write there too; write it by hand",
                path=item.path,
            )
        halfway, error = _send(connection, permit, bodies)
        if not error:
            return connection, rewritten
        if error not in _RACES:
            break
        if halfway:
            # Some of these nodes were deleted, and cannot be read again.
            taken = present | taken
    doing = f"replacing {item.path.decode(errors='replace')} and what is beneath it"
    raise error_for(error, doing, server=connection.host, path=item.path)


def _readable(records: Iterable[Record | Unreadable]) -> dict[bytes, Record]:
    """Return the records of a subtree by path, if each can be created again."""
    readable: dict[bytes, Record] = {}
    for current in records:
        if isinstance(current, Unreadable):
            raise StoreDenied(f"cannot replace what cannot be read: {current.reason}", path=current.path)
        if current.owner:
            raise RecordNotWritable(
                f"{current.path.decode(errors='replace')} is an ephemeral node of session {current.owner:#x} in the "
                "target, and a node above it must be replaced; end that session first",
                path=current.path,
            )
        readable[current.path] = current
    return readable


def _send(connection: Connection, permit: Permit, bodies: list[bytes]) -> tuple[bool, int]:
    """Send one multi after the other; return whether one was done, and the first error, 0 if there was none."""
    done = False
    for body in bodies:
        connection.submit(wire.MULTI, body)
        answer = connection.receive()
        error = answer.error or permit.read_failure(answer.frame)[1]
        if error:
            return done, error
        done = True
    return done, wire.OK


class _Item(NamedTuple):
    """A record to put; without one, a path to delete. Paths are absolute on the server.

    `over` says what may be there: `ABSENT` nothing, a version, or None for anything.
    """

    path: bytes
    record: Record | None
    over: int | None = None

    def check(self, node: ExistingNode | None) -> None:
        """Refuse to touch a node that is not the expected one.

        Raises:
            StoreConflict: another client changed it.
        """
        if self.over is None or self.over == ABSENT:
            return
        current = node.record.version if node else None
        if current != self.over and (node or self.record):
            at = "is gone" if current is None else f"has version {current}"
            name = self.path.decode(errors="replace")
            raise StoreConflict(f"{name} {at}, and version {self.over} was expected", path=self.path)

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.record.value) if self.record else 0


@dataclass(eq=False)
class _Batch:
    """Items whose nodes are read, then the ops planned and sent; from the start again when others interfered.

    Attributes:
        items: what to do, parents before children where records are put.
        counts: whether only the counts of the records are to be raised.
        rounds: how often it started.
        reads: paths asked for in this round.
        reading: whether their answer is due; otherwise answers to `requests` are.
        requests: multis not sent yet.
        open: multis whose answer is due.
        error: first error of this round.
        created: nodes that this round creates.
        written: items that this round deals with.
        oversize: whether it had a request that a server refuses by default.
    """

    items: list[_Item]
    counts: bool = False
    rounds: int = 0
    reads: list[bytes] = field(default_factory=list[bytes])
    reading: bool = True
    requests: Iterator[bytes] = field(default_factory=lambda: iter(()))
    open: int = 0
    error: int = 0
    created: set[bytes] = field(default_factory=set[bytes])
    written: int = 0
    oversize: bool = False

    def __str__(self) -> str:
        first = self.items[0].path.decode(errors="replace")
        return first if len(self.items) == 1 else f"{len(self.items)} nodes from {first} on"

    def split(self) -> list[_Batch]:
        """Return halves to try again: others who write at the same time spoil small ones less often."""
        middle = -(-len(self.items) // 2)
        halves = (self.items[:middle], self.items[middle:])
        return [_Batch(half, counts=self.counts, rounds=self.rounds, error=self.error) for half in halves if half]

    @property
    def largest(self) -> bytes:
        """Path of the item with the largest value."""
        return max(self.items, key=lambda item: item.size).path


def _read_existing(frame: bytes, paths: list[bytes]) -> dict[bytes, ExistingNode]:
    """Return the nodes that exist, from the answer to a multiRead of these paths.

    Raises:
        StoreDenied: one of them may not be read, so that nothing can be said about it.
    """
    records: list[Record | Unreadable] = []
    inner: list[tuple[bytes, int]] = []
    read_records(frame, paths, records, inner)
    children = dict(inner)
    existing: dict[bytes, ExistingNode] = {}
    for record in records:
        if isinstance(record, Unreadable):
            raise StoreDenied(f"cannot write what cannot be read: {record.reason}", path=record.path)
        existing[record.path] = ExistingNode(record, children.get(record.path, 0))
    return existing

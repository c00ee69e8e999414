"""Reads whole trees from ZooKeeper: many nodes in one request (multiRead), several requests in flight.

What an answer will weigh is not known before it comes, and a server builds it in memory. So every directory is probed
with a few nodes first, the number of nodes in a request follows the sizes seen among their siblings, and nodes without
many siblings share one estimate and fewer requests in flight.
"""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from clients.errors import StoreUnreachable
from clients.store import Record, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection, error_for

#: Requests in flight on a connection.
WINDOW = 8
#: Nodes in a request: more of them do not read faster.
_NODES = 200
#: Bytes that the answer to one request should not exceed, except for a single node.
_ANSWER_BYTES = 1 << 20
#: Bytes of paths in one request; the server refuses requests beyond jute.maxbuffer (1 MB).
_REQUEST_BYTES = 256 << 10
#: Children listed in one request, and nodes whose children are listed in one request.
_LISTED_CHILDREN, LISTED_NODES = 50_000, 100
#: A directory with more children than this gets an estimate of its own.
_FEW_SIBLINGS = 64
#: Nodes in a first request, and how much more the next ones may hold than those answered: an estimate from few nodes
#: says little about many.
_FIRST_NODES, _GROWTH = 4, 4
#: Answers awaited at a time where nodes have few siblings.
_MIXED_WINDOW = 3
#: Connections lost in a row before a scan gives up.
_MAX_LOSSES = 3

_DATA_HEADER = struct.Struct(">i5xi")
_LIST_HEADER = struct.Struct(">i5x")
#: czxid, mzxid, version, cversion, ephemeralOwner, numChildren, pzxid of a Stat.
_PICKED_STAT = struct.Struct(">qq16xii4xq4xiq")
_CONTAINER = -(1 << 63)
_TTL_MASK, _TTL = 0xFFFF_FF00_0000_0000, 0xFF00_0000_0000_0000


def owner_session(ephemeral_owner: int) -> int:
    """Return the session that holds a node; 0 for none, also for containers and nodes with a time to live."""
    if ephemeral_owner == _CONTAINER or ephemeral_owner & _TTL_MASK == _TTL:
        return 0
    return ephemeral_owner


def created_children(cversion: int, num_children: int) -> int:
    """Return how many children were ever created beneath a node, which is the next sequence number.

    The server reports twice the creations less the children that exist, cut to 32 bits.
    """
    return ((cversion + num_children) & 0xFFFF_FFFF) >> 1


class _Pool:
    """Paths to read whose sizes are thought to be alike; taken from the end, so that memory is freed on the way."""

    __slots__ = ("beneath", "in_flight", "most", "paths", "size", "window")

    def __init__(self, *, beneath: bool) -> None:
        self.paths: list[bytes] = []
        self.beneath = beneath
        self.window = 1
        self.size = 1
        self.most = _FIRST_NODES
        self.in_flight = 0

    @property
    def ready(self) -> bool:
        return bool(self.paths) and self.in_flight < self.window

    @property
    def limit(self) -> int:
        return min(self.most, max(1, _ANSWER_BYTES // self.size))

    def learn(self, frame: bytes, count: int, window: int) -> None:
        """Adjust the next requests to an answer about `count` nodes."""
        self.in_flight -= 1
        self.window = window
        self.size = max(1, len(frame) // count)
        self.most = min(_NODES, max(self.most, _GROWTH * count))

    def take(self) -> list[bytes]:
        count = self.limit
        taken = self.paths[-count:]
        while len(taken) > 1 and sum(map(len, taken)) > _REQUEST_BYTES:
            taken = taken[len(taken) // 2 :]
        del self.paths[-len(taken) :]
        taken.reverse()
        return taken


class _Request(NamedTuple):
    pool: _Pool | None
    paths: list[bytes]

    @property
    def op(self) -> int:
        return wire.GET_DATA if self.pool else wire.GET_CHILDREN


class TreeScan:
    """One pass over single nodes and subtrees, resumed on another connection where one is lost.

    Args:
        connection: idle; afterwards `connection` is the one in use, idle again if the scan came to its end.
        connect: opens another one.
        singles: paths to read without what is beneath them.
        subtrees: paths to read with all that is beneath them; not the root, which is not a record.
    """

    def __init__(
        self,
        connection: Connection,
        connect: Callable[[], Connection],
        singles: Iterable[bytes],
        subtrees: Sequence[bytes],
    ) -> None:
        self.connection = connection
        self._connect = connect
        self._losses = 0
        self._pending: deque[_Request] = deque()
        self._inner: list[tuple[bytes, int]] = []
        self._mixed = _Pool(beneath=True)
        alone = _Pool(beneath=False)
        alone.paths.extend(singles)
        alone.paths.reverse()
        self._directories: deque[_Pool] = deque([alone])
        self._add(list(reversed(subtrees)))

    def batches(self) -> Iterator[list[Record | Unreadable]]:
        """Yield all records, in no order; those that vanish during the scan are left out.

        Raises:
            StoreError: the server fails, or is out of reach.
        """
        self._fill()
        while self._pending:
            answer = self._receive()
            request = self._pending.popleft()
            if answer.error:
                raise error_for(
                    answer.error,
                    f"reading {len(request.paths)} nodes at {self.connection.host}",
                    server=self.connection.host,
                )
            batch: list[Record | Unreadable] = []
            if request.pool:
                window = _MIXED_WINDOW if request.pool is self._mixed else WINDOW
                request.pool.learn(answer.frame, len(request.paths), window)
                read_records(answer.frame, request.paths, batch, self._inner if request.pool.beneath else None)
            else:
                self._read_children(answer.frame, request.paths, batch)
            self._fill()
            if batch:
                yield batch

    def _fill(self) -> None:
        while len(self._pending) < WINDOW:
            request = self._next_request()
            if request is None:
                return
            self._pending.append(request)
            with contextlib.suppress(StoreUnreachable):  # the next `_receive` notices, and sends it again
                self._submit(request)

    def _next_request(self) -> _Request | None:
        while self._directories and not self._directories[0].paths:
            self._directories.popleft()
        for pool in self._directories:
            if pool.ready:
                return self._take(pool)
        mixed = self._mixed
        if mixed.ready and (len(mixed.paths) >= mixed.limit or not self._inner):
            return self._take(mixed)
        if self._inner:
            return _Request(None, self._take_inner())
        return None

    @staticmethod
    def _take(pool: _Pool) -> _Request:
        pool.in_flight += 1
        return _Request(pool, pool.take())

    def _take_inner(self) -> list[bytes]:
        paths: list[bytes] = []
        children = size = 0
        while self._inner and len(paths) < LISTED_NODES and children < _LISTED_CHILDREN and size < _REQUEST_BYTES:
            path, count = self._inner.pop()
            paths.append(path)
            children += count
            size += len(path)
        return paths

    def _submit(self, request: _Request) -> None:
        paths = request.paths
        if self.connection.chroot:
            paths = [self.connection.absolute(path) for path in paths]
        self.connection.submit(wire.MULTI_READ, wire.multi_read(request.op, paths))

    def _receive(self) -> wire.Answer:
        while True:
            try:
                answer = self.connection.receive()
            except StoreUnreachable:
                self._losses += 1
                if self._losses > _MAX_LOSSES:
                    raise
                self.connection = self._connect()
                with contextlib.suppress(StoreUnreachable):  # counted by the next round
                    # Reads only: those without an answer are sent again, and what was given out stays.
                    for request in self._pending:
                        self._submit(request)
            else:
                self._losses = 0
                return answer

    def _read_children(self, frame: bytes, paths: list[bytes], refused: list[Record | Unreadable]) -> None:
        for path, names in read_listings(frame, paths):
            if isinstance(names, int):
                refused.append(_refused(path, names, "listing the children of"))
                continue
            # Pools are taken from the end, so this reads siblings in their order.
            names.sort(reverse=True)
            prefix = path + b"/"
            self._add([prefix + name for name in names])

    def _add(self, siblings: list[bytes]) -> None:
        if len(siblings) <= _FEW_SIBLINGS:
            self._mixed.paths.extend(siblings)
            return
        directory = _Pool(beneath=True)
        directory.paths = siblings
        self._directories.append(directory)


def read_listings(frame: bytes, paths: Sequence[bytes]) -> Iterator[tuple[bytes, list[bytes] | int]]:
    """Decode the answer to a multiRead of getChildren: the names, or the error, for each node that exists."""
    offset = wire.BODY
    for path in paths:
        with wire.well_formed():
            (kind,) = _LIST_HEADER.unpack_from(frame, offset)
        offset += _LIST_HEADER.size
        if kind == -1:
            code = int.from_bytes(frame[offset : offset + 4], signed=True)
            offset += 4
            if code != wire.NO_NODE:
                yield path, code
            continue
        names, offset = wire.read_names(frame, offset)
        yield path, names


@wire.well_formed()
def read_records(
    frame: bytes, paths: list[bytes], records: list[Record | Unreadable], inner: list[tuple[bytes, int]] | None
) -> None:
    """Decode the answer to a multiRead of getData.

    Args:
        frame: the whole answer.
        paths: what was asked for, in that order.
        records: gets the nodes that exist.
        inner: gets (path, number of children) of those that have children.
    """
    offset = wire.BODY
    head, stat, new, add = _DATA_HEADER.unpack_from, _PICKED_STAT.unpack_from, Record._make, records.append
    for path in paths:
        kind, length = head(frame, offset)
        offset += 13
        if kind == -1:  # the length's place holds the error
            if length != wire.NO_NODE:
                add(_refused(path, length, "reading"))
            continue
        end = offset + length if length > 0 else offset
        created, changed, version, cversion, owner, num_children, children_changed = stat(frame, end)
        count = ((cversion + num_children) & 0xFFFF_FFFF) >> 1  # created_children(), too hot for a call
        if owner < 0:
            owner = owner_session(owner)
        add(new((path, frame[offset:end], version, count, owner, changed, children_changed, created)))
        if num_children and inner is not None:
            inner.append((path, num_children))
        offset = end + wire.STAT_SIZE


def _refused(path: bytes, code: int, doing: str) -> Unreadable:
    return Unreadable(path, str(error_for(code, f"{doing} {path.decode(errors='replace')}")))

"""Bulk reader of a ZooKeeper store: splits the tree, scans the parts, reads single nodes."""

from __future__ import annotations

import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from clients.closeable import Closeable
from clients.errors import StoreConflict, StoreDenied, StoreUnreachable
from clients.store import NO_SHARD, Partition, Record, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.connection import Connection, error_for
from clients.zookeeper.scan import LISTED_NODES, WINDOW, TreeScan, read_listings
from models.store_url import StoreUrl

#: Subtrees looked for, for each partition wanted: enough of them that the partitions become alike.
_PIECES = 8
#: Nodes weighed in one level while the tree is split; in larger levels a node's children are not weights.
_KNOWN_LEVEL = 5_000
_STATS_IN_FLIGHT = 500
#: Weight of a subtree before its children are counted, so that deep subtrees are spread as well.
_DEPTH_WEIGHT = 64


class ZooKeeperReader(Closeable):
    """Reads a ZooKeeper store and cannot write to it (`clients.store.StoreReader`).

    A chroot that does not exist reads as an empty store. `/zookeeper` belongs to the server and is left out; it can
    only show where the store has no chroot. Everything else is read, ephemeral nodes too (`Record.owner` tells them).

    Connections have caught up with the ensemble's leader (`sync`) before they serve a call, so that whatever was
    written before a scan began is in it.

    Args:
        url: the servers and the chroot.
        access: credentials and TLS settings.
        timeout: seconds without a byte from the server before a call fails.
    """

    def __init__(self, url: StoreUrl, *, access: ZooKeeperAccess = ANONYMOUS, timeout: float = 30) -> None:
        self.url = url
        self._access = access
        self._timeout = timeout
        self._idle: list[Connection] = []

    def partitions(self, wanted: int) -> list[Partition]:
        """Split the tree into at most `wanted` parts of like size; no part is empty.

        Goes down level by level until there are subtrees enough, and further where one of them holds more than its
        share. Sizes are guessed from the numbers of children, which cost nothing to learn.

        Raises:
            StoreError: the store cannot be read.
        """
        singles: list[bytes] = []
        weights = self._weigh(self.children(b"/"))
        unknown: list[bytes] = []
        while True:
            total = sum(weights.values()) + len(unknown)
            share = total / max(1, wanted)
            enough = len(weights) + len(unknown) >= wanted * _PIECES
            inner = [path for path, weight in weights.items() if weight > 1 and (not enough or weight > share)]
            if wanted <= 1 or not inner:
                break
            level: list[bytes] = []
            for path in inner:
                del weights[path]
                try:
                    level += self.children(path)
                except StoreDenied:
                    unknown.append(path)  # the scan reports it
                else:
                    singles.append(path)
            if len(level) <= _KNOWN_LEVEL:
                weights |= self._weigh(level)
            else:
                unknown += level
        return _pack(singles, weights, unknown, wanted)

    def _weigh(self, paths: list[bytes]) -> dict[bytes, int]:
        """Estimate the records of each subtree, 1 for a leaf, from the nodes' statistics, without reading values."""
        weights: dict[bytes, int] = {}
        for path, answer in self._each(wire.EXISTS, paths, wire.watched_path):
            children = 0 if answer.error else wire.read_stat(answer.frame, wire.BODY).num_children
            weights[path] = 1 + (_DEPTH_WEIGHT + children if children else 0)
        return weights

    def scan(self, partition: Partition) -> Iterator[list[Record | Unreadable]]:
        """Yield all records of one partition, in batches; a record that vanishes during the scan is left out.

        A connection that is lost during the scan is replaced, and the scan continues.

        Raises:
            StoreError: the store cannot be read.
        """
        scan = TreeScan(self._take(), self._connect, partition.singles, partition.subtrees)
        try:
            yield from scan.batches()
        finally:
            self._release(scan.connection)

    def shard_of(self, path: bytes) -> int:
        """Return the shard that has the record of this path: ZooKeeper has none."""
        del path
        return NO_SHARD

    def read(self, paths: Sequence[bytes]) -> list[Record | Unreadable | None]:
        """Return the records of these paths, in their order; None where there is none.

        Raises:
            StoreError: the store cannot be read.
        """
        partition = Partition(singles=tuple(paths), subtrees=(), shard=NO_SHARD, start=b"", end=b"")
        records = {record.path: record for batch in self.scan(partition) for record in batch}
        return [records.get(path) for path in paths]

    def children(self, path: bytes) -> list[bytes]:
        """Return full paths of the direct children, sorted; `[]` if the node does not exist.

        Raises:
            StoreDenied: the node's ACL refuses it.
            StoreError: the store cannot be read.
        """
        connection = self._take()
        target = connection.absolute(path)
        try:
            answer = connection.call(wire.GET_CHILDREN, target, wire.watched_path(target))
        except StoreConflict:  # no such node
            names: list[bytes] = []
        else:
            names, _ = wire.read_names(answer.frame, wire.BODY)
        finally:
            self._release(connection)
        prefix = path.rstrip(b"/") + b"/"
        paths = sorted(prefix + name for name in names)
        return [child for child in paths if child != b"/zookeeper" or self.url.root]

    def children_of(self, paths: Sequence[bytes]) -> Iterator[bytes]:
        """Yield full paths of the direct children of many nodes, in no order; a node that does not exist has none.

        Raises:
            StoreDenied: a node's ACL refuses it.
            StoreError: the store cannot be read.
        """
        connection = self._take()
        groups = deque(paths[begin : begin + LISTED_NODES] for begin in range(0, len(paths), LISTED_NODES))
        pending: deque[Sequence[bytes]] = deque()
        try:
            while groups or pending:
                while groups and len(pending) < WINDOW:
                    pending.append(groups.popleft())
                    asked = [connection.absolute(path) for path in pending[-1]]
                    connection.submit(wire.MULTI_READ, wire.multi_read(wire.GET_CHILDREN, asked))
                answer = connection.receive()
                group = pending.popleft()
                if answer.error:
                    raise error_for(answer.error, f"listing {len(group)} nodes", server=connection.host)
                yield from self._listed(answer.frame, group)
        finally:
            self._release(connection)

    def _listed(self, frame: bytes, paths: Sequence[bytes]) -> Iterator[bytes]:
        for path, names in read_listings(frame, paths):
            if isinstance(names, int):
                raise error_for(names, f"listing the children of {path.decode(errors='replace')}", path=path)
            prefix = path.rstrip(b"/") + b"/"
            for name in names:
                # The server's own.
                if self.url.root or prefix + name != b"/zookeeper":
                    yield prefix + name

    def protected(self, paths: Sequence[bytes]) -> list[bytes]:
        """Return the paths whose ACL does not give everyone all permissions, or cannot be read.

        Raises:
            StoreError: the store cannot be read.
        """
        return [
            path
            for path, answer in self._each(wire.GET_ACL, paths, wire.buffer)
            if answer.error != wire.NO_NODE and (answer.error or not wire.is_open_acl(answer.frame))
        ]

    def _each(
        self, operation: int, paths: Sequence[bytes], body: Callable[[bytes], bytes]
    ) -> Iterator[tuple[bytes, wire.Answer]]:
        """Yield answers to one request for each path, in order, with many under way."""
        connection = self._take()
        try:
            for start in range(0, len(paths), _STATS_IN_FLIGHT):
                chunk = paths[start : start + _STATS_IN_FLIGHT]
                for path in chunk:
                    connection.submit(operation, body(connection.absolute(path)))
                for path in chunk:
                    yield path, connection.receive()
        finally:
            self._release(connection)

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        while self._idle:
            self._idle.pop().close()

    def _connect(self) -> Connection:
        connection = Connection(self.url, access=self._access, timeout=self._timeout)
        connection.sync()
        return connection

    def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                # Synced for each call and not only once: between two calls the ensemble may have moved on without
                # this server.
                with contextlib.suppress(StoreUnreachable):
                    connection.sync()
                    return connection
            connection.close()
        return self._connect()

    def _release(self, connection: Connection) -> None:
        """Keep a connection for the next call, unless answers are due that no caller will take."""
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()


def _pack(singles: list[bytes], weights: dict[bytes, int], unknown: list[bytes], wanted: int) -> list[Partition]:
    """Deal subtrees out, the heaviest first and always to the lightest part; nodes of unknown weight in slices."""
    parts = max(1, wanted)
    alone: list[list[bytes]] = [singles[index::parts] for index in range(parts)]
    slice_size = -(-len(unknown) // parts)
    trees = [unknown[index * slice_size : (index + 1) * slice_size] for index in range(parts)]
    load = [(len(alone[index]) + len(trees[index]), index) for index in range(parts)]
    heapq.heapify(load)
    for path, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        lightest, index = heapq.heappop(load)
        trees[index].append(path)
        heapq.heappush(load, (lightest + weight, index))
    return [
        Partition(singles=tuple(single), subtrees=tuple(tree), shard=NO_SHARD, start=b"", end=b"")
        for single, tree in zip(alone, trees, strict=True)
        if single or tree
    ]

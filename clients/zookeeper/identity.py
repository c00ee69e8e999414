"""Proof that two addresses lead to one ZooKeeper: it has many, such as aliases and other members of the ensemble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clients.errors import StoreConflict
from clients.zookeeper import wire
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.connection import Connection
from models.store_url import StoreUrl


def lead_to_one_ensemble(
    first: StoreUrl,
    second: StoreUrl,
    accesses: Sequence[ZooKeeperAccess] = (ANONYMOUS, ANONYMOUS),
    *,
    timeout: float = 10,
) -> bool:
    """Return whether the servers of two addresses belong to one ensemble; only reads.

    They do if a znode near the root was created in both by the same transaction in the same millisecond. A clone that
    was made from the files of an ensemble counts as that ensemble.

    Args:
        first: one address, whose root exists.
        second: another one, whose root holds the first one's or lies in it.
        accesses: credentials and TLS settings of each.
        timeout: seconds without an answer after which a server counts as unreachable.

    Raises:
        StoreError: one of them cannot be read.
    """
    servers = [url.model_copy(update={"root": ""}) for url in (first, second)]
    with (
        Connection(servers[0], access=accesses[0], timeout=timeout) as link,
        Connection(servers[1], access=accesses[1], timeout=timeout) as other,
    ):
        link.sync()
        other.sync()
        paths = [*_parents(first), *_parents(second)]
        if not (first.root and second.root):
            paths += _children_of_root(link)
        # `exists` asks no ACL.
        return any((created := _creation(link, path)) and created == _creation(other, path) for path in paths)


def _parents(url: StoreUrl) -> Iterator[bytes]:
    """Yield `/a` and `/a/b` of the root `/a/b`."""
    path = b""
    for name in filter(None, url.root.encode().split(b"/")):
        path += b"/" + name
        yield path


def _children_of_root(connection: Connection) -> list[bytes]:
    answer = connection.call(wire.GET_CHILDREN, b"/", wire.watched_path(b"/"))
    names, _ = wire.read_names(answer.frame, wire.BODY)
    # It is part of each ZooKeeper, created by no transaction.
    return [b"/" + name for name in names if name != b"zookeeper"]


def _creation(connection: Connection, path: bytes) -> tuple[int, int] | None:
    """Return the transaction that created a znode, and its time in milliseconds; None without that znode."""
    try:
        answer = connection.call(wire.EXISTS, path, wire.watched_path(path))
    except StoreConflict:
        return None
    stat = wire.read_stat(answer.frame, wire.BODY)
    return stat.czxid, stat.ctime

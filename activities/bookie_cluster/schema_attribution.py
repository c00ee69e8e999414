"""Compare-and-set on many schemas' nodes at once (PIP-477, "Schema PROMOTE")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from activities.bookie_cluster.context import BookieClusterTask
from clients.errors import StoreDenied
from clients.pulsar.bookie_registry import CAS_TRIES
from clients.store import StoreReader, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection
from clients.zookeeper.multi import change_each

Change = Callable[[bytes], bytes | None]
"""What a node's value becomes; None where it stays."""


class Rewritten(NamedTuple):
    """Paths of the nodes that were changed, and of those that others kept changing."""

    done: list[str]
    contested: list[str]


def rewrite(task: BookieClusterTask, store: StoreReader, changes: Mapping[str, Change]) -> Rewritten:
    """Change nodes, each by compare-and-set; one that somebody else changed first is read again, up to five times.

    Args:
        task: whose brokers' metadata store is changed.
        store: reads the same store.
        changes: by path; one that is gone meanwhile is left out.

    Raises:
        StoreDenied: a node's ACL refuses it.
        StoreError: the store cannot be read or written; which nodes were changed is not known.
    """
    done: list[str] = []
    waiting = sorted(changes)
    access = task.access
    with Connection(task.input.store, auth=access.zookeeper_auth, timeout=access.timeout) as connection:
        for _ in range(CAS_TRIES):
            tried = _prepared(store, connection, {path: changes[path] for path in waiting})
            errors = change_each(connection, list(tried.values()))
            done += [path for path, error in zip(tried, errors, strict=True) if not error]
            waiting = [path for path, error in zip(tried, errors, strict=True) if error]
            if not waiting:
                break
    return Rewritten(done, waiting)


def _prepared(store: StoreReader, connection: Connection, changes: Mapping[str, Change]) -> dict[str, bytes]:
    """The writes that the nodes need as they stand, by path."""
    found = store.read([path.encode() for path in changes])
    writes: dict[str, bytes] = {}
    for (path, change), record in zip(changes.items(), found, strict=True):
        if isinstance(record, Unreadable):
            raise StoreDenied(record.reason)
        value = change(record.value) if record else None
        if record and value is not None:
            writes[path] = wire.op_set(connection.absolute(record.path), value, record.version)
    return writes

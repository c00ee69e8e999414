"""Compare-and-set on many schemas' nodes at once (PIP-477, "Schema PROMOTE")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from activities.bookie_cluster.context import BookieClusterTask
from clients.cas.store import retry_each
from clients.errors import StoreDenied
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


def rewrite(
    task: BookieClusterTask, store: StoreReader, changes: Mapping[str, Change], fence: Callable[[], object]
) -> Rewritten:
    """Change nodes, each by compare-and-set; one that somebody else changed first is read again, up to five times.

    Args:
        task: whose brokers' metadata store is changed.
        store: reads the same store.
        changes: by path; one that is gone meanwhile is left out.
        fence: asked between reading and writing; raises where this attempt must not write any more.

    Raises:
        StoreDenied: a node's ACL refuses it.
        StoreError: the store cannot be read or written; which nodes were changed is not known.
    """
    done: list[str] = []
    access = task.access

    def change_some(paths: Sequence[str]) -> list[str]:
        tried = _prepared(store, connection, {path: changes[path] for path in paths})
        fence()
        # Each write names the version that was read: an attempt frozen behind the fence can change only what nobody has
        # touched since.
        errors = change_each(connection, list(tried.values()))
        done.extend(path for path, error in zip(tried, errors, strict=True) if not error)
        return [path for path, error in zip(tried, errors, strict=True) if error]

    with Connection(task.input.store, auth=access.zookeeper_auth, timeout=access.timeout) as connection:
        contested = retry_each(sorted(changes), change_some)
    return Rewritten(done, contested)


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

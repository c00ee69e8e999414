"""Redirect of a cluster's clients, and the flag that redirects all of them, in the brokers' metadata store.

Source: `ClusterPolicies` of Pulsar 5.0.1, 4.2.4 and 4.0.8 (PIP-188, "Broker changes" 1); seen with kazoo.
"""

from __future__ import annotations

from collections.abc import Callable

from clients.cas.store import CasReader, CasStore, retry
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.json_records import Record, encoded, parsed, read_record, rewrite_record


def read_cluster_flag(store: CasReader, cluster: str) -> ClusterMigration | None:
    """Return whether a cluster's clients are sent to another one, and where to; None if that was never set."""
    return _value(read_record(store, _path(cluster)))


def rewrite_cluster_flag(store: CasStore, cluster: str, fence: Callable[[], object]) -> ClusterMigration | None:
    """Return the same as `read_cluster_flag`, after the record was written as it is.

    No earlier attempt can change the flag from then on; see `rewrite_record`.
    """
    return _value(rewrite_record(store, _path(cluster), fence))


def set_cluster_flag(
    store: CasStore,
    cluster: str,
    fence: Callable[[], object],
    change: Callable[[ClusterMigration | None], ClusterMigration],
) -> ClusterMigration:
    """Change where a cluster sends clients, or whether it does; written in any case, as by `change_record`.

    Args:
        store: the metadata store of the brokers.
        cluster: its name.
        fence: raises where the caller may not change it any more; asked between the read and the write.
        change: gets the current record, and returns the new one; may be called again.

    Returns:
        The current record.

    Raises:
        StoreContention: others changed the record again and again.
    """
    path = _path(cluster)

    def once() -> ClusterMigration:
        node = store.get(path)
        before: Record = parsed(node, path) if node else {}
        wanted = change(ClusterMigration.model_validate(before) if node else None)
        fence()  # mutant: blue-green/cluster-flag-without-fence
        if node is None:
            store.create(path, encoded(wanted.body()))
        else:
            store.set(path, encoded({**before, **wanted.body()}), node.version)
        return wanted

    return retry(once, path)


def _value(record: Record | None) -> ClusterMigration | None:
    return None if record is None else ClusterMigration.model_validate(record)


def _path(cluster: str) -> str:
    return f"/admin/clusters/{cluster}/policies"

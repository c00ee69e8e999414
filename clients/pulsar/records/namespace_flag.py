"""The flag that sends a namespace's clients to another cluster, where brokers keep it: in their metadata store.

Source: `LocalPolicies` of Pulsar 5.0.1, 4.2.4 and 4.0.8 (PIP-188, "Support migration per namespace level"); seen
with kazoo.
"""

from __future__ import annotations

from collections.abc import Callable

from clients.cas.store import CasReader, CasStore
from clients.pulsar.json_records import Record, change_record, parsed, read_record, rewrite_record

_FLAG = "migrated"


def read_flag(store: CasReader, namespace: str) -> bool:
    """Return whether a namespace's clients are sent to another cluster.

    Args:
        store: the metadata store of the brokers.
        namespace: `tenant/namespace`.

    Raises:
        StoreProtocolError: the record has another form.
    """
    return _value(read_record(store, _path(namespace)))


def rewrite_flag(store: CasStore, namespace: str, fence: Callable[[], object]) -> bool:
    """Return whether a namespace's clients are sent to another cluster, after the record was written as it is.

    No earlier attempt can change the flag from then on; see `rewrite_record`.
    """
    return _value(rewrite_record(store, _path(namespace), fence))


def flag_time(store: CasReader, namespace: str) -> int | None:
    """Return when the record was last written, in milliseconds since 1970 by the store's clock; None without a flag."""
    node = store.get(_path(namespace))
    return node.modified_ms if node and parsed(node, _path(namespace)).get(_FLAG) else None


def set_flag(store: CasStore, namespace: str, fence: Callable[[], object], *, migrated: bool) -> None:
    """Send a namespace's clients to the cluster whose addresses are stored, or no longer.

    Args:
        store: the metadata store of the brokers.
        namespace: `tenant/namespace`.
        fence: see `change_record`.
        migrated: the new value.

    Raises:
        StoreNotFound: brokers keep no policies of this namespace; they do so from its first topic on.
        StoreContention: others changed the record again and again.
    """
    # mutant: blue-green/flag-without-fence
    change_record(store, _path(namespace), fence, lambda policies: {**policies, _FLAG: migrated})


def _value(record: Record | None) -> bool:
    return bool((record or {}).get(_FLAG))


def _path(namespace: str) -> str:
    return f"/admin/local-policies/{namespace}"

"""Single policies of a namespace, where brokers keep them: in their metadata store.

Source: `Policies` of Pulsar 5.0.1, 4.2.4 and 4.0.8, whose names in JSON are partly not those of Java; seen with kazoo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clients.cas.store import CasReader, CasStore
from clients.errors import StoreNotFound
from clients.pulsar.json_records import Record, change_record, read_record


def read_policy(store: CasReader, namespace: str, at: Sequence[str]) -> Any:
    """Return a policy as JSON; None where the namespace does not have it.

    Args:
        store: the metadata store of the brokers.
        namespace: `tenant/namespace`.
        at: the names that lead to it.

    Raises:
        StoreNotFound: there is no such namespace.
    """
    return value_at(read_policies(store, namespace), at)


def read_policies(store: CasReader, namespace: str) -> Record:
    """Return all policies of a namespace, as JSON.

    Raises:
        StoreNotFound: there is no such namespace.
    """
    record = read_record(store, path := _path(namespace))
    if record is None:
        raise StoreNotFound(f"{store.url} has no namespace {namespace}", server=str(store.url), path=path.encode())
    return record


def change_policies(
    store: CasStore, namespace: str, fence: Callable[[], object], change: Callable[[Record], Record]
) -> None:
    """Change policies of a namespace, all in one write; see `change_record`.

    Raises:
        StoreNotFound: there is no such namespace.
        StoreContention: others changed the namespace again and again.
    """
    change_record(store, _path(namespace), fence, change)


def value_at(record: Record, at: Sequence[str]) -> Any:
    """Return the value in a record under some names; None for nothing."""
    name, *rest = at
    value = record.get(name)
    return value_at(value or {}, rest) if rest else value


def with_value(record: Record, at: Sequence[str], value: Any) -> Record:
    """Return the record with another value under some names; None to take it out."""
    name, *rest = at
    if rest:
        value = with_value(record.get(name) or {}, rest, value)
    if value is None:
        return {key: other for key, other in record.items() if key != name}
    return {**record, name: value}


def _path(namespace: str) -> str:
    return f"/admin/policies/{namespace}"

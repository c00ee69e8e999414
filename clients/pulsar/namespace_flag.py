"""The flag that sends a namespace's clients to another cluster, where brokers keep it: in their metadata store.

Brokers have an endpoint for it, whose requests nothing can fence: one that a worker was about to send when it froze is
carried out when the worker thaws, however much later. Here the flag changes by compare-and-set, and what was read
before the freeze does not fit any more after whoever took over has written.

Source: `LocalPolicies` of Pulsar 5.0.0-M1 (PIP-188, "Support migration per namespace level"); seen with kazoo.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from clients.cas.store import CasReader, CasStore, Node, retry
from clients.errors import StoreNotFound, StoreProtocolError

_ROOT = "/admin/local-policies"
_FLAG = "migrated"


def read_flag(store: CasReader, namespace: str) -> bool:
    """Whether a namespace's clients are sent to another cluster.

    Args:
        store: the metadata store of the brokers.
        namespace: `tenant/namespace`.

    Raises:
        StoreProtocolError: the record has another form.
    """
    node = store.get(_path(namespace))
    return node is not None and bool(_policies(node, namespace).get(_FLAG))


def flag_time(store: CasReader, namespace: str) -> int | None:
    """When the record was last written, in milliseconds since 1970 by the store's clock; None where no flag is set."""
    node = store.get(_path(namespace))
    return node.modified_ms if node and bool(_policies(node, namespace).get(_FLAG)) else None


def set_flag(store: CasStore, namespace: str, fence: Callable[[], object], *, migrated: bool) -> None:
    """Send a namespace's clients to the cluster whose addresses are stored, or no longer.

    The record is written in any case, so that a change whose author read it before fails.

    Args:
        store: the metadata store of the brokers.
        namespace: `tenant/namespace`.
        fence: raises where the caller may not change it any more; asked between the read and the write.
        migrated: the new value.

    Raises:
        StoreNotFound: brokers keep no policies of this namespace; they do so from its first topic on.
        StoreContention: others changed the record again and again.
    """

    def change() -> None:
        node = store.get(_path(namespace))
        if node is None:
            raise StoreNotFound(
                f"{store.url} has no {_path(namespace)}: no broker has served the namespace yet",
                server=str(store.url),
                path=_path(namespace).encode(),
            )
        policies = {**_policies(node, namespace), _FLAG: migrated}
        fence()
        store.set(_path(namespace), json.dumps(policies, separators=(",", ":")).encode(), node.version)

    retry(change, _path(namespace))


def _path(namespace: str) -> str:
    return f"{_ROOT}/{namespace}"


def _policies(node: Node, namespace: str) -> dict[str, Any]:
    try:
        found = json.loads(node.value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreProtocolError(f"{_path(namespace)} holds no policies of a namespace", path=_path(namespace).encode())
    return cast("dict[str, Any]", found)

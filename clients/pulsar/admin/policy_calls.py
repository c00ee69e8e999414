"""How single policies are read, set and removed; the tables for topics and for namespaces are based on this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from clients.pulsar.admin.errors import AdminNotFound, AdminUnsupported
from clients.pulsar.admin.http import Endpoint, Params, ReadEndpoint

_ANY = TypeAdapter[Any](Any)

BACKLOG_QUOTAS = "backlogQuota"
_QUOTA_TYPE = "backlogQuotaType"


class PolicyCall(NamedTuple):
    """Paths of one policy in the admin interface.

    Attributes:
        name: the last part of the path.
        method: that sets it.
        read: the last part of the path that reads it, where it differs.
        query: the parameter that takes the value, where it is not the body.
        unset: answers that say that it is not set, next to an empty one.
        unordered: a list whose order means nothing.
        switch: is set by a call without a value, and is true or not set.
        of_one_cluster: cannot be set for all clusters that have a topic.
    """

    name: str
    method: str = "POST"
    read: str = ""
    query: str = ""
    unset: tuple[Any, ...] = ()
    unordered: bool = False
    switch: bool = False
    of_one_cluster: bool = False


def read_policy(endpoint: ReadEndpoint, base: str, call: PolicyCall, params: Params | None = None) -> Any:
    """Return the value as the broker's JSON; None where it is not set, or where this release does not know it.

    Raises:
        AdminNotFound: there is no such topic or namespace.
    """
    try:
        value = endpoint.set_as(_ANY, f"{base}/{call.read or call.name}", params)
    except AdminUnsupported:
        return None
    if value is None or value in call.unset:
        return None
    return sorted(value) if call.unordered else value


def set_policy(endpoint: Endpoint, base: str, call: PolicyCall, value: Any, params: Params | None = None) -> None:
    """Set a value as it was read.

    Raises:
        AdminPreconditionFailed: it contradicts another policy.
        AdminUnsupported: this release does not know it, or policies of topics are switched off.
    """
    path, query = f"{base}/{call.name}", dict(params or {})
    if call.name == BACKLOG_QUOTAS:
        for kind, quota in value.items():
            endpoint.post(path, quota, {**query, _QUOTA_TYPE: kind})
    elif call.query:
        endpoint.post(path, None, {**query, call.query: value})
    else:
        send = endpoint.put if call.method == "PUT" else endpoint.post
        send(path, None if call.switch else value, query)


def remove_policy(
    endpoint: Endpoint, base: str, call: PolicyCall, params: Params | None = None, *, parts: Iterable[str] = ()
) -> None:
    """Remove a value, so that what is set above it holds; `parts` names the kinds of a backlog quota."""
    for more in [{_QUOTA_TYPE: kind} for kind in parts] or [{}]:
        try:
            endpoint.delete(f"{base}/{call.name}", {**(params or {}), **more})
        except AdminNotFound:
            # It is away already.
            continue

"""Lists of hosts that may receive credentials."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_NAME = re.compile(r"\.?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


def listed_hosts(entries: Iterable[str]) -> tuple[str, ...]:
    """Return entries of a list of hosts in their normal form.

    Args:
        entries: exact names, `.domain` for all hosts of a domain, addresses, and networks (CIDR).

    Raises:
        ValueError: an entry is something else.
    """
    listed = tuple(_normal(entry) for entry in entries)
    for entry in listed:
        if _network(entry) is None and not _NAME.fullmatch(entry):
            raise ValueError(
                f"{entry!r} is not a host: write a name, .domain for all hosts of a domain, an address, or a network"
            )
    return listed


def is_listed(host: str, entries: Iterable[str]) -> bool:
    """Return whether a name or address is among the entries that `listed_hosts` returned."""
    host = _normal(host)
    return any(_covers(entry, host) for entry in entries)


def _normal(host: str) -> str:
    return host.strip().strip("[]").rstrip(".").lower()


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry)
    except ValueError:
        return None


def _covers(entry: str, host: str) -> bool:
    network = _network(entry)
    if network is None:
        # Libraries read more than a name: to gRPC, `dns://server/name` names a server, and a zero byte ends an address.
        is_name = _NAME.fullmatch(host) is not None and not host.startswith(".")
        return is_name and (host.endswith(entry) if entry.startswith(".") else host == entry)
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False

"""Where a broker keeps tenants and policies of namespaces: in its metadata store, or in a store apart."""

from __future__ import annotations

from collections.abc import Mapping

from models.store_url import parse_broker_setting

# Each with its older names.
_CONFIGURATION = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers")
_METADATA = ("metadataStoreUrl", "zookeeperServers")


def configuration_store_apart(settings: Mapping[str, str]) -> str:
    """Return the configuration store of a broker as it is set, where that is not its metadata store; empty for none.

    Args:
        settings: of the broker.
    """
    # Both are the broker's own names: the worker may reach these servers by others.
    own, used = (next(filter(None, map(settings.get, names)), "") for names in (_METADATA, _CONFIGURATION))
    return used if used and not _is_same(own, used) else ""


def _is_same(own: str, used: str) -> bool:
    try:
        first, second = parse_broker_setting(own), parse_broker_setting(used)
    except ValueError:
        return own == used
    return first.root == second.root and first.overlaps(second)

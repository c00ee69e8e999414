"""What brokers make of their settings, where several settings stand for one thing."""

from __future__ import annotations

from collections.abc import Mapping

_METADATA = ("metadataStoreUrl", "zookeeperServers")
_CONFIGURATION = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers")


def metadata_store_of(settings: Mapping[str, str]) -> str:
    """Return the address of a broker's metadata store, as its configuration names it; empty if it does not.

    Args:
        settings: by their names in `broker.conf`; the older names count where the newer ones are empty.
    """
    return _first(settings, _METADATA)


def configuration_store_of(settings: Mapping[str, str]) -> str:
    """Return the address of a broker's configuration store, which is its metadata store unless it names another.

    Args:
        settings: those of `metadata_store_of`.
    """
    return _first(settings, _CONFIGURATION) or metadata_store_of(settings)


def _first(settings: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := (settings.get(name) or "").strip())), "")

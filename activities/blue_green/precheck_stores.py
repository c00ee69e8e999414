"""What PRECHECK asks of configuration stores, which keep tenants and policies of namespaces."""

from __future__ import annotations

from collections.abc import Iterable

from activities.blue_green.context import BlueGreenTask
from activities.lifecycle.precheck import Findings
from clients.pulsar.admin.client import PulsarAdminReader
from clients.stores import Access, trees_overlap
from models.blue_green.input import PulsarCluster
from models.store_url import StoreUrl, parse_broker_setting

# The last two are the older names of the first.
_SETTINGS = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers")


def check_configuration_stores(task: BlueGreenTask, findings: Findings) -> None:
    """Note a blocker for each broker whose tenants and policies are elsewhere than in the store of the input.

    Limits and flags are set by compare-and-set in the metadata store. Two clusters with one configuration store have
    each namespace and its policies once, so that a change to one of them is a change to both.
    """
    input = task.input
    blue = _elsewhere(input.blue, task.blue_brokers(), task.stores(input.blue))
    green = _elsewhere(input.green, task.green_brokers(), task.stores(input.green))
    shared = sorted({*map(str, blue.values())} & {*map(str, green.values())})
    if shared:
        findings.block(
            "SHARED_CONFIGURATION_STORE",
            f"{input.cluster} and {input.green_cluster} have one configuration store, {shared[0]}: each namespace and "
            "its policies exist once for both",
            f"give {input.green_cluster} a configuration store of its own (configurationMetadataStoreUrl), or move "
            "clients by replication between both",
        )
        return
    for code, cluster, found in (("BLUE", input.blue, blue), ("GREEN", input.green, green)):
        for broker, used in found.items():
            findings.block(
                f"{code}_CONFIGURATION_STORE",
                f"{broker} keeps tenants and policies in {used}, and not in its metadata store {cluster.store}",
                "a configuration store apart from the metadata store is not supported; if both are one tree, name it "
                "equally in metadataStoreUrl and configurationMetadataStoreUrl",
            )


def _elsewhere(
    cluster: PulsarCluster, brokers: Iterable[tuple[str, PulsarAdminReader]], access: Access
) -> dict[str, StoreUrl | str]:
    """Return the configuration store of each broker where that is not the metadata store."""
    found: dict[str, StoreUrl | str] = {}
    for name, admin in brokers:
        settings = admin.brokers.runtime_configuration()
        text = next(filter(None, map(settings.get, _SETTINGS)), None)
        if text and (used := _other(cluster.store, text, access)):
            found[name] = used
    return found


def _other(store: StoreUrl, text: str, access: Access) -> StoreUrl | str | None:
    try:
        used = parse_broker_setting(text)
    except ValueError:
        return text
    same = (used.scheme, used.root) == (store.scheme, store.root) and trees_overlap(store, used, access)
    return None if same else used

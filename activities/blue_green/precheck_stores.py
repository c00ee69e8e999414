"""What PRECHECK asks of configuration stores, which keep tenants and policies of namespaces."""

from __future__ import annotations

from collections.abc import Iterable

from activities.blue_green.context import AnyBlueGreenTask
from activities.lifecycle.precheck import Findings
from clients.pulsar.admin.client import PulsarAdminReader
from models.broker_settings import configuration_store_apart
from models.store_url import parse_broker_setting


def check_configuration_stores(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Note a blocker for each broker whose tenants and policies are elsewhere than in the store of the input.

    Limits and flags are set by compare-and-set in the metadata store. Two clusters with one configuration store have
    each namespace and its policies once, so that a change to one of them is a change to both.
    """
    input = task.input
    blue, green = _elsewhere(task.blue_brokers()), _elsewhere(task.green_brokers())
    shared = sorted({*map(_canonical, blue.values())} & {*map(_canonical, green.values())})
    if shared:  # mutant: blue-green/configuration-store-of-both
        findings.block(
            "SHARED_CONFIGURATION_STORE",
            f"{input.cluster} and {input.green_cluster} have one configuration store, {shared[0]}: each namespace and "
            "its policies exist once for both",
            f"give {input.green_cluster} a configuration store of its own (configurationMetadataStoreUrl), or move "
            "clients by replication between both",
        )
        return
    for code, found in (("BLUE", blue), ("GREEN", green)):
        for broker, used in found.items():
            findings.block(
                f"{code}_CONFIGURATION_STORE",
                f"{broker} keeps tenants and policies in {used}, and not in its metadata store",
                "a configuration store apart from the metadata store is not supported; if both are one tree, name it "
                "equally in metadataStoreUrl and configurationMetadataStoreUrl",
            )


def _elsewhere(brokers: Iterable[tuple[str, PulsarAdminReader]]) -> dict[str, str]:
    """Return the configuration store of each broker where that is not its metadata store."""
    found: dict[str, str] = {}
    for name, admin in brokers:
        if used := configuration_store_apart(admin.brokers.runtime_configuration())[1]:
            found[name] = used
    return found


def _canonical(text: str) -> str:
    try:
        return str(parse_broker_setting(text))
    except ValueError:
        return text

"""Stores in which brokers keep their metadata, by their own settings; both clusters are doubles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.checks.clusters import Side, check_broker, check_configuration_stores
from activities.blue_green.context import BlueGreenTask
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.precheck import Findings
from activities.pulsar.pulsar_cluster import PulsarCluster
from clients.errors import NoServer
from models.store_url import parse_broker_setting, parse_store_url

BLUE, GREEN = "zk:blue:2181/b", "zk:green:2181/g"
THIRD = "zk:global:2181/both"


def blocker_codes(blue: dict[str, str], green: dict[str, str]) -> list[str]:
    """Return the codes of blockers where the brokers of both clusters have these settings."""

    def brokers(settings: dict[str, str]) -> list[tuple[str, SimpleNamespace]]:
        return [("broker:1", SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=lambda: settings)))]

    task = SimpleNamespace(
        input=SimpleNamespace(cluster="b", green_cluster="g"),
        blue=SimpleNamespace(brokers=lambda: brokers({"metadataStoreUrl": BLUE, **blue})),
        green=SimpleNamespace(brokers=lambda: brokers({"metadataStoreUrl": GREEN, **green})),
    )
    findings = Findings()
    check_configuration_stores(cast("BlueGreenTask", task), findings)
    return [blocker.code for blocker in findings.blockers]


def test_configuration_in_the_metadata_store() -> None:
    """Brokers that name no configuration store, or the metadata store again, are as they should be."""
    assert blocker_codes({}, {}) == []
    assert blocker_codes({"configurationMetadataStoreUrl": BLUE}, {"configurationStoreServers": "green:2181/g"}) == []
    assert blocker_codes({"configurationMetadataStoreUrl": "zk:blue/b"}, {"configurationMetadataStoreUrl": ""}) == []
    # As the Helm chart sets it.
    old = {"metadataStoreUrl": "", "zookeeperServers": "zk-0:2181,zk-1:2181", "configurationStoreServers": "zk-0:2181"}
    assert blocker_codes(old, {}) == []
    local = "rocksdb:///data"
    assert blocker_codes({"metadataStoreUrl": local, "configurationMetadataStoreUrl": local}, {}) == []


@pytest.mark.parametrize("other", ["zk:blue:2181/other", "blue/conf", "zk:elsewhere:2181/b", "rocksdb:///data"])
def test_separate_configuration_stores(other: str) -> None:
    """Policies that are not in the metadata store cannot be held by compare-and-set there."""
    assert blocker_codes({"configurationMetadataStoreUrl": other}, {}) == ["BLUE_CONFIGURATION_STORE"]
    assert blocker_codes({}, {"globalZookeeperServers": other.replace("/b", "/g")}) == ["GREEN_CONFIGURATION_STORE"]


def test_one_configuration_store_for_both() -> None:
    """Each namespace exists once for both clusters, so nothing of it may be changed for one of them."""
    settings = {"configurationMetadataStoreUrl": THIRD}
    assert blocker_codes(settings, settings) == ["SHARED_CONFIGURATION_STORE"]
    assert blocker_codes({"configurationMetadataStoreUrl": GREEN}, {}) == ["BLUE_CONFIGURATION_STORE"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("zk:zk-1,zk-2/pulsar", "zk:zk-1:2181,zk-2:2181/pulsar"),
        ("zk-1,zk-2/pulsar", "zk:zk-1:2181,zk-2:2181/pulsar"),
        ("zk-1", "zk:zk-1:2181"),
        ("zk:zk-1:2181, zk-2:2181/pulsar", "zk:zk-1:2181,zk-2:2181/pulsar"),
        ("metadata-store:zk:zk-1:2181", "zk:zk-1:2181"),
        ("zk-1:2181;zk-2:2181/x", "zk:zk-1:2181,zk-2:2181/x"),
        ("oxia://h:6648/n", "oxia://h:6648/n"),
    ],
)
def test_addresses_as_brokers_take_them(text: str, address: str) -> None:
    """Schemes, ports and blanks may be left out, or be there."""
    assert str(parse_broker_setting(text)) == address


@pytest.mark.parametrize(
    ("url", "codes"),
    [
        ("zk:blue/b", []),
        ("blue,blue-2/b", []),
        ("zk:blue:2181, blue-2:2181/b", []),
        ("zk:blue:2181/other", ["BLUE_OTHER_STORE"]),
        ("rocksdb:///data", ["BLUE_OTHER_STORE"]),
    ],
)
def test_metadata_stores_of_brokers(url: str, codes: list[str]) -> None:
    """A broker's own name of its store is read as ZooKeeper's client reads it; another store is a blocker."""
    addresses = SimpleNamespace(store=parse_store_url(BLUE))
    side = Side("BLUE", "b", cast("PulsarCluster", SimpleNamespace(addresses=addresses)))
    findings = Findings()
    settings = {"clusterName": "b", "metadataStoreUrl": url, "clusterMigrationCheckDurationSeconds": "1"}
    check_broker(findings, side, "broker:1", settings)
    assert [blocker.code for blocker in findings.blockers] == codes
    old = Findings()
    check_broker(old, side, "broker:1", {**settings, "metadataStoreUrl": "", "zookeeperServers": url})
    assert [blocker.code for blocker in old.blockers] == codes


@pytest.mark.parametrize("text", ["rocksdb:///data", "ZK:zk-1:2181/pulsar", "etcd:http://h", "memory:local", ""])
def test_addresses_of_other_stores(text: str) -> None:
    """An address of a store other than ZooKeeper and Oxia is refused."""
    with pytest.raises(ValueError, match=r"address|store"):
        parse_broker_setting(text)


def test_no_broker_to_ask_for_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """While all brokers restart, a step is retried: it does not end because there is no oldest release."""
    cluster = PulsarCluster(cast("Any", None), cast("Any", SimpleNamespace(metadata_url=BLUE)), ActivityContext())
    monkeypatch.setattr(cluster, "brokers", list)
    with pytest.raises(NoServer, match="no broker is registered in zk:blue"):
        _ = cluster.release

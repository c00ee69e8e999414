"""The values of docs/kubernetes.md for the Apache Pulsar Helm chart, rendered with that chart's own templates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsar_devstack.servers.cache import cache_folder
from tests.environments import ROOT
from tests.support.helm import Objects, by_name, render, try_render

VERSION = "4.7.0"
"""The release of the chart that the page describes."""

RELEASE = "pulsar"
"""The release that the page calls `RELEASE`."""

_PAGE = (ROOT / "docs/kubernetes.md").read_text()
_STORES = {"metadataStoreUrl", "configurationMetadataStoreUrl", "bookkeeperMetadataServiceUri", "metadataServiceUri"}
_SERVICES = ("broker", "bookie", "recovery", "proxy")


@pytest.fixture(scope="module")
def chart() -> Path:
    """Return the chart's folder; skip where it was not fetched."""
    folder = cache_folder() / f"apache-pulsar-chart-{VERSION}/pulsar"
    if not folder.exists():
        pytest.skip(f"the Apache Pulsar Helm chart {VERSION} is missing: `make pulsar-chart` fetches it")
    return folder


def documented(heading: str) -> dict[str, Any]:
    """Return the only values that the page has after a heading, up to the next one."""
    section = _PAGE.split(f"\n{heading}", 1)[1].split("\n#", 1)[0]
    [text] = re.findall(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(text.replace("RELEASE", RELEASE))


def stores(objects: Objects, release: str = RELEASE) -> dict[str, dict[str, str]]:
    """Return the addresses of metadata stores in the settings of each service."""
    settings = {name: objects.get(("ConfigMap", f"{release}-{name}"), {}).get("data", {}) for name in _SERVICES}
    return {name: {key: data[key] for key in _STORES & set(data)} for name, data in settings.items() if data}


def test_the_page_names_the_version(chart: Path) -> None:
    """The page was read from the release that the tests render."""
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["version"] == VERSION
    assert f"chart **{VERSION}**" in _PAGE


def test_nothing_participates_by_default(chart: Path, tmp_path: Path) -> None:
    """Without values bookies have BookKeeper's own driver, and brokers an address of ledgers of their own."""
    ledgers = "zk+hierarchical://pulsar-zookeeper:2181/ledgers"
    assert stores(render({}, tmp_path, chart=chart, release=RELEASE)) == {
        "broker": {"metadataStoreUrl": "zk:pulsar-zookeeper:2181", "bookkeeperMetadataServiceUri": ledgers},
        "bookie": {"metadataServiceUri": ledgers},
        "recovery": {"metadataServiceUri": ledgers},
        "proxy": {},
    }


@pytest.mark.parametrize("prefix", ["", "/prod"])
def test_all_services_participate_with_the_documented_values(prefix: str, chart: Path, tmp_path: Path) -> None:
    """Brokers, bookies and autorecovery have one store, and reach it with Pulsar's drivers; proxies have none."""
    store = f"zk:pulsar-zookeeper:2181{prefix}"
    values = documented("### Metadata store, live")
    objects = render({**values, "metadataPrefix": prefix}, tmp_path, chart=chart, release=RELEASE)
    assert stores(objects) == {
        "broker": {"metadataStoreUrl": store},
        "bookie": {"metadataServiceUri": f"metadata-store:{store}"},
        "recovery": {"metadataServiceUri": f"metadata-store:{store}"},
        "proxy": {},
    }
    for name in ("broker", "bookie", "recovery"):
        [container] = objects["StatefulSet", f"pulsar-{name}"]["spec"]["template"]["spec"]["containers"]
        assert container["image"].endswith(f":{values['defaultPulsarImageTag']}")


def test_services_start_on_the_target_afterwards(chart: Path, tmp_path: Path) -> None:
    """With the later values all services have the target, and neither an object nor a start waits for ZooKeeper."""
    target = "oxia://OXIA:6648/broker"
    objects = render(documented("### Metadata store, afterwards"), tmp_path, chart=chart, release=RELEASE)
    assert stores(objects) == {
        "broker": {"metadataStoreUrl": target},
        "bookie": {"metadataServiceUri": f"metadata-store:{target}"},
        "recovery": {"metadataServiceUri": f"metadata-store:{target}"},
        "proxy": {},
    }
    assert not any("zookeeper" in name for _, name in objects)
    assert "zookeeper" not in str(objects["StatefulSet", "pulsar-broker"])


def test_zookeeper_and_oxia_in_one_release_clash(chart: Path, tmp_path: Path) -> None:
    """The chart writes the store twice, so Oxia needs a release of its own."""
    done = try_render({"components": {"zookeeper": True, "oxia": True}}, tmp_path, chart=chart, release=RELEASE)
    brokers = done.stdout.split("templates/broker-configmap.yaml", 1)[1].split("\n---", 1)[0]
    assert len(re.findall(r"^  metadataStoreUrl:", brokers, re.MULTILINE)) == 2


def test_a_second_release_has_bookies_only(chart: Path, tmp_path: Path) -> None:
    """The new bookies are initialised at their own address, next to the brokers of the first release."""
    objects = render(documented("### Bookie cluster: the new bookies"), tmp_path, chart=chart, release="pulsar-b")
    ledgers = "zk+hierarchical://pulsar-zookeeper:2181/ledgers-b"
    assert stores(objects, "pulsar-b") == {name: {"metadataServiceUri": ledgers} for name in ("bookie", "recovery")}
    assert {name for kind, name in objects if kind in {"StatefulSet", "Job"}} == {
        "pulsar-b-bookie",
        "pulsar-b-recovery",
        "pulsar-b-bookie-init",
    }
    [container] = objects["Job", "pulsar-b-bookie-init"]["spec"]["template"]["spec"]["containers"]
    assert "initnewcluster" in container["args"][0]
    assert container["envFrom"] == [{"configMapRef": {"name": "pulsar-b-bookie"}}]


def test_brokers_have_the_new_bookies_afterwards(chart: Path, tmp_path: Path) -> None:
    """The new address is there once, and brokers start without asking for the old bookies, which are removed."""
    values = documented("### Bookie cluster: the brokers afterwards")
    values["components"] = {"bookkeeper": False, "autorecovery": False}
    objects = render(values, tmp_path, chart=chart, release=RELEASE)
    ledgers = "zk+hierarchical://pulsar-zookeeper:2181/ledgers-b"
    assert stores(objects)["broker"]["bookkeeperMetadataServiceUri"] == ledgers
    brokers = objects["StatefulSet", "pulsar-broker"]
    assert "pulsar-bookie" not in str(brokers)
    del values["broker"]["waitBookkeeperTimeout"]
    waiting = render(values, tmp_path, chart=chart, release=RELEASE)
    assert ("ConfigMap", "pulsar-bookie") not in waiting
    assert "'name': 'pulsar-bookie'" in str(waiting["StatefulSet", "pulsar-broker"]), "its init container needs it"


def test_the_own_address_of_ledgers_would_be_there_twice(chart: Path, tmp_path: Path) -> None:
    """Without `usePulsarMetadataClientDriver` the chart writes its address too."""
    values = documented("### Bookie cluster: the brokers afterwards")
    del values["pulsar_metadata"]
    done = try_render(values, tmp_path, chart=chart, release=RELEASE)
    brokers = done.stdout.split("templates/broker-configmap.yaml", 1)[1].split("\n---", 1)[0]
    assert len(re.findall(r"^  bookkeeperMetadataServiceUri:", brokers, re.MULTILINE)) == 2


def test_scalable_topics_are_a_setting_of_brokers(chart: Path, tmp_path: Path) -> None:
    """The switch reaches the brokers' settings as text."""
    values = {"broker": {"configData": {"scalableTopicsEnabled": "true"}}}
    assert (
        render(values, tmp_path, chart=chart, release=RELEASE)["ConfigMap", "pulsar-broker"]["data"][
            "scalableTopicsEnabled"
        ]
        == "true"
    )


@pytest.mark.parametrize(("release", "prefix"), [("my-pulsar", "my-pulsar"), ("prod", "prod-pulsar")])
def test_names_start_with_the_release(release: str, prefix: str, chart: Path, tmp_path: Path) -> None:
    """Names start with the release if it contains `pulsar`, and otherwise with that added."""
    objects = by_name(try_render({}, tmp_path, chart=chart, release=release).stdout)
    assert {("StatefulSet", f"{prefix}-{name}") for name in ("broker", "bookie", "recovery", "proxy")} <= set(objects)

"""The compose file: what it opens, and that its parts fit each other and the product."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from models.settings import Settings
from page.settings import PageSettings
from pulsar_devstack.servers.server_releases import RELEASES
from tests.environments import ROOT

_FILE = ROOT / "deploy/compose/compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(_FILE.read_text())["services"]


def test_ports_are_open_on_this_machine_only() -> None:
    """Servers without logins are published on loopback, where only this machine's users reach them."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_images_have_versions() -> None:
    """The images of others are fixed by a version, and Pulsar's is the one that tests run."""
    images = {service["image"] for service in SERVICES.values()} - {"pulsar-migrate"}
    assert all(re.search(r":\d+\.\d+\.\d+$", image) for image in images)
    assert f"apachepulsar/pulsar:{next(iter(RELEASES.values())).version}" in images


def test_services_wait_for_what_they_need() -> None:
    """A service waits for another one to be healthy only if that one has a check, and for a step to end."""
    for service in SERVICES.values():
        for name, dependency in service.get("depends_on", {}).items():
            ends = dependency["condition"] == "service_completed_successfully"
            assert ends or (dependency["condition"] == "service_healthy" and "healthcheck" in SERVICES[name])


def test_bookies_and_brokers_follow_the_migration() -> None:
    """The bookie has Pulsar's driver with the brokers' store, and brokers have no address of ledgers of their own."""
    bookie, broker = SERVICES["bookie"]["environment"], SERVICES["broker"]["environment"]
    assert bookie["metadataServiceUri"] == f"metadata-store:{broker['metadataStoreUrl']}"
    assert "bookkeeperMetadataServiceUri" not in broker


@pytest.mark.parametrize(("name", "settings"), [("worker", Settings), ("page", PageSettings)])
def test_settings_exist(name: str, settings: type[BaseSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable of ours is a setting of the process, with a valid value; containers cannot write to their root."""
    service = SERVICES[name]
    variables = {key: value for key, value in service["environment"].items() if key.startswith("PULSAR_MIGRATE_")}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    prefix = settings.model_config.get("env_prefix", "")
    names = {prefix + field.upper() for field in settings().model_fields_set}
    assert names == set(variables) - {"PULSAR_MIGRATE_LOG"}
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]

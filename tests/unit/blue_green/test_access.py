"""Credentials that an input names and that this worker cannot use are blockers, before anybody is asked."""

from __future__ import annotations

from typing import Any, cast

from activities.blue_green.checks.access import lacking_credentials
from activities.lifecycle.runtime import Runtime
from models.blue_green.input import BlueGreenInput
from models.settings import Settings

NOWHERE = "127.0.0.1:1"


def blockers(settings: dict[str, object], **named: str) -> dict[str, tuple[str, str]]:
    """Return causes and cures, by code, where blue and green name these credentials."""
    sides = {
        side: {
            "metadata_url": f"zk:{NOWHERE}/{side}",
            "admin_urls": [f"http://{side}.invalid:8080"],
            "service_url": f"http://{NOWHERE}",
            "broker_service_url": f"pulsar://{NOWHERE}",
            "credentials": named.get(side, ""),
        }
        for side in ("blue", "green")
    }
    input = BlueGreenInput.model_validate({"cluster": "b", "green_cluster": "g", **sides})
    runtime = Runtime(Settings.model_validate(settings), cast("Any", None), "queue")
    return {
        lacking_credential.code: (lacking_credential.cause, lacking_credential.cure)
        for lacking_credential in lacking_credentials(runtime, input)
    }


def test_unknown_names() -> None:
    """Each side is reported with the unknown name, the configured names, and the variables to set."""
    settings: dict[str, object] = {"admin_token": "secret", "credentials": {"east": {}, "west": {}}}
    assert blockers(settings, blue="east", green="west") == {}
    by_code = blockers(settings, blue="north", green="west")
    assert list(by_code) == ["BLUE_CREDENTIALS"]
    cause, cure = by_code["BLUE_CREDENTIALS"]
    assert "no credentials called 'north'; they have east, west" in cause
    assert "PULSAR_MIGRATE_CREDENTIALS__NORTH__" in cure
    assert set(blockers({"admin_token": "secret"}, blue="east", green="west")) == {
        "BLUE_CREDENTIALS",
        "GREEN_CREDENTIALS",
    }


def test_files_that_cannot_be_used() -> None:
    """A missing certificate is reported before a request is sent to any server."""
    by_code = blockers({"credentials": {"west": {"admin_tls_ca": "/nowhere.pem"}}}, green="west")
    assert list(by_code) == ["GREEN_CREDENTIALS"]
    assert "/nowhere.pem" in by_code["GREEN_CREDENTIALS"][0]

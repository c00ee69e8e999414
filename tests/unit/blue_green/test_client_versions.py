"""Prediction of the clients that follow to green: by the versions that they report, and by green's addresses."""

from __future__ import annotations

import pytest

from activities.blue_green.checks.client_versions import cannot_follow, check_redirect, is_known, is_untested
from activities.lifecycle.precheck import Findings
from models.blue_green.input import ClusterAddresses
from models.releases import parse_release
from tests.support.blue_green.sides import side

TLS = "broker_service_url_tls"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.10.2", "2.10.2 is older than 3.2.0"),
        ("2.0.1-incubating", "2.0.1-incubating is older than 3.2.0"),
        ("Pulsar-Java-v2.11.0", "Pulsar-Java-v2.11.0 is older than 3.2.0"),
        ("Pulsar-Java-v3.0.8", "Pulsar-Java-v3.0.8 is older than 3.2.0"),
        ("Pulsar-Java-v3.1.3", "Pulsar-Java-v3.1.3 is older than 3.2.0"),
        ("Pulsar-CPP-v3.4.2", "Pulsar-CPP-v3.4.2 is older than 3.5.0"),
        ("Pulsar Go 0.12.1", "Pulsar Go 0.12.1 is older than 0.13.0"),
        ("Pulsar-Java-v3.2.0", ""),
        ("3.1.0", ""),
        ("Pulsar-CPP-v3.7.1", ""),
        ("Pulsar Rust 6.3", ""),
        ("", ""),
    ],
)
def test_old_clients(version: str, expected: str) -> None:
    """Libraries follow from some release on; Java clients up to 2.11 report a bare number."""
    assert cannot_follow(version) == expected


@pytest.mark.parametrize(
    ("version", "untested"),
    [
        ("Pulsar-Java-v4.0.12", False),
        ("Pulsar-Java-v5.0.1", False),
        ("Pulsar-CPP-v4.2.0", False),
        ("Pulsar-Java-v3.3.9", True),
        ("Pulsar-Java-v5.1.0", True),
        ("Pulsar-CPP-v3.7.1", True),
        ("Pulsar Go 0.14.0", True),
        ("Pulsar Rust 6.3", False),
        ("", False),
    ],
)
def test_untested_clients(version: str, *, untested: bool) -> None:
    """Libraries are known by the lines that tests ran with; what says nothing of its release is a question instead."""
    assert is_untested(version) is untested


@pytest.mark.parametrize("version", ["3.2.4", "3.3.2", "4.0.0"])
def test_java_clients_that_want_both_addresses(version: str) -> None:
    """Until #23534 a Java client stays on blue if green has one kind of address only."""
    client = f"Pulsar-Java-v{version}"
    assert cannot_follow(client) == ""
    assert cannot_follow(client, lacks_address=TLS) == (
        f"{client} follows only if {TLS} is given too, unless it is 3.3.3, or 4.0.1 or newer"
    )


@pytest.mark.parametrize(
    "client", ["Pulsar-Java-v3.3.3", "Pulsar-Java-v4.0.8", "Pulsar-Java-v5.0.1", "Pulsar-CPP-v3.5.0"]
)
def test_clients_that_need_one_address(client: str) -> None:
    """Later Java clients, and those of other libraries, follow to one address."""
    assert cannot_follow(client, lacks_address=TLS) == ""


@pytest.mark.parametrize(
    ("release", "address", "codes"),
    [
        ("4.0.0", {}, ["BLUE_NEEDS_ADDRESS"]),
        ("4.0.0", {TLS: "pulsar+ssl://green:6651"}, []),
        ("4.0.1", {}, []),
    ],
)
def test_brokers_that_want_both_addresses(release: str, address: dict[str, str], codes: list[str]) -> None:
    """Until #23534 brokers fail to build the command that sends a client to a cluster with one address."""
    findings = Findings()
    green = ClusterAddresses.model_validate({**side("green"), **address})
    check_redirect(findings, parse_release(release), green)
    assert [blocker.code for blocker in findings.blockers] == codes


def test_versions_that_say_nothing() -> None:
    """A client of an unknown library, and one without a version, may follow or not."""
    with_library = ["2.10.2", "2.0.1-incubating", "Pulsar-Java-v5.0.1", "Pulsar Python v3.13.0", "Pulsar Go 0.13.0"]
    unknown = ["", "vendor", "3.1.0", "DotPulsar-3.3.2", "Pulsar Rust 6.3", "Pulsar-Rust-v6.3.0", "pulsar-rs-v6.3.1"]
    unknown += ["Pulsar-Go-version-unknown", "Pulsar Go unknown", "Pulsar-DotNet-v3.4.0"]
    assert {version: is_known(version) for version in (*with_library, *unknown)} == {
        **dict.fromkeys(with_library, True),
        **dict.fromkeys(unknown, False),
    }

"""What PRECHECK asks of the settings of brokers."""

from __future__ import annotations

import pytest

from activities.lifecycle.precheck import Findings
from activities.scalable_topic.cluster_checks import check_addresses, check_broker

GOOD = {"scalableTopicsEnabled": "true", "httpServerIdleTimeout": "30000"}


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        (GOOD, []),
        ({"scalableTopicsEnabled": "true"}, []),
        ({**GOOD, "scalableTopicsEnabled": "false"}, ["NOT_SUPPORTED"]),
        ({}, ["NOT_SUPPORTED"]),
        ({**GOOD, "httpServerIdleTimeout": "60000"}, ["IDLE_CONNECTIONS"]),
        ({**GOOD, "httpServerIdleTimeout": "0"}, ["IDLE_CONNECTIONS"]),
    ],
)
def test_settings_under_which_topics_are_left_as_they_are(settings: dict[str, str], codes: list[str]) -> None:
    """A broker that does not serve scalable topics, and one that takes requests of workers that froze long ago."""
    findings = Findings()
    check_broker(findings, "broker-1", settings)
    assert [blocker.code for blocker in findings.blockers] == codes


@pytest.mark.parametrize(
    ("urls", "blocked"),
    [
        (["http://127.0.0.1:8080"], False),
        (["http://localhost:8080"], False),
        (["http://127.0.0.1:8080", "http://192.0.2.1:8080"], True),
        (["https://pulsar.example.invalid"], True),
        (["http://broker-2.example.invalid:8080"], False),
    ],
)
def test_addresses_that_lead_to_no_broker(urls: list[str], blocked: bool) -> None:
    """A proxy could send a request on when the migration is over; names of a broker's own address pass."""
    findings = Findings()
    check_addresses(findings, urls, ["http://127.0.0.1:8081", "http://broker-2.example.invalid:8080"])
    assert [blocker.code for blocker in findings.blockers] == (["ADMIN_ADDRESS"] if blocked else [])

"""Clusters to which namespaces replicate: green must reach them too; records of both clusters are doubles here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green.checks.clusters import check_other_clusters
from activities.blue_green.context import BlueGreenTask
from activities.lifecycle.precheck import Findings
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.errors import AdminNotFound

WEST = ClusterUrls(service_url="http://west:8080", broker_service_url="pulsar://west:6650")
INSIDE = ClusterUrls(service_url="http://10.0.0.7:8080", broker_service_url="pulsar://10.0.0.7:6650")
BY_TLS = ClusterUrls(broker_service_url_tls="pulsar+ssl://west:6651")


def checked(here: ClusterUrls, there: ClusterUrls | None, **settings: str) -> Findings:
    """Return the findings for the cluster `west`, whose record blue and green have like this."""

    def side(record: ClusterUrls | None) -> SimpleNamespace:
        def get(name: str) -> ClusterUrls:
            if record is None:
                raise AdminNotFound(name, method="GET", url=name)
            return record

        brokers = SimpleNamespace(runtime_configuration=lambda: settings)
        return SimpleNamespace(admin=SimpleNamespace(brokers=brokers, clusters=SimpleNamespace(get=get)))

    task = SimpleNamespace(input=SimpleNamespace(cluster="b", green_cluster="g"), blue=side(here), green=side(there))
    findings = Findings()
    check_other_clusters(cast("BlueGreenTask", task), findings, {"west"})
    return findings


@pytest.mark.parametrize(
    ("there", "tls", "blocked"),
    [
        (ClusterUrls(), "false", True),
        (ClusterUrls(service_url=""), "false", True),
        (WEST, "false", False),
        (WEST, "true", True),
        (BY_TLS, "true", False),
        (BY_TLS, "false", False),
        # A blocker of its namespaces names a cluster that green does not know.
        (None, "false", False),
    ],
)
def test_green_has_an_address_of_each_cluster(there: ClusterUrls | None, tls: str, *, blocked: bool) -> None:
    """A cluster without an address that green's brokers can use is a blocker: nothing would arrive there."""
    blockers = checked(WEST, there, brokerClientTlsEnabled=tls).blockers
    assert [blocker.code for blocker in blockers] == ["GREEN_LACKS_CLUSTER"] * blocked
    assert all("of west" in blocker.cause for blocker in blockers)


def test_other_addresses_are_a_warning() -> None:
    """Green may reach a cluster through another network, so other addresses are only named."""
    same = checked(WEST, WEST)
    assert (same.blockers, same.warnings) == ([], [])
    findings = checked(WEST, INSIDE)
    assert findings.blockers == []
    (warning,) = findings.warnings
    assert "g replicates to west by other addresses than b, http://10.0.0.7:8080, pulsar://10.0.0.7:6650" in warning

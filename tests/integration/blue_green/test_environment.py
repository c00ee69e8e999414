"""The two clusters of the tests themselves."""

from __future__ import annotations

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdminReader
from tests.support.blue_green.environment import BLUE, GREEN, Clusters


def test_clusters(clusters: Clusters) -> None:
    """Each broker belongs to its cluster and moves topics on request; the input that tests use is valid."""
    assert (clusters.blue_admin.clusters.names(), clusters.green_admin.clusters.names()) == ([BLUE], [GREEN])
    for name, stack, brokers in ((BLUE, clusters.blue, 2), (GREEN, clusters.green, 1)):
        assert len(stack.admin_urls) == brokers
        for url in stack.admin_urls:
            with PulsarAdminReader.open(AdminAccess(), [url]) as admin:
                configuration = admin.brokers.runtime_configuration()
            assert configuration["clusterName"] == name
            assert int(configuration["clusterMigrationCheckDurationSeconds"]) > 0
    input = clusters.input(namespaces=("acme/*",))
    assert (input.workflow_id, input.green_cluster) == (f"blue-green/{BLUE}", GREEN)

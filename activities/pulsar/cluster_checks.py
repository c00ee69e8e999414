"""Prechecks of a cluster's metadata store: the cluster's name, and other migrations."""

from __future__ import annotations

from activities.lifecycle.precheck import Findings
from activities.pulsar.exclusion import (
    another_cluster,
    bookies_on_the_move,
    claimed,
    metadata_on_the_move,
    other_holder,
)
from clients.cas.store import CasReader


def check_store(
    findings: Findings, store: CasReader, cluster: str, workflow_id: str, *, taken: str = "CLUSTER_CLAIMED"
) -> None:
    """Add blockers for another cluster's store, and for other migrations of the cluster.

    Args:
        findings: get the blockers.
        store: the brokers' metadata store.
        cluster: expected name of the cluster.
        workflow_id: of the migration.
        taken: code of the blocker if another migration holds the cluster.
    """
    if (other := other_holder(store, workflow_id)) is not None:
        findings.blockers.append(claimed(store, other, taken))
    blockers = [another_cluster(store, cluster), metadata_on_the_move(store)]
    if store.url.scheme == "zk":
        blockers.append(bookies_on_the_move(store, workflow_id))
    findings.blockers += [blocker for blocker in blockers if blocker]

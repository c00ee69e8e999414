"""What prechecks ask of the metadata store of a cluster: whose it is, and who else is at work in it."""

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
    """Note what keeps a migration of a cluster from starting.

    Args:
        findings: where it goes.
        store: the brokers' metadata store.
        cluster: whose it must be.
        workflow_id: of the migration.
        taken: code of the blocker where another migration holds the cluster.
    """
    if (other := other_holder(store, workflow_id)) is not None:
        findings.blockers.append(claimed(store, other, taken))
    found = [another_cluster(store, cluster), metadata_on_the_move(store)]
    if store.url.scheme == "zk":
        found.append(bookies_on_the_move(store, workflow_id))
    findings.blockers += [blocker for blocker in found if blocker]

"""Checks whether brokers can go back to the source, before a rollback stops them; and a rollback without the target."""

from __future__ import annotations

from activities.bookie_cluster.build import lift_ids
from activities.bookie_cluster.cluster_inspection import ClusterInspection, check_space, inspect
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import Ledgers, attributed_references, moving
from activities.bookie_cluster.tail import name_what_is_missing
from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from clients.errors import StoreConflict
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import RollbackReadiness, TailCopy


@step(BookieClusterTask, reads_only=True)
def check_rollback(task: BookieClusterTask) -> RollbackReadiness:
    """Inspect both clusters as PRECHECK does, with source and target swapped; reads only."""
    task = task.toward(Direction.BACK)
    ends = task.ends
    origin_findings, findings = Findings(), Findings()
    origin, destination = inspect(task, ends.source, origin_findings), inspect(task, ends.target, findings)
    if destination:
        findings.check("the brokers' metadata", lambda: _check_bookies(task, origin, destination, findings))
    return RollbackReadiness(
        blockers=tuple(findings.blockers),
        target_blockers=tuple(origin_findings.blockers),
        target_down=tuple(origin_findings.warnings),
    )


@step(BookieClusterTask)
def do_without_target(task: BookieClusterTask) -> TailCopy:
    """Lift the source's ids above all that Pulsar's metadata name, and name references to ledgers that it lacks.

    The target is lost, and the operator has given up what only it has; no broker may run.

    Raises:
        StoreConflict: others change the source's generator, or a newer attempt has taken over.
        StoreError: the brokers' metadata store or the source cannot be read or written.
    """
    task = task.toward(Direction.BACK)
    check = lift_ids(task, without_source=True)
    if not check.safe:
        raise StoreConflict(
            f"the next ledger of {task.ends.target.name} would get the id {check.next_id:,}, which is not above "
            f"{check.highest:,}; find out who else changes its id generator"
        )
    return name_what_is_missing(task)


def _check_bookies(
    task: BookieClusterTask, origin: ClusterInspection | None, destination: ClusterInspection, findings: Findings
) -> None:
    gained = Ledgers()
    if origin:
        with task.broker_store() as store:
            gained = moving(task.input, origin.cluster.name, origin.ledgers, attributed_references(task, store))
    largest = max((record.ensemble_size for record in gained.values()), default=1)
    check_space(destination, gained, largest, findings)

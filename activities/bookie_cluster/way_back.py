"""Whether the source can take brokers back; asked before a rollback stops anybody."""

from __future__ import annotations

from activities.bookie_cluster.cluster_inspection import check_space, inspect
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import all_references, moving
from activities.lifecycle.precheck import Findings
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import WayBack


def check_way_back(task: BookieClusterTask) -> WayBack:
    """Look at both clusters as PRECHECK does, with source and target swapped; reads only."""
    findings = Findings()
    ends = task.input.ends(Direction.BACK)
    left, taken = inspect(task, ends.source, findings), inspect(task, ends.target, findings)

    def check_bookies() -> None:
        assert left
        assert taken
        with task.broker_store() as store:
            gained = moving(task.input, ends.source.name, left.ledgers, all_references(store))
        largest = max((record.ensemble_size for record in gained.values()), default=1)
        check_space(taken, gained, largest, findings)

    if left and taken:
        findings.attempt("the brokers' metadata", check_bookies)
    return WayBack(blockers=tuple(findings.blockers))

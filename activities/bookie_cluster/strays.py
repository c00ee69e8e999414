"""Ledgers that brokers created in the cluster that they left, after everything in it had been copied."""

from __future__ import annotations

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import all_references, progress_path, scan
from activities.bookie_cluster.progress import read_cutover_ledger_id
from models.bookie_cluster.input import Direction
from models.lifecycle.failures import NAMED


def strays(task: BookieClusterTask) -> str:
    """Names those that Pulsar's metadata refer to, in a phrase; empty if there are none.

    Raises:
        StoreError: one of the stores cannot be read.
    """
    ends = task.input.ends(Direction.FORWARD)
    with task.broker_store() as store:
        highest = read_cutover_ledger_id(store, progress_path(task, Direction.FORWARD))
        if highest is None:
            return ""
        with task.ledgers(ends.source) as source:
            newer = {number for number in scan(source) if number > highest}
        if not newer:
            return ""
        # The cluster may serve others too, who go on creating ledgers.
        found = sorted(newer.intersection(one.ledger_id for one in all_references(store)))
    with task.ledgers(ends.target) as target:
        # What the target has too is a copy of a way back that was given up; ids of both never meet otherwise (I11).
        found = [number for number, copy in zip(found, target.read(found), strict=True) if copy is None]
    more = ", …" if len(found) > NAMED else ""
    return f"ledger(s) {', '.join(map(str, found[:NAMED]))}{more}" if found else ""

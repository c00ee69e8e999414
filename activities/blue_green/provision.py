"""PROVISION: green has every namespace that moves, with all that belongs to it."""

from __future__ import annotations

from activities.blue_green.checks.access import require_clients
from activities.blue_green.context import BlueGreenTask
from activities.blue_green.failback import distribute_cluster_flag, flagged_namespaces
from activities.blue_green.listing import selected
from activities.blue_green.namespace_redirect import redirected_namespaces
from activities.blue_green.provisioning.ledger_ids import raise_ids, renew_ledgers
from activities.blue_green.provisioning.namespaces import provision_all
from activities.lifecycle.step import step
from models.blue_green.results import Provision


@step(BlueGreenTask)
def provision(task: BlueGreenTask) -> Provision:
    """Create on green what it lacks, namespace by namespace, and read both sides back."""
    with task.green_store() as store:
        guard = task.keeper(store)
        guard.renew()
        distribute_cluster_flag(task, guard, store)
        # Nothing can be created in what green still sends away; that is left to its batch.
        namespaces = selected(task.blue, task.input)
        coming_back = flagged_namespaces(store, namespaces)
        with task.blue_store() as blue:
            gone = redirected_namespaces(task, blue, namespaces)
        namespaces = [name for name in namespaces if name not in coming_back and name not in gone]
        ids = raise_ids(task.input, task.stores(task.input.blue), task.stores(task.input.green), guard.require)
        found = provision_all(task, namespaces, guard.require)
        if ids:
            # Last: brokers may have created topics of now before they saw that ids were raised.
            renew_ledgers(task.green, task.change_green, namespaces, ids, guard.require)
        require_clients(task, namespaces)
        return found

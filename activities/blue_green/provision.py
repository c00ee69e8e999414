"""PROVISION: create on green every namespace that moves, with its topics, policies and subscriptions."""

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
    """Create what green lacks, namespace by namespace, and compare both clusters again."""
    with task.green.store() as store:
        guard = task.keeper(store)
        guard.renew()
        distribute_cluster_flag(task, guard, store)
        # Nothing can be created in a namespace that green still redirects; its batch does that.
        namespaces = selected(task.blue.admin, task.input)
        coming_back = flagged_namespaces(store, namespaces)
        with task.blue.store() as blue:
            moved = redirected_namespaces(task, blue, namespaces)
        namespaces = [name for name in namespaces if name not in coming_back and name not in moved]
        ids = raise_ids(task.input, task.blue.stores, task.green.stores, guard.require)
        result = provision_all(task, namespaces, guard.require)
        if ids:
            # Last: brokers may have created topics before they saw the raised ids.
            renew_ledgers(task.green.admin, task.green.change_or_never, namespaces, ids, guard.require)
        require_clients(task, namespaces)
        return result

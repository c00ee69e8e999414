"""What PRECHECK asks of blue's flags: whom it sends away already, by whose hand, and where to."""

from __future__ import annotations

import json

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.flags import urls_of
from activities.blue_green.listing import is_v1, namespaces_of
from activities.blue_green.records import sent_elsewhere
from activities.blue_green.topics import topics_of
from activities.lifecycle.precheck import Findings
from clients.cas.store import CasReader
from clients.pulsar.records.cluster_flag import read_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag
from clients.stores import open_cas_reader
from models.blue_green.input import BlueGreenInput
from models.lifecycle.failures import some


def check_redirects(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Whom blue sends away already, and whether that is to green."""
    input = task.input
    with open_cas_reader(input.blue.store, task.stores(input.blue)) as store:
        flag = read_cluster_flag(store, input.cluster)
        if away := sent_elsewhere(task, store):
            cure = (
                f"name the cluster where they are as green, or migrate from there to {input.cluster} first. If they "
                f"are on {input.green_cluster}, and only the address was lost, store it again: {_store_address(input)}"
            )
            findings.block("BLUE_SENDS_ELSEWHERE", f"{away}, and not to {input.green_cluster}", cure)
        elif flag and flag.migrated:
            _check_set_flag(task, findings, store)


def _check_set_flag(task: AnyBlueGreenTask, findings: Findings, store: CasReader) -> None:
    """The flag of all of blue is set: by an earlier run, if each namespace with topics has its own as well."""
    input, cluster = task.input, task.input.cluster
    names = [name for name in namespaces_of(task.blue) if not (name.startswith("pulsar/") or is_v1(name))]
    if unflagged := [name for name in names if not read_flag(store, name) and topics_of(task.blue, name)]:
        findings.block(
            "BLUE_FLAG_SET",
            f"the flag of the whole cluster {cluster} was set without a migration: nobody has looked whether all is on "
            f"{input.green_cluster} that clients of {some(unflagged)} need there",
            "have each of these namespaces carry it, which are brought to their end then: pulsar-admin namespaces "
            f"update-migration-state --migrated true; then take it off: {_store_address(input)}",
        )
    else:
        findings.warn(f"the flag of the whole cluster {cluster} is set already; what an earlier run left is finished")


def _store_address(input: BlueGreenInput) -> str:
    """How to store green's address, with the flag of the cluster off."""
    # The command of pulsar-admin loses every address that it is not given.
    address = json.dumps(urls_of(input.green).body())
    return f"POST {address} to {input.blue.admin_urls[0]}/admin/v2/clusters/{input.cluster}/migrate?migrated=false"

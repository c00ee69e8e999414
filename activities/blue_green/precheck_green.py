"""What PRECHECK asks of green: whether it has room for all that moves, and is set up like blue."""

from __future__ import annotations

from collections.abc import Sequence

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.differences import tenant_differences
from activities.blue_green.inventory import NamespaceInventory, read_tenant
from activities.blue_green.precheck_clusters import check_stricter
from activities.blue_green.quotas import (
    are_defaults,
    broker_differences,
    green_clusters,
    green_quotas,
    green_room,
    is_default,
)
from activities.lifecycle.precheck import Findings
from models.blue_green.differences import Difference, DifferenceKind
from models.lifecycle.failures import some
from models.releases import PAGE, behaviour_differences


def check_green(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> None:
    """Limits and tenants of green, and what its brokers do where a namespace does not say."""
    findings.blockers += green_room(task.green, namespaces)
    configurations = (admin.brokers.runtime_configuration() for admin in (task.blue, task.green))
    releases = task.blue_release, task.green_release
    check_stricter(task, findings)
    for difference in broker_differences(*configurations):
        if difference.blocks:
            continue
        notes = [str(difference)]
        if are_defaults(difference, *releases):
            notes.append("both are defaults")
        if is_default(difference):
            notes.append("it holds for namespaces that do not say otherwise")
        findings.warn("; ".join(notes))
    if behaviours := behaviour_differences(*releases, task.input.kind):
        blue, green = releases
        findings.warn(
            f"brokers of {task.input.cluster} ({blue}) and {task.input.green_cluster} ({green}) differ: "
            f"{' '.join(behaviours)} See {PAGE}"
        )
    for tenant in sorted({name.partition("/")[0] for name in namespaces}):
        blue = read_tenant(task.blue, tenant)
        if blue is not None:
            told = tenant_differences(tenant, blue, read_tenant(task.green, tenant), names=task.names)
            judge(task, findings, f"tenant {tenant}", told)


def check_fit(task: AnyBlueGreenTask, findings: Findings, blue: NamespaceInventory) -> None:
    """Limits that one namespace would exceed, and clusters that it needs."""
    findings.blockers += green_quotas(task.green, blue)
    tenant = read_tenant(task.blue, blue.name.partition("/")[0])
    if tenant is not None:
        lacking = green_clusters(task.green, blue, tenant, names=task.names)
        findings.blockers += [blocker for blocker in lacking if blocker not in findings.blockers]


def judge(task: AnyBlueGreenTask, findings: Findings, name: str, differing: Sequence[Difference]) -> None:
    """What PROVISION cannot, or may not, make equal."""
    green, align = task.input.green_cluster, task.input.align_differences
    blocking = [one for one in differing if one.blocks]
    final = [str(one) for one in blocking if not one.creatable]
    changeable = [str(one) for one in blocking if one.creatable and one.kind is not DifferenceKind.MISSING]
    if final:
        findings.block("GREEN_UNFIT", f"{name} cannot be made equal on {green}: {some(final)}", "change it yourself")
    if changeable and not align:
        cure = f'set "align_differences": true to change it on {green}, or change it yourself'
        findings.block("GREEN_DIFFERS", f"{name} differs on {green}: {some(changeable)}", cure)

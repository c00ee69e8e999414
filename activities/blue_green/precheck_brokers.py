"""What PRECHECK asks of where namespaces are served: brokers of their own, and groups that are kept apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.inventory import NamespaceInventory
from activities.lifecycle.precheck import Findings
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from models.lifecycle.failures import some


def check_isolation(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> None:
    """Note a blocker for namespaces that have brokers of their own on blue and not on green, and a warning for groups.

    Args:
        task: the step.
        findings: where it goes.
        namespaces: those that move.
    """
    blue, green = task.input.cluster, task.input.green_cluster
    here = task.blue.clusters.isolated_namespaces(blue)
    there = task.green.clusters.isolated_namespaces(green)
    if alone := [name for name in namespaces if is_isolated(here, name) and not is_isolated(there, name)]:
        findings.block(
            "GREEN_LACKS_ISOLATION",
            f"namespaces have brokers of their own on {blue} and none on {green}: {some(alone)}",
            f"create an isolation policy for them on {green} (pulsar-admin ns-isolation-policy set), or take them out "
            f"of that of {blue}",
        )
    groups = {name: task.blue.namespaces.anti_affinity_group(name) for name in namespaces}
    differing = [f"{name} ({group})" for name, group in groups.items() if group and group != _group(task.green, name)]
    if differing:
        findings.warn(
            f"namespaces are in anti-affinity groups, which are not carried to {green}; set them there (pulsar-admin "
            f"namespaces set-anti-affinity-group): {some(differing)}"
        )


def check_resource_group(task: AnyBlueGreenTask, findings: Findings, namespace: NamespaceInventory) -> None:
    """Note a warning where the limits that a namespace shares with others are not the same on green."""
    group = namespace.policies.raw.get("resource_group_name")
    if not group or group not in task.green.namespaces.resource_groups():
        return
    here, there = (admin.namespaces.resource_group(group) for admin in (task.blue, task.green))
    if differing := sorted(name for name in {*here, *there} if here.get(name) != there.get(name)):
        findings.warn(
            f"resource group {group} of {namespace.name} has other limits on {task.input.green_cluster}: "
            f"{', '.join(f'{name} {here.get(name)} and {there.get(name)}' for name in differing)}"
        )


def is_isolated(policies: Mapping[str, Sequence[str]], namespace: str) -> bool:
    """Return whether isolation policies give a namespace brokers of its own.

    Args:
        policies: patterns of namespaces, Java's regular expressions, by the names of the policies.
        namespace: whose brokers are asked for.
    """
    return any(_fits(pattern, namespace) for patterns in policies.values() for pattern in patterns)


def _fits(pattern: str, namespace: str) -> bool:
    try:
        return re.fullmatch(pattern, namespace) is not None
    except re.error:
        return pattern == namespace


def _group(green: PulsarAdminReader, namespace: str) -> str:
    try:
        return green.namespaces.anti_affinity_group(namespace)
    except AdminNotFound:
        return ""

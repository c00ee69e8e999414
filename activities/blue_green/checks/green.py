"""What PRECHECK asks of green: room, brokers of its own for namespaces, and what an earlier migration left there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from activities.blue_green.checks.clusters import check_stricter
from activities.blue_green.checks.quotas import (
    are_defaults,
    broker_differences,
    green_clusters,
    green_quotas,
    green_room,
    is_default,
)
from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.failback import terminated_topics
from activities.blue_green.listing import namespaces_of
from activities.blue_green.namespace_redirect import redirect_problem
from activities.blue_green.provisioning.differences import tenant_differences
from activities.blue_green.provisioning.inventory import NamespaceInventory, read_tenant
from activities.lifecycle.precheck import Findings
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import flag_time
from models.blue_green.differences import Difference, DifferenceKind
from models.lifecycle.failures import some
from models.releases import PAGE, behaviour_differences

_SWEEP = "clusterMigrationCheckDurationSeconds"


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


# A green that was left by an earlier migration: whether its clients can come back -------------------------------------


def check_failback(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> frozenset[TopicName]:
    """Look for what an earlier migration has left on green; returns topics of green that are made again."""
    green = task.input.green_cluster
    known = task.green.clusters.migration(green)
    if known is None:
        _check_later(task, findings)
        return frozenset()
    there = set(namespaces_of(task.green))
    with task.green_store() as store:
        times = {name: at for name in there if (at := flag_time(store, name)) is not None}
    if times or known.migrated:
        if why := redirect_problem(task, known.migrated_cluster_url, task.input.blue, task.input.cluster):
            findings.block("GREEN_FLAG_SET", f"{green} sends its clients away: {why}", "take its flags off")
        _check_restarted(task, findings, max(times.values(), default=0))
        findings.warn(
            f"{green} was left by an earlier migration, and sends clients of {len(times) or 'all'} namespaces "
            f"to {task.input.cluster}; this is their way back. Each is served by {green} again from the start of its "
            "batch on"
        )
    return _check_ended(task, findings, [name for name in namespaces if name in there])


def _check_later(task: AnyBlueGreenTask, findings: Findings) -> None:
    """What the way back will need one day, and what now takes no restart under traffic."""
    for broker, admin in task.green_brokers():
        if int(admin.brokers.runtime_configuration().get(_SWEEP) or 0) <= 0:
            findings.warn(
                f"{broker} of {task.input.green_cluster} could not send clients back: {_SWEEP} is 0. For a way back, "
                "set it to 1 before clients come; later it takes restarts under their traffic"
            )


def _check_restarted(task: AnyBlueGreenTask, findings: Findings, flagged_ms: int) -> None:
    """Brokers keep a producer that they sent away, and refuse it on the same connection indefinitely (5.0.1, seen).

    Those that were started after the flags were set have sent producers away without loading their topics, which
    leaves nothing behind.
    """
    started = [(broker, admin.brokers.started_ms()) for broker, admin in task.green_brokers()]
    if old := [broker for broker, at in started if at < flagged_ms]:
        since = datetime.fromtimestamp(flagged_ms / 1000, UTC).isoformat(timespec="seconds")
        findings.block(
            "GREEN_NOT_RESTARTED",
            f"brokers of {task.input.green_cluster} that were started before {since}, when they were told to send "
            f"clients away, would refuse these on the connections that they still have: {some(old)}",
            "restart each of them once; no client is served there now",
        )


def _check_ended(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> frozenset[TopicName]:
    ended = [found for name in namespaces for found in terminated_topics(task, name).items()]
    if waiting := [f"{topic} ({one.needed_by})" for topic, one in ended if one.needed_by]:
        findings.block(
            "GREEN_ENDED_TOPICS",
            f"{len(waiting)} topics of {task.input.green_cluster} were ended by an earlier migration, and still have "
            f"messages for others: {some(waiting)}",
            "take the flag of their namespace off and consume what is left, or give it up: pulsar-admin topics delete",
        )
    if refused := [f"{topic} ({one.refusal})" for topic, one in ended if one.refusal and not one.needed_by]:
        findings.block(
            "GREEN_RETAINED_MESSAGES",
            f"{len(refused)} topics of {task.input.green_cluster} that an earlier migration has ended would be deleted "
            f"with messages that no other cluster has: {some(refused)}",
            'copy what you need of them, then set "discard_retained": true; or exclude their namespaces',
        )
    if empty := [str(topic) for topic, one in ended if not one.refusal]:
        findings.warn(
            f"{len(empty)} topics of {task.input.green_cluster} that an earlier migration has ended are deleted, with "
            f"the messages that they still hold, and created again: {some(empty)}"
        )
    return frozenset(topic for topic, _ in ended)


# Brokers of their own, and groups that are kept apart -----------------------------------------------------------------


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

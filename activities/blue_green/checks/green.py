"""Checks of green: limits, isolation of namespaces, and flags and topics of an earlier migration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from activities.blue_green.checks.clusters import check_stricter
from activities.blue_green.checks.copies import check_copies
from activities.blue_green.checks.quotas import (
    are_defaults,
    differences_by_broker,
    effects,
    green_clusters,
    green_quotas,
    green_room,
    is_default,
)
from activities.blue_green.checks.settings import BothSides, check_settings
from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.failback import terminated_topics
from activities.blue_green.listing import namespaces_of
from activities.blue_green.namespace_redirect import redirect_problem
from activities.blue_green.provisioning.differences import tenant_differences
from activities.blue_green.provisioning.inventory import NamespaceInventory, read_tenant
from activities.lifecycle.precheck import Findings
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.namespaces import Policies
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import flag_time
from models.blue_green.differences import Difference, DifferenceKind
from models.broker_settings import deletes_consumed
from models.lifecycle.failures import summarize
from models.releases import PAGE, behaviour_differences

_SWEEP = "clusterMigrationCheckDurationSeconds"


def check_green(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str], brokers: BothSides) -> None:
    """Check limits, tenants and brokers' default settings of green.

    Args:
        task: the step.
        findings: receives blockers and warnings.
        namespaces: namespaces that move.
        brokers: settings of the brokers of both sides.
    """
    findings.blockers += green_room(task.green.admin, namespaces)
    check_stricter(findings, brokers)
    _compare_brokers(task, findings, brokers)
    releases = task.blue.release, task.green.release
    if behaviours := behaviour_differences(*releases, task.input.kind):
        blue, green = releases
        findings.warn(
            f"brokers of {task.input.cluster} ({blue}) and {task.input.green_cluster} ({green}) differ: "
            f"{' '.join(behaviours)} See {PAGE}"
        )
    for tenant in sorted({name.partition("/")[0] for name in namespaces}):
        blue = read_tenant(task.blue.admin, tenant)
        if blue is not None:
            differing = tenant_differences(tenant, blue, read_tenant(task.green.admin, tenant), names=task.names)
            judge(task, findings, f"tenant {tenant}", differing)


def _compare_brokers(task: AnyBlueGreenTask, findings: Findings, brokers: BothSides) -> None:
    """Warn of settings of green's brokers that differ from blue's."""
    releases = task.blue.release, task.green.release
    for difference, differing in differences_by_broker(brokers).items():
        if difference.blocks:
            continue
        notes = [str(difference), *effects(task.input.cluster, task.input.green_cluster, difference)]
        if are_defaults(difference, *releases):
            notes.append("both are defaults")
        if is_default(difference):
            notes.append("it applies to namespaces without a policy of their own")
        if len(differing) < len(brokers.green):
            notes.append(f"on {summarize(differing)}")
        findings.warn("; ".join(notes))


def check_fit(
    task: AnyBlueGreenTask,
    findings: Findings,
    blue: NamespaceInventory,
    green: NamespaceInventory | None,
    brokers: Mapping[str, str],
    *,
    compared: BothSides,
) -> None:
    """Check limits and settings of green that a namespace does not fit, and the clusters that it needs.

    Args:
        task: the step.
        findings: receives blockers.
        blue: namespace of blue.
        green: the same namespace on green; None if green does not have it.
        brokers: settings of green's brokers.
        compared: settings of brokers of both sides.
    """
    findings.blockers += green_quotas(task.green.admin, blue, green)
    check_settings(task, findings, blue, green, compared)
    check_deletion(task, findings, blue, green.policies if green else None, brokers)
    check_copies(task, findings, blue, brokers)
    tenant = read_tenant(task.blue.admin, blue.name.partition("/")[0])
    if tenant is not None:
        lacking = green_clusters(task.green.admin, blue, tenant, names=task.names)
        findings.blockers += [blocker for blocker in lacking if blocker not in findings.blockers]


def check_deletion(
    task: AnyBlueGreenTask,
    findings: Findings,
    blue: NamespaceInventory,
    green: Policies | None,
    brokers: Mapping[str, str],
) -> None:
    """Note a blocker for topics that green may delete with their subscriptions before clients come to them.

    Before the flip a topic of green has no messages and no clients. After it, consumers first read the rest on blue.
    Brokers of green that delete consumed topics may do so at any of these times, right before the flip too. The first
    producer then creates the topic without subscriptions, and consumers miss what it sends.

    Args:
        task: the step.
        findings: receives blockers.
        blue: namespace of blue.
        green: policies of the same namespace on green; None if green does not have it.
        brokers: settings of green's brokers.
    """
    # Policies of blue are copied.
    inherited = blue.policies.raw.get("inactive_topic_policies") or (green and green.raw.get("inactive_topic_policies"))
    deleted = [
        str(name)
        for name, topic in sorted(blue.topics.items())
        if topic.persistent
        and topic.durable
        # mutant: blue-green/topics-that-green-deletes-pass
        and deletes_consumed(topic.own_policy("inactiveTopicPolicies") or inherited, brokers)
    ]
    if deleted:
        findings.block(
            "GREEN_DELETES_TOPICS",
            f"{task.input.green_cluster} would delete topics with their subscriptions before clients come to them, "
            f"because these have nothing to consume there (delete_when_subscriptions_caught_up): {summarize(deleted)}",
            f"set on {task.input.cluster} that they stay until the migration is complete (pulsar-admin namespaces "
            "set-inactive-topic-policies --disable-delete-while-inactive --max-inactive-duration 1h --delete-mode "
            "delete_when_no_subscriptions, for topics topicPolicies set-inactive-topic-policies)",
        )


def judge(task: AnyBlueGreenTask, findings: Findings, name: str, differing: Sequence[Difference]) -> None:
    """Note blockers for differences that PROVISION cannot, or may not, remove."""
    green, align = task.input.green_cluster, task.input.align_differences
    blocking = [difference for difference in differing if difference.blocks]
    final = [str(difference) for difference in blocking if not difference.creatable]
    changeable = [
        str(difference)
        for difference in blocking
        if difference.creatable and difference.kind is not DifferenceKind.MISSING
    ]
    if final:
        cause = f"the migration cannot make {name} equal on {green}: {summarize(final)}"
        findings.block("GREEN_UNFIT", cause, "change it yourself")
    if changeable and not align:
        cure = f'set "align_differences": true to change it on {green}, or change it yourself'
        findings.block("GREEN_DIFFERS", f"{name} differs on {green}: {summarize(changeable)}", cure)


# Failback: green was the blue cluster of an earlier migration ---------------------------------------------------------


def check_failback(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> frozenset[TopicName]:
    """Check flags and topics that an earlier migration left on green; return topics that will be created again."""
    green = task.input.green_cluster
    flag = task.green.admin.clusters.migration(green)
    if flag is None:
        _check_later(task, findings)
        return frozenset()
    there = set(namespaces_of(task.green.admin))
    with task.green.store() as store:
        times = {name: at for name in there if (at := flag_time(store, name)) is not None}
    if times or flag.migrated:
        if why := redirect_problem(task, flag.migrated_cluster_url, task.input.blue, task.input.cluster):
            findings.block("GREEN_FLAG_SET", f"{green} redirects its clients {why}", "take its flags off")
        _check_restarted(task, findings, max(times.values(), default=0))
        findings.warn(
            f"{green} redirects clients of {len(times) or 'all'} namespaces to {task.input.cluster} since an earlier "
            f"migration, so this is a failback. {green} serves each namespace again from the start of its batch"
        )
    return _check_ended(task, findings, [name for name in namespaces if name in there])


def _check_later(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Warn of settings that a later failback needs, while a change of them needs no restart during traffic."""
    for broker, admin in task.green.brokers():
        if int(admin.brokers.runtime_configuration().get(_SWEEP) or 0) <= 0:
            findings.warn(
                f"{broker} of {task.input.green_cluster} could not redirect clients in a failback: {_SWEEP} is 0. Set "
                "it to 1 before the migration; later it needs restarts during traffic"
            )


def _check_restarted(task: AnyBlueGreenTask, findings: Findings, flagged_ms: int) -> None:
    """Check that brokers were restarted after the flags were set.

    A broker remembers producers that it redirected, and refuses them on the same connection indefinitely (5.0.1, seen).
    A broker that was started after the flags redirects producers without loading their topics, and remembers none.
    """
    started = [(broker, admin.brokers.started_ms()) for broker, admin in task.green.brokers()]
    if old := [broker for broker, at in started if at < flagged_ms]:
        since = datetime.fromtimestamp(flagged_ms / 1000, UTC).isoformat(timespec="seconds")
        findings.block(
            "GREEN_NOT_RESTARTED",
            f"brokers of {task.input.green_cluster} that were started before their flags were set ({since}) would "
            f"refuse redirected producers on existing connections: {summarize(old)}",
            "restart each of them once; they serve no clients now",
        )


def _check_ended(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> frozenset[TopicName]:
    terminated = [item for name in namespaces for item in terminated_topics(task, name).items()]
    if waiting := [f"{name} ({topic.needed_by})" for name, topic in terminated if topic.needed_by]:
        findings.block(
            "GREEN_ENDED_TOPICS",
            f"{len(waiting)} topics of {task.input.green_cluster} were terminated by an earlier migration, and still "
            f"have messages for others: {summarize(waiting)}",
            f"start the migration from {task.input.green_cluster} to {task.input.cluster} again, so that consumers get "
            "these messages, or give them up and delete the topics (pulsar-admin topics delete)",
        )
    if refused := [f"{name} ({topic.refusal})" for name, topic in terminated if topic.refusal and not topic.needed_by]:
        findings.block(
            "GREEN_RETAINED_MESSAGES",
            f"{len(refused)} topics of {task.input.green_cluster} are terminated, and must not be deleted: "
            f"{summarize(refused)}",
            'copy the messages that you need, then set "discard_retained": true, or delete topics that a client has '
            "terminated; or exclude their namespaces",
        )
    if empty := [str(name) for name, topic in terminated if not topic.refusal]:
        findings.warn(
            f"{len(empty)} topics of {task.input.green_cluster} that an earlier migration terminated are deleted with "
            f"their remaining messages, and created again: {summarize(empty)}"
        )
    return frozenset(name for name, _ in terminated)


# Isolation and anti-affinity of namespaces ----------------------------------------------------------------------------


def check_isolation(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> None:
    """Note a blocker for namespaces that are isolated only on blue, and a warning for anti-affinity groups.

    Args:
        task: the step.
        findings: receives blockers and warnings.
        namespaces: namespaces that move.
    """
    blue, green = task.input.cluster, task.input.green_cluster
    here = task.blue.admin.clusters.isolated_namespaces(blue)
    there = task.green.admin.clusters.isolated_namespaces(green)
    if isolated := [name for name in namespaces if is_isolated(here, name) and not is_isolated(there, name)]:
        findings.block(
            "GREEN_LACKS_ISOLATION",
            f"namespaces have brokers of their own on {blue} and none on {green}: {summarize(isolated)}",
            f"create an isolation policy for them on {green} (pulsar-admin ns-isolation-policy set), or take them out "
            f"of that of {blue}",
        )
    groups = {name: task.blue.admin.namespaces.anti_affinity_group(name) for name in namespaces}
    differing = [
        f"{name} ({group})" for name, group in groups.items() if group and group != _group(task.green.admin, name)
    ]
    if differing:
        findings.warn(
            f"namespaces are in anti-affinity groups, which are not copied to {green}; set them there (pulsar-admin "
            f"namespaces set-anti-affinity-group): {summarize(differing)}"
        )


def check_resource_group(task: AnyBlueGreenTask, findings: Findings, namespace: NamespaceInventory) -> None:
    """Note a warning if the limits of a namespace's resource group differ on green."""
    group = namespace.policies.raw.get("resource_group_name")
    if not group or group not in task.green.admin.namespaces.resource_groups():
        return
    here, there = (admin.namespaces.resource_group(group) for admin in (task.blue.admin, task.green.admin))
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

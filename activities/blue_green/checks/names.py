"""Checks of names: names that green cannot have, and topics that no flag moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.listing import is_v1, scalable_topics
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.lifecycle.precheck import Findings
from activities.pulsar.stored_topics import stored
from activities.pulsar.topic_inventory import TopicInventory
from clients.pulsar.names import TopicName
from models.blue_green.input import BlueGreenInput
from models.lifecycle.failures import summarize
from models.lifecycle.patterns import matches
from models.releases import Behaviour


def check_namespace_names(findings: Findings, namespaces: Sequence[str]) -> list[str]:
    """Note a blocker for namespaces that cannot move because of their names.

    Args:
        findings: receives blockers.
        namespaces: selected namespaces.

    Returns:
        The other namespaces.
    """
    if v1 := [name for name in namespaces if is_v1(name)]:
        findings.block(
            "BLUE_V1_NAMESPACES",
            f"namespaces have names of Pulsar 1, tenant/cluster/namespace, which cannot move: {summarize(v1)}",
            "move their clients to namespaces tenant/namespace, or exclude them",
        )
    return [name for name in namespaces if not is_v1(name)]


def check_patterns(input: BlueGreenInput, findings: Findings, namespaces: Sequence[str]) -> None:
    """Note patterns that match no namespace: with a typo in `exclude`, namespaces that must stay would move.

    Args:
        input: input of the migration.
        findings: receives blockers and warnings.
        namespaces: all namespaces of blue.
    """
    unused = {
        patterns: [pattern for pattern in patterns if not any(matches(name, pattern) for name in namespaces)]
        for patterns in (input.exclude, input.namespaces)
    }
    if excluded := unused[input.exclude]:  # mutant: blue-green/pattern-that-excludes-nothing
        findings.block(
            "NOTHING_EXCLUDED",
            f"patterns of exclude match no namespace of {input.cluster}: {summarize(_quote(excluded))}",
            "correct them, or leave them out",
        )
    if selected := unused[input.namespaces]:
        findings.warn(f"patterns of namespaces match no namespace of {input.cluster}: {summarize(_quote(selected))}")


def check_topics(task: AnyBlueGreenTask, findings: Findings, blue: NamespaceInventory) -> NamespaceInventory:
    """Note a blocker for topics that green refuses, or that the namespace's flag does not move.

    Args:
        task: the step.
        findings: receives blockers.
        blue: the namespace.

    Returns:
        The namespace without the topics that green refuses.
    """
    lone = [name for name, topic in sorted(blue.topics.items()) if name.partition is not None and not topic.partitions]
    if lone := [name for name in lone if blue.topics[name].persistent]:
        findings.block(
            "BLUE_LONE_PARTITIONS",
            "topics are named like a partition, and there is no such partitioned topic: "
            f"{summarize(list(map(str, lone)))}",
            "pulsar-admin topics create-partitioned-topic for the name without -partition-N, with more partitions than "
            "the highest N; or move their clients to other names and delete these",
        )
    if blue.beyond:
        findings.block(
            "BLUE_LONE_PARTITIONS",
            "partitions have higher numbers than their topics have partitions: "
            f"{summarize(list(map(str, blue.beyond)))}",
            "give these topics more partitions than the highest number (pulsar-admin topics update-partitioned-topic), "
            "or move their clients to other names and delete these",
        )
    lasting = [name for name, topic in sorted(blue.topics.items()) if topic.lasting]
    padded = [name for name in lasting if name.topic != name.topic.rstrip(_TRIMMED)]
    if not task.green.release.has(Behaviour.REFUSES_OUTER_WHITE_SPACE):
        padded.clear()
    if padded:
        names = summarize(_quote(list(map(str, padded))))
        cause = f"{task.input.green_cluster} refuses names that end with white space: {names}"
        findings.block("BLUE_NAMES", cause, _RENAME)
    if scalable := scalable_topics(task, blue.name):
        findings.block(
            "BLUE_SCALABLE_TOPICS",
            f"{blue.name} has scalable topics, which do not move to {task.input.green_cluster}: {summarize(scalable)}",
            f"exclude {blue.name}, or move its clients to other topics and delete these",
        )
    check_terminated(task, findings, blue)
    refused = {*lone, *padded, *check_shadows(findings, task.input.green_cluster, blue)}
    return replace(blue, topics={name: topic for name, topic in blue.topics.items() if name not in refused})


def check_shadows(findings: Findings, green: str, blue: NamespaceInventory) -> list[TopicName]:
    """Note a blocker for shadow topics of a namespace and their sources; return them.

    Args:
        findings: receives blockers.
        green: green's name.
        blue: the namespace.
    """
    shadows = [name for name, topic in sorted(blue.topics.items()) if _has_shadows(topic)]
    if shadows:
        findings.block(
            "BLUE_SHADOW_TOPICS",
            "topics are shadow topics, which brokers cannot terminate, or have some: "
            f"{summarize(list(map(str, shadows)))}",
            "remove shadow topics (pulsar-admin topics remove-shadow-topics for the source, then delete each), and "
            f"create them on {green} after the migration; or exclude their namespaces",
        )
    return shadows


def check_terminated(task: AnyBlueGreenTask, findings: Findings, blue: NamespaceInventory) -> None:
    """Note a blocker for topics of a namespace that clients have terminated.

    Green has such a topic open: its consumers would be redirected there, and would never learn of the end.

    Args:
        task: the step.
        findings: receives blockers.
        blue: the namespace.
    """
    names = [
        partition.name for _, topic in sorted(blue.topics.items()) if topic.persistent for partition in topic.parts
    ]
    infos = task.each(names, lambda name: stored(task.blue.admin, name))
    # A flip of an earlier run has marked what it terminated.
    if terminated := [
        str(name)
        for name, info in zip(names, infos, strict=True)
        if info is not None and info.terminated_position is not None and not info.marked
    ]:
        findings.block(
            "BLUE_TERMINATED_TOPICS",
            "topics were terminated by clients. Their consumers would be redirected to topics of "
            f"{task.input.green_cluster} that are not terminated: {summarize(terminated)}",
            "delete them when their consumers have read them, or exclude their namespaces",
        )


# Characters that Java's `trim` removes. A leading blank of a name is inside the full name, so it stays.
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
# Property of a shadow topic, and policy of its source.
_SHADOW_SOURCE, _SHADOWS = "PULSAR.SHADOW_SOURCE", "shadowTopics"
_RENAME = "move their clients to other names and delete these, or exclude their namespaces"


def _has_shadows(topic: TopicInventory) -> bool:
    return _SHADOW_SOURCE in (topic.properties or {}) or _SHADOWS in (topic.policies or {})


def _quote(names: Sequence[str]) -> list[str]:
    return [repr(name) for name in names]

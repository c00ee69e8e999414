"""How green differs from blue: what operators read, and what provisioning works from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from activities.blue_green.provisioning.deltas import (
    NOT_SET,
    Change,
    Delta,
    as_text,
    differs,
    extra,
    is_secret,
    missing,
    policy_of_green,
    unsupported,
)
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.provisioning.topic_differences import topic_deltas
from activities.blue_green.provisioning.translation import (
    bundle_count,
    comparable,
    translated_policies,
    translated_tenant,
)
from activities.pulsar.topic_inventory import TopicInventory
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespace_policies import PolicyPath, can_be_set
from clients.pulsar.admin.namespaces import BookieAffinity, Policies
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from models.blue_green.differences import Difference
from models.releases import PolicyField, Release


def differences(
    blue: NamespaceInventory, green: NamespaceInventory | None, *, names: Mapping[str, str], release: Release
) -> list[Difference]:
    """Return how a namespace on green differs from blue's.

    Args:
        blue: as it is on blue.
        green: as it is on green; None where it is not there.
        names: what blue's clusters are called on green.
        release: of green's brokers.
    """
    return reported(namespace_deltas(blue, green, names, release))


def tenant_differences(name: str, blue: Tenant, green: Tenant | None, *, names: Mapping[str, str]) -> list[Difference]:
    """Return how a tenant on green differs from blue's; None where it is not there."""
    return reported(tenant_deltas(name, blue, green, names))


def reported(deltas: list[Delta]) -> list[Difference]:
    """Return the differences among them that do not follow from bigger ones."""
    return [delta.difference for delta in deltas if not delta.implied]


def tenant_deltas(name: str, blue: Tenant, green: Tenant | None, names: Mapping[str, str]) -> list[Delta]:
    """Return the differences of a tenant, with the changes that remove them."""
    wanted = translated_tenant(blue, names)
    if green is None:
        body = as_text(wanted.body())
        return [missing(f"tenant {name}", body, "tenant", lambda admin: _create_tenant(admin, name, wanted, names))]
    both = Tenant(
        admin_roles=tuple(sorted({*wanted.admin_roles, *green.admin_roles})),
        allowed_clusters=tuple(sorted({*wanted.allowed_clusters, *green.allowed_clusters})),
    )

    def update(admin: PulsarAdmin) -> None:
        admin.tenants.update(name, both)

    deltas: list[Delta] = []
    for field, of_blue, of_green in (
        ("adminRoles", wanted.admin_roles, green.admin_roles),
        ("allowedClusters", wanted.allowed_clusters, green.allowed_clusters),
    ):
        path = f"tenant {name}: {field}"
        if {*of_blue} - {*of_green}:
            texts = ", ".join(sorted(of_blue)), ", ".join(sorted(of_green)) or "none"
            deltas.append(differs(path, texts, "tenant setting", update))
        elif more := {*of_green} - {*of_blue}:
            deltas.append(extra(path, ", ".join(sorted(more))))
    return deltas


def namespace_deltas(
    blue: NamespaceInventory, green: NamespaceInventory | None, names: Mapping[str, str], release: Release
) -> list[Delta]:
    """Return the differences of a namespace, with the changes that remove them, in the order of creation."""
    deltas = list(unsupported_policies(blue, release))
    blue = without_unsupported(blue, release)
    if green is None:
        wanted = translated_policies(blue.policies, names)
        deltas.append(
            missing(
                f"namespace {blue.name}",
                f"{len(blue.topics)} topics",
                "namespace",
                lambda admin: admin.namespaces.create(blue.name, wanted),
            )
        )
    else:
        deltas += _policy_deltas(blue, green, names)
    # Before topics: it applies only to ledgers that are created later.
    deltas += _affinity_deltas(blue, green)
    topics: Mapping[TopicName, TopicInventory] = green.topics if green else {}
    for name, topic in sorted(blue.topics.items()):
        deltas += topic_deltas(topic, topics.get(name), names)
    deltas += [
        extra(f"topic {name}") for name, topic in sorted(topics.items()) if name not in blue.topics and topic.lasting
    ]
    return deltas


def _policy_deltas(blue: NamespaceInventory, green: NamespaceInventory, names: Mapping[str, str]) -> Iterator[Delta]:
    wanted, there = comparable(translated_policies(blue.policies, names)), comparable(green.policies.raw)
    for path, value in sorted(wanted.items()):
        if there.get(path) != value:
            change = _setting(blue.name, path, value) if _settable(path, names) else None
            texts = _text(path, value), _text(path, there.get(path, NOT_SET))
            yield differs(_named(blue.name, path), texts, "namespace policy", change)
    for path in sorted(there.keys() - wanted.keys()):
        # With any of them brokers list all kinds of offloaders that are not used.
        if path[0] != "offload_policies" or there[path] is not False:
            yield policy_of_green(_named(blue.name, path), path[0], there[path], _text(path, there[path]))
    counts = bundle_count(blue.policies), bundle_count(green.policies)
    if counts[0] != counts[1]:
        delta = differs(f"namespace {blue.name}: bundles", (str(counts[0]), str(counts[1])))
        # Brokers split bundles on their own.
        yield delta._replace(difference=delta.difference.model_copy(update={"harmless": True}))


def _affinity_deltas(blue: NamespaceInventory, green: NamespaceInventory | None) -> Iterator[Delta]:
    path = f"namespace {blue.name}: bookieAffinityGroup"
    wanted, there = blue.affinity, green.affinity if green else None
    if wanted == there:
        return
    if wanted is None:
        yield extra(path, _groups(there))
        return

    def change(admin: PulsarAdmin) -> None:
        admin.namespaces.set_bookie_affinity(blue.name, wanted)

    if there is None:
        yield missing(path, _groups(wanted), "namespace policy", change)
    else:
        yield differs(path, (_groups(wanted), _groups(there)), "namespace policy", change)


def _groups(affinity: BookieAffinity | None) -> str:
    return as_text(affinity.body()) if affinity else NOT_SET


def _text(path: PolicyPath, value: Any) -> str:
    return as_text(value if value == NOT_SET else {path[-1]: value}) if is_secret(path[-1]) else as_text(value)


def _settable(path: PolicyPath, names: Mapping[str, str]) -> bool:
    return any(can_be_set(path, cluster) for cluster in names.values())


def _setting(namespace: str, path: PolicyPath, value: Any) -> Change:
    return lambda admin: admin.namespaces.set_policy(namespace, path, value)


def _named(namespace: str, path: PolicyPath) -> str:
    return f"namespace {namespace}: {'.'.join(path)}"


def _create_tenant(admin: PulsarAdmin, name: str, wanted: Tenant, names: Mapping[str, str]) -> None:
    """Create a tenant without the clusters that green does not know: green would refuse the whole tenant."""
    known_clusters = {*admin.clusters.names(), *names.values()}
    clusters = tuple(cluster for cluster in wanted.allowed_clusters if cluster in known_clusters)
    admin.tenants.create(name, wanted.model_copy(update={"allowed_clusters": clusters}))


# Policies that green's release does not have: reported, and left out of the comparison --------------------------------


def without_unsupported(blue: NamespaceInventory, release: Release) -> NamespaceInventory:
    """Return a namespace of blue without the policies that green's release does not have.

    Args:
        blue: as it is on blue.
        release: of green's brokers.
    """
    raw = {name: value for name, value in blue.policies.raw.items() if not release.lacked_namespace_policy(name)}
    topics = {name: _supported_topic(topic, release) for name, topic in blue.topics.items()}
    return replace(blue, policies=Policies.of(raw), topics=topics)


def unsupported_policies(blue: NamespaceInventory, release: Release) -> Iterator[Delta]:
    """Return the policies of a namespace and its topics that are set and do not exist in green's release.

    Args:
        blue: as it is on blue.
        release: of green's brokers.
    """
    for name, value in sorted(blue.policies.raw.items()):
        if (field := release.lacked_namespace_policy(name)) and _is_set(field, value):
            path = f"namespace {blue.name}: {name}"
            yield unsupported(path, as_text(value), release, relied_on=field.relied_on)
    for topic in blue.topics.values():
        for name, value in sorted((topic.policies or {}).items()):
            if (field := _lacked_topic_policy(name, release)) and _is_set(field, value):
                path = f"topic {topic.name}: policy {name}"
                delta = unsupported(path, as_text(value), release, relied_on=field.relied_on)
                yield delta._replace(topic=topic.name)


def _supported_topic(topic: TopicInventory, release: Release) -> TopicInventory:
    if not topic.policies:
        return topic
    supported = {name: value for name, value in topic.policies.items() if not _lacked_topic_policy(name, release)}
    return replace(topic, policies=supported)


def _lacked_topic_policy(name: str, release: Release) -> PolicyField | None:
    return release.lacked_topic_policy(name.rpartition("/")[2])


def _is_set(field: PolicyField, value: object) -> bool:
    return value is not None and value not in field.unset

"""Checks of both clusters as a whole: names, brokers' settings, addresses, and other migrations."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from activities.blue_green.checks.quotas import differences_by_broker
from activities.blue_green.checks.settings import BothSides, SettingsByBroker, both_sides
from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.listing import is_v1, namespaces_of
from activities.blue_green.namespace_redirect import conflicting_redirect, urls_of
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.topics import topics_of
from activities.lifecycle.precheck import Findings
from activities.pulsar.cluster_checks import check_store
from activities.pulsar.exclusion import no_brokers
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.pulsar.releases import SeenBroker, check_releases, read_broker
from activities.pulsar.topic_inventory import TopicInventory
from clients.cas.store import CasReader
from clients.errors import StoreError
from clients.pulsar.admin.brokers import broker_addresses, registered_urls
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.admin.topic_policies import GLOBAL
from clients.pulsar.names import TopicName
from clients.pulsar.records.cluster_flag import read_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag
from clients.pulsar.wire.lookup import named_owner
from clients.reach import obstacle
from clients.stores import open_cas_reader
from models.blue_green.input import BlueGreenInput, IdleSubscriptions
from models.broker_settings import configuration_store_apart, metadata_store_of
from models.lifecycle.failures import summarize
from models.lifecycle.input import Accepted
from models.store_url import parse_broker_setting

_SWEEP = "clusterMigrationCheckDurationSeconds"
_AUTO = "clusterMigrationAutoResourceCreation"
_SLOW_SWEEP = 10
_REPLICATION = "replication"
# A topic of a namespace that each cluster has; a lookup does not create it.
_ANY_TOPIC = TopicName.parse("persistent://pulsar/system/pulsar-migrate")


class Side(NamedTuple):
    """One of both clusters.

    Attributes:
        code: prefix of the codes of its blockers.
        name: expected name.
        cluster: its servers; the admin interface is at the addresses of the input, which may be a proxy's.
    """

    code: str
    name: str
    cluster: PulsarCluster


def check_clusters(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Check both clusters; a failed request is a blocker of its own."""
    input = task.input
    for side in _sides(task):
        store = f"the metadata store {side.cluster.addresses.metadata_url}"
        findings.check(store, _store_check(task, findings, side), of=f"{side.code}_STORE")
        findings.check(f"the brokers of {side.name}", _brokers_check(task, findings, side), of=f"{side.code}_BROKERS")
    findings.check("the configuration stores", lambda: check_configuration_stores(task, findings), of="CLUSTERS")
    findings.check(f"the flag of {input.cluster}", lambda: check_redirects(task, findings), of="BLUE_FLAG")
    findings.check(f"the address of {input.green_cluster}", lambda: _check_address(task, findings), of="GREEN_URL")


def check_running(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Repeat PRECHECK's checks of the brokers of both clusters, without those that do not answer now.

    Raises:
        StoreError: a metadata store cannot be read, or no broker of a side answers.
    """
    brokers: dict[str, SettingsByBroker] = {}
    for side in _sides(task):
        with HttpSession(side.cluster.access) as session:
            brokers[side.code] = _ask_brokers(task, findings, side, session, answering=True)
    # mutant: blue-green/settings-of-green-are-asked-once
    check_stricter(findings, both_sides(task, brokers["BLUE"], brokers["GREEN"]))


def check_stricter(findings: Findings, brokers: BothSides) -> None:
    """Note a blocker for each broker of green that refuses or filters messages that blue's brokers accept."""
    for difference, names in differences_by_broker(brokers).items():
        for name in names if difference.blocks else ():
            findings.block("GREEN_BROKERS_DIFFER", f"{name}: {difference}", "set green's brokers as blue's")


def _sides(task: AnyBlueGreenTask) -> tuple[Side, Side]:
    input = task.input
    return (
        Side("BLUE", input.cluster, task.blue),
        Side("GREEN", input.green_cluster, task.green),
    )


def _store_check(task: AnyBlueGreenTask, findings: Findings, side: Side) -> Callable[[], None]:
    def check() -> None:
        with open_cas_reader(side.cluster.addresses.store, side.cluster.stores) as store:
            check_store(findings, store, side.name, task.attempt.workflow_id, taken=f"{side.code}_CLAIMED")
        if not side.cluster.registrations():
            cause = no_brokers(side.cluster.addresses.metadata_url).cause
            cure = "use the brokers' address of the store, and start the brokers"
            findings.block(f"{side.code}_NO_BROKERS", cause, cure)

    return check


def _brokers_check(task: AnyBlueGreenTask, findings: Findings, side: Side) -> Callable[[], None]:
    def check() -> None:
        actual = side.cluster.admin.brokers.runtime_configuration().get("clusterName")
        if actual != side.name:
            cause = f"{', '.join(side.cluster.addresses.admin_urls)} is the cluster {actual!r}, and not {side.name!r}"
            findings.block(f"{side.code}_CLUSTER_NAME", cause, "correct the address, or the name of the cluster")
            return
        with HttpSession(side.cluster.access) as session:
            _check_admin_urls(findings, side, session)
            _ask_brokers(task, findings, side, session)

    return check


def _ask_brokers(
    task: AnyBlueGreenTask, findings: Findings, side: Side, session: HttpSession, *, answering: bool = False
) -> SettingsByBroker:
    """Check the brokers of a side; return their settings."""
    seen: list[SeenBroker] = []
    by_broker: dict[str, Mapping[str, str]] = {}
    for service in side.cluster.registrations():
        admin = PulsarAdminReader(session, registered_urls(service.data, session.access))
        broker = read_broker(service.name, admin)
        if broker.settings is None and answering:
            continue
        seen.append(broker)
        # If the broker did not answer, this request raises the reason.
        settings = by_broker[service.name] = broker.settings or admin.brokers.runtime_configuration()
        check_broker(findings, side, service.name, settings)
        if side.code == "BLUE":
            check_flip_timeout(findings, service.name, settings, task.input.flip_timeout.total_seconds())
    # Only defects of blue's brokers matter, because they redirect; green's release must be supported.
    if side.code == "BLUE":
        check_releases(findings, task.input.kind, seen, accepted=task.input.accepted)
    else:
        check_releases(findings, "", seen, accepted=Accepted(untested_versions=task.input.allow_untested_versions))
    return by_broker


def _check_admin_urls(findings: Findings, side: Side, session: HttpSession) -> None:
    """Check each admin address: the worker tries them in order."""
    for url in side.cluster.addresses.admin_urls:
        try:
            actual = PulsarAdminReader(session, [url]).brokers.runtime_configuration().get("clusterName")
        except StoreError as error:
            findings.warn(f"{url} does not answer, so its cluster name was not checked: {error}")
            continue
        if actual != side.name:
            cause = f"{url} is the cluster {actual!r}, and not {side.name!r}"
            findings.block(f"{side.code}_CLUSTER_NAME", cause, "correct the address, or the name of the cluster")


def check_broker(findings: Findings, side: Side, broker: str, settings: Mapping[str, str]) -> None:
    """Note a blocker for each setting of a broker with which its cluster cannot take part."""
    store = side.cluster.addresses.store
    if settings.get("clusterName") != side.name:
        cause = f"{broker} in {store} is of the cluster {settings.get('clusterName')!r}, not {side.name!r}"
        cure = "correct the address of the metadata store, or the name of the cluster"
        findings.block(f"{side.code}_CLUSTER_NAME", cause, cure)
    if url := metadata_store_of(settings):
        try:
            used = parse_broker_setting(url)
        except ValueError:
            used = None
        if used is None or (used.scheme, used.root) != (store.scheme, store.root):
            cause = f"{broker} uses the metadata store {url}, and not {store}"
            findings.block(f"{side.code}_OTHER_STORE", cause, "use the brokers' address of the store")
    if side.code == "BLUE":
        _check_sweep(findings, broker, settings)


def _check_sweep(findings: Findings, broker: str, settings: Mapping[str, str]) -> None:
    sweep = int(settings.get(_SWEEP) or 0)
    if sweep <= 0:
        cause = f"{broker} never checks for topics to move: {_SWEEP} is {sweep}"
        findings.block("BLUE_NO_SWEEP", cause, f"set {_SWEEP}=1 in its broker.conf, and restart it")
    elif sweep > _SLOW_SWEEP:
        findings.warn(f"{broker} checks for topics to move every {sweep} s ({_SWEEP}); writes are held back as long")
    if settings.get(_AUTO, "false") == "true":
        cause = f"{broker} would create resources on green by itself, and ignores refusals"
        findings.block("BLUE_AUTO_CREATION", cause, f"set {_AUTO}=false in its broker.conf, and restart it")


def check_flip_timeout(findings: Findings, broker: str, settings: Mapping[str, str], limit: float) -> None:
    """Note a blocker if a broker may not terminate topics within `flip_timeout`."""
    sweep = int(settings.get(_SWEEP) or 0)
    if 2 * sweep >= limit:  # mutant: blue-green/sweep-that-is-too-slow-for-the-timeout
        cause = f"{broker} checks for topics to move every {sweep} s ({_SWEEP}), and flip_timeout is {limit:.0f} s"
        cure = f"set {_SWEEP}=1 in its broker.conf, and restart it; or give a flip_timeout of more than {2 * sweep} s"
        findings.block("BLUE_SLOW_SWEEP", cause, cure)


def _check_address(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Check that the addresses for redirected clients lead to green."""
    green, input = task.input.green, task.input
    with HttpSession(task.green.access) as session:
        for url in filter(None, (green.service_url, green.service_url_tls)):
            actual = PulsarAdminReader(session, [url]).brokers.runtime_configuration().get("clusterName")
            if actual != input.green_cluster:
                cause = f"{url} is the cluster {actual!r}; clients would be sent there"
                findings.block("GREEN_URL", cause, f"give an address of {input.green_cluster}")
    registered = {address for service in task.green.registrations() for address in broker_addresses(service.data)}
    for url in filter(None, (green.broker_service_url, green.broker_service_url_tls)):
        _check_broker_address(task, findings, url, registered)


def _check_broker_address(task: AnyBlueGreenTask, findings: Findings, url: str, registered: Collection[str]) -> None:
    """Check that a lookup at an address names a broker of green as the owner of a topic.

    Raises:
        StoreUnreachable: a server was silent, and the activity is repeated.
    """
    cure = f"give the address of the brokers of {task.input.green_cluster}, or of their proxy"
    for address in url.partition("://")[2].split(","):
        if why := obstacle(address):
            findings.block_for(why, "GREEN_URL", f"cannot connect to {url}", cure)
            return
    try:
        owner = named_owner(url, _ANY_TOPIC, task.runtime.wire_of(task.input.green.credentials))
    except StoreError as error:
        findings.block_for(error, "GREEN_URL", f"{url} does not answer like a broker", cure)
        return
    if owner.rstrip("/") not in registered:  # mutant: blue-green/address-of-any-broker
        cause = f"{url} sends clients to {owner}, which is not a broker of {task.input.green_cluster}"
        findings.block("GREEN_URL", cause, cure)


def check_replication(task: AnyBlueGreenTask, findings: Findings, namespace: NamespaceInventory) -> set[str]:
    """Check replication between both clusters and to others, in policies of a namespace and its topics.

    Returns:
        The other clusters to which the namespace or its topics replicate.
    """
    input = task.input
    replicated = {namespace.name: set(namespace.policies.replication_clusters)}
    for topic in namespace.topics.values():
        if own := _own_clusters(topic):
            replicated[str(topic.name)] = own
    others = {name: clusters - {input.cluster} for name, clusters in replicated.items()}
    if round_trips := [name for name, clusters in others.items() if input.green_cluster in clusters]:
        cause = f"replicated to {input.green_cluster}, so messages would be duplicated: {summarize(round_trips)}"
        findings.block("REPLICATED_TO_GREEN", cause, "take that cluster out of their replication clusters")
    elif far := {name: clusters for name, clusters in others.items() if clusters}:
        listed = [f"{name} to {', '.join(sorted(clusters))}" for name, clusters in far.items()]
        findings.warn(
            f"replicated: {summarize(listed)}. After the flip these topics take no messages until all are replicated"
        )
        if input.idle_subscriptions is IdleSubscriptions.COPY:  # mutant: blue-green/copy-of-what-is-replicated
            findings.block(
                "COPY_REPLICATED",
                f"{input.green_cluster} would replicate copied backlogs again: {summarize(listed)}",
                'move these namespaces with "idle_subscriptions": "wait" or "skip", by a migration of their own',
            )
    return set[str]().union(*others.values()) - {input.green_cluster}


def check_other_clusters(task: AnyBlueGreenTask, findings: Findings, clusters: Collection[str]) -> None:
    """Check with which addresses green would replicate to other clusters."""
    blue, green = task.input.cluster, task.input.green_cluster
    # If this is off, the record of each cluster says which addresses are used.
    only_tls = task.green.admin.brokers.runtime_configuration().get("brokerClientTlsEnabled") == "true"
    for name in sorted(clusters):
        there = _record(task.green.admin, name)
        if there is None:
            # A blocker of its namespaces says so.
            continue
        here = _record(task.blue.admin, name) or there
        # mutant: blue-green/cluster-without-an-address
        if not any(field.endswith("Tls") or not only_tls for field in there):
            kind = "TLS address" if only_tls else "address"
            cause = f"{green} has no {kind} of {name}, to which namespaces replicate"
            cure = f"give it the addresses of {name} there (pulsar-admin clusters update {name})"
            findings.block("GREEN_LACKS_CLUSTER", cause, cure)
        elif there != here:
            findings.warn(
                f"{green} replicates to {name} by other addresses than {blue}, {_listed(there)} instead of "
                f"{_listed(here)}: check that both lead to the same cluster"
            )


def _record(admin: PulsarAdminReader, cluster: str) -> dict[str, str] | None:
    """Return the addresses that a cluster has of another one; None if it does not know that one."""
    try:
        addresses = admin.clusters.get(cluster).body()
    except AdminNotFound:
        return None
    return {field: address for field, address in addresses.items() if address}


def _listed(addresses: Mapping[str, str]) -> str:
    return ", ".join(sorted(addresses.values())) or "none"


def _own_clusters(topic: TopicInventory) -> set[str]:
    """Return the replication clusters of a topic's own policies, local and global ones."""
    policies = (topic.policies or {}).items()
    return {cluster for name, value in policies if name.removeprefix(GLOBAL) == _REPLICATION for cluster in value}


# Configuration stores, which keep tenants and policies of namespaces --------------------------------------------------


def check_configuration_stores(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Note a blocker for each broker with a configuration store apart from its metadata store.

    Limits and flags are set by compare-and-set in the metadata store. Two clusters with one configuration store share
    all namespaces and policies, so that each change affects both.
    """
    input = task.input
    blue, green = _elsewhere(task.blue.brokers()), _elsewhere(task.green.brokers())
    shared = sorted({*map(_canonical, blue.values())} & {*map(_canonical, green.values())})
    if shared:  # mutant: blue-green/configuration-store-of-both
        findings.block(
            "SHARED_CONFIGURATION_STORE",
            f"{input.cluster} and {input.green_cluster} share the configuration store {shared[0]}, with all namespaces "
            "and policies",
            f"give {input.green_cluster} a configuration store of its own (configurationMetadataStoreUrl), or move "
            "clients by replication between both",
        )
        return
    for code, stores in (("BLUE", blue), ("GREEN", green)):
        for broker, used in stores.items():
            findings.block(
                f"{code}_CONFIGURATION_STORE",
                f"{broker} keeps tenants and policies in {used}, and not in its metadata store",
                "a configuration store apart from the metadata store is not supported; if both are one tree, name it "
                "equally in metadataStoreUrl and configurationMetadataStoreUrl",
            )


def _elsewhere(brokers: Iterable[tuple[str, PulsarAdminReader]]) -> dict[str, str]:
    """Return the configuration store of each broker that has one apart from its metadata store."""
    stores: dict[str, str] = {}
    for name, admin in brokers:
        if used := configuration_store_apart(admin.brokers.runtime_configuration())[1]:
            stores[name] = used
    return stores


def _canonical(text: str) -> str:
    try:
        return str(parse_broker_setting(text))
    except ValueError:
        return text


# Flags that blue has already ------------------------------------------------------------------------------------------


def check_redirects(task: AnyBlueGreenTask, findings: Findings) -> None:
    """Check the flags that blue has already, and that they redirect clients to green."""
    input = task.input
    with open_cas_reader(input.blue.store, task.blue.stores) as store:
        flag = read_cluster_flag(store, input.cluster)
        if conflict := conflicting_redirect(task, store):
            cure = (
                f"use that cluster as green, or migrate from there to {input.cluster} first. If the clients are on "
                f"{input.green_cluster}, and only the address was lost, store it again: {_store_address(input)}"
            )
            findings.block("BLUE_SENDS_ELSEWHERE", f"{conflict}, and not to {input.green_cluster}", cure)
        elif flag and flag.migrated:
            _check_set_flag(task, findings, store)


def _check_set_flag(task: AnyBlueGreenTask, findings: Findings, store: CasReader) -> None:
    """Check that each namespace with topics has its own flag, if the flag of the whole cluster is set."""
    input, cluster = task.input, task.input.cluster
    names = [name for name in namespaces_of(task.blue.admin) if not (name.startswith("pulsar/") or is_v1(name))]
    if unflagged := [name for name in names if not read_flag(store, name) and topics_of(task.blue.admin, name)]:
        findings.block(
            "BLUE_FLAG_SET",
            f"the flag of the whole cluster {cluster} was set without a migration, so {input.green_cluster} was not "
            f"checked for what clients of {summarize(unflagged)} need",
            "set the flag of each of these namespaces, so that the migration completes them: pulsar-admin namespaces "
            f"update-migration-state --migrated true; then take the cluster's flag off: {_store_address(input)}",
        )
    else:
        findings.warn(f"the flag of the whole cluster {cluster} is set already; unfinished namespaces are completed")


def _store_address(input: BlueGreenInput) -> str:
    """Return the request that stores green's address with the flag of the cluster off."""
    # The command of pulsar-admin deletes addresses that are not given.
    address = json.dumps(urls_of(input.green).body())
    return f"POST {address} to {input.blue.admin_urls[0]}/admin/v2/clusters/{input.cluster}/migrate?migrated=false"

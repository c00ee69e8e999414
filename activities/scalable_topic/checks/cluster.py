"""Checks of the whole cluster in prechecks about scalable topics."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import httpx

from activities.lifecycle.precheck import Findings
from activities.pulsar.cluster_checks import check_store
from activities.pulsar.exclusion import no_brokers
from activities.pulsar.releases import check_releases, read_broker
from activities.scalable_topic.auto_scale import stored_policy
from activities.scalable_topic.context import ClusterTask
from clients.cas.claims import read_claim
from clients.json_text import read_object
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminDenied, AdminPreconditionFailed, AdminUnreachable, host_of
from clients.pulsar.admin.late_requests import IDLE_LIMIT
from clients.stores import open_cas_reader
from models.broker_settings import configuration_store_apart
from models.lifecycle.claim import Claim
from models.lifecycle.failures import summarize
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.claims import is_ours
from models.scalable_topic.input import ClusterInput

_AUTO_SCALE = "scalableTopicAutoScalePolicy"
_ENABLED = "scalableTopicsEnabled"
_IDLE, _IDLE_DEFAULT = "httpServerIdleTimeout", "30000"


def check_cluster(task: ClusterTask[ClusterInput], findings: Findings) -> None:
    """Note why topics of the cluster cannot become scalable now."""
    if not task.runtime.settings.enable_scalable_topic_migration:
        findings.block(
            "MIGRATION_DISABLED",
            "the settings of this worker do not allow migrations to scalable topics",
            "set PULSAR_MIGRATE_ENABLE_SCALABLE_TOPIC_MIGRATION=true in the worker's environment, if that is allowed",
        )
    check_servers(task, findings)


def check_servers(task: ClusterTask[ClusterInput], findings: Findings) -> None:
    """Note why scalable topics of the cluster cannot be created or changed now."""
    store = f"the metadata store {task.input.metadata_url}"
    findings.check(store, lambda: _check_store(task, findings), of="STORE")
    findings.check(f"the brokers of {task.input.cluster}", lambda: _check_brokers(task, findings), of="BROKERS")


def _check_store(task: ClusterTask[ClusterInput], findings: Findings) -> None:
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        held = read_claim(store, Claim)
        # Another migration of topics is not an obstacle: this one waits for it.
        owner = held.claim.workflow_id if held and is_ours(held.claim) else task.attempt.workflow_id
        check_store(findings, store, task.input.cluster, owner)


def _check_brokers(task: ClusterTask[ClusterInput], findings: Findings) -> None:
    brokers = task.cluster.brokers()
    if not brokers:
        cause = no_brokers(task.input.metadata_url).cause
        findings.block("NO_BROKERS", cause, "name the store as the brokers do, and start them")
    cluster = task.admin.brokers.runtime_configuration().get("clusterName")
    if cluster != task.input.cluster:
        cause = f"{', '.join(task.input.admin_urls)} is the cluster {cluster!r}, and not {task.input.cluster!r}"
        findings.block("CLUSTER_NAME", cause, "correct the address, or the name of the cluster")
    seen = [read_broker(name, broker) for name, broker in brokers]
    check_releases(findings, task.input.kind, seen, accepted=task.input.accepted)
    for name, broker in brokers:
        settings = broker.brokers.runtime_configuration()
        check_broker(findings, name, settings)
        if used := configuration_store_apart(settings)[1]:
            findings.block(
                "CONFIGURATION_STORE",
                f"{name} keeps policies of namespaces in {used}, and not in its metadata store: "
                "the migration cannot override them, or would override those of other clusters too",
                "a configuration store apart from the metadata store is not supported; if both are one tree, name it "
                "equally in metadataStoreUrl and configurationMetadataStoreUrl",
            )
    for broker in task.cluster.registrations():
        check_registration(findings, broker.name, broker.data)
    check_addresses(findings, task.input.admin_urls, [url for _, broker in brokers for url in broker.urls])


def check_rights(admin: PulsarAdmin, findings: Findings, namespaces: Iterable[str]) -> None:
    """Note the namespaces whose topics the role of the worker may not make scalable; change nothing.

    Args:
        admin: of the cluster.
        findings: collects the results.
        namespaces: `tenant/namespace` of each.
    """
    for namespace in namespaces:
        try:
            admin.scalable_topics.require_rights(namespace)
        except AdminDenied as error:
            findings.block(
                "NO_RIGHT",
                f"the worker's role may not make topics of {namespace} scalable: {error}",
                "give the worker the credentials of a superuser, or have the brokers' authorization grant its role "
                "MIGRATE_TO_SCALABLE on these topics, and superuser access for their segments",
            )


def check_auto_scale(
    task: ClusterTask[ClusterInput], wanted: AutoScale | None, findings: Findings, namespaces: Sequence[str]
) -> None:
    """Note where a broker would refuse the auto-scale policy of the input; change nothing.

    Each broker is asked once for all namespaces whose own policy is the same.

    Args:
        task: an attempt of the migration.
        wanted: the policy; None for none.
        findings: collects the results.
        namespaces: `tenant/namespace` of each topic.
    """
    if wanted is None:
        return
    alike: dict[str, list[str]] = {}
    for namespace, own in zip(namespaces, task.each(namespaces, lambda name: _auto_scale_of(task, name)), strict=True):
        alike.setdefault(own, []).append(namespace)
    asked = [(name, broker, group) for name, broker in task.cluster.writable_brokers() for group in alike.values()]
    for refusal in task.each(asked, lambda request: _refusal(*request, wanted)):
        if refusal:
            _block_auto_scale(findings, refusal)


def check_auto_scale_again(
    task: ClusterTask[ClusterInput], wanted: AutoScale | None, findings: Findings, namespace: str
) -> None:
    """Note whether the first broker that answers refuses the policy; PRECHECK has asked all brokers."""
    if wanted is None:
        return
    for name, broker in task.cluster.writable_brokers():
        with suppress(AdminUnreachable):  # mutant: scalable-topic/a-silent-broker-stops-a-flip
            if refusal := _refusal(name, broker, [namespace], wanted):
                _block_auto_scale(findings, refusal)
            return


def _auto_scale_of(task: ClusterTask[ClusterInput], namespace: str) -> str:
    return json.dumps(task.admin.namespaces.policies(namespace).raw.get(_AUTO_SCALE), sort_keys=True)


def _refusal(name: str, broker: PulsarAdmin, namespaces: Sequence[str], wanted: AutoScale) -> str:
    """Return why a broker refuses a policy for topics of namespaces with the same own policy; empty if it does not."""
    try:
        broker.scalable_topics.require_policy(namespaces[0], stored_policy(wanted, None))
    except AdminPreconditionFailed as error:
        return f"{name} refuses the auto-scale policy for topics of {summarize(namespaces)}: {error.reason}"
    return ""


def _block_auto_scale(findings: Findings, refusal: str) -> None:
    findings.block("AUTO_SCALE_REFUSED", refusal, 'correct "auto_scale", or the auto-scale policy of the namespace')


def check_addresses(findings: Findings, urls: Iterable[str], registered: Iterable[str]) -> None:
    """Note addresses that do not lead to a broker directly: a proxy may delay a request.

    Args:
        findings: collects the results.
        urls: of the admin interface, as the input names them.
        registered: addresses that brokers have registered.
    """
    brokers = [*registered]
    addresses = {address for url in brokers for address in _addresses(url)}
    if others := [url for url in urls if not addresses & _addresses(url)]:  # mutant: scalable-topic/a-proxy-is-a-broker
        findings.block(
            "ADMIN_ADDRESS",
            f"{', '.join(others)} is not the address of a registered broker: a proxy may hold a request, and send it "
            "on when the migration is over",
            f"give brokers' own addresses as admin_urls: {summarize(brokers)}",
        )


def _addresses(url: str) -> set[str]:
    """Return the host of an address, and the addresses to which it resolves."""
    host = host_of(httpx.URL(url))
    try:
        addresses = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return {host}
    return {host, *(str(address[4][0]) for address in addresses)}


def check_registration(findings: Findings, name: str, registration: bytes) -> None:
    """Note that a broker cannot answer lookups of scalable topics: it fails where it has no plain address (5.0.1)."""
    if not read_object(registration, f"the registration of {name}").get("pulsarServiceUrl"):
        findings.block(
            "NO_PLAIN_ADDRESS",
            f"the broker {name} has an address with TLS only, and fails to answer lookups of scalable topics (5.0.1)",
            "name its port with TLS twice: advertisedListeners=own:pulsar://HOST:PORT,own:pulsar+ssl://HOST:PORT with "
            "internalListenerName=own, and restart it",
        )


def check_broker(findings: Findings, name: str, settings: Mapping[str, str]) -> None:
    """Note why a broker with these settings keeps topics of the cluster from becoming scalable."""
    if (enabled := settings.get(_ENABLED)) is None:
        cause, cure = f"the broker {name} is of a release without scalable topics", "upgrade all brokers to 5.0"
        findings.block("NOT_SUPPORTED", cause, cure)
    elif enabled != "true":
        cause = f"the broker {name} runs with {_ENABLED}={enabled}, and refuses every request for scalable topics"
        findings.block("NOT_SUPPORTED", cause, f"set {_ENABLED}=true on all brokers, and restart them")
    idle = int(settings.get(_IDLE, _IDLE_DEFAULT)) / 1000
    if not 0 < idle <= IDLE_LIMIT:
        findings.block(
            "IDLE_CONNECTIONS",
            f"the broker {name} keeps idle connections {f'for {idle:g} s' if idle > 0 else 'indefinitely'}: a request "
            "of a frozen worker could arrive after the end of its migration",
            f"set {_IDLE}={_IDLE_DEFAULT}, which is the default, or less, on all brokers",
        )
    if settings.get("transactionCoordinatorEnabled") == "true":
        findings.warn(f"transactions are enabled in {name}: scalable topics are not tested with them")

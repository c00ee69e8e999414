"""Comparison of a cluster's features with the coverage table: in prechecks, and again before the point of no return."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.brokers import BrokerView
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.fingerprint import check_receipt, cluster_facts, common_facts
from activities.pulsar.registrations import brokers
from activities.pulsar.releases import SeenBroker, check_zookeepers
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access, open_reader
from clients.zookeeper.coordination import zookeeper_release
from models.lifecycle.failures import FailureKind, first_blockers
from models.lifecycle.input import Accepted, CoveredInput
from models.lifecycle.report import PrecheckResult
from models.store_url import StoreUrl

ResultT = TypeVar("ResultT", bound=PrecheckResult)


def survey(
    census: FeatureCensus,
    store: StoreUrl,
    access: Access,
    admin: AdminAccess,
    selects: Callable[[str], bool] = lambda _: True,
    *,
    tenants: Collection[str] | None = None,
    own: Collection[str] = (),
) -> list[SeenBroker]:
    """Add the settings of all registered brokers, and the content of the metadata store, to a census.

    Args:
        census: to add to.
        store: the brokers' metadata store.
        access: credentials and timeout of stores.
        admin: access to brokers.
        selects: whether a migration includes a namespace, `tenant/namespace`.
        tenants: of these namespaces; None for all.
        own: paths below the root that the migration's plan names.

    Returns:
        The registered brokers, with release and settings.

    Raises:
        StoreError: the store cannot be read.
    """
    with open_reader(store, access) as reader, BrokerView(admin) as view:
        seen = [view.read(broker) for broker in brokers(reader)]
        census.add_brokers(seen)
        census.add_store(reader, selects, tenants=tenants, own=own)
        census.facts = cluster_facts(reader, store, seen)
    return seen


def check_zookeeper(findings: Findings, store: StoreUrl, access: Access, accepted: Accepted) -> dict[str, str]:
    """Add findings for untested ZooKeeper releases of a metadata store, and return the releases by server.

    Nothing is found for another store.
    """
    if store.scheme != "zk":
        return {}
    own = access.to(store)
    versions = {host: zookeeper_release(host, access=own.zookeeper, timeout=own.timeout) for host in store.hosts}
    check_zookeepers(findings, versions, accepted)
    return versions


def covered(
    result: ResultT,
    input: CoveredInput,
    census: FeatureCensus,
    fill: Callable[[FeatureCensus], object],
    *,
    store: StoreUrl,
    access: Access,
) -> ResultT:
    """Return the result of a precheck with the features in use and the facts of a receipt.

    It has blockers for features that are not covered, and for facts that differ from the receipt of the input.

    Args:
        result: of the migration's own checks.
        input: of the migration.
        census: may have topics already.
        fill: adds the rest to the census.
        store: the brokers' metadata store.
        access: credentials and timeout of stores.
    """
    findings = Findings()
    is_complete = findings.check("the census of features", lambda: fill(census), of="CENSUS")
    codes = {blocker.code for blocker in result.blockers}
    features = census.check(findings, input.kind, input.accept, codes)
    fingerprint: dict[str, str] = {}
    if is_complete:  # A server of another kind at that address would only time out.
        releases = check_zookeeper(findings, store, access, input.accepted)
        fingerprint = {**result.fingerprint, **census.facts, **common_facts(features, releases)}
        check_receipt(findings, input, fingerprint)
    return result.model_copy(
        update={
            "blockers": (*result.blockers, *findings.blockers),
            "warnings": (*result.warnings, *findings.warnings),
            "features": features,
            "fingerprint": fingerprint,
        }
    )


def require_covered(input: CoveredInput, fill: Callable[[FeatureCensus], object]) -> None:
    """Check again what can change after the precheck: settings of brokers, paths and policies.

    Args:
        input: of the migration.
        fill: adds the features of the cluster to a census.

    Raises:
        ApplicationError: `ParticipantsNotReady`, where a feature is in use that is not covered.
        StoreError: the cluster cannot be read.
    """
    census, findings = FeatureCensus(input.cluster), Findings()
    fill(census)  # mutant: coverage/no-second-check
    # A broker that does not answer may be restarting; the migration's own checks wait for it.
    census.check(findings, input.kind, input.accept, [BROKERS_UNKNOWN])
    require_unblocked(findings)


def require_unblocked(findings: Findings, what: str = "the cluster") -> None:
    """Raise if a check after PRECHECK found a blocker.

    Args:
        findings: of the check.
        what: the thing that changed.

    Raises:
        ApplicationError: `ParticipantsNotReady`, with all blockers.
    """
    if findings.blockers:
        named = "; ".join(map(str, first_blockers(findings.blockers)))
        raise ApplicationError(
            f"since PRECHECK {what} has changed: {named}", type=FailureKind.NOT_READY, non_retryable=True
        )

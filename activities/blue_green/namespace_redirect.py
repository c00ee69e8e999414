"""Redirection of blue's clients to green: addresses, flags and records of namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.listing import namespaces_of
from activities.blue_green.topics import topics_of
from activities.pulsar.await_on_brokers import await_on_brokers
from activities.pulsar.namespace_guard import recorded_namespaces
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasReader
from clients.errors import StoreConflict, StoreError
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.clusters import ClusterMigration, ClusterUrls
from clients.pulsar.admin.errors import AdminNotFound, AdminUnreachable
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.records.cluster_flag import read_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import FLIPPED, NamespaceClaim
from models.blue_green.input import ClusterAddresses
from models.lifecycle.claim import namespace_record
from models.lifecycle.failures import summarize
from models.lifecycle.status import WaitKind

# Brokers' sessions end within 30 s (`metadataStoreSessionTimeoutMillis`).
_SESSION_ENDS_WITHIN = 35.0
_ASK_EVERY = 1.0


def urls_of(cluster: ClusterAddresses) -> ClusterUrls:
    """Return the addresses to which brokers redirect clients of a cluster."""
    return ClusterUrls(
        service_url=cluster.service_url,
        service_url_tls=cluster.service_url_tls,
        broker_service_url=cluster.broker_service_url,
        broker_service_url_tls=cluster.broker_service_url_tls,
    )


def sends_to_green(task: AnyBlueGreenTask) -> bool:
    """Return whether blue's brokers would redirect clients to green's address."""
    flag = task.blue.admin.clusters.migration(task.input.cluster)
    return flag is not None and flag.migrated_cluster_url == urls_of(task.input.green)


def redirect_problem(task: AnyBlueGreenTask, urls: ClusterUrls | None, cluster: ClusterAddresses, name: str) -> str:
    """Return why an address does not lead to a cluster; empty if it does.

    Args:
        task: the step.
        urls: the address.
        cluster: cluster where clients should connect.
        name: its name.
    """
    if urls == urls_of(cluster):
        return ""
    url = urls and (urls.service_url or urls.service_url_tls)
    if not url:
        return "to no address"
    try:
        with HttpSession(task.runtime.admin_of(cluster.credentials)) as session:
            actual = PulsarAdminReader(session, [url]).brokers.runtime_configuration().get("clusterName")
    except StoreError as error:
        return f"to {url}, which does not answer ({error})"
    return "" if actual == name else f"to {url}, which is the cluster {actual!r}"


def wait_until_cluster_seen(
    task: AnyBlueGreenTask, name: str, wanted: ClusterMigration, brokers: Sequence[tuple[str, PulsarAdminReader]]
) -> None:
    """Wait until each broker sees the new address and flag of its cluster.

    Raises:
        StoreContention: a broker does not see them within half a minute.
    """

    def lag_of(admin: PulsarAdminReader) -> str:
        now = admin.clusters.migration(name)
        return "" if now == wanted else f"still sees {now and now.body()} for {name}, not {wanted.body()}"

    await_on_brokers(task.context, brokers, lag_of)


def wait_until_seen(
    task: AnyBlueGreenTask,
    namespace: str,
    *,
    migrated: bool,
    by: Sequence[tuple[str, PulsarAdminReader]] | None = None,
    silent: set[str] | None = None,
) -> None:
    """Wait until each broker sees the new flag of a namespace. A missing namespace counts as not migrated.

    Args:
        task: the step.
        namespace: `tenant/namespace`.
        migrated: expected value of the flag.
        by: the brokers; None for all of blue.
        silent: receives the brokers that do not answer, and does not wait for them; None if each must answer.

    Raises:
        AdminNotFound: the namespace does not exist, and its flag must be set.
        AdminUnreachable: a broker does not answer.
        StoreContention: a broker does not see the flag within half a minute.
    """

    def lag_of(admin: PulsarAdminReader) -> str:
        is_seen = _is_migrated(admin, namespace, wanted=migrated) is migrated
        return "" if is_seen else f"does not see the new flag of {namespace} (migrated={migrated})"

    await_on_brokers(task.context, task.blue.brokers() if by is None else by, lag_of, silent=silent)


def require_answers(task: AnyBlueGreenTask) -> None:
    """Check that each registered broker of blue answers: each must see a flag before writes are released.

    Raises:
        StoreConflict: a broker does not answer for longer than the session of a dead broker lasts.
    """
    deadline = task.context.deadline(_SESSION_ENDS_WITHIN)
    while silent := [name for name, admin in task.blue.brokers_now() if not _answers(admin)]:
        if deadline.passed:
            raise StoreConflict(
                f"nothing is flipped: registered brokers of {task.input.cluster} do not answer: {summarize(silent)}. "
                "Restart or stop them"
            )
        task.context.waiting_for(WaitKind.STORE, f"brokers of {task.input.cluster} to answer: {summarize(silent)}")
        task.context.pause(_ASK_EVERY)
    task.context.clear_waiting()


def _answers(admin: PulsarAdminReader) -> bool:
    try:
        admin.brokers.version()
    except AdminUnreachable:
        return False
    return True


def _is_migrated(admin: PulsarAdminReader, namespace: str, *, wanted: bool) -> bool:
    try:
        return admin.namespaces.policies(namespace).migrated
    except AdminNotFound:
        if wanted:
            raise
        return False


# Records --------------------------------------------------------------------------------------------------------------


def records(store: CasReader) -> Mapping[str, NamespaceClaim]:
    """Return the records of all runs, by namespace."""
    claims = {namespace: record_of(store, namespace) for namespace in recorded_namespaces(store)}
    return {namespace: claim for namespace, claim in claims.items() if claim}


def record_of(store: CasReader, namespace: str) -> NamespaceClaim | None:
    """Return the record of a namespace, of any run; None if it has none."""
    node = store.get(namespace_record(namespace))
    return NamespaceClaim.model_validate_json(node.value) if node else None


def redirected_namespaces(task: AnyBlueGreenTask, store: CasReader, namespaces: Iterable[str]) -> set[str]:
    """Return the namespaces whose clients an earlier run redirected to green.

    Green may differ from blue there, and has messages; such a namespace only needs to be completed. A namespace
    whose flag is off and without terminated topics is not included: its flip did not start, or was rolled back.
    """
    claims = records(store)
    redirected = _redirected(task, store, claims, namespaces)
    started = {name for name in redirected if name in claims and claims[name].stage in FLIPPED}
    # mutant: blue-green/what-has-moved-is-created-again
    return set(redirected) if redirected != started and not _why_not_green(task, store) else started


def conflicting_redirect(task: AnyBlueGreenTask, store: CasReader) -> str:
    """Return whose clients blue redirects to a cluster other than green, in words; empty for none.

    Blue has one address for all its namespaces, so a change of it affects all redirected clients.
    """
    if not (where := _why_not_green(task, store)):
        return ""
    flag = read_cluster_flag(store, task.input.cluster)
    if flag and flag.migrated:
        return f"all clients of {task.input.cluster} are redirected {where}"
    names = _redirected(task, store, records(store), namespaces_of(task.blue.admin))
    return f"clients of {summarize(sorted(names))} are redirected {where}" if names else ""


def _why_not_green(task: AnyBlueGreenTask, store: CasReader) -> str:
    """Return why the stored address does not lead to green; empty if it does."""
    flag = read_cluster_flag(store, task.input.cluster)
    return redirect_problem(task, flag and flag.migrated_cluster_url, task.input.green, task.input.green_cluster)


def _redirected(
    task: AnyBlueGreenTask, store: CasReader, claims: Mapping[str, NamespaceClaim], namespaces: Iterable[str]
) -> set[str]:
    """Return the namespaces whose clients are redirected to any cluster, or were when an earlier run was lost."""

    def is_redirected(name: str) -> bool:
        started = name in claims and claims[name].stage in FLIPPED
        # mutant: blue-green/flip-that-never-started
        return read_flag(store, name) or (started and has_terminated_topics(task, name))

    return {name for name in namespaces if is_redirected(name)}


def has_begun_flip(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasReader) -> bool:
    """Return whether an attempt or an earlier run began the flip of a namespace, whose clients may be on green."""
    is_flipped = guard.require().stage in FLIPPED
    # An attempt may have been lost while it had the flag off, to load topics again.
    # mutant: blue-green/flip-that-starts-again
    return is_flipped and (read_flag(store, guard.namespace) or has_terminated_topics(task, guard.namespace))


def has_terminated_topics(task: AnyBlueGreenTask, namespace: str) -> bool:
    """Return whether any topic of a namespace was terminated by a flip."""
    infos = task.each(topics_of(task.blue.admin, namespace), lambda topic: stored(task.blue.admin, topic))
    return any(info is not None and info.migrated for info in infos)

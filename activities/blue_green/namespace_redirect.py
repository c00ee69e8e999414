"""Whose clients blue sends to green: addresses, flags, and the records of namespaces; set, awaited and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from activities.blue_green.context import AnyBlueGreenTask
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
from models.blue_green.input import PulsarCluster
from models.lifecycle.claim import namespace_record
from models.lifecycle.failures import some
from models.lifecycle.status import WaitKind

# Brokers' sessions end within 30 s (`metadataStoreSessionTimeoutMillis`).
_SESSION_ENDS_WITHIN = 35.0
_ASK_EVERY = 1.0


def urls_of(cluster: PulsarCluster) -> ClusterUrls:
    """Where clients are sent that must go to a cluster."""
    return ClusterUrls(
        service_url=cluster.service_url,
        service_url_tls=cluster.service_url_tls,
        broker_service_url=cluster.broker_service_url,
        broker_service_url_tls=cluster.broker_service_url_tls,
    )


def sends_to_green(task: AnyBlueGreenTask) -> bool:
    """Whether blue's brokers would send clients to green's address."""
    known = task.blue.clusters.migration(task.input.cluster)
    return known is not None and known.migrated_cluster_url == urls_of(task.input.green)


def redirect_problem(task: AnyBlueGreenTask, urls: ClusterUrls | None, cluster: PulsarCluster, name: str) -> str:
    """Why clients that are sent to an address do not come to a cluster, in words; empty where they do.

    Args:
        task: the step.
        urls: the address.
        cluster: where they should come.
        name: of it.
    """
    if urls == urls_of(cluster):
        return ""
    url = urls and (urls.service_url or urls.service_url_tls)
    if not url:
        return "to no address"
    try:
        with HttpSession(task.runtime.admin_of(cluster.credentials)) as session:
            told = PulsarAdminReader(session, [url]).brokers.runtime_configuration().get("clusterName")
    except StoreError as error:
        return f"to {url}, which does not answer ({error})"
    return "" if told == name else f"to {url}, which is the cluster {told!r}"


def wait_until_cluster_seen(
    task: AnyBlueGreenTask, name: str, wanted: ClusterMigration, brokers: Sequence[tuple[str, PulsarAdminReader]]
) -> None:
    """Wait until each broker sees the address and the flag of its cluster as they were set.

    Raises:
        StoreContention: one does not, for half a minute.
    """

    def lag_of(admin: PulsarAdminReader) -> str:
        now = admin.clusters.migration(name)
        return "" if now == wanted else f"sees {now and now.body()}, and not what was set for {name}"

    await_on_brokers(task.context, brokers, lag_of)


def wait_until_seen(
    task: AnyBlueGreenTask,
    namespace: str,
    *,
    migrated: bool,
    by: Sequence[tuple[str, PulsarAdminReader]] | None = None,
    silent: set[str] | None = None,
) -> None:
    """Wait until each broker sees a namespace's flag so; one that is gone sends nobody away.

    Args:
        task: the step.
        namespace: `tenant/namespace`.
        migrated: how they must see it.
        by: the brokers; None for all of blue that the worker knows.
        silent: gets brokers that do not answer, which are not waited for then; None where each must answer.

    Raises:
        AdminNotFound: there is no such namespace, whose flag must be set.
        AdminUnreachable: a broker does not answer.
        StoreContention: one does not, for half a minute.
    """

    def lag_of(admin: PulsarAdminReader) -> str:
        is_seen = _is_migrated(admin, namespace, wanted=migrated) is migrated
        return "" if is_seen else f"does not see the flag of {namespace} as it was set"

    await_on_brokers(task.context, task.blue_brokers() if by is None else by, lag_of, silent=silent)


def require_answers(task: AnyBlueGreenTask) -> None:
    """Check that each registered broker of blue answers, since each must see a flag before writes are released.

    Raises:
        StoreConflict: one does not, for longer than the session of a broker that has died lasts.
    """
    deadline = task.context.deadline(_SESSION_ENDS_WITHIN)
    while silent := [name for name, admin in task.blue_brokers_now() if not _answers(admin)]:
        if deadline.passed:
            raise StoreConflict(
                f"brokers of {task.input.cluster} are registered and do not answer, so nothing is flipped: "
                f"{some(silent)}. Restart or stop them"
            )
        task.context.waiting_for(WaitKind.STORE, f"brokers of {task.input.cluster} to answer: {some(silent)}")
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
    """All records, by namespace, whoever holds them."""
    found = {namespace: record_of(store, namespace) for namespace in recorded_namespaces(store)}
    return {namespace: claim for namespace, claim in found.items() if claim}


def record_of(store: CasReader, namespace: str) -> NamespaceClaim | None:
    """The record of a namespace, whoever holds it."""
    node = store.get(namespace_record(namespace))
    return NamespaceClaim.model_validate_json(node.value) if node else None


def redirected_namespaces(task: AnyBlueGreenTask, store: CasReader, namespaces: Iterable[str]) -> set[str]:
    """Those namespaces whose clients are sent to green already, by an earlier run, however that has ended.

    They differ from what green has, and green has messages of them; what is left is to bring them to their end. Where
    the flag is off and no topic is terminated, nothing of it has happened, or all was taken back.
    """
    known = records(store)
    away = _away(task, store, known, namespaces)
    begun = {name for name in away if name in known and known[name].stage in FLIPPED}
    # mutant: blue-green/what-has-moved-is-created-again
    return set(away) if away != begun and not _elsewhere(task, store) else begun


def conflicting_redirect(task: AnyBlueGreenTask, store: CasReader) -> str:
    """Whose clients blue sends to another cluster than green, in words; empty where it sends nobody there.

    Blue has one address for all of its namespaces: who changes it sends all of them to another cluster.
    """
    if not (where := _elsewhere(task, store)):
        return ""
    flag = read_cluster_flag(store, task.input.cluster)
    if flag and flag.migrated:
        return f"all clients of {task.input.cluster} are sent away {where}"
    names = _away(task, store, records(store), namespaces_of(task.blue))
    return f"clients of {some(sorted(names))} are sent away {where}" if names else ""


def _elsewhere(task: AnyBlueGreenTask, store: CasReader) -> str:
    """Why the stored address does not lead to green; empty where it does."""
    flag = read_cluster_flag(store, task.input.cluster)
    return redirect_problem(task, flag and flag.migrated_cluster_url, task.input.green, task.input.green_cluster)


def _away(
    task: AnyBlueGreenTask, store: CasReader, known: Mapping[str, NamespaceClaim], namespaces: Iterable[str]
) -> set[str]:
    """Those whose clients are sent away, wherever to, or were: an earlier run was lost during that."""

    def is_away(name: str) -> bool:
        begun = name in known and known[name].stage in FLIPPED
        return read_flag(store, name) or (begun and _is_ended(task, name))  # mutant: blue-green/flip-that-never-started

    return {name for name in namespaces if is_away(name)}


def _is_ended(task: AnyBlueGreenTask, namespace: str) -> bool:
    """Whether any topic of a namespace was terminated so that its clients go to green."""
    infos = task.each(topics_of(task.blue, namespace), lambda topic: stored(task.blue, topic))
    return any(info is not None and info.migrated for info in infos)

"""Failback after an earlier migration: green was blue then, and still redirects clients.

A namespace of green keeps its flag until its own batch starts, so that clients that connect to green are redirected to
the cluster where the others are. Then the batch deletes the namespace's terminated topics and takes the flag off, and
green serves the namespace again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.copy.backlogs import adopt_copies
from activities.blue_green.copy.subscription_copy import read_managed_ledger
from activities.blue_green.listing import namespaces_of
from activities.blue_green.namespace_redirect import record_of, wait_until_cluster_seen, wait_until_seen
from activities.blue_green.policies import INACTIVE, as_before
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.topics import (
    DeletionRules,
    check_topic,
    cursors_of,
    deletion_refusal,
    lengths_of,
    others_of,
    topics_of,
    users_of,
)
from activities.pulsar.overridden_policies import compare_and_set_policy
from activities.pulsar.stored_topics import after_end, stored
from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict, StoreNotFound
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName
from clients.pulsar.records.cluster_flag import rewrite_cluster_flag, set_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag, rewrite_flag, set_flag
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from models.blue_green.claims import BlueGreenClaim, NamespaceClaim, Stage
from models.lifecycle.claim import Changed, namespace_record
from spark.blue_green.copy_record import CopyRecord, recorded_copies
from spark.blue_green.positions import count_after
from spark.blue_green.tasks import read_record


def flagged_namespaces(store: CasReader, namespaces: Iterable[str]) -> list[str]:
    """Return the namespaces of green whose clients it redirects."""
    return [name for name in namespaces if read_flag(store, name)]


def distribute_cluster_flag(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore) -> None:
    """Replace the flag of the whole of green by flags of its namespaces, so that they move back one by one.

    Nothing changes for clients. While the flag of the cluster is set, nothing can be created in any namespace.
    """
    green, name = task.green.admin, task.input.green_cluster
    flag = green.clusters.migration(name)
    if flag is None or not flag.migrated or flag.migrated_cluster_url is None:
        return
    changed = [own_namespace for own_namespace in _own_namespaces(task) if not read_flag(store, own_namespace)]
    for namespace in changed:
        try:
            set_flag(store, namespace, guard.require, migrated=True)
        except StoreNotFound:
            # The namespace was never used; brokers create its record.
            task.green.change_or_never(
                connect=lambda admin, namespace=namespace: admin.namespaces.policies(namespace),
                fence=guard.require,
                change=lambda admin, namespace=namespace: admin.namespaces.set_migrated(namespace, migrated=True),
            )
    for namespace in changed:
        wait_until_seen(task, namespace, migrated=True, by=task.green.brokers())
    guard.renew(cluster_flag=True)
    _set_cluster_flag(task, guard, store, migrated=False)


def restore_cluster_flag(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore) -> None:
    """Set the flag of the whole of green again, if no namespace has moved back."""
    if not guard.require().cluster_flag:
        return
    # mutant: blue-green/flag-of-green-by-a-late-rollback
    flag = rewrite_cluster_flag(store, task.input.green_cluster, guard.require)
    is_unchanged = all(read_flag(store, own_namespace) for own_namespace in _own_namespaces(task))
    if is_unchanged and flag and flag.migrated_cluster_url:
        _set_cluster_flag(task, guard, store, migrated=True)
    guard.renew(cluster_flag=False)


def was_blue(task: AnyBlueGreenTask) -> bool:
    """Return whether green was the blue cluster of an earlier migration."""
    return task.green.admin.clusters.migration(task.input.green_cluster) is not None


def reopen_namespace(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Take green's flag of a namespace off, so that green serves it again; delete its terminated topics first.

    Raises:
        StoreConflict: the deletion of one of these topics would lose messages.
    """
    if not was_blue(task):
        return
    delete_terminated(task, guard)
    with task.green.store() as store:
        if read_flag(store, guard.namespace):
            guard.note(green_flag=True)
            set_flag(store, guard.namespace, guard.require, migrated=False)
        if changed := _noted_policy(store, guard.namespace):
            back = Changed(before=changed.ours, ours=changed.before)
            compare_and_set_policy(store, guard, INACTIVE, back)
    wait_until_seen_off(task, guard.namespace)


def wait_until_seen_off(task: AnyBlueGreenTask, namespace: str) -> None:
    """Wait until no broker of green redirects a namespace's clients."""
    wait_until_seen(task, namespace, migrated=False, by=task.green.brokers())


def restore_redirect(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasReader) -> str:
    """Set green's flag of a namespace again, as before its batch; return why not, if green has clients of it."""
    if not guard.require().green_flag:
        return ""
    adopt_copies(task, guard, store)
    used: list[TopicName] = []
    with task.green.store() as green_store:
        # With the flag on, an earlier attempt has decided.
        # mutant: blue-green/redirect-by-a-late-rollback
        if not rewrite_flag(green_store, guard.namespace, guard.require):
            topics = topics_of(task.green.admin, guard.namespace)
            uses = task.each(topics, lambda topic: used_on_green(task, store, topic))
            used = [topic for topic, used in zip(topics, uses, strict=True) if used]
        if not used:
            set_flag(green_store, guard.namespace, guard.require, migrated=True)
            if changed := _noted_policy(green_store, guard.namespace):
                compare_and_set_policy(green_store, guard, INACTIVE, changed)
    guard.note(green_flag=False)
    if not used:
        return ""
    return (
        f"{guard.namespace}: both {task.input.green_cluster} and {task.input.cluster} serve its clients now: "
        f"{len(used)} topics have clients or messages on {task.input.green_cluster}, such as {used[0]}"
    )


def used_on_green(task: AnyBlueGreenTask, store: CasReader, topic: TopicName) -> bool:
    """Return whether green has clients of a topic, or messages that are not copies of blue's.

    Args:
        task: the step.
        store: blue's metadata store, which has the records of copies.
        topic: the topic.
    """
    stats = check_topic(task.green.admin, topic).stats
    if stats is None:
        return False
    consumers = (consumer for sub in stats.client_subscriptions.values() for consumer in sub.consumers)
    if others_of((*stats.publishers, *consumers)):
        return True
    recorded = read_record(store, topic)
    copied = recorded.record.positions.last if recorded else None
    _, ledgers = read_managed_ledger(task.green.admin, topic)
    return count_after(ledgers, copied[1] if copied else EARLIEST) > 0


def clear_remaining_flags(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim]) -> None:
    """Take off green's remaining flags before blue's cluster flag is set: else both would redirect to each other."""
    with task.green.store() as store:
        for namespace in flagged_namespaces(store, _own_namespaces(task)):
            set_flag(store, namespace, guard.require, migrated=False)
            wait_until_seen_off(task, namespace)


def rewrite_remaining_flags(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim]) -> None:
    """Write green's remaining flags as they are: an earlier attempt may have frozen before it took one off."""
    with task.green.store() as store:
        for namespace in flagged_namespaces(store, _own_namespaces(task)):
            rewrite_flag(store, namespace, guard.require)


# Terminated topics ----------------------------------------------------------------------------------------------------


class TerminatedTopic(NamedTuple):
    """A terminated topic of green.

    Attributes:
        needed_by: subscriptions and clusters that still need its messages; empty for none.
        refusal: why it must not be deleted; empty if it may.
    """

    needed_by: str
    refusal: str


def terminated_topics(task: AnyBlueGreenTask, namespace: str) -> dict[TopicName, TerminatedTopic]:
    """Return the terminated topics of green; what was not terminated by an earlier migration must not be deleted."""
    rules = _rules(task)

    def check(topic: TopicName) -> TerminatedTopic:
        if not terminated[topic].migrated:
            return TerminatedTopic("", "a client has terminated it")
        recorded = records.get(topic)
        if recorded and _is_copied(task, topic, terminated[topic], recorded.record):
            return TerminatedTopic("", "")
        return TerminatedTopic(users_of(task.green.admin, topic), deletion_refusal(rules, topic))

    topics = topics_of(task.green.admin, namespace)
    infos = task.each(topics, lambda topic: stored(task.green.admin, topic))
    terminated = {
        topic: info for topic, info in zip(topics, infos, strict=True) if info and info.terminated_position is not None
    }
    if not terminated:
        return {}
    with task.blue.store() as store:
        copied = [topic for topic in recorded_copies(store, namespace) if topic in terminated]
        records = {topic: read_record(store, topic) for topic in copied}
    return dict(zip(terminated, task.each(terminated, check), strict=True))


def _is_copied(task: AnyBlueGreenTask, topic: TopicName, info: InternalInfo, record: CopyRecord) -> bool:
    """Return whether blue has everything that a terminated topic of green holds for its subscriptions."""
    stats = check_topic(task.green.admin, topic).stats
    if not holds_only_copies(info, record) or (stats and stats.has_clients):
        return False
    try:
        return set(cursors_of(info)).issubset(task.blue.admin.subscriptions.names(topic))
    except AdminNotFound:
        return False


def holds_only_copies(info: InternalInfo, record: CopyRecord) -> bool:
    """Return whether a terminated topic holds only copies of messages that no subscription lacks on blue.

    Args:
        info: its stored managed ledger.
        record: record of its copy. DRAIN has skipped messages on blue only for subscriptions that it names.
    """
    # mutant: blue-green/failback-deletes-copies-that-blue-lacks, blue-green/failback-deletes-what-came-after-the-end
    if record.copied_subscriptions or after_end(info):
        return False
    up_to = record.positions.up_to_on_green
    # mutant: blue-green/failback-deletes-messages-next-to-copies
    return all(
        up_to(EntryPosition(ledger, count - 1)) - up_to(EntryPosition(ledger, -1)) == count
        for ledger, count in lengths_of(info)
    )


def delete_terminated(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Delete terminated topics of green that no subscription needs, since clients cannot send to them.

    Raises:
        StoreConflict: the deletion of one of them would lose messages; nothing is deleted.
    """
    if guard.require().deleting:
        # Deletions of a lost attempt must not arrive after the topics are created again.
        task.green.await_late_requests()  # mutant: blue-green/failback-creates-before-late-deletions
    terminated = terminated_topics(task, guard.namespace)
    # mutant: blue-green/failback-deletes-what-retention-keeps
    if refused := [(name, topic.refusal) for name, topic in terminated.items() if topic.refusal]:
        name, refusal = refused[0]
        raise StoreConflict(
            f"{len(refused)} terminated topics on {task.input.green_cluster} must not be deleted, such as {name}: "
            f"{refusal}"
        )

    if terminated:
        guard.note(deleting=True)  # mutant: blue-green/failback-deletes-without-a-note

    def delete(topic: TopicName) -> None:
        with suppress(AdminNotFound):
            task.green.change_or_never(
                connect=lambda admin: admin.topics.internal_info(topic),
                fence=guard.require,
                change=lambda admin: admin.topics.delete(topic),
            )

    task.each(terminated, delete)
    if guard.require().deleting:
        guard.note(deleting=False)


def _rules(task: AnyBlueGreenTask) -> DeletionRules:
    return DeletionRules(task.green.admin, task.input.cluster, task.input.discard_retained, "discard_retained")


def after_failback(
    namespace: NamespaceInventory, terminated: Container[TopicName], record: NamespaceClaim | None, cluster: str
) -> NamespaceInventory:
    """Return a namespace of green as it is after the failback, which creates terminated topics again.

    Args:
        namespace: the namespace as it is.
        terminated: terminated topics.
        record: record of the namespace in green's store, from the earlier migration.
        cluster: green's name.
    """
    topics = {name: topic.after_failback(terminated) for name, topic in namespace.topics.items()}
    existing = {name: topic for name, topic in topics.items() if topic.partitions or topic.parts}
    return NamespaceInventory(namespace.name, as_before(namespace.policies, record, cluster), existing)


def delete_old_record(store: CasStore, namespace: str, fence: Callable[[], object]) -> None:
    """Delete the record of an earlier migration of a namespace from green's store."""
    node = store.get(path := namespace_record(namespace))
    if node and NamespaceClaim.model_validate_json(node.value).stage is Stage.KEPT:
        fence()
        store.delete(path, node.version)


def _set_cluster_flag(
    task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore, *, migrated: bool
) -> None:
    """Set or take off green's own cluster flag; keep the address to which it redirects."""
    name = task.input.green_cluster

    def change(now: ClusterMigration | None) -> ClusterMigration:
        return ClusterMigration(migrated=migrated, migrated_cluster_url=now and now.migrated_cluster_url)

    wanted = set_cluster_flag(store, name, guard.require, change)
    wait_until_cluster_seen(task, name, wanted, task.green.brokers())


def _noted_policy(store: CasReader, namespace: str) -> Changed | None:
    """Return the policy on inactive topics that the earlier migration overrode and did not restore."""
    record = record_of(store, namespace)
    return record.inactive_topics if record and record.stage is Stage.KEPT else None


def _own_namespaces(task: AnyBlueGreenTask) -> list[str]:
    """Return the namespaces of green, without those of Pulsar itself."""
    return [name for name in namespaces_of(task.green.admin) if not name.startswith("pulsar/")]

"""Changes to blue as a whole: the claim, load shedding, green's address, and the flag of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from activities.blue_green.context import AnyBlueGreenTask, BlueGreenTask, NamespaceGuard, holds_claim
from activities.blue_green.copy.subscription_copy import forget_copies
from activities.blue_green.failback import (
    clear_remaining_flags,
    delete_old_record,
    restore_cluster_flag,
    restore_redirect,
    rewrite_remaining_flags,
)
from activities.blue_green.listing import is_of_brokers, namespaces_of
from activities.blue_green.namespace_redirect import (
    conflicting_redirect,
    records,
    redirected_namespaces,
    urls_of,
    wait_until_cluster_seen,
)
from activities.blue_green.policies import INACTIVE, restore_policy
from activities.blue_green.reopened_topics import complete_lost_undo
from activities.blue_green.saved_clients import forget_clients
from activities.blue_green.topics import topics_of, users_of
from activities.blue_green.write_limit import lift_limit_if_terminated, lift_publish_limit
from activities.lifecycle.failed_items import forget_failed_items
from activities.lifecycle.step import step
from activities.pulsar.await_on_brokers import await_on_brokers
from activities.pulsar.namespace_guard import recorded_namespaces
from clients.cas.claims import ClaimKeeper, read_claim
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreUnreachable
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.records.cluster_flag import rewrite_cluster_flag, set_cluster_flag
from clients.pulsar.records.dynamic_settings import change_dynamic_settings, read_dynamic_settings
from clients.pulsar.records.namespace_flag import read_flag, rewrite_flag
from models.blue_green.claims import BlueGreenClaim, ChangedSetting, NamespaceClaim, Stage, is_held_back
from models.blue_green.results import Completion, Released
from models.defects import has_defect
from models.lifecycle.failures import NAMED, FailedItem

#: Settings that keep topics loaded: no load shedding, no bundle splits. The last one is new in 5.0 (PIP-470).
KEEP_LOADED = {
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "brokerCloseInactiveTopicsEnabled": "false",
}


_SYSTEM_TOPICS_FLAGGED = "SYSTEM_TOPICS_FLAGGED"


@step(BlueGreenTask, needs_open_run=True)
def register(task: BlueGreenTask) -> Released:
    """Take the claim on both metadata stores, and restore what an earlier run left changed.

    Raises:
        ClaimHeld: another migration holds the claim on one of them.
    """
    with task.blue.store() as blue, task.green.store() as green:
        guard = task.keeper(blue)
        guard.take()
        guard.require()
        green_keeper = task.keeper(green)
        green_keeper.take()
        # COMPLETE or the rollback of an earlier run may have frozen before it set them.
        # mutant: blue-green/flag-of-the-cluster-by-a-terminated-run
        rewrite_cluster_flag(blue, task.input.cluster, guard.require)
        rewrite_cluster_flag(green, task.input.green_cluster, green_keeper.require)
        notes = _restore_after_earlier_run(task, blue)
        forget_failed_items(blue)
    return Released(notes=notes)


@step(BlueGreenTask)
def disable_load_shedding(task: BlueGreenTask) -> None:
    """Disable load shedding and bundle splits on blue, and store green's address for redirected clients."""
    with task.blue.store() as store:
        guard = task.keeper(store)
        claim = guard.renew()  # mutant: blue-green/late-step-takes-the-claim
        dynamic, overridden = set(task.blue.admin.brokers.dynamic_names()), read_dynamic_settings(store)
        running = task.blue.admin.brokers.runtime_configuration()
        changes = {name: value for name, value in KEEP_LOADED.items() if name in dynamic and running.get(name) != value}
        noted = {
            name: ChangedSetting(before=running.get(name), ours=value, overridden=name in overridden)
            for name, value in changes.items()
        }
        # Values that an earlier attempt noted are older, so they are the operator's.
        guard.renew(settings={**noted, **claim.settings})
        change_dynamic_settings(store, guard.require, lambda settings: {**settings, **changes})
        _store_url(task, guard, store)


@step(BlueGreenTask)
def complete(task: BlueGreenTask) -> Completion:
    """Set the flag of the whole cluster if every namespace has moved; return what still uses blue."""
    with task.blue.store() as store:
        guard = task.keeper(store)
        guard.renew()
        # mutant: blue-green/flag-of-the-cluster-by-a-late-attempt
        flag = rewrite_cluster_flag(store, task.input.cluster, guard.require)
        # An earlier attempt may have set it, before a namespace was created.
        flagged = flag is not None and flag.migrated
        if guard.require().clearing:
            # Only then: a change of their time asks for a restart of green's brokers in the next failback.
            rewrite_remaining_flags(task, guard)
        moved, _ = split_namespaces(task, store)
        busy = [item for namespace in moved for item in _busy(task, namespace)]
        # Namespaces may have been created while topics were checked.
        _, staying = split_namespaces(task, store)
        if sets_cluster_flag(task) and not staying and not busy:
            guard.renew(clearing=True)
            clear_remaining_flags(task, guard)
            # Brokers may take half a minute to see each of these, so more namespaces may have been created.
            _, staying = split_namespaces(task, store)
            if not staying:  # mutant: blue-green/flag-of-the-cluster-over-what-came-last
                _set_address(task, guard, store, lambda _: True)
                flagged = True
        claims = records(store)
        undrained = [namespace for namespace, record in claims.items() if record.stage is Stage.FLIPPED]
        if not undrained:  # mutant: blue-green/load-shedding-while-topics-drain
            restore_settings(task, guard, store)
        # The grace window may be long, and no batch runs any more.
        for namespace, record in claims.items():
            if is_held_back(record):
                namespace_guard = NamespaceGuard(store, task.attempt, namespace)
                namespace_guard.take()
                lift_limit_if_terminated(task, namespace_guard)
    return Completion(
        flagged=flagged,
        not_moved=len(staying),
        stayed=tuple(staying[:NAMED]),
        defect="" if flagged else _defect_of_flag(task),
        busy=tuple(busy[:NAMED]),
        busy_count=len(busy),
        undrained=tuple(undrained[:NAMED]),
    )


@step(BlueGreenTask)
def release(task: BlueGreenTask) -> Released:
    """Roll back: restore the settings of blue and release both claims; moved namespaces stay on green."""
    with task.blue.store() as blue:
        guard = task.keeper(blue)
        if not holds_claim(task, blue):
            # It was never taken, or an earlier attempt released it; nothing else is to be restored.
            return Released()
        guard.renew()
        changed, restored = restore_settings(task, guard, blue)
        moved = sum(1 for namespace in recorded_namespaces(blue) if read_flag(blue, namespace))
        notes = [f"the setting {name} was changed during the migration; it keeps its new value" for name in changed]
        notes += undrained_notes(task, blue)
        not_released = ""
        try:
            with task.green.store() as green:
                notes += _forget_records(task, blue, green)
                green_keeper = task.keeper(green)
                if holds_claim(task, green):
                    green_keeper.renew()
                    restore_cluster_flag(task, green_keeper, green)
                _release_green(task, green)
        except StoreUnreachable:
            # Blue may have failed, or green for a moment: the next attempt restores green as well.
            if (lost := _why_green_is_lost(task)) is None:  # mutant: blue-green/green-is-given-up-if-blue-fails
                raise
            # Blue must be restored in any case.
            notes += _forget_records(task, blue, None)
            not_released = f"the claim on {task.input.green_cluster} was not released: {lost}"
        guard.release()
    return Released(moved=moved, restored=restored, notes=tuple(notes), not_released=not_released)


@step(BlueGreenTask)
def finish(task: BlueGreenTask) -> Released:
    """Delete the records of namespaces, and release both claims; the flags stay.

    Raises:
        StoreUnreachable: a store does not answer; if it is blue's, the claim on green was released.
    """
    notes: list[str] = []
    with task.green.store() as green:
        try:
            with task.blue.store() as blue:
                guard = task.keeper(blue)
                if holds_claim(task, blue):
                    guard.renew()
                    restore_settings(task, guard, blue)
                    notes += undrained_notes(task, blue)
                    notes += _forget_records(task, blue, green)
                    # Blue's claim last: its holder may repeat this step.
                    _release_green(task, green)
                    guard.release()
        except StoreUnreachable:
            # Blue may be switched off by now.
            _release_green(task, green)
            raise
    return Released(notes=tuple(notes))


def restore_settings(
    task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore
) -> tuple[list[str], int]:
    """Restore dynamic settings; return those that others have changed since, and the number of restored ones."""
    settings = guard.require().settings
    if not settings:
        return [], 0
    # Written in any case: an earlier attempt that froze before its write must find a changed version.
    # mutant: blue-green/settings-of-a-late-attempt
    now = change_dynamic_settings(store, guard.require, lambda stored: {**stored, **_previous(settings, stored)})
    previous = _previous(settings, now)
    added = {name: value for name, value in previous.items() if not settings[name].overridden}
    # After the removal brokers keep the last value until they restart, so each must have the previous one before.
    for name, value in added.items():
        _wait_until_applied(task, name, value)
    if added:
        change_dynamic_settings(store, guard.require, lambda stored: dict(stored.items() - added.items()))
    guard.renew(settings={})
    return [name for name in settings if name in now and name not in previous], len(previous)


def _previous(settings: Mapping[str, ChangedSetting], stored: Mapping[str, str]) -> dict[str, str]:
    """Return the previous values of settings that only this migration has changed."""
    # The previous value is there if an earlier attempt was lost after it had restored it.
    return {
        name: str(setting.before)
        for name, setting in settings.items()
        if name in stored and stored[name] in (setting.ours, setting.before)
    }


def undrained_notes(task: AnyBlueGreenTask, store: CasStore) -> list[str]:
    """Return notes on namespaces that were flipped and not drained, and are no longer watched."""
    return [
        f"{namespace} has topics on {task.input.cluster} that are not drained; if one is unloaded, by load shedding or "
        f"a restart, consumers cannot read the rest: start the migration again to drain them"
        for namespace, record in records(store).items()
        if record.stage is Stage.FLIPPED and read_flag(store, namespace)
    ][:NAMED]


# Inside ---------------------------------------------------------------------------------------------------------------


def _why_green_is_lost(task: AnyBlueGreenTask) -> StoreUnreachable | None:
    """Return why green's store or brokers do not answer; None if they do."""
    try:
        with task.green.store() as green:
            read_claim(green, BlueGreenClaim)
        task.green.admin.brokers.version()
    except StoreUnreachable as error:
        return error
    return None


def _release_green(task: AnyBlueGreenTask, green: CasStore) -> None:
    # If another migration held green at the start, this one failed without a claim there.
    if holds_claim(task, green):
        task.keeper(green).release()


def _wait_until_applied(task: AnyBlueGreenTask, name: str, value: str) -> None:
    """Wait until each broker of blue that answers has applied a setting.

    Raises:
        StoreContention: a broker does not apply it within half a minute.
    """

    def lag_of(admin: PulsarAdminReader) -> str:
        is_applied = admin.brokers.runtime_configuration().get(name) == value
        return "" if is_applied else f"still runs without {name}={value}"

    # A broker that does not answer now is notified by its metadata store later.
    await_on_brokers(task.context, task.blue.brokers(), lag_of, silent=set())


def _restore_after_earlier_run(task: AnyBlueGreenTask, store: CasStore) -> tuple[str, ...]:
    """Restore what an earlier run left changed when it ended during a batch; return `Released.notes`."""
    claims, notes = records(store), list[str]()
    unfinished = [name for name, record in claims.items() if record.stage is not Stage.KEPT]
    guards = [NamespaceGuard(store, task.attempt, namespace) for namespace in unfinished]
    # All limits before what may fail and be tried again; but subscriptions before the limit of their topics.
    for guard in guards:
        guard.take()
        # mutant: blue-green/flag-of-a-run-that-was-terminated
        rewrite_flag(store, guard.namespace, guard.require)
        complete_lost_undo(task, guard, store)  # mutant: blue-green/undo-that-a-terminated-run-left
        notes.append(lift_limit_if_terminated(task, guard))
    redirected = redirected_namespaces(task, store, unfinished)
    for guard in guards:
        # The record alone does not tell: it is written before the change.
        if guard.namespace not in redirected:
            notes += [restore_policy(task, guard, INACTIVE), restore_redirect(task, guard, store)]
    return tuple(filter(None, notes))


def _store_url(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore) -> None:
    """Store green's address.

    Raises:
        StoreConflict: blue redirects clients to another cluster, since PRECHECK.
    """
    if conflict := conflicting_redirect(task, store):  # mutant: blue-green/address-of-another-cluster
        raise StoreConflict(f"{conflict}, and not to {task.input.green_cluster}; nothing is flipped")
    _set_address(task, guard, store, lambda now: bool(now and now.migrated))


def _set_address(
    task: AnyBlueGreenTask,
    guard: ClaimKeeper[BlueGreenClaim],
    store: CasStore,
    flag: Callable[[ClusterMigration | None], bool],
) -> None:
    """Set the address and flag with which blue's brokers redirect clients to green: of flagged namespaces, or all."""
    cluster, urls = task.input.cluster, urls_of(task.input.green)
    wanted = set_cluster_flag(
        store,
        cluster,
        guard.require,
        lambda now: ClusterMigration(migrated=flag(now), migrated_cluster_url=urls),
    )
    wait_until_cluster_seen(task, cluster, wanted, task.blue.brokers())


def sets_cluster_flag(task: AnyBlueGreenTask) -> bool:
    """Return whether the flag of the whole cluster may be set: some releases terminate topics of health checks."""
    return task.input.complete_cluster and not _defect_of_flag(task)  # mutant: blue-green/flag-that-ends-health-checks


def _defect_of_flag(task: AnyBlueGreenTask) -> str:
    return _SYSTEM_TOPICS_FLAGGED if has_defect(task.blue.release, _SYSTEM_TOPICS_FLAGGED) else ""


def split_namespaces(task: AnyBlueGreenTask, store: CasStore) -> tuple[list[str], list[str]]:
    """Return namespaces of blue that have moved, and those that have not; namespaces of brokers are in neither list.

    The flag of the whole cluster terminates topics of all namespaces, also topics that no broker lists: non-persistent
    topics, segments, and topics that clients create later in an empty namespace.
    """
    moved: list[str] = []
    staying: list[str] = []
    for namespace in namespaces_of(task.blue.admin):
        if read_flag(store, namespace):
            moved.append(namespace)
        elif not is_of_brokers(namespace):  # mutant: blue-green/flag-of-the-cluster-over-what-stays
            staying.append(namespace)
    return moved, staying


def _busy(task: AnyBlueGreenTask, namespace: str) -> Iterable[FailedItem]:
    topics = topics_of(task.blue.admin, namespace)
    for topic, why in zip(topics, task.each(topics, lambda topic: users_of(task.blue.admin, topic)), strict=True):
        if why:
            yield FailedItem(path=str(topic), reason=why)


def _forget_records(task: AnyBlueGreenTask, store: CasStore, green: CasStore | None) -> list[str]:
    """Delete the records of namespaces; return `Released.notes`.

    Args:
        task: the step.
        store: blue's metadata store.
        green: green's; None if green does not answer.
    """
    notes: list[str] = []
    # All limits first: what follows may fail, and be tried again.
    taken: dict[NamespaceGuard, NamespaceClaim] = {}
    for namespace, record in records(store).items():
        # Blue keeps the topics of a namespace that has moved, and so its record.
        if record.stage is not Stage.KEPT or not read_flag(store, namespace):
            guard = NamespaceGuard(store, task.attempt, namespace)
            taken[guard] = guard.take()
            notes.append(lift_publish_limit(task, guard))
    ended = [guard for guard, record in taken.items() if _end_record(task, guard, record, green, notes)]
    if any(taken[guard].deleting for guard in ended):
        # The next run does not know of them without the records. Every attempt that deletes was superseded above.
        task.green.await_late_requests()  # mutant: blue-green/record-of-deletions-is-deleted-early
    for guard in ended:
        guard.release()
    return [note for note in notes if note]


def _end_record(
    task: AnyBlueGreenTask, guard: NamespaceGuard, record: NamespaceClaim, green: CasStore | None, notes: list[str]
) -> bool:
    """Restore what a record says, and add to the notes; return whether the record is to be deleted."""
    store, namespace = guard.store, guard.namespace
    if record.stage is not Stage.FLIPPED:
        # The run that completes a flip must know the clients of the topics.
        forget_clients(store, namespace, guard.require)
    # Copies of a namespace that stays on blue remain on green, and the next migration continues them.
    if record.stage is Stage.MOVED:
        forget_copies(store, namespace, guard.require)
        if green is not None:
            delete_old_record(green, namespace, guard.require)
    moved = read_flag(store, namespace)
    # The run that completes a flip must know whose copies it relies upon.
    # mutant: blue-green/record-of-a-flip-is-deleted
    if moved and (record.inactive_topics or record.stage is Stage.FLIPPED):
        guard.note(stage=Stage.KEPT)
        return False
    notes.append(restore_policy(task, guard, INACTIVE))
    if not moved and green is not None:
        notes.append(restore_redirect(task, guard, store))
    elif not moved and record.green_flag:
        notes.append(
            f"{namespace}: both clusters serve its clients, because {task.input.green_cluster} does not answer "
            "and still has no flag for it"
        )
    return True

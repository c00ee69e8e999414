"""What a migration changes of blue as a whole: claim, load shedding, green's address, and the cluster's flag."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from activities.blue_green.context import REQUEST_LIMIT, AnyBlueGreenTask, BlueGreenTask, NamespaceGuard, holds_claim
from activities.blue_green.copy.subscription_copy import forget_copies
from activities.blue_green.failback import (
    clear_remaining_flags,
    delete_old_record,
    restore_cluster_flag,
    restore_redirect,
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
from activities.blue_green.saved_clients import forget_clients
from activities.blue_green.topics import topics_of, users_of
from activities.blue_green.write_limit import lift_limit_if_terminated, lift_publish_limit
from activities.lifecycle.failed_items import forget_failed_items
from activities.lifecycle.step import step
from activities.pulsar.await_on_brokers import await_on_brokers
from activities.pulsar.namespace_guard import recorded_namespaces
from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreUnreachable
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.records.cluster_flag import set_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import BlueGreenClaim, ChangedSetting, NamespaceClaim, Stage, is_held_back
from models.blue_green.results import Completion, Released
from models.defects import has_defect
from models.lifecycle.failures import NAMED, FailedItem

#: What would unload topics, or split their bundles, while they must stay loaded; 5.0 has the last one (PIP-470).
HELD_OFF = {
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "brokerCloseInactiveTopicsEnabled": "false",
}


_SYSTEM_TOPICS_FLAGGED = "SYSTEM_TOPICS_FLAGGED"


@step(BlueGreenTask, needs_open_run=True)
def register(task: BlueGreenTask) -> Released:
    """Take the claim on both clusters' metadata stores, and put back what an earlier run left when it was ended.

    Raises:
        ClaimHeld: another migration holds one of them.
    """
    with task.blue_store() as blue, task.green_store() as green:
        guard = task.keeper(blue)
        guard.take()
        guard.require()
        task.keeper(green).take()
        served = _let_writes_go(task, blue)
        forget_failed_items(blue)
    return Released(notes=served)


@step(BlueGreenTask)
def disable_load_shedding(task: BlueGreenTask) -> None:
    """Have blue's brokers keep what they have loaded, and store where clients will be sent."""
    with task.blue_store() as store:
        guard = task.keeper(store)
        claim = guard.renew()  # mutant: blue-green/late-step-takes-the-claim
        known, overridden = set(task.blue.brokers.dynamic_names()), task.blue.brokers.dynamic_values()
        running = task.blue.brokers.runtime_configuration()
        changes = {name: value for name, value in HELD_OFF.items() if name in known and running.get(name) != value}
        noted = {
            name: ChangedSetting(before=running.get(name), ours=value, overridden=name in overridden)
            for name, value in changes.items()
        }
        # What an earlier attempt noted is older, and so nearer to what the operator had set.
        guard.renew(settings={**noted, **claim.settings})
        for name, value in changes.items():
            _set_dynamic(task, guard, name, value)
        _store_url(task, guard, store)


@step(BlueGreenTask)
def complete(task: BlueGreenTask) -> Completion:
    """Set the flag of the whole cluster if every namespace has moved; says what still uses blue."""
    with task.blue_store() as store:
        guard = task.keeper(store)
        guard.renew()
        moved, _ = split_namespaces(task, store)
        busy = [item for namespace in moved for item in _busy(task, namespace)]
        # Topics may have come to a namespace while the others were looked at.
        _, left = split_namespaces(task, store)
        flagged = False
        if sets_cluster_flag(task) and not left and not busy:
            clear_remaining_flags(task, guard)
            _set_address(task, guard, store, lambda _: True)
            flagged = True
        known = records(store)
        undrained = [namespace for namespace, record in known.items() if record.stage is Stage.FLIPPED]
        if not undrained:  # mutant: blue-green/load-shedding-while-topics-drain
            restore_settings(task, guard)
        # The window may be long, and batches that were given up have ended by now.
        for namespace, record in known.items():
            if is_held_back(record):
                one = NamespaceGuard(store, task.attempt, namespace)
                one.take()
                lift_limit_if_terminated(task, one)
    return Completion(
        flagged=flagged,
        not_moved=len(left),
        stayed=tuple(left[:NAMED]),
        defect="" if flagged else _defect_of_flag(task),
        busy=tuple(busy[:NAMED]),
        busy_count=len(busy),
        undrained=tuple(undrained[:NAMED]),
    )


@step(BlueGreenTask)
def release(task: BlueGreenTask) -> Released:
    """The way back: put back what was changed for all, and give up both claims; moved namespaces stay with green."""
    with task.blue_store() as blue:
        guard = task.keeper(blue)
        if not holds_claim(task, blue):
            # It was never taken, or an earlier attempt has given it up; then there is nothing else to give back.
            return Released()
        guard.renew()
        kept, restored = restore_settings(task, guard, forget=False)
        moved = sum(1 for namespace in recorded_namespaces(blue) if read_flag(blue, namespace))
        # No request of an earlier attempt can arrive after this.
        task.context.pause(REQUEST_LIMIT + 1)
        again, _ = restore_settings(task, guard)
        names = dict.fromkeys([*kept, *again])
        told = [f"{name} was changed by somebody else meanwhile, and stays" for name in names]
        told += undrained_notes(task, blue)
        left = ""
        try:
            with task.green_store() as green:
                told += _forget_records(task, blue, green, guard.require)
                there = task.keeper(green)
                if holds_claim(task, green):
                    there.renew()
                    restore_cluster_flag(task, there, green)
                _leave(task, green)
        except StoreUnreachable as error:
            # Green may be away for good, and blue must not stay as it is because of that.
            told += _forget_records(task, blue, None, guard.require)
            left = f"the claim on {task.input.green_cluster} was not given up: {error}"
        guard.release()
    return Released(moved=moved, restored=restored, notes=tuple(told), not_released=left)


@step(BlueGreenTask)
def finish(task: BlueGreenTask) -> Released:
    """Remove the records of namespaces, and give up both claims; the flags stay.

    Raises:
        StoreUnreachable: one of the stores does not answer; green is free all the same where it is blue's.
    """
    told: list[str] = []
    with task.green_store() as green:
        try:
            with task.blue_store() as blue:
                guard = task.keeper(blue)
                if holds_claim(task, blue):
                    guard.renew()
                    restore_settings(task, guard)
                    told += undrained_notes(task, blue)
                    told += _forget_records(task, blue, green, guard.require)
                    _give_up(task, guard, green)
        except StoreUnreachable:
            # Blue may be turned off by now.
            _leave(task, green)
            raise
    return Released(notes=tuple(told))


def restore_settings(
    task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], *, forget: bool = True
) -> tuple[list[str], int]:
    """Put dynamic settings back; returns those that somebody else has changed since, and how many were put back.

    Args:
        task: of the attempt.
        guard: of blue's claim.
        forget: also forget their values of before; not while a late request of an earlier attempt may still arrive.
    """
    settings = guard.require().settings
    if not settings:
        return [], 0
    now = task.blue.brokers.dynamic_values()
    # The value of before stands where an earlier attempt was lost during this.
    mine = {name: one for name, one in settings.items() if name in now and now[name] in (one.ours, one.before)}
    for name, one in mine.items():
        _restore(task, guard, name, one)
    if forget:
        guard.renew(settings={})
    return [name for name in settings if name in now and name not in mine], len(mine)


def undrained_notes(task: AnyBlueGreenTask, store: CasStore) -> list[str]:
    """Return what people must know of namespaces that were flipped and not drained, and are watched no more."""
    return [
        f"{namespace} has topics on {task.input.cluster} that were not drained, and an unload of one, as by load "
        f"shedding or a restart, keeps consumers from the rest: start the migration again to bring them to their end"
        for namespace, record in records(store).items()
        if record.stage is Stage.FLIPPED and read_flag(store, namespace)
    ][:NAMED]


# Inside ---------------------------------------------------------------------------------------------------------------


def _give_up(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], green: CasStore) -> None:
    """Give up both claims, that on blue last: whoever holds it may ask for this again."""
    _leave(task, green)
    guard.release()


def _leave(task: AnyBlueGreenTask, green: CasStore) -> None:
    there = task.keeper(green)
    # Another migration may hold green, which has ended this one at its begin.
    if holds_claim(task, green):
        there.release()


def _restore(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], name: str, one: ChangedSetting) -> None:
    _set_dynamic(task, guard, name, str(one.before))
    if one.overridden:
        return
    # Without a value brokers go back to their file only when they restart, so each must run on it before.
    _wait_until_run_on(task, name, str(one.before))
    task.change_blue(
        look=lambda admin: admin.brokers.dynamic_values(),
        fence=guard.require,
        change=lambda admin: admin.brokers.remove_dynamic(name),
    )


def _set_dynamic(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], name: str, value: str) -> None:
    task.change_blue(
        look=lambda admin: admin.brokers.dynamic_values(),
        fence=guard.require,
        change=lambda admin: admin.brokers.set_dynamic(name, value),
    )


def _wait_until_run_on(task: AnyBlueGreenTask, name: str, value: str) -> None:
    """Wait until each broker of blue that answers runs on a setting.

    Raises:
        StoreContention: one does not, for half a minute.
    """

    def lag_of(admin: PulsarAdminReader) -> str:
        runs_on_it = admin.brokers.runtime_configuration().get(name) == value
        return "" if runs_on_it else f"still runs without {name}={value}"

    # One that does not answer is not waited for: its metadata store notifies it.
    await_on_brokers(task.context, task.blue_brokers(), lag_of, silent=set())


def _let_writes_go(task: AnyBlueGreenTask, store: CasStore) -> tuple[str, ...]:
    """Put limits back that an earlier run left when it was ended during a batch; see `Released.notes`."""
    known, kept = records(store), list[str]()
    there = redirected_namespaces(task, store, known)
    for namespace, record in known.items():
        if record.stage is Stage.KEPT:
            continue
        guard = NamespaceGuard(store, task.attempt, namespace)
        guard.take()
        kept.append(lift_limit_if_terminated(task, guard))
        # By what has happened, and not by the record, which is written before it.
        if namespace not in there:
            kept += [restore_policy(task, guard, INACTIVE), restore_redirect(task, guard, store)]
    return tuple(filter(None, kept))


def _store_url(task: AnyBlueGreenTask, guard: ClaimKeeper[BlueGreenClaim], store: CasStore) -> None:
    """Store green's address.

    Raises:
        StoreConflict: blue sends clients to another cluster, which has begun since PRECHECK.
    """
    if away := conflicting_redirect(task, store):  # mutant: blue-green/address-of-another-cluster
        raise StoreConflict(f"{away}, and not to {task.input.green_cluster}; nothing is flipped")
    _set_address(task, guard, store, lambda now: bool(now and now.migrated))


def _set_address(
    task: AnyBlueGreenTask,
    guard: ClaimKeeper[BlueGreenClaim],
    store: CasStore,
    flag: Callable[[ClusterMigration | None], bool],
) -> None:
    """Have blue's brokers send clients to green: those of namespaces with a flag, or all."""
    cluster, urls = task.input.cluster, urls_of(task.input.green)
    wanted = set_cluster_flag(
        store,
        cluster,
        guard.require,
        lambda now: ClusterMigration(migrated=flag(now), migrated_cluster_url=urls),
    )
    wait_until_cluster_seen(task, cluster, wanted, task.blue_brokers())


def sets_cluster_flag(task: AnyBlueGreenTask) -> bool:
    """Return whether the flag of the whole cluster may be set: some releases end topics of health checks."""
    return task.input.complete_cluster and not _defect_of_flag(task)  # mutant: blue-green/flag-that-ends-health-checks


def _defect_of_flag(task: AnyBlueGreenTask) -> str:
    return _SYSTEM_TOPICS_FLAGGED if has_defect(task.blue_release, _SYSTEM_TOPICS_FLAGGED) else ""


def split_namespaces(task: AnyBlueGreenTask, store: CasStore) -> tuple[list[str], list[str]]:
    """Namespaces of blue that have moved, and those that have not; those of brokers count as neither.

    The flag of the whole cluster ends topics of each namespace, also those that no broker lists: topics that are not
    persistent, segments, and whatever clients create in an empty namespace.
    """
    moved: list[str] = []
    left: list[str] = []
    for namespace in namespaces_of(task.blue):
        if read_flag(store, namespace):
            moved.append(namespace)
        elif not is_of_brokers(namespace):  # mutant: blue-green/flag-of-the-cluster-over-what-stays
            left.append(namespace)
    return moved, left


def _busy(task: AnyBlueGreenTask, namespace: str) -> Iterable[FailedItem]:
    topics = topics_of(task.blue, namespace)
    for topic, why in zip(topics, task.each(topics, lambda topic: users_of(task.blue, topic)), strict=True):
        if why:
            yield FailedItem(path=str(topic), reason=why)


def _forget_records(
    task: AnyBlueGreenTask, store: CasStore, green: CasStore | None, fence: Callable[[], object]
) -> list[str]:
    """Remove the records of namespaces; see `Released.notes`."""
    kept: list[str] = []
    for namespace, record in records(store).items():
        if record.stage is not Stage.FLIPPED:
            # Whoever brings a flip to its end must know who used the topics.
            forget_clients(store, namespace, fence)
        # The copies of a namespace that stays with blue are still on green, and the next migration continues with them.
        if record.stage is Stage.MOVED:
            forget_copies(store, namespace, fence)
            if green is not None:
                delete_old_record(green, namespace, fence)
        guard = NamespaceGuard(store, task.attempt, namespace)
        kept += _forget_record(task, guard, record, moved=read_flag(store, namespace), alone=green is None)
    return [why for why in kept if why]


def _forget_record(
    task: AnyBlueGreenTask, guard: NamespaceGuard, record: NamespaceClaim, *, moved: bool, alone: bool
) -> Iterable[str]:
    """Remove the record of a namespace; where it has moved, brokers of blue keep its topics, and the record stays.

    Args:
        task: the step.
        guard: of the namespace.
        record: of it.
        moved: its clients are sent to green.
        alone: green does not answer.
    """
    if record.stage is Stage.KEPT and moved:
        return
    guard.take()
    yield lift_publish_limit(task, guard)
    if record.inactive_topics and moved:
        guard.note(stage=Stage.KEPT)
        return
    yield restore_policy(task, guard, INACTIVE)
    if not moved and not alone:
        yield restore_redirect(task, guard, guard.store)
    elif not moved and record.green_flag:
        yield f"{guard.namespace}: {task.input.green_cluster} serves its clients as well, and does not answer now"
    guard.release()

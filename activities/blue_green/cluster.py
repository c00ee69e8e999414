"""What a migration changes of blue as a whole: claim, load shedding, green's address, and the cluster's flag."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from activities.blue_green.context import REQUEST_LIMIT, BlueGreenTask, MigrationGuard, NamespaceGuard
from activities.blue_green.flags import LOOK_EVERY, SEEN_WITHIN, urls_of
from activities.blue_green.held_policies import INACTIVE, put_back
from activities.blue_green.listing import forget_failures, namespaces_of
from activities.blue_green.load import forget_clients
from activities.blue_green.records import recorded, records
from activities.blue_green.subscription_copy import forget_copies
from activities.blue_green.throttle import let_go
from activities.blue_green.topics import cursors_of, look_at, stored, subscriptions_of, topics_of
from activities.blue_green.way_back import forget_kept, send_away_again, take_rest_back, widen_cluster_flag
from clients.cas.store import CasStore
from clients.errors import StoreContention, StoreUnreachable
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_flag import read_flag
from models.blue_green.claims import FLIPPED, ChangedSetting, NamespaceClaim, Stage
from models.blue_green.results import Completion, Released
from models.lifecycle.failures import NAMED, FailedItem

#: What would unload topics, or split their bundles, while they have to stay loaded.
HELD_OFF = {"loadBalancerSheddingEnabled": "false", "loadBalancerAutoBundleSplitEnabled": "false"}


def register(task: BlueGreenTask) -> None:
    """Take the claim on both clusters' metadata stores.

    Raises:
        ClaimHeld: another migration holds one of them.
    """
    with task.blue_store() as blue, task.green_store() as green:
        guard = MigrationGuard(task.keeper(blue))
        guard.take()
        guard.require()
        MigrationGuard(task.keeper(green)).take()
        _let_writes_go(task, blue)
        forget_failures(blue)


def hold_load(task: BlueGreenTask) -> None:
    """Have blue's brokers keep what they have loaded, and store where clients will be sent."""
    with task.blue_store() as store:
        guard = MigrationGuard(task.keeper(store))
        claim = guard.renew()
        known, overridden = set(task.blue.brokers.dynamic_names()), task.blue.brokers.dynamic_values()
        running = task.blue.brokers.runtime_configuration()
        changes = {name: value for name, value in HELD_OFF.items() if name in known and running.get(name) != value}
        noted = {
            name: ChangedSetting(before=running.get(name), ours=value, overridden=name in overridden)
            for name, value in changes.items()
        }
        # What an earlier attempt noted is older, and so nearer to what the operator had set.
        guard.note(settings={**noted, **claim.settings})
        for name, value in changes.items():
            guard.require()
            task.blue.brokers.set_dynamic(name, value)
        _store_url(task, guard)


def complete(task: BlueGreenTask) -> Completion:
    """Set the flag of the whole cluster if every namespace has moved; says what still uses blue."""
    with task.blue_store() as store:
        guard = MigrationGuard(task.keeper(store))
        guard.renew()
        moved, _ = _split(task, store)
        busy = [item for namespace in moved for item in _busy(task, namespace)]
        # Topics may have come to a namespace while the others were looked at.
        _, left = _split(task, store)
        flagged = False
        if task.input.complete_cluster and not left and not busy:
            take_rest_back(task, guard)
            guard.require()
            task.blue.clusters.set_migration(task.input.cluster, urls_of(task.input.green), migrated=True)
            flagged = _read_back(task, migrated=True)
        restore_settings(task, guard)
    return Completion(flagged=flagged, left=len(left), busy=tuple(busy[:NAMED]), busy_count=len(busy))


def release(task: BlueGreenTask) -> Released:
    """The way back: put back what was changed for all, and give up both claims; moved namespaces stay with green."""
    with task.blue_store() as blue, task.green_store() as green:
        guard = MigrationGuard(task.keeper(blue))
        if not guard.held:
            # It was never taken, or an earlier attempt has given it up; then there is nothing else to give back.
            return Released()
        guard.renew()
        kept, restored = restore_settings(task, guard, forget=False)
        moved = sum(1 for namespace in recorded(blue) if read_flag(blue, namespace))
        # No request of an earlier attempt can arrive after this.
        task.context.pause(REQUEST_LIMIT + 1)
        again, _ = restore_settings(task, guard)
        _forget_records(task, blue, green, guard.require)
        there = MigrationGuard(task.keeper(green))
        if there.held:
            there.renew()
            widen_cluster_flag(task, there, green)
        _give_up(task, guard, green)
    return Released(moved=moved, restored=restored, kept=tuple(dict.fromkeys([*kept, *again])))


def finish(task: BlueGreenTask) -> None:
    """Remove the records of namespaces, and give up both claims; the flags stay.

    Raises:
        StoreUnreachable: one of the stores does not answer; green is free all the same where it is blue's.
    """
    with task.green_store() as green:
        try:
            with task.blue_store() as blue:
                guard = MigrationGuard(task.keeper(blue))
                if guard.held:
                    guard.renew()
                    _forget_records(task, blue, green, guard.require)
                    _give_up(task, guard, green)
        except StoreUnreachable:
            # Blue may be turned off by now.
            _leave(task, green)
            raise


def restore_settings(task: BlueGreenTask, guard: MigrationGuard, *, forget: bool = True) -> tuple[list[str], int]:
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
    # The value of before stands where an earlier attempt was lost amid this.
    mine = {name: one for name, one in settings.items() if name in now and now[name] in (one.ours, one.before)}
    for name, one in mine.items():
        _restore(task, guard, name, one)
    if forget:
        guard.note(settings={})
    return [name for name in settings if name in now and name not in mine], len(mine)


# Inside ---------------------------------------------------------------------------------------------------------------


def _give_up(task: BlueGreenTask, guard: MigrationGuard, green: CasStore) -> None:
    """Give up both claims, that on blue last: whoever holds it may ask for this again."""
    _leave(task, green)
    guard.release()


def _leave(task: BlueGreenTask, green: CasStore) -> None:
    there = MigrationGuard(task.keeper(green))
    # Another migration may hold green, which has ended this one at its begin.
    if there.held:
        there.release()


def _restore(task: BlueGreenTask, guard: MigrationGuard, name: str, one: ChangedSetting) -> None:
    guard.require()
    task.blue.brokers.set_dynamic(name, str(one.before))
    if one.overridden:
        return
    # Without a value brokers go back to their file only when they restart, so each has to run on it before.
    _wait_until_run_on(task, name, str(one.before))
    guard.require()
    task.blue.brokers.remove_dynamic(name)


def _wait_until_run_on(task: BlueGreenTask, name: str, value: str) -> None:
    """Wait until each broker of blue runs on a setting.

    Raises:
        StoreContention: one does not, for half a minute.
    """
    end = time.monotonic() + SEEN_WITHIN
    for url, admin in task.blue_brokers():
        while admin.brokers.runtime_configuration().get(name) != value:
            if time.monotonic() > end:
                raise StoreContention(f"the broker {url} does not run on {name}={value}, as it was told")
            task.context.pause(LOOK_EVERY)


def _let_writes_go(task: BlueGreenTask, store: CasStore) -> None:
    """Put limits back that an earlier run left when it was ended amid a batch."""
    for namespace, record in records(store).items():
        if record.stage is Stage.KEPT:
            continue
        guard = NamespaceGuard(store, task.attempt, namespace)
        guard.take()
        let_go(task, guard)
        if record.stage not in FLIPPED:
            put_back(task.blue.namespaces, guard, INACTIVE)
            send_away_again(task, guard, store)


def _store_url(task: BlueGreenTask, guard: MigrationGuard) -> None:
    wanted = urls_of(task.input.green)
    known = task.blue.clusters.migration(task.input.cluster)
    if known is None or known.migrated_cluster_url != wanted:
        guard.require()
        task.blue.clusters.set_migration(task.input.cluster, wanted, migrated=bool(known and known.migrated))
    if not _read_back(task, migrated=bool(known and known.migrated)):
        raise StoreContention(f"brokers of {task.input.cluster} do not keep the address of {task.input.green_cluster}")


def _read_back(task: BlueGreenTask, *, migrated: bool) -> bool:
    known = task.blue.clusters.migration(task.input.cluster)
    return known is not None and known.migrated is migrated and known.migrated_cluster_url == urls_of(task.input.green)


def _split(task: BlueGreenTask, store: CasStore) -> tuple[list[str], list[str]]:
    """Namespaces of blue that have moved, and those that have not.

    Pulsar's own count as neither, nor do empty ones but for those that the operator has excluded by name.
    """
    moved: list[str] = []
    left: list[str] = []
    for namespace in namespaces_of(task.blue):
        if read_flag(store, namespace):
            moved.append(namespace)
        elif not namespace.startswith("pulsar/") and (
            task.input.excludes(namespace) or topics_of(task.blue, namespace)
        ):
            left.append(namespace)
    return moved, left


def _busy(task: BlueGreenTask, namespace: str) -> Iterable[FailedItem]:
    topics = topics_of(task.blue, namespace)
    for topic, why in zip(topics, task.each(topics, lambda topic: _use_of(task, topic)), strict=True):
        if why:
            yield FailedItem(path=str(topic), reason=why)


def _use_of(task: BlueGreenTask, topic: TopicName) -> str:
    look = look_at(task.blue, topic)
    if look.stats is not None:
        waiting = [name for name, sub in subscriptions_of(look.stats).items() if sub.msg_backlog or sub.consumers]
        users = [f"{len(look.stats.publishers)} producers"] if look.stats.publishers else []
        return ", ".join([*users, *(f"subscription {name}" for name in waiting)])
    info = stored(task.blue, topic) if look.blocked else None
    return f"subscriptions {', '.join(cursors_of(info))}" if info and cursors_of(info) else ""


def _forget_records(task: BlueGreenTask, store: CasStore, green: CasStore, fence: Callable[[], object]) -> None:
    for namespace, record in records(store).items():
        forget_clients(store, namespace)
        # The copies of a namespace that stays with blue are still on green, and the next migration goes on with them.
        if record.stage is Stage.MOVED:
            forget_copies(store, namespace, fence)
            forget_kept(green, namespace, fence)
        _forget_record(task, NamespaceGuard(store, task.attempt, namespace), record, moved=read_flag(store, namespace))


def _forget_record(task: BlueGreenTask, guard: NamespaceGuard, record: NamespaceClaim, *, moved: bool) -> None:
    """Remove the record of a namespace; where it has moved, brokers of blue keep its topics, and the record stays."""
    if record.stage is Stage.KEPT and moved:
        return
    guard.take()
    let_go(task, guard)
    if record.inactive_topics and moved:
        guard.note(stage=Stage.KEPT)
        return
    put_back(task.blue.namespaces, guard, INACTIVE)
    guard.release()


def cleanup_refusal(task: BlueGreenTask, topic: TopicName) -> str:
    """Why a topic of blue must not be deleted; empty where it may."""
    use = _use_of(task, topic)
    info = stored(task.blue, topic)
    if info is None:
        return ""
    return use or _retained(task, topic, info) or ("" if info.migrated else "it was not terminated by the migration")


def _retained(task: BlueGreenTask, topic: TopicName, info: InternalInfo) -> str:
    """What readers may still want of a topic: green has none of it."""
    entries, end = sum(ledger.entries for ledger in info.ledgers), info.terminated_position
    # The last ledger says 0, also when it was ended with its topic.
    if end and info.ledgers and (last := info.ledgers[-1]).ledger_id == end.ledger_id and not last.entries:
        entries += end.entry_id + 1
    if task.input.cleanup_retained or not entries:
        return ""
    kept = task.blue.topics.retention(topic)
    if kept.retention_time_in_minutes == 0 or kept.retention_size_in_m_b == 0:
        return ""
    return (
        f'retention keeps {entries:,} entries that {task.input.green_cluster} lacks, and "cleanup_retained" is not set'
    )

"""The steps of the switch that look after the window, and that delete (PIP-477, "Phase 6: CLEANUP")."""

from __future__ import annotations

from collections.abc import Sequence

from activities.bookie_cluster.attribution import reconcile
from activities.bookie_cluster.cleanup_targets import (
    Facts,
    Judgement,
    gained,
    judge_copies,
    judge_source,
    misrouted_ledgers,
)
from activities.bookie_cluster.context import SwitchContext
from activities.bookie_cluster.ledger_copier import NAMED, name, usage
from activities.bookie_cluster.ledgers import all_references, progress_path, scan
from activities.bookie_cluster.progress import SwitchProgress, read_failed, read_line, read_verified
from activities.lifecycle.brokers import BrokerView, SeenCluster
from activities.lifecycle.registrations import brokers
from activities.lifecycle.runner import ActivityContext
from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.errors import StoreConflict, StoreUnreachable
from models.bookie_cluster.input import BookieCluster, Direction, Routing
from models.bookie_cluster.results import CleanupTargets, LedgersDeleted, SwitchCensus
from models.bookie_cluster.updates import CleanupOrder

_CHUNK = 500
# Half a minute of work or less, so that a step that is repeated has little to repeat.
_PART = 20_000


def take_census(work: SwitchContext, context: ActivityContext) -> SwitchCensus:
    """Who uses which cluster, what a rollback would copy back, and what a cleanup would delete.

    With routing `attribution` it also sets attributions again that brokers have dropped: Pulsar 5.0.0-M1 drops those of
    schemas with the next schema of a topic.

    Raises:
        StoreError: one of the stores cannot be read, or attributions not be set again.
    """
    context.check()
    attributions_set_again = reconcile(work) if work.input.routing is Routing.ATTRIBUTION else 0
    seen = _brokers(work)
    facts = _facts(work, seen)
    astray, new = misrouted_ledgers(facts), gained(facts)
    return SwitchCensus(
        brokers=tuple(f"{broker}: {cluster.text or cluster.why}" for broker, cluster in seen),
        misrouted_ledgers=tuple(
            f"{name(number)}: {usage(astray[number].metadata)}" for number in sorted(astray)[:NAMED]
        ),
        attributions_set_again=attributions_set_again,
        gained=len(new),
        gained_bytes=sum(record.metadata.length for record in new.values()),
        targets=judge_source(facts, force=False).listed(work.input.source.name),
    )


def list_targets(work: SwitchContext, order: CleanupOrder) -> CleanupTargets:
    """List the ledgers of the old cluster that a cleanup would delete; reads only.

    Raises:
        StoreConflict: the order names another cluster.
        StoreError: one of the stores cannot be read.
    """
    return _judge(work, order).listed(work.input.source.name)


def delete_ledgers(work: SwitchContext, context: ActivityContext, order: CleanupOrder) -> LedgersDeleted:
    """Delete a bounded part of what `list_targets` lists: at most `max_deletions` of the order or of the plan.

    Only the metadata are deleted; the bookies drop the entries with their next garbage collection.

    Raises:
        StoreConflict: the order names another cluster, the target is not ACTIVE, or a newer attempt has taken over.
        StoreError: one of the stores cannot be read or written; the step can be repeated, and goes on.
    """
    _, claim = work.claimed()
    _require_active(work, work.input.target)
    found = _judge(work, order)
    allowed = min(limit for limit in (_PART, order.max_deletions, work.input.max_deletions) if limit is not None)
    return _Deleting(work, context, work.input.source, claim.attempt).run(found.delete, allowed)


def remove_copies(work: SwitchContext, context: ActivityContext) -> LedgersDeleted:
    """Delete a bounded part of the copies in the target: those that this switch made, and that nothing refers to there.

    Raises:
        StoreConflict: brokers are directed to the target, or use it, or a newer attempt has taken over.
        StoreUnreachable: a broker does not say which cluster it uses.
        StoreError: one of the stores cannot be read or written; the step can be repeated, and goes on.
    """
    _, claim = work.claimed()
    seen = _brokers(work)
    _refuse_target_in_use(work, seen)
    found = judge_copies(_facts(work, seen))
    return _Deleting(work, context, work.input.target, claim.attempt).run(found.delete, _PART)


def _judge(work: SwitchContext, order: CleanupOrder) -> Judgement:
    if order.src_cluster != work.input.source.name:
        raise StoreConflict(
            f"{order.src_cluster} is not the cluster that this switch left; {work.input.source.name} is"
        )
    return judge_source(_facts(work, _brokers(work)), force=order.force)


def _facts(work: SwitchContext, seen: Sequence[tuple[str, SeenCluster]]) -> Facts:
    input = work.input
    progress = progress_path(work, Direction.FORWARD)
    with work.broker_store() as store:
        copies, line, named = read_verified(store, progress), read_line(store, progress), all_references(store)
        failed = read_failed(store, progress)
        with work.ledgers(input.source) as source, work.ledgers(input.target) as target:
            old, new = scan(source), scan(target)
        # Read again: what became referred to while the ledgers were read must count too.
        named += all_references(store)
    users = tuple(
        f"{broker} {'uses it' if cluster.url else cluster.why}"
        for broker, cluster in seen
        if cluster.url is None or cluster.url.overlaps(input.source.root)
    )
    return Facts(input, old, new, named, copies, line, users, failed.keys())


def _brokers(work: SwitchContext) -> list[tuple[str, SeenCluster]]:
    """Each registered broker, with the bookie cluster that it uses."""
    with work.broker_store() as store, BrokerView(work.runtime.settings) as view:
        return [(broker.name, view.bookie_cluster(broker)) for broker in brokers(store)]


def _require_active(work: SwitchContext, cluster: BookieCluster) -> None:
    with work.registry() as registry:
        active = registry.active()
    if active is None or active.cluster.name != cluster.name:
        raise StoreConflict(f"{cluster.name} is not ACTIVE in {work.input.registry_path}; nothing may be deleted yet")


def _refuse_target_in_use(work: SwitchContext, seen: Sequence[tuple[str, SeenCluster]]) -> None:
    target = work.input.target
    with work.registry() as registry:
        directive = registry.switch_target()
    if directive is not None and directive[0].target == target.name:
        raise StoreConflict(f"brokers are directed to {target.name}; its ledgers stay")
    if work.input.routing is Routing.ATTRIBUTION:
        return
    if using := [broker for broker, cluster in seen if cluster.url and cluster.url.overlaps(target.root)]:
        raise StoreConflict(f"{', '.join(using)} use {target.name}; its ledgers stay")
    if unknown := [f"{broker} ({cluster.why})" for broker, cluster in seen if cluster.url is None]:
        raise StoreUnreachable(f"whether these brokers use {target.name} is not known: {', '.join(unknown)}")


class _Deleting:
    """Deletes ledgers of one cluster in the name of one attempt."""

    def __init__(self, work: SwitchContext, context: ActivityContext, cluster: BookieCluster, attempt: int) -> None:
        self._work = work
        self._control = context
        self._cluster = cluster
        self._attempt = attempt

    def run(self, records: Sequence[LedgerRecord], most: int) -> LedgersDeleted:
        """Delete the first of these ledgers; one that has changed since it was judged stays.

        Args:
            records: what may be deleted.
            most: how many this step may delete, those of its earlier attempts included.
        """
        work = self._work
        deleted = 0
        with work.zookeeper() as zookeeper, work.ledgers_to_change(self._cluster) as directory:
            progress = SwitchProgress(work, zookeeper, self._attempt)
            before = progress.deleted()
            chosen = records[: max(0, most - before)]
            for start in range(0, len(chosen), _CHUNK):
                self._control.check()
                chunk = chosen[start : start + _CHUNK]
                progress.note_deleted(before + deleted + len(chunk))
                deleted += _delete_some(directory, chunk)
                self._control.progress(before + deleted, before + len(chosen), "ledgers deleted")
        return LedgersDeleted(deleted=before + deleted, left=len(records) - deleted)


def _delete_some(directory: LedgerDirectoryWriter, records: Sequence[LedgerRecord]) -> int:
    try:
        return directory.delete([(record.ledger_id, record.version) for record in records])
    except StoreConflict:
        left = directory.read([record.ledger_id for record in records])
        return sum(record is None for record in left)

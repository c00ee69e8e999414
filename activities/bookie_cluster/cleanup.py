"""The steps of the switch in its window and its cleanup (PIP-477, "Phase 6: CLEANUP").

Which ledgers may be deleted is judged from what both clusters and Pulsar's metadata say, without asking a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from activities.bookie_cluster.attribution import reconcile
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.deleted_ids import note_deleted
from activities.bookie_cluster.ledger_copier import name, usage
from activities.bookie_cluster.ledgers import HIDDEN, Ledgers, attributed_references, progress_path, scan
from activities.bookie_cluster.progress import SwitchProgress, read_cutover_ledger_id, read_failed, read_verified
from activities.lifecycle.step import step
from activities.pulsar.brokers import SeenCluster
from activities.pulsar.registrations import brokers
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import LedgerState
from clients.errors import LedgerUnreadable, StoreConflict, StoreUnreachable
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference
from models.bookie_cluster.input import BookieCluster, BookieClusterInput, Direction, Routing
from models.bookie_cluster.results import CleanupTargets, LedgersDeleted, SwitchCensus
from models.bookie_cluster.updates import CleanupOrder
from models.lifecycle.failures import NAMED
from models.lifecycle.status import ProgressTask, ProgressUnit

# Counted before they are deleted, so a repeated step deletes at most this many fewer than it may.
_CHUNK = 500
# Number of copies of which every replica is read before a part of the originals is deleted.
_SAMPLE = 64
# Half a minute of work or less, so that a step that is repeated has little to repeat.
_PART = 20_000
_UNTIL_PROCEED = "`proceed` ends the cleanup, and what is left stays"
_EXAMPLES = 20


@step(BookieClusterTask, name="census", reads_only=True)
def take_census(task: BookieClusterTask) -> SwitchCensus:
    """Return who uses which cluster, what a rollback would copy back, and what a cleanup would delete.

    With routing `attribution` it also sets attributions again that brokers have dropped: 4.2 and 5.0 drop those of
    schemas with the next schema of a topic.

    Raises:
        StoreError: one of the stores cannot be read, or attributions not be set again.
    """
    task.context.check()
    attributions_set_again = reconcile(task) if task.input.routing is Routing.ATTRIBUTION else 0
    seen = _brokers(task)
    facts = _facts(task, seen)
    astray, new = misrouted_ledgers(facts), target_only(facts)
    return SwitchCensus(
        brokers=tuple(f"{broker}: {cluster.text or cluster.why}" for broker, cluster in seen),
        misrouted_ledgers=tuple(
            f"{name(record.ledger_id)}: {usage(record.metadata)}" for record in _named(task, astray)
        ),
        misplaced=facts.users if task.input.routing is Routing.RESTART else (),
        attributions_set_again=attributions_set_again,
        target_only=len(new),
        target_only_bytes=sum(ledger.length for ledger in new.values()),
        targets=judge_source(facts, force=False).listed(task.input.source.name),
    )


@step(BookieClusterTask, reads_only=True)
def list_targets(task: BookieClusterTask, order: CleanupOrder) -> CleanupTargets:
    """List the ledgers of the old cluster that a cleanup would delete; reads only.

    Raises:
        StoreConflict: the order names another cluster.
        StoreError: one of the stores cannot be read.
    """
    facts = _order_facts(task, order)
    targets = judge_source(facts, force=order.force).listed(task.input.source.name)
    if targets.ledgers and facts.lacking and not order.force:
        targets = targets.model_copy(update={"reasons": (*targets.reasons, _waits(task, facts.lacking))})
    return targets


@step(BookieClusterTask)
def delete_ledgers(task: BookieClusterTask, order: CleanupOrder) -> LedgersDeleted:
    """Delete a bounded part of what `list_targets` lists: at most `max_deletions` of the order or of the plan.

    Only the metadata are deleted; the bookies drop the entries with their next garbage collection.

    Raises:
        StoreConflict: the order names another cluster, the target is not ACTIVE, or a newer attempt has taken over.
        StoreUnreachable: copies lack replicas, or one that is read before cannot be; the step can be repeated.
        StoreError: one of the stores cannot be read or written; the step can be repeated, and continues.
    """
    task.renew()  # mutant: bookie-cluster/a-cleanup-next-to-an-earlier-attempt
    # Until the statuses have flipped, a rollback may need what would be deleted here (I2, I12).
    _require_active(task, task.input.target)  # mutant: bookie-cluster/a-cleanup-before-the-flip
    if not order.force:
        # Before everything is scanned: this step is repeated for as long as a bookie is away.
        # mutant: bookie-cluster/a-cleanup-that-waits-scans-everything
        _require_whole(task, lacking_at_first_sight(task))
    facts = _order_facts(task, order)
    judgement = judge_source(facts, force=order.force)
    if judgement.delete and not order.force:
        _require_copies(task, facts, judgement.delete)
    allowed = min(limit for limit in (_PART, order.max_deletions, task.input.max_deletions) if limit is not None)
    return _Deleting(task, task.input.source).run(judgement.delete, allowed)


@step(BookieClusterTask)
def remove_copies(task: BookieClusterTask) -> LedgersDeleted:
    """Delete a bounded part of the copies in the target: those that this switch made, and that nothing refers to there.

    Raises:
        StoreConflict: brokers are directed to the target, or use it, or a newer attempt has taken over.
        StoreUnreachable: a broker does not say which cluster it uses.
        StoreError: one of the stores cannot be read or written; the step can be repeated, and continues.
    """
    task.renew()  # mutant: bookie-cluster/copies-are-deleted-next-to-an-earlier-attempt
    seen = _brokers(task)
    _refuse_target_in_use(task, seen)
    judgement = judge_copies(_facts(task, seen))
    return _Deleting(task, task.input.target).run(judgement.delete, _PART)


def _order_facts(task: BookieClusterTask, order: CleanupOrder) -> Facts:
    if order.src_cluster != task.input.source.name:
        raise StoreConflict(
            f"{order.src_cluster} is not the cluster that this switch left; {task.input.source.name} is"
        )
    return _facts(task, _brokers(task))


def _facts(task: BookieClusterTask, seen: Sequence[tuple[str, SeenCluster]]) -> Facts:
    input = task.input
    progress = progress_path(task, Direction.FORWARD)
    with task.broker_store() as store:
        copies, named = read_verified(store, progress), attributed_references(task, store)
        cutover_ledger_id, failed = read_cutover_ledger_id(store, progress), read_failed(store, progress)
        with task.ledgers(input.source) as source, task.ledgers(input.target) as target:
            old, new = scan(source), scan(target, members_of=copies)
            lacking = lacking_replicas(target, copies)
        # Read again: references that were added while the ledgers were read must count too.
        later = attributed_references(task, store)
        if later.digest != named.digest:
            named = named.plus(later)  # mutant: bookie-cluster/references-are-read-before-ledgers-only
    users = tuple(
        f"{broker} {f'uses {cluster.text}' if cluster.url else cluster.why}"
        for broker, cluster in seen
        # A broker that does not answer counts as one that uses it, and so does one whose cluster has an unknown name:
        # servers have many.
        if cluster.url is None or not cluster.url.overlaps(input.target.root)
    )
    return Facts(input, old, new, named, copies, cutover_ledger_id, users, failed.keys(), lacking)


def lacking_replicas(directory: LedgerDirectory, copies: Container[int]) -> tuple[str, ...]:
    """Return why copies in a cluster may lack replicas; empty if nothing says so.

    Args:
        directory: of the cluster; its `members` are the bookies that the copies lie on.
        copies: the ledgers of this switch. What others have in the cluster does not matter.
    """
    away = sorted(directory.members - directory.bookies().keys())
    problems = [f"{bookie_id} is not registered" for bookie_id in away[:NAMED]]
    if len(away) > NAMED:
        problems.append(f"{len(away) - NAMED:,} more bookies are not registered")
    marked = next((number for number in directory.underreplicated() if number in copies), None)
    if marked is not None:
        problems.append(f"BookKeeper's auditor has marked ledger {marked} and perhaps others")
    return tuple(problems)


def lacking_at_first_sight(task: BookieClusterTask) -> tuple[str, ...]:
    """Return why copies in the target may lack replicas, as far as a few of them show it."""
    with task.broker_store() as store:
        copies = read_verified(store, progress_path(task, Direction.FORWARD))
    with task.ledgers(task.input.target) as directory:
        for record in directory.read(_sample(list(copies))):
            for segment in record.metadata.segments if record else ():
                directory.members.update(segment.ensemble)
        return lacking_replicas(directory, copies)


def _sample(ids: Sequence[int]) -> Sequence[int]:
    return ids[:: max(1, len(ids) // _SAMPLE)][:_SAMPLE]


def _waits(task: BookieClusterTask, lacking: Sequence[str]) -> str:
    return (
        f"copies in {task.input.target.name} may lack replicas, so nothing is deleted yet: {'; '.join(lacking)}; start "
        f"these bookies, or wait until auto-recovery has replicated their ledgers; {_UNTIL_PROCEED}"
    )


def _require_whole(task: BookieClusterTask, lacking: Sequence[str]) -> None:
    """Refuse to delete while copies may lack replicas.

    Raises:
        StoreUnreachable: they may; the step can be repeated.
    """
    if lacking:
        raise StoreUnreachable(_waits(task, lacking))


def _require_copies(task: BookieClusterTask, facts: Facts, records: Ledgers) -> None:
    """Prove that copies have all their replicas before the originals are deleted; a sample of replicas is read.

    Raises:
        StoreUnreachable: a bookie is away, or replicas are missing or cannot be read; the step can be repeated.
    """
    target = task.input.target
    _require_whole(task, facts.lacking)  # mutant: bookie-cluster/originals-are-deleted-while-a-bookie-is-away
    ids = [record.ledger_id for record in records.values() if record.last_entry >= 0]
    chosen = _sample(ids)
    with task.bookkeeper(target) as cluster:
        for ledger_id, record in zip(chosen, cluster.directory.read(chosen), strict=True):
            # Ledgers that were never copied have no copy, see `_never_copied`.
            if record is not None and record.metadata.closed:
                try:
                    # mutant: bookie-cluster/originals-are-deleted-though-a-replica-is-lost
                    cluster.require_replicas(ledger_id, record.metadata)
                except LedgerUnreadable as cause:
                    # Auto-recovery or an operator may replicate it.
                    why = f"nothing more is deleted: in {target.name}, {cause}; {_UNTIL_PROCEED}"
                    # mutant: bookie-cluster/one-damaged-replica-ends-the-cleanup
                    raise StoreUnreachable(why, ledger_id=ledger_id) from cause


def _named(task: BookieClusterTask, astray: Ledgers) -> list[LedgerRecord]:
    """Return the first of these ledgers that exist."""
    if not astray:
        return []
    with task.ledgers(task.input.source) as source:
        return [record for record in source.read(list(islice(astray, NAMED))) if record]


def _brokers(task: BookieClusterTask) -> list[tuple[str, SeenCluster]]:
    """Return each registered broker, with the bookie cluster that it uses."""
    with task.broker_store() as store, task.broker_view() as view:
        return [(broker.name, view.bookie_cluster(broker)) for broker in brokers(store)]


def _require_active(task: BookieClusterTask, cluster: BookieCluster) -> None:
    with task.registry() as registry:
        active = registry.active()
    if active is None or active.cluster.name != cluster.name:
        raise StoreConflict(f"{cluster.name} is not ACTIVE in {task.input.registry_path}; nothing may be deleted yet")


def _refuse_target_in_use(task: BookieClusterTask, seen: Sequence[tuple[str, SeenCluster]]) -> None:
    source, target = task.input.source, task.input.target
    with task.registry() as registry:
        directed = registry.directs_to(target.name)
    if directed:  # mutant: bookie-cluster/copies-are-deleted-while-brokers-are-directed-there
        raise StoreConflict(f"brokers are directed to {target.name}; its ledgers stay")
    if task.input.routing is Routing.ATTRIBUTION:
        return
    # With `restart` a broker has one cluster: on the target it may read any of these copies. A broker
    # whose address differs from the plan's may use the source by another name of the same servers.
    # mutant: bookie-cluster/copies-are-deleted-while-brokers-are-there
    if using := [broker for broker, cluster in seen if cluster.url and not cluster.url.overlaps(source.root)]:
        raise StoreConflict(f"{', '.join(using)} use {target.name}, or may do so; its ledgers stay")
    # mutant: bookie-cluster/copies-are-deleted-while-brokers-say-nothing
    if unknown := [f"{broker} ({cluster.why})" for broker, cluster in seen if cluster.url is None]:
        raise StoreUnreachable(f"whether these brokers use {target.name} is not known: {', '.join(unknown)}")


class _Deleting:
    """Deletes ledgers of one cluster in the name of one attempt."""

    def __init__(self, task: BookieClusterTask, cluster: BookieCluster) -> None:
        self._task = task
        self._cluster = cluster

    def run(self, records: Ledgers, most: int) -> LedgersDeleted:
        """Delete the first of these ledgers, except those that changed after the decision.

        Args:
            records: what may be deleted.
            most: how many this step may delete, those of its earlier attempts included.
        """
        task = self._task
        deleted = 0
        with task.registry() as registry, task.ledgers_to_change(self._cluster) as directory:
            progress = SwitchProgress(task, registry)
            before = progress.deleted()
            # mutant: bookie-cluster/a-repeated-step-deletes-more
            chosen = list(islice(records.values(), max(0, most - before)))
            for start in range(0, len(chosen), _CHUNK):
                self._task.context.check()
                chunk = chosen[start : start + _CHUNK]
                # First the notes, which are transactions with the claim: a superseded attempt ends here and deletes
                # nothing.
                # mutant: bookie-cluster/a-late-attempt-deletes
                note_deleted(task, registry, self._cluster, [record.ledger_id for record in chunk])
                progress.note_deleted(before + deleted + len(chunk))
                deleted += _delete_some(directory, chunk, progress.require)
                self._task.context.progress(
                    ProgressTask.DELETE, ProgressUnit.LEDGERS, before + deleted, before + len(chosen)
                )
        return LedgersDeleted(deleted=before + deleted, remaining=len(records) - deleted)


def _delete_some(directory: LedgerDirectoryWriter, records: Sequence[LedgerFacts], fence: Callable[[], object]) -> int:
    try:
        # At the version of the decision: a ledger that another client has changed since then stays.
        # mutant: bookie-cluster/ledgers-of-any-version-are-deleted
        return directory.delete([(record.ledger_id, record.version) for record in records], fence)
    except StoreConflict:
        fence()
        # A conflict does not stop the other deletions of this call; they are counted by reading again.
        remaining = directory.read([record.ledger_id for record in records])
        return sum(record is None for record in remaining)


class Facts(NamedTuple):
    """Facts for the decision what may be deleted.

    Attributes:
        input: the switch.
        source: the ledgers of the old cluster.
        target: the ledgers of the new cluster.
        named: what Pulsar's metadata refer to.
        copies: ledgers that were compared in full after their copy, with the zxid of the target's znode then.
        cutover_ledger_id: highest id of the source when brokers were directed away; None before that.
        users: brokers that use the source, or may use it, each with a reason.
        failed: ledgers that could not be copied, or whose id another ledger has in the target.
        lacking: why copies in the target may lack replicas; empty if nothing says so.
    """

    input: BookieClusterInput
    source: Ledgers
    target: Ledgers
    named: ReferenceTable
    copies: Mapping[int, int]
    cutover_ledger_id: int | None
    users: tuple[str, ...]
    failed: Collection[int] = ()
    lacking: tuple[str, ...] = ()


class Judgement(NamedTuple):
    """Ledgers to delete, ascending by id, and how many are retained for which reason."""

    delete: Ledgers
    retained: Counter[str]

    def listed(self, cluster: str) -> CleanupTargets:
        """Return the result for the operator."""
        return CleanupTargets(
            cluster=cluster,
            ledgers=len(self.delete),
            entry_bytes=sum(ledger.length for ledger in self.delete.values()),
            examples=tuple(islice(self.delete, _EXAMPLES)),
            retained=self.retained.total(),
            reasons=tuple(f"{count:,} {why}" for why, count in self.retained.most_common()),
        )


def judge_source(facts: Facts, *, force: bool) -> Judgement:
    """Return the ledgers of the source that a cleanup may delete.

    Args:
        facts: of both clusters.
        force: see `CleanupOrder`.
    """
    restart = facts.input.routing is Routing.RESTART
    retained: Counter[str] = Counter()

    def may_go(record: LedgerFacts) -> bool:
        mentioned = facts.named.of(record.ledger_id)
        why = _restart_reason(facts, record, mentioned) if restart else _attribution_reason(facts, record, mentioned)
        if not why and not _compared(facts, record):
            why = _never_copied(facts, record, force=force)
        # `force` overrides this, and never that a referenced ledger is not verified.
        if not why and restart and facts.users and not force:  # mutant: bookie-cluster/a-cleanup-while-brokers-run
            why = f"while brokers use {facts.input.source.name} or may do so: {'; '.join(facts.users)}"
        if why:
            retained[why] += 1
        return not why

    return Judgement(facts.source.where(may_go), retained)


def judge_copies(facts: Facts) -> Judgement:
    """Return the ledgers of the target that this switch put there, and that a rollback may delete."""
    retained: Counter[str] = Counter()

    def may_go(copy: LedgerFacts) -> bool:
        record = facts.source.get(copy.ledger_id)
        mentioned = facts.named.of(copy.ledger_id)
        why = ""
        if not _is_copy(facts, copy, record):
            why = "are not copies of this switch"
        # mutant: bookie-cluster/promoted-copies-are-deleted
        elif any(reference.cluster == facts.input.target.name for reference in mentioned):
            why = f"are attributed to {facts.input.target.name}"
        # mutant: bookie-cluster/the-last-copy-goes
        elif mentioned and (record is None or not _same_or_unfinished(copy, record)):
            why = f"are referred to, and {facts.input.source.name} does not hold them"
        if why:
            retained[why] += 1
        return not why

    return Judgement(facts.target.where(may_go), retained)


def misrouted_ledgers(facts: Facts) -> Ledgers:
    """Return ledgers that the source got after brokers were directed away from it."""
    if facts.cutover_ledger_id is None:
        return Ledgers()
    # Ids grow (I11): a larger one came later.
    highest = facts.cutover_ledger_id
    return facts.source.where(
        lambda ledger: ledger.ledger_id > highest and ledger.ledger_id not in facts.copies and _is_ours(facts, ledger)
    )


def target_only(facts: Facts) -> Ledgers:
    """Return ledgers that only the target has, without copies."""
    return facts.target.where(
        lambda ledger: (
            ledger.ledger_id not in facts.source and ledger.ledger_id not in facts.copies and _is_ours(facts, ledger)
        )
    )


def _is_ours(facts: Facts, ledger: LedgerFacts) -> bool:
    """Return whether no other client may have created it since."""
    return facts.input.exclusive or ledger.ledger_id in facts.named


def _restart_reason(facts: Facts, record: LedgerFacts, mentioned: list[LedgerReference]) -> str:
    """Return why brokers that read only the target still need a ledger of the source; empty if they do not."""
    if mentioned and not _has_copy(facts, record):  # mutant: bookie-cluster/referred-ledgers-are-deleted
        return f"are referred to, and are not verified in {facts.input.target.name}"
    return ""


def _attribution_reason(facts: Facts, record: LedgerFacts, mentioned: list[LedgerReference]) -> str:
    source, target = facts.input.source.name, facts.input.target.name
    # Also without attribution: nothing proves that the target serves it, and a wrong delete loses it.
    # mutant: bookie-cluster/attributed-ledgers-are-deleted, bookie-cluster/unattributed-ledgers-are-deleted
    if any(reference.cluster in (None, source) for reference in mentioned):
        return f"are referred to as ledgers of {source}"
    if mentioned and not _has_copy(facts, record):
        return f"are attributed to {target}, and are not verified there"
    if record.component in HIDDEN:  # mutant: bookie-cluster/compacted-ledgers-are-deleted
        return "may be referred to by a cursor's ledger (compacted topics)"
    return ""


def _never_copied(facts: Facts, record: LedgerFacts, *, force: bool) -> str:
    """Return why a ledger that nothing refers to, and that was never compared with a copy, is kept."""
    source = facts.input.source.name
    # Even with `force`: an open ledger may have a writer that this store does not know, and a compacted one a cursor
    # whose ledger names it.
    if not record.closed:  # mutant: bookie-cluster/open-ledgers-are-deleted
        return "are open: a client may write to them"
    if record.component in HIDDEN:  # mutant: bookie-cluster/compacted-ledgers-that-failed-are-deleted
        return "may be referred to by a cursor's ledger (compacted topics)"
    if not facts.input.exclusive:  # mutant: bookie-cluster/ledgers-of-others-are-deleted-with-force
        return f"are not known to be this cluster's: others may use {source} too"
    if force:
        return ""
    if facts.cutover_ledger_id is not None and record.ledger_id > facts.cutover_ledger_id:
        return f"were created in {source} after brokers were directed away from it"
    return "were never copied, although nothing refers to them"


def _compared(facts: Facts, record: LedgerFacts) -> bool:
    # The last comparison decides, whatever an earlier one found.
    # mutant: bookie-cluster/ledgers-that-differ-by-now-are-deleted
    return record.ledger_id in facts.copies and record.ledger_id not in facts.failed


def _has_copy(facts: Facts, record: LedgerFacts) -> bool:
    """Return whether the ledger was compared in full, and the target still has it; its replicas may have moved."""
    copy = facts.target.get(record.ledger_id)
    # mutant: bookie-cluster/a-lost-copy-is-enough, bookie-cluster/a-copy-that-was-never-compared-is-enough
    return _compared(facts, record) and copy is not None and record.same_content(copy)


def _is_copy(facts: Facts, copy: LedgerFacts, record: LedgerFacts | None) -> bool:
    if copy.existed_at(facts.copies.get(copy.ledger_id)):
        return True
    # The same metadata may belong to another ledger, which the comparison of the entries has shown.
    if copy.ledger_id in facts.failed:  # mutant: bookie-cluster/different-ledgers-are-copies
        return False
    # It was not recorded; its content still tells that it is a copy.
    # mutant: bookie-cluster/the-targets-own-ledgers-are-deleted
    return record is not None and _same_or_unfinished(copy, record)


def _same_or_unfinished(copy: LedgerFacts, record: LedgerFacts) -> bool:
    """Return whether a ledger of the target has the source's content, or is a copy that was not finished."""
    if copy.closed:
        return copy.same_content(record)
    # An interrupted copy is OPEN and without length; its other fields show its origin.
    # mutant: bookie-cluster/open-ledgers-of-others-are-deleted
    return copy.origin == record.origin and copy.state is LedgerState.OPEN and copy.is_copy

"""PRE_COPY of the metadata store migration, and the copy of an offline one."""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.step import step
from activities.metadata_store.claims import refuse_one_store
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.convergence import FEW_CHANGES, all_changes, converge
from activities.metadata_store.occupied import irreplaceable, not_empty, record_of_others, used_by_others
from activities.metadata_store.repair import repair_many
from activities.pulsar.registrations import registered
from clients.errors import StoreConflict, StoreContention
from clients.oxia.version_floor import raise_version_floor
from clients.stores import open_reader
from models.lifecycle.failures import Blocker, FailureKind
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from models.lifecycle.verbs import Speed
from models.metadata_store.claims import TargetClaim
from models.metadata_store.results import PreCopy
from models.migration_flag import OPEN_PHASES
from spark.metadata_store import jobs
from spark.metadata_store.spec import Comparison, Copied

# A record that changes until the commit gets a version a little above the highest that the copy saw.
_VERSION_MARGIN = 10_000
# Seconds of work for the server. A copied version above it could come again only after as many writes to its shard,
# while somebody still holds the old one.
_HIGHEST_FLOOR = 5_000_000


class _Bulk(NamedTuple):
    copied: Copied
    comparison: Comparison
    copy_seconds: float
    compare_seconds: float

    def result(self, task: MetadataStoreTask, *, since_zxid: int, rounds: int, floor: int) -> PreCopy:
        return PreCopy(
            since_zxid=since_zxid,
            copied=self.copied.records,
            copied_bytes=self.copied.value_bytes,
            copy_seconds=self.copy_seconds,
            compared=self.comparison.records,
            compare_seconds=self.compare_seconds,
            repaired=self.comparison.different.paths,
            rounds=rounds,
            version_floor=floor,
            highest_version=self.copied.highest,
            worker_queue=task.runtime.queue,
        )


@step(MetadataStoreTask)
def pre_copy(task: MetadataStoreTask, records: int) -> PreCopy:
    """PRE_COPY: watch the source, copy it, compare both stores whole, and catch up; brokers write meanwhile.

    `records` is the number that the precheck counted, for the progress.

    Raises:
        StoreError: a store failed; the step can be repeated, and finds what it copied.
        StoreConflict: the migration continued without this attempt, which must not write.
        ApplicationError: records differ though nobody changed them.
    """
    with task.flag() as flag:
        # The claim in the source comes first: it excludes other migrations of this cluster, and gives back what an
        # earlier run left blocked.
        flag.take()
        flag.require(*OPEN_PHASES)
    watch = task.new_watch()
    # The watch stands before the first record is read: a change behind the copy's back would be lost without it.
    since_zxid = watch.restart(task.new_feed(), missed="")
    with task.target_claim() as target:
        had_tasks = target.had_tasks()
    _own_target(task, _take_target_unless_late(task))
    taken = time.monotonic()
    bulk = _copy_and_compare(task, records)
    if had_tasks:  # mutant: metadata-store/lost-tasks-are-not-waited-for
        # Long over, except for small stores.
        task.await_late_writers(taken)
    watch.add_ephemerals(bulk.comparison.ephemerals)
    rest = repair_many(task, bulk.comparison)
    with task.target_claim() as target:
        target.renew(copying=False)
    # Once the highest copied version is known, and before brokers write to the target, which begins with PREPARATION's
    # ephemerals.
    # mutant: metadata-store/no-line-after-the-bulk-copy
    floor = raise_floor(task, max(bulk.copied.highest, rest.highest))
    rounds, highest = _catch_up(task, since_zxid, set(rest.paths))
    # A record that changes very often has outrun the margin meanwhile.
    floor = raise_floor(task, highest, floor)  # mutant: metadata-store/no-line-at-the-end-of-pre-copy
    return bulk.result(task, since_zxid=since_zxid, rounds=rounds, floor=floor)


@step(MetadataStoreTask)
def copy_whole(task: MetadataStoreTask, records: int) -> PreCopy:
    """Copy a store that nobody uses, and bring every difference in line once.

    Raises:
        StoreError: a store failed; the step can be repeated, and finds what it copied.
    """
    with task.source_claim() as source:
        source.take()
    _own_target(task, _take_target(task))
    bulk = _copy_and_compare(task, records)
    rest = repair_many(task, bulk.comparison)
    with task.replica() as replica:
        replica.apply(rest.paths)
    floor = raise_floor(task, max(bulk.copied.highest, rest.highest))  # mutant: metadata-store/no-line-offline
    return bulk.result(task, since_zxid=0, rounds=0, floor=floor)


def _take_target_unless_late(task: MetadataStoreTask) -> TargetClaim:
    """Claim the target, and look at the flag again: brokers own a target whose migration was committed.

    From here on the claim is the fence: the commit removes it, and a task that does not find it stops.
    """
    claim = _take_target(task)
    try:
        with task.flag() as flag:
            flag.require(*OPEN_PHASES)
    except StoreConflict:
        with task.target_claim() as target:
            target.release()
        raise
    return claim


def _take_target(task: MetadataStoreTask) -> TargetClaim:
    """Claim the target for this attempt; every earlier one stops."""
    input = task.input
    refuse_one_store(input.source_url, input.target_url, task.attempt, task.runtime.access)
    with task.target_claim() as target:
        target.claim(task.input.throttle)
        return target.renew(copying=True)


def _own_target(task: MetadataStoreTask, claim: TargetClaim) -> None:
    """See that nobody else uses the target, or delete the records of others, once for all attempts and runs.

    PRECHECK looked, perhaps long ago. What stands there later is our own copy, and what the source has not is deleted.

    Raises:
        ApplicationError: `Conflict`: the target is not free.
    """
    if claim.ours:
        return
    if blocker := _in_the_way(task):
        with task.target_claim() as target:
            target.release()
        raise ApplicationError(f"{blocker.cause}; {blocker.cure}", type=FailureKind.CONFLICT, non_retryable=True)
    if task.input.replace_target:
        with task.context.waiting(WaitKind.STORE, "the target to be emptied, as replace_target asks"):
            jobs.clear(task.engine, task.fenced_pair, "target", tag=task.tag())
    with task.target_claim() as target:
        # Noted when all of it is done: an attempt that dies halfway leaves records of others, and the next one goes on.
        target.renew(ours=True)


def _in_the_way(task: MetadataStoreTask) -> Blocker | None:
    access = task.runtime.access
    with open_reader(task.input.source_url, access) as source, open_reader(task.input.target_url, access) as target:
        if used := used_by_others(target, lambda: {service.name for service in registered(source)}):
            return used
        if task.input.replace_target:
            return irreplaceable(source, target, access)
        found = record_of_others(target)
    return not_empty(found) if found else None


def _copy_and_compare(task: MetadataStoreTask, records: int) -> _Bulk:
    pair, tag = task.fenced_pair, task.tag()
    begun = time.monotonic()
    counted = partial(task.engine.counted, tag)
    task.context.measure(ProgressTask.COPY, ProgressUnit.RECORDS, records, counted)
    copied = jobs.copy(task.engine, pair, tag=tag)
    copied_at = time.monotonic()
    task.context.check()
    # Each record is read on both sides.
    task.context.measure(ProgressTask.COMPARE, ProgressUnit.RECORDS, 2 * copied.records, counted)
    comparison = jobs.compare(task.engine, pair, records=copied.records, tag=tag)
    return _Bulk(copied, comparison, copied_at - begun, time.monotonic() - copied_at)


def raise_floor(task: MetadataStoreTask, highest: int, standing: int = 0) -> int:
    """Keep the version ids of later writes apart from the copied ones; returns the line between them.

    Args:
        task: the migration.
        highest: version among the records that were copied.
        standing: where the line is already.
    """
    if task.input.target_url.scheme != "oxia" or (standing and highest <= standing):
        return standing
    floor = max(min(highest + _VERSION_MARGIN, _HIGHEST_FLOOR), standing)
    task.context.clear_progress()
    with task.context.waiting(WaitKind.STORE, "Oxia to number new versions above the copied ones"):
        raise_version_floor(task.input.target_url, floor, timeout=task.runtime.access.timeout)
    return floor


def _catch_up(task: MetadataStoreTask, since_zxid: int, different: set[bytes]) -> tuple[int, int]:
    """Copy what changed, and again what changed meanwhile, until little is left.

    Returns:
        The number of rounds, and the highest version that was copied.
    """
    changes = all_changes(task, since_zxid)
    # Differences count as changes: mostly the record changed between the readings of the two sides.
    todo = changes.dirty.paths | different
    with task.replica(*OPEN_PHASES) as replica:
        return converge(task, replica, changes, todo, enough=FEW_CHANGES).rounds, replica.highest


@step(MetadataStoreTask)
def set_speed(task: MetadataStoreTask, speed: Speed) -> None:
    """Change the throttle of the copy that runs.

    Raises:
        StoreContention: the copy has not begun.
    """
    with task.target_claim() as claim:
        # Not renewed: the attempt that copies must stay the holder, and reads the new limit in its fence.
        if claim.change(throttle=speed.megabytes_per_second) is None:
            # PRE_COPY has begun, and its copy has not: it would begin with the old limit.
            raise StoreContention("the copy has not begun yet; its throttle is set as soon as it has")

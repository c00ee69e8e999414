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
from activities.metadata_store.occupied import foreign_record, irreplaceable, not_empty, used_by_others
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

# Records that change until the commit get versions a little above the highest copied one.
_VERSION_MARGIN = 10_000
# Takes the server seconds. A higher copied version could only be reused after as many writes to its shard, while a
# client still has the old one.
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
    """Watch the source, copy it, compare both stores completely, and catch up, while brokers write.

    `records` is the number that the precheck counted, for the progress.

    Raises:
        StoreError: a store failed; the step can be repeated, and uses what it copied.
        StoreConflict: a newer attempt runs; this one must not write.
        ApplicationError: records differ although they did not change.
    """
    with task.flag() as flag:
        # The claim in the source comes first: it excludes other migrations of this cluster, and unblocks writes that an
        # earlier run left blocked.
        flag.take()
        flag.require(*OPEN_PHASES)
    watch = task.new_watch()
    # The watch starts before the first record is read, so that no change during the copy is lost.
    since_zxid = watch.restart(task.new_feed(), missed="")
    _own_target(task, _take_target_unless_late(task))
    with task.only_copies():
        with task.paced(task.input.auto_throttle, partial(_hold, task), task.input.credentials):
            bulk = _copy_and_compare(task, records)
        watch.add_ephemerals(bulk.comparison.ephemerals)
        unrepaired = repair_many(task, bulk.comparison)
        # Now the highest copied version is known, and brokers do not write to the target before PREPARATION.
        # mutant: metadata-store/no-line-after-the-bulk-copy
        floor = raise_floor(task, max(bulk.copied.highest, unrepaired.highest))
        # A difference counts as a change: most of these records changed between the two reads of the comparison.
        watch.add(unrepaired.paths)  # mutant: metadata-store/differences-of-the-bulk-copy-are-forgotten
        rounds, highest = _catch_up(task, since_zxid)
    # A record that changes very often may have a version above the margin now.
    floor = raise_floor(task, highest, floor)  # mutant: metadata-store/no-line-at-the-end-of-pre-copy
    return bulk.result(task, since_zxid=since_zxid, rounds=rounds, floor=floor)


@step(MetadataStoreTask)
def copy_whole(task: MetadataStoreTask, records: int) -> PreCopy:
    """Copy a store that no service uses, and repair every difference once.

    Raises:
        StoreError: a store failed; the step can be repeated, and uses what it copied.
    """
    with task.source_claim() as source:
        source.take()
    _own_target(task, _take_target(task))
    with task.only_copies():
        bulk = _copy_and_compare(task, records)
        unrepaired = repair_many(task, bulk.comparison)
        with task.replica() as replica:
            replica.apply(unrepaired.paths)
    floor = raise_floor(task, max(bulk.copied.highest, unrepaired.highest))  # mutant: metadata-store/no-line-offline
    return bulk.result(task, since_zxid=0, rounds=0, floor=floor)


def _take_target_unless_late(task: MetadataStoreTask) -> TargetClaim:
    """Claim the target, and check the flag again: brokers own the target of a committed migration.

    From here on the claim is the fence: the commit removes it, and a task without it stops.
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
    refuse_one_store(input.source_url, input.target_url, task.attempt, task.access)
    with task.target_claim() as target:
        return target.claim(task.input.throttle)


def _own_target(task: MetadataStoreTask, claim: TargetClaim) -> None:
    """Check that the target is free, or delete its records; only once for all attempts and runs.

    The check of PRECHECK may be old. After this check all records of the target count as our own copy: later steps
    delete those that the source does not have.

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
        # Only when all is deleted: after an attempt that dies halfway, the next one continues.
        target.renew(ours=True)


def _hold(task: MetadataStoreTask, held: str) -> None:
    with task.target_claim() as target:
        target.renew(held=held)


def _in_the_way(task: MetadataStoreTask) -> Blocker | None:
    access = task.access
    with open_reader(task.input.source_url, access) as source, open_reader(task.input.target_url, access) as target:
        if used := used_by_others(target, lambda: {service.name for service in registered(source)}):
            return used
        if task.input.replace_target:
            return irreplaceable(source, target, access)
        foreign = foreign_record(target)
    return not_empty(foreign) if foreign else None


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


def raise_floor(task: MetadataStoreTask, highest: int, current: int = 0) -> int:
    """Raise the version floor: Oxia gives later writes only versions above it, so no copied version is used twice.

    Returns the new floor.

    Args:
        task: the migration.
        highest: highest version of the copied records.
        current: floor so far.
    """
    if task.input.target_url.scheme != "oxia" or (current and highest <= current):
        return current
    floor = max(min(highest + _VERSION_MARGIN, _HIGHEST_FLOOR), current)
    task.context.clear_progress()
    with task.context.waiting(WaitKind.STORE, "Oxia to number new versions above the copied ones"):
        access = task.access.to(task.input.target_url)
        raise_version_floor(task.input.target_url, floor, access=access.oxia, timeout=access.timeout)
    return floor


def _catch_up(task: MetadataStoreTask, since_zxid: int) -> tuple[int, int]:
    """Copy changes, and again those that come during a round, until few are left.

    Returns:
        The number of rounds, and the highest version that was copied.
    """
    changes = all_changes(task, since_zxid)
    with task.replica(*OPEN_PHASES) as replica:
        done = converge(task, replica, changes, changes.dirty.paths, enough=FEW_CHANGES)
    return done.rounds, replica.highest


@step(MetadataStoreTask)
def set_speed(task: MetadataStoreTask, speed: Speed) -> None:
    """Change the throttle of the copy that runs.

    Raises:
        StoreContention: the copy has not begun.
    """
    with task.target_claim() as claim:
        # Not renewed: the attempt that copies must stay the holder, and reads the new limit in its fence.
        if claim.change(throttle=speed.megabytes_per_second) is None:
            # PRE_COPY has started, and its copy has not: it would start with the old limit.
            raise StoreContention("the copy has not begun yet; its throttle is set as soon as it has")

"""PREPARATION: services recreate their ephemerals in the target, with metadata writes blocked (PIP-454)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.metadata_store.brokers import ask_brokers
from activities.metadata_store.catch_up import not_caught_up
from activities.metadata_store.context import MetadataStoreTask, name_paths
from activities.metadata_store.flag import FlagKeeper
from activities.metadata_store.indexed import require_no_indexed
from activities.metadata_store.rollback import REBROADCAST_AFTER
from activities.metadata_store.source_watch import SourceWatch
from activities.pulsar.able_brokers import AbleBrokers
from activities.pulsar.coverage import require_covered
from activities.pulsar.registrations import Service, brokers, participants, registered
from clients.store import StoreReader
from clients.stores import open_reader, write_marks
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import WaitKind
from models.metadata_store.results import Preparation
from models.migration_flag import FlagPhase
from spark.metadata_store import jobs
from spark.metadata_store.equivalence import is_recreated
from spark.metadata_store.replica import Mirror

# Short, because writes are blocked. Pulsar's own coordinator doubles its pause up to seconds, and lost 2 s (seen).
_FIRST_POLL, _LONGEST_POLL = 0.02, 0.25
# Seconds to wait if only ephemerals of other clients are missing, which will not be recreated: writes are blocked.
_UNKNOWN_CLIENTS_TIMEOUT = 10.0


@step(MetadataStoreTask)
def prepare(task: MetadataStoreTask) -> Preparation:
    """Set the flag, and wait until every participant's ephemerals are in the target.

    First it repeats checks of PRECHECK: days may have passed, a broker may have other settings, and transactions may
    have started. If the worker would need to scan the source, or to copy much, it returns a gap and does not set the
    flag.

    Participants register in the source, and unregister when they are ready. An empty list does not prove readiness:
    after a failed attempt they do not register again. So each ephemeral of the source must exist in the target with its
    value, written by a live session after the flag was set. Ephemerals of a previous attempt do not count: their owners
    may not have seen this flag. Sequential ephemerals are not recreated, and are not required.

    Raises:
        ApplicationError: `ParticipantsNotReady` where a broker cannot take part, or if participants are missing
            `preparation_timeout` after the flag was set.
        StoreConflict: the flag was not set by this run.
    """
    task.urgent = True
    begun = time.monotonic()
    # From the first attempt on: retries must not prolong the time that participants get while writes are blocked.
    timeout = task.input.preparation_timeout.total_seconds() - task.context.waited
    able, marks = _able_brokers(task, timeout), dict[int, int]()
    with task.flag() as flag:
        if not flag.is_at_phase(FlagPhase.PREPARATION):
            # Before the checks, which should be as recent as possible when the flag is set.
            _stop_lost_tasks(task, flag)
            able.require()
            require_covered(task.input, task.survey)
            require_no_indexed(task.input, task.access)  # mutant: metadata-store/transactions-are-checked-once
            if gap := not_caught_up(task):  # mutant: metadata-store/writes-are-blocked-during-a-scan
                return Preparation(ephemerals=0, seconds=0.0, gap=gap)
            marks = write_marks(task.input.target_url, task.access)
        task.watch_deadline(flag)
        # The marks are stored with the flag, for an attempt that finds the flag set. A shard without one gets the
        # highest.
        highest = max(marks.values(), default=0)
        state = flag.advance(FlagPhase.PREPARATION, task.input.target, target_mark=highest, target_marks=marks)
        task.context.blocked_since = state.since_ms / 1000
        # Participants start when the flag is set; the checks before it do not count.
        blocked = time.monotonic()
        assert state.claim is not None, "advance requires the claim"
        mark_of = state.claim.mark_of
        # A broker may have registered just before the flag was set; from now on none can.
        able.require()
        watch = _watch_or_scan(task)
        with (
            open_reader(task.input.source_url, task.access) as source,
            Mirror(task.pair) as mirror,
        ):
            pause = _FIRST_POLL
            repeated = awaited = time.monotonic()
            while (ready := _readiness(task, source, mirror, watch, mark_of)).missing:
                missing = ready.missing
                if not ready.only_unknown_clients:
                    awaited = time.monotonic()
                if time.monotonic() - awaited > _UNKNOWN_CLIENTS_TIMEOUT:
                    cure = "Stop these clients, which take no part in a migration, and start again"
                    raise _not_ready(f"not recreated in the target: {missing}. {cure}")
                # mutant: metadata-store/participants-lose-the-time-before-the-flag
                if time.monotonic() - blocked > timeout:
                    raise _not_ready(
                        f"{task.input.preparation_timeout.total_seconds():g} s after PREPARATION not ready: {missing}. "
                        f"Check their logs; can they reach {task.input.target}?"
                    )
                task.context.waiting_for(WaitKind.PARTICIPANTS, missing)
                # A service that was disconnected when the flag was set sees only the repetition.
                if time.monotonic() - repeated > REBROADCAST_AFTER:
                    repeated = time.monotonic()
                    flag.rebroadcast()
                task.context.pause(pause)
                pause = min(2 * pause, _LONGEST_POLL)
    task.context.clear_waiting()
    return Preparation(ephemerals=ready.ephemerals, seconds=time.monotonic() - begun)


def _able_brokers(task: MetadataStoreTask, timeout: float) -> AbleBrokers:
    access, admin = task.access, task.admin

    def running() -> list[Service]:
        with open_reader(task.input.source_url, access) as source:
            return brokers(source)

    def ask(services: Sequence[Service], findings: Findings) -> None:
        ask_brokers(task.input, services, access, admin, findings)

    return AbleBrokers(task.context, running, ask, timeout)


def _stop_lost_tasks(task: MetadataStoreTask, flag: FlagKeeper) -> None:
    """Stop copies of this run that were lost, with their attempt or by Spark, before services write to the target."""
    task.stop_earlier_tasks()
    lost = flag.renew().copying or task.engine.may_lose_tasks
    task.stop_earlier_writers()
    if lost:
        task.await_late_writers(time.monotonic())
        flag.renew(copying=False)


def _watch_or_scan(task: MetadataStoreTask) -> SourceWatch:
    """Return the watch of this run; if it was lost, scan the source for ephemerals, which do not change any more."""
    watch = task.watch
    if watch.gap():
        with task.context.waiting(WaitKind.SCAN, "a scan of the source for ephemerals, because the watch was lost"):
            watch.add_ephemerals(jobs.ephemerals(task.engine, task.pair, tag=task.tag()))
    return watch


class _Readiness(NamedTuple):
    """Readiness of the participants.

    Attributes:
        missing: participants that are not ready, in words; empty if all are ready.
        ephemerals: number of ephemerals in the target, if all are ready.
        only_unknown_clients: only clients are missing that are not services and do not take part.
    """

    missing: str
    ephemerals: int = 0
    only_unknown_clients: bool = False


def _readiness(
    task: MetadataStoreTask,
    source: StoreReader,
    mirror: Mirror,
    watch: SourceWatch,
    mark_of: Callable[[int], int],
) -> _Readiness:
    # Participants below a chroot never unregister (seen): there only the ephemerals show readiness.
    sessions = set[int]() if task.input.source_url.root else participants(source)
    if sessions:
        names = {service.owner: service.name for service in registered(source)}
        waiting = sorted({names.get(owner, f"session 0x{owner:x}") for owner in sessions})
        return _Readiness(f"participants {', '.join(waiting)}")
    # Ephemerals may be new since the bulk compare; the read below shows which of these paths are ephemerals.
    watch.add_ephemerals(watch.collect(task.access.common.timeout).paths)
    ephemerals = mirror.ephemerals((path for path in watch.ephemerals if is_recreated(path)), mark_of)
    absent = [ephemeral for ephemeral in ephemerals if not ephemeral.recreated]
    if not absent:
        return _Readiness("", len(ephemerals))
    names = {service.owner: service.name for service in registered(source)}
    owners = sorted({names.get(ephemeral.owner, f"session 0x{ephemeral.owner:x}") for ephemeral in absent})
    # Below a chroot participants are not known, and a participant may have a second session.
    no_service = names.keys().isdisjoint(ephemeral.owner for ephemeral in absent)
    only_unknown_clients = not task.input.source_url.root and no_service
    paths = name_paths(ephemeral.path for ephemeral in absent)
    missing = f"{len(absent)} ephemerals of {', '.join(owners)}: {paths}"
    return _Readiness(missing, only_unknown_clients=only_unknown_clients)


def _not_ready(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.NOT_READY, non_retryable=True)

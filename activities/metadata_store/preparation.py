"""PREPARATION: services recreate their ephemerals in the target, with metadata writes blocked (PIP-454)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.metadata_store.brokers import ask_brokers
from activities.metadata_store.catch_up import not_caught_up
from activities.metadata_store.context import MetadataStoreTask, some
from activities.metadata_store.indexed import require_no_indexed
from activities.metadata_store.rollback import REBROADCAST_AFTER
from activities.metadata_store.source_watch import SourceWatch
from activities.pulsar.able_brokers import AbleBrokers
from activities.pulsar.coverage import require_covered
from activities.pulsar.registrations import Service, brokers, participants, registered
from clients.store import StoreReader
from clients.stores import open_reader, write_mark
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import WaitKind
from models.metadata_store.results import Preparation
from models.migration_flag import FlagPhase
from spark.metadata_store import jobs
from spark.metadata_store.equivalence import is_recreated
from spark.metadata_store.replica import Replica

# Writes are blocked meanwhile. Pulsar's own coordinator doubles its pause up to seconds, and was seen to lose 2 s so.
_FIRST_POLL, _LONGEST_POLL = 0.02, 0.25
# Seconds that ephemerals may be left which are no service's: nobody will recreate them, and writes are blocked.
_STRANGERS_AFTER = 10.0


@step(MetadataStoreTask)
def prepare(task: MetadataStoreTask) -> Preparation:
    """PREPARATION: set the flag, and wait until every participant's ephemerals are in the target.

    A worker that would have to scan the source, or to copy much, with writes blocked, does not set the flag.

    What can have changed since PRECHECK is asked again: days may have passed, a broker may have other settings, and
    transactions may have begun.

    An empty list of participants is no proof: after a failed attempt they do not register again. So each ephemeral of
    the source must have been written to the target since, by a live session and with its value, except sequential ones,
    which nobody recreates. What an attempt before has left there says nothing: its owner may not have seen this flag.

    Raises:
        ApplicationError: `ParticipantsNotReady` where a broker cannot take part, or `preparation_timeout` after the
            flag was set, naming who is missing.
        StoreConflict: somebody else moved the flag.
    """
    task.urgent = True
    begun = time.monotonic()
    # From the first attempt on: retries must not prolong the time that participants get while writes are blocked.
    timeout = task.input.preparation_timeout.total_seconds() - task.context.waited
    able, mark = _able_brokers(task, timeout), 0
    with task.flag() as flag:
        if not flag.is_at_phase(FlagPhase.PREPARATION):
            # First: the checks must not be older than they need be when the flag is set.
            _stop_lost_tasks(task)
            able.require()
            require_covered(task.input, task.survey)
            require_no_indexed(task.input, task.runtime.access)  # mutant: metadata-store/transactions-are-checked-once
            if gap := not_caught_up(task):  # mutant: metadata-store/writes-are-blocked-during-a-scan
                return Preparation(ephemerals=0, seconds=0.0, gap=gap)
            mark = write_mark(task.input.target_url, task.runtime.access)
        task.watch_deadline()
        # The mark goes with the flag, so that an attempt which finds the flag set knows it.
        state = flag.advance(FlagPhase.PREPARATION, task.input.target, settled_target=mark)
        task.context.blocked_since = state.since_ms / 1000
        # Participants do nothing before the flag is set, however long the checks before that took.
        blocked = time.monotonic()
        mark = state.claim.settled_target if state.claim else mark
        # One that registered in the moment before; from now on none can.
        able.require()
        watch = _watch_or_scan(task)
        with (
            open_reader(task.input.source_url, task.runtime.access) as source,
            task.replica(FlagPhase.PREPARATION) as replica,
        ):
            pause = _FIRST_POLL
            told = helped = time.monotonic()
            while (ready := _readiness(task, source, replica, watch, mark)).missing:
                missing = ready.missing
                if not ready.strangers:
                    helped = time.monotonic()
                if time.monotonic() - helped > _STRANGERS_AFTER:
                    cure = "Stop these clients, which take no part in a migration, and start again"
                    raise _not_ready(f"nobody recreates {missing}. {cure}")
                # mutant: metadata-store/participants-lose-the-time-before-the-flag
                if time.monotonic() - blocked > timeout:
                    raise _not_ready(
                        f"{task.input.preparation_timeout.total_seconds():g} s after PREPARATION not ready: {missing}. "
                        f"Look into their logs; can they reach {task.input.target}?"
                    )
                task.context.waiting_for(WaitKind.PARTICIPANTS, missing)
                # A service that was cut off when the flag moved does not learn of it otherwise, and would never get
                # ready.
                if time.monotonic() - told > REBROADCAST_AFTER:
                    told = time.monotonic()
                    flag.rebroadcast()
                task.context.pause(pause)
                pause = min(2 * pause, _LONGEST_POLL)
    task.context.clear_waiting()
    return Preparation(ephemerals=ready.ephemerals, seconds=time.monotonic() - begun)


def _able_brokers(task: MetadataStoreTask, timeout: float) -> AbleBrokers:
    access, admin = task.runtime.access, task.runtime.admin

    def running() -> list[Service]:
        with open_reader(task.input.source_url, access) as source:
            return brokers(source)

    def ask(services: Sequence[Service], findings: Findings) -> None:
        ask_brokers(task.input, services, access, admin, findings)

    return AbleBrokers(task.context, running, ask, timeout)


def _stop_lost_tasks(task: MetadataStoreTask) -> None:
    """Stop bulk tasks of this run that Spark has lost, before services write to the target."""
    with task.target_claim() as claim:
        claim.renew()
    if task.engine.may_lose_tasks:
        task.await_late_writers(time.monotonic())


def _watch_or_scan(task: MetadataStoreTask) -> SourceWatch:
    """The watch of this run; where it was lost, the source is scanned for ephemerals, which no longer change now."""
    watch = task.watch
    if watch.gap():
        with task.context.waiting(WaitKind.SCAN, "a scan of the source for ephemerals, because the watch was lost"):
            watch.add_ephemerals(jobs.ephemerals(task.engine, task.pair, tag=task.tag()))
    return watch


class _Readiness(NamedTuple):
    """Who is missing.

    Attributes:
        missing: the same in words, empty when nobody is.
        ephemerals: how many stand in the target, when nobody is missing.
        strangers: whether only clients are missing that are no services and take no part.
    """

    missing: str
    ephemerals: int = 0
    strangers: bool = False


def _readiness(
    task: MetadataStoreTask, source: StoreReader, replica: Replica, watch: SourceWatch, mark: int
) -> _Readiness:
    # Participants below a chroot were seen never to unregister: there the ephemerals alone show readiness.
    sessions = set[int]() if task.input.source_url.root else participants(source)
    if sessions:
        names = {service.owner: service.name for service in registered(source)}
        waiting = sorted({names.get(owner, f"session 0x{owner:x}") for owner in sessions})
        return _Readiness(f"participants {', '.join(waiting)}")
    # An ephemeral may have come after the bulk compare; which of these paths are ephemerals shows when they are read.
    watch.add_ephemerals(watch.collect(task.runtime.access.timeout).paths)
    found = replica.ephemerals((path for path in watch.ephemerals if is_recreated(path)), mark)
    absent = [one for one in found if not one.recreated]
    if not absent:
        return _Readiness("", len(found))
    names = {service.owner: service.name for service in registered(source)}
    owners = sorted({names.get(one.owner, f"session 0x{one.owner:x}") for one in absent})
    # Beneath a chroot participants are not known, and a helper of theirs may have a session of its own.
    strangers = not task.input.source_url.root and names.keys().isdisjoint(one.owner for one in absent)
    told = f"{len(absent)} ephemerals of {', '.join(owners)}: {some(one.path for one in absent)}"
    return _Readiness(told, strangers=strangers)


def _not_ready(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.NOT_READY, non_retryable=True)

"""The steps of the switch that check ids and copy ledgers (PIP-477, "Phase 2: BUILD", I8 and I11)."""

from __future__ import annotations

import contextlib
import time
from functools import partial

from activities.bookie_cluster.brokers import newer_than_source, require_no_early_ledgers
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledger_comparison import LedgerComparison, RealStores
from activities.bookie_cluster.ledger_copier import LedgerCopier
from activities.bookie_cluster.ledgers import (
    all_references,
    progress_path,
)
from activities.bookie_cluster.progress import SwitchProgress, read_cutover_ledger_id
from activities.lifecycle.step import step
from clients.bookkeeper.digests import read_header
from clients.bookkeeper.idgen import raise_generator, read_generator
from clients.bookkeeper.last_entries import last_entries
from clients.errors import StoreError
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.store import StoreReader
from models.bookie_cluster.input import Direction, Routing
from models.bookie_cluster.results import CopySummary, IdCheck
from models.lifecycle.status import ProgressTask, ProgressUnit

# Copying this much takes seconds with brokers stopped; another scan would cost as much.
_LITTLE, _LITTLE_SECONDS = 16 << 20, 2.0
# A round that leaves more than this share of the previous rest does not help: producers are as fast as the copy.
_SHRINKS = 0.7
# In seconds; a scan reads all metadata, and must take a tenth of the time at most.
_ROUND_EVERY, _SCANS_APART = 5.0, 9.0
_LOOK_FOR_BROKERS = 30.0


@step(BookieClusterTask, reads_only=True)
def check_ids(task: BookieClusterTask, direction: Direction) -> IdCheck:
    """Return whether the ids that the target hands out are above all that are in use (I11).

    Ids in use are those of the source's ledgers, those of ledgers that Pulsar's metadata name, and those that the
    source's generator gave out: positions of cursors may name a deleted ledger.

    Raises:
        StoreError: one of the stores cannot be read.
    """
    return _compare_ids(task.toward(direction), without_source=False)


@step(BookieClusterTask)
def advance_ids(task: BookieClusterTask, direction: Direction) -> IdCheck:
    """Put the target's id generator above all ids in use (I11), and read it back.

    Raises:
        StoreUnsupported: there are no ids above.
        StoreConflict: others keep changing the generator.
        StoreError: one of the stores cannot be read or written.
    """
    return lift_ids(task.toward(direction))


def lift_ids(task: BookieClusterTask, *, without_source: bool = False) -> IdCheck:
    """Put the target's id generator above all ids in use, and read it back.

    Args:
        task: the step, in its direction.
        without_source: the source may be lost; only what Pulsar's metadata name counts then.

    Raises:
        StoreUnsupported: there are no ids above.
        StoreConflict: others keep changing the generator.
        StoreError: one of the stores cannot be read or written.
    """
    task.renew()
    highest = _highest(task, without_source=without_source)
    with task.id_generator(task.ends.target) as target:
        raise_generator(target, highest)
    return _compare_ids(task, without_source=without_source)


@step(BookieClusterTask)
def build(task: BookieClusterTask, direction: Direction, seconds: float = 0.0) -> CopySummary:
    """Copy ledgers with their ids, entry ids and custom metadata while brokers serve, and compare each in full.

    Closed ledgers are copied, and with routing `restart` what is confirmed of open ones, in rounds until little is
    left for a cut-over. Can be called again and again.

    Args:
        task: the step.
        direction: of the switch.
        seconds: how long to continue with rounds, some seconds apart, so that little is left at the cut-over.

    Raises:
        StoreConflict: a newer attempt has taken over.
        StoreError: a store failed, or too many bookies did; the step can be repeated, and continues.
    """
    task = task.toward(direction)
    end = time.monotonic() + seconds
    with task.registry() as registry, task.broker_store() as store:
        # From here on something is built on the registrations: they outlast the switch.
        registry.claim.renew(registered=())
        task.stop_earlier_deletions()
        with task.paced(task.input.auto_throttle, partial(_hold, task), task.input.credentials):
            rounds = _CatchUp(task, registry, store)
            rounds.converge()
            while time.monotonic() + rounds.pause < end:
                task.context.pause(rounds.pause)
                rounds.converge()
        return rounds.summary()


def _hold(task: BookieClusterTask, held: str) -> None:
    # With a session of its own: another thread uses the step's.
    with task.registry() as registry:
        registry.claim.renew(held=held)


class _CatchUp:
    """The rounds of one attempt: each copies the ledgers of the previous scan, and scans again.

    Attributes:
        pause: seconds until the next round is useful.
    """

    def __init__(self, task: BookieClusterTask, registry: BookieRegistry, store: StoreReader) -> None:
        self._task, self._store, self._stores = task, store, RealStores(task, store)
        self._moves_brokers = task.direction is Direction.FORWARD and task.input.routing is Routing.RESTART
        self._look_next = 0.0
        self._progress = progress = SwitchProgress(task, registry)
        # All are tried again: bookies that did not answer may be up again.
        progress.forget_failed()
        progress.keep_scope(task.input.ledgers)
        self._verified = self._stores.read_verified()
        cutover = read_cutover_ledger_id(store, progress_path(task, task.direction))
        self._copying = LedgerCopier(task, progress, self._verified, guard=self._look_for_brokers)
        self._seen = LedgerComparison()
        self._rescan()
        _set_cutover_ledger_id(task, registry, progress, self._seen.source.highest, cutover)
        self._already_verified = len(self._seen.moving) - len(self._seen.open) - len(self._seen.todo)
        self._rounds = self._removed = self._left = 0
        self._seconds = self._rate = 0.0
        self._little = True
        self.pause = _ROUND_EVERY

    def converge(self) -> None:
        """Copy until little is left, or until a round leaves about as much as the one before.

        Raises:
            ApplicationError: see `require_no_early_ledgers`.
        """
        begun, before = time.monotonic(), None
        if self._rounds:
            self._rescan()
        while True:
            self._copy()
            self._left = self._left_bytes()
            self._little = self._left <= max(_LITTLE, self._rate * _LITTLE_SECONDS)
            if self._little or (before is not None and self._left > _SHRINKS * before):
                break
            before = self._left
        # On this round's answer brokers may be stopped.
        self._require_no_early_ledgers()
        self._seconds += time.monotonic() - begun
        detail = f"{self._rounds:,} rounds, the total is left for the cut-over"
        self._task.context.progress(ProgressTask.CATCH_UP, ProgressUnit.BYTES, 0, self._left, detail=detail)

    def summary(self) -> CopySummary:
        """Return the summary of all rounds."""
        done = self._copying.summary(
            already_verified=self._already_verified, left_open=len(self._seen.open), left_bytes=self._left
        )
        return done.model_copy(
            update={
                "little": self._little,
                "rounds": self._rounds,
                "removed": self._removed,
                "seconds": round(self._seconds, 3),
            }
        )

    def _copy(self) -> None:
        begun, before = time.monotonic(), self._copying.entry_bytes
        if self._seen.todo:
            self._copying.copy(self._seen.todo)
        self._task.context.check()
        if self._task.input.routing is Routing.RESTART:
            self._copying.copy_open(self._seen.open)
            self._remove_orphans()
        if (copied := self._copying.entry_bytes - before) > _LITTLE:
            self._rate = copied / (time.monotonic() - begun)
        self._rounds += 1
        self._rescan()

    def _require_no_early_ledgers(self) -> None:
        seen = self._seen
        if self._moves_brokers and seen.target.highest > seen.source.highest:
            newer = seen.target.where(lambda ledger: ledger.ledger_id > seen.source.highest and not ledger.is_copy)
            require_no_early_ledgers(self._task, set(newer), seen.named, self._verified)

    def _look_for_brokers(self) -> None:
        """Check during a round too: the first one may take days."""
        begun = time.monotonic()
        if self._moves_brokers and begun >= self._look_next:
            if newer := newer_than_source(self._task):
                require_no_early_ledgers(self._task, newer, all_references(self._store), self._verified)
            end = time.monotonic()
            self._look_next = end + max(_LOOK_FOR_BROKERS, _SCANS_APART * (end - begun))

    def _remove_orphans(self) -> None:
        """Remove copies of ledgers that Pulsar has deleted since, so that they do not accumulate."""
        if not self._seen.orphans:
            return
        with self._task.ledgers_to_change(self._task.ends.target) as target:
            self._removed += target.delete(self._seen.orphans, self._progress.require)

    def _rescan(self) -> None:
        begun = time.monotonic()
        failed = self._copying.failed
        self._seen = LedgerComparison.read(self._task, self._stores, self._verified, self._seen, failed=failed)
        self.pause = max(_ROUND_EVERY, _SCANS_APART * (time.monotonic() - begun))

    def _left_bytes(self) -> int:
        """Return the bytes that the copies lack: of closed ledgers, and with routing `restart` of open ones."""
        remaining = sum(self._lacking(ledger.ledger_id, ledger.length) for ledger in self._seen.todo.values())
        task, unclosed = self._task, self._seen.open
        if task.input.routing is Routing.ATTRIBUTION or not unclosed:
            return remaining
        with task.bookkeeper(task.ends.source) as source:
            for record in filter(None, source.directory.read(list(unclosed))):
                # Bytes on bookies that do not answer count as none.
                with contextlib.suppress(StoreError):
                    entries = last_entries(source.bookies, record.ledger_id, record.metadata)
                    remaining += self._lacking(
                        record.ledger_id, max((read_header(body).length for body in entries), default=0)
                    )
        return remaining

    def _lacking(self, ledger_id: int, length: int) -> int:
        begun, copy = self._verified.begun.get(ledger_id), self._seen.target.get(ledger_id)
        return max(0, length - (begun.length if begun and copy and begun.mzxid == copy.mzxid else 0))


def _compare_ids(task: BookieClusterTask, *, without_source: bool) -> IdCheck:
    highest = _highest(task, without_source=without_source)
    with task.reading(task.ends.target.root) as target:
        generator = read_generator(target)
    # A HOB above the generator's own and above the upper half of every id in use; ids cannot be lowered again.
    cure = 0 if generator.next_id > highest else max(generator.high or 0, highest >> 32) + 1
    return IdCheck(highest=highest, next_id=generator.next_id, cure=cure)


def _highest(task: BookieClusterTask, *, without_source: bool) -> int:
    with task.broker_store() as store:
        named = all_references(store).highest
    try:
        with task.reading(task.ends.source.root) as zookeeper:
            # Also ids whose ledgers are deleted: a cursor's position may name one, and order is by id.
            given = read_generator(zookeeper).next_id - 1
        with task.ledgers(task.ends.source) as source:
            return max(given, source.highest(), named)
    except StoreError:
        # Brokers are stopped, and were never directed to this cluster: its failure must not block their start.
        # Ledgers that one of them wrote there by mistake are named.
        if task.direction is Direction.FORWARD:
            raise
        with task.registry() as registry:
            if registry.directs_to(task.ends.source.name) and not without_source:
                raise
        return named


def _set_cutover_ledger_id(
    task: BookieClusterTask, registry: BookieRegistry, progress: SwitchProgress, highest: int, recorded: int | None
) -> None:
    """Record the highest id of the source when brokers are directed; with routing `attribution` they keep running."""
    # Set once: a second value, after brokers were directed, would include misrouted ledgers.
    if task.input.routing is not Routing.ATTRIBUTION or recorded is not None:
        return
    if registry.directs_to(task.ends.target.name):
        progress.set_cutover_ledger_id(highest)

"""Steps while brokers are stopped: recover open ledgers, copy the rest, and compare both sides."""

from __future__ import annotations

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledger_comparison import Copier, LedgerComparison, RealStores, SwitchStores
from activities.bookie_cluster.ledgers import Ledgers, dangling
from activities.bookie_cluster.progress import MISSING_LEDGERS, SwitchProgress
from activities.lifecycle.step import step
from activities.pulsar.registrations import Service
from clients.errors import StoreConflict
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import MISSING, CopySummary, TailCopy
from models.lifecycle.failures import FailedItem
from models.lifecycle.status import WaitKind

_POLL = 0.25
# One round for open or missing ledgers, one to check the result; the others for ledgers that vanish in between.
_ROUNDS = 5


class _BrokersCame(Exception):
    """A broker has registered or gone, so that the copy may be incomplete."""


@step(BookieClusterTask)
def copy_tail(task: BookieClusterTask, direction: Direction) -> TailCopy:
    """Recover, in SWITCH with routing `restart`, open ledgers, copy what is left, and compare; no broker may run.

    Raises:
        StoreConflict: a newer attempt has taken over, or a client other than a broker writes to the source.
        StoreError: a store failed, or too many bookies did; the step can be repeated, and continues.
    """
    task = task.toward(direction)
    with task.broker_store() as store:
        return copy_tail_of(task, RealStores(task, store))


def copy_tail_of(task: BookieClusterTask, stores: SwitchStores) -> TailCopy:
    """Copy the tail of these stores; see `copy_tail`."""
    with task.registry() as registry:
        registry.claim.renew()
        task.stop_earlier_deletions()  # mutant: bookie-cluster/a-tail-leaves-permits-of-earlier-attempts
        tail = _TailCopier(task, stores, SwitchProgress(task, registry))
        while True:
            no_brokers = _NoBrokersGuard(stores, task)
            try:
                return tail.copy(no_brokers)
            except _BrokersCame:
                tail.progress.require()  # mutant: bookie-cluster/a-late-tail-starts-again


def name_what_is_missing(task: BookieClusterTask) -> TailCopy:
    """Name references to ledgers that the target lacks, in place of `copy_tail` when the source is lost.

    Raises:
        StoreConflict: a newer attempt has taken over.
        StoreError: the brokers' metadata store or the target cannot be read.
    """
    with task.registry() as registry, task.broker_store() as store:
        registry.claim.renew()
        stores = RealStores(task, store)
        no_brokers = _NoBrokersGuard(stores, task)
        named = stores.references()
        lost = dangling(stores.scan(task.ends.target, Ledgers()), named)
        missing = [_missing_ledger(reference, task.ends.target.name) for reference in lost]
        reported = SwitchProgress(task, registry).report(MISSING_LEDGERS, MISSING, missing)
    present = len(named) - len(missing)
    return TailCopy(
        copy_summary=CopySummary(), checked=0, removed=0, references=present, missing=reported, mark=no_brokers.mark
    )


class _TailCopier:
    """One attempt at the tail."""

    def __init__(self, task: BookieClusterTask, stores: SwitchStores, progress: SwitchProgress) -> None:
        self._task = task
        self._stores = stores
        self._verified = stores.read_verified()
        self.progress = progress

    def copy(self, no_brokers: _NoBrokersGuard) -> TailCopy:
        """Copy until the target holds everything, without a broker from start to end."""
        progress = self.progress
        progress.forget_failed()
        named = self._stores.references()
        copying = self._stores.copier(progress, self._verified, guard=no_brokers.require, urgent=True)
        seen, already_verified = self._converge(copying, named)
        # A broker that came would have created ledgers that `seen` does not hold.
        no_brokers.require()  # mutant: bookie-cluster/no-check-for-brokers-after-the-copy
        progress.set_cutover_ledger_id(seen.source.highest)
        if self._task.input.full_verify:
            copying.compare(seen.moving.where(lambda ledger: ledger.ledger_id not in copying.failed))
        # A broker that is not registered any more may still write, while it unloads its topics for example.
        if self._stores.references().digest != named.digest:  # mutant: bookie-cluster/references-are-not-read-again
            raise _BrokersCame
        removed = self._remove_orphans(seen)
        missing, present = _missing(self._task.ends.target.name, seen, copying.failed)
        reported = progress.report(MISSING_LEDGERS, MISSING, missing)
        # The last check: on this answer the workflow directs brokers to the target.
        no_brokers.require()  # mutant: bookie-cluster/no-last-check-for-brokers
        return TailCopy(
            copy_summary=copying.summary(already_verified=already_verified),
            checked=len(seen.moving),
            removed=removed,
            references=present,
            missing=reported,
            mark=no_brokers.mark,
        )

    def _converge(self, copying: Copier, named: ReferenceTable) -> tuple[LedgerComparison, int]:
        """Copy until every ledger is verified or failed; return the last comparison."""
        already_verified: int | None = None
        seen = LedgerComparison()
        for _ in range(_ROUNDS):
            self._task.context.check()
            # Read again in each round: recovery has closed ledgers, and only a reading that finds nothing to do proves
            # it.
            seen = LedgerComparison.read(
                self._task, self._stores, self._verified, seen, failed=copying.failed, frozen_references=named
            )
            if already_verified is None:
                already_verified = len(seen.moving) - len(seen.todo)
            if not seen.todo:
                return seen, already_verified
            copying.copy(seen.todo)
        raise StoreConflict(
            f"ledgers of {self._task.ends.source.name} keep changing although no broker is registered; stop the "
            "client that writes there"
        )

    def _remove_orphans(self, seen: LedgerComparison) -> int:
        if not seen.orphans:
            return 0
        with self._task.ledgers_to_change(self._task.ends.target) as target:
            return target.delete(seen.orphans, self.progress.require)  # mutant: bookie-cluster/a-late-tail-deletes


class _NoBrokersGuard:
    """Proves that no broker has been registered since it was created.

    Args:
        stores: read the registered brokers.

    Attributes:
        mark: see `brokers_mark`.
    """

    def __init__(self, stores: SwitchStores, task: BookieClusterTask) -> None:
        self._stores = stores
        self.mark = stores.brokers_mark()
        # The last broker may go between the mark and the check, and its mark would then be taken for that of a new one.
        # mutant: bookie-cluster/the-change-counter-from-before-the-last-broker-left
        # mutant: bookie-cluster/the-tail-does-not-wait-for-brokers
        while not self._none_since():
            if running := stores.brokers():
                task.context.waiting_for(
                    WaitKind.BROKERS_RETURNED,
                    f"{_names(running)} to stop: the copy starts again when no broker is registered",
                    action="stop all brokers",
                )
                task.context.pause(_POLL)
            self.mark = stores.brokers_mark()
        task.context.clear_waiting()

    def require(self) -> None:
        """Raise `_BrokersCame` unless no broker was registered all the time."""
        # The parent's zxid too: a broker that came and went between two checks may have created ledgers.
        if not self._none_since():  # mutant: bookie-cluster/a-broker-that-came-and-went-is-overlooked
            raise _BrokersCame

    def _none_since(self) -> bool:
        return not self._stores.brokers() and self._stores.brokers_mark() == self.mark


def _missing(target: str, seen: LedgerComparison, failed: dict[int, str]) -> tuple[list[FailedItem], int]:
    """Return references whose ledger is not in the target, except if the source lacks it, too; and how many are."""
    missing: list[FailedItem] = []
    present = 0
    for reference in seen.named:
        copy = seen.target.get(reference.ledger_id)
        # What is left out has its original in the target.
        there = copy is not None and (copy.closed or reference.ledger_id not in seen.moving)
        if there and reference.ledger_id not in failed:
            present += 1
        elif reference.ledger_id in seen.source:
            missing.append(_missing_ledger(reference, target))
    return missing, present


def _missing_ledger(reference: LedgerReference, target: str) -> FailedItem:
    why = f"its {reference.kind} ledger is not in {target}"
    return FailedItem(ledger_id=reference.ledger_id, path=reference.path, reason=why)


def _names(running: list[Service]) -> str:
    return ", ".join(broker.name for broker in running)

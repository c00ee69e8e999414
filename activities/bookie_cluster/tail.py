"""What is done while brokers are stopped: open ledgers are sealed, the tail follows, and both sides are compared."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledger_copier import LedgerCopier
from activities.bookie_cluster.ledgers import (
    Ledgers,
    Verified,
    all_references,
    compacted,
    dangling,
    moving,
    orphans,
    read_known,
    require_decodable,
    scan,
)
from activities.bookie_cluster.progress import MISSING_LEDGERS, SwitchProgress
from activities.lifecycle.step import step
from activities.pulsar.registrations import Service, brokers, brokers_mark, none_since
from clients.errors import StoreConflict
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference
from clients.store import StoreReader
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import MISSING, CopySummary, TailCopy
from models.lifecycle.failures import FailedItem
from models.lifecycle.status import WaitKind

_POLL = 0.25
# One for what was open or missing, one to see that nothing is left; the others for ledgers that vanish meanwhile.
_ROUNDS = 5


class _BrokersCame(Exception):
    """A broker has registered, or one that was registered has gone: what was copied may not be all."""


class _Sides(NamedTuple):
    """Both clusters as they were read at one time.

    Attributes:
        source: the ledgers of the one.
        target: those of the other.
        chosen: those of the source that move.
        named: what refers to ledgers, what stands in cursors' ledgers included.
    """

    source: Ledgers
    target: Ledgers
    chosen: Ledgers
    named: ReferenceTable


@step(BookieClusterTask)
def copy_tail(task: BookieClusterTask, direction: Direction) -> TailCopy:
    """SWITCH with routing `restart`: recover open ledgers, copy what is left, and compare; no broker may run.

    Raises:
        StoreConflict: a newer attempt has taken over, or somebody else than a broker writes to the source.
        StoreError: a store failed, or too many bookies did; the step can be repeated, and goes on.
    """
    task = task.toward(direction)
    with task.registry() as registry, task.broker_store() as store:
        registry.claim.renew()
        task.stop_earlier_deletions()
        tail = _Tail(task, store, SwitchProgress(task, registry))
        while True:
            alone = _Alone(store, task)
            try:
                return tail.copy(alone)
            except _BrokersCame:
                tail.progress.require()


def name_what_is_missing(task: BookieClusterTask) -> TailCopy:
    """What stands in for `copy_tail` where the source is lost: name what refers to ledgers that the target lacks.

    Raises:
        StoreConflict: a newer attempt has taken over.
        StoreError: the brokers' metadata store or the target cannot be read.
    """
    with task.registry() as registry, task.broker_store() as store:
        registry.claim.renew()
        alone = _Alone(store, task)
        named = all_references(store)
        with task.ledgers(task.ends.target) as target:
            lost = dangling(scan(target), named)
        missing = [_not_standing(one, task.ends.target.name) for one in lost]
        reported = SwitchProgress(task, registry).report(MISSING_LEDGERS, MISSING, missing)
    stand = len(named) - len(missing)
    return TailCopy(
        copy_summary=CopySummary(), checked=0, removed=0, references=stand, missing=reported, mark=alone.mark
    )


class _Tail:
    """One attempt at the tail."""

    def __init__(self, task: BookieClusterTask, store: StoreReader, progress: SwitchProgress) -> None:
        self._task = task
        self._store = store
        self._verified = read_known(task, store)
        self.progress = progress

    def copy(self, alone: _Alone) -> TailCopy:
        """Copy until the target holds everything, without a broker from begin to end."""
        progress, verified = self.progress, self._verified
        progress.forget_failed()
        named = all_references(self._store)
        copying = LedgerCopier(self._task, progress, verified, guard=alone.require, urgent=True)
        sides, known = self._converge(copying, verified, named)
        # A broker that came would have created ledgers that `sides` does not hold.
        alone.require()
        progress.set_cutover_ledger_id(sides.source.highest)
        if self._task.input.full_verify:
            copying.compare(sides.chosen.where(lambda one: one.ledger_id not in copying.failed))
        # A broker that is not registered any more may still write, while it unloads its topics for example.
        if all_references(self._store).digest != named.digest:
            raise _BrokersCame
        removed = self._remove_orphans(sides, verified)
        missing, stand = _missing(self._task.ends.target.name, sides, copying.failed)
        reported = progress.report(MISSING_LEDGERS, MISSING, missing)
        # The last look: on this answer the workflow directs brokers to the target.
        alone.require()
        return TailCopy(
            copy_summary=copying.summary(known=known),
            checked=len(sides.chosen),
            removed=removed,
            references=stand,
            missing=reported,
            mark=alone.mark,
        )

    def _converge(self, copying: LedgerCopier, verified: Verified, named: ReferenceTable) -> tuple[_Sides, int]:
        """Copy until nothing is found that is neither verified nor failed; returns what was read then."""
        known: int | None = None
        sides = _Sides(Ledgers(), Ledgers(), Ledgers(), named)
        for _ in range(_ROUNDS):
            self._task.context.check()
            # Read anew in each round: recovery has closed ledgers, and only a reading that finds nothing to do proves
            # it.
            sides = self._look(named, sides)
            todo = _unverified(sides, verified, copying.failed)
            if known is None:
                known = len(sides.chosen) - len(todo)
            if not todo:
                return sides, known
            copying.copy(todo)
        raise StoreConflict(
            f"ledgers of {self._task.ends.source.name} keep changing although no broker is registered; stop whoever "
            "else writes there"
        )

    def _look(self, named: ReferenceTable, before: _Sides) -> _Sides:
        task = self._task
        with task.ledgers(task.ends.source) as source, task.ledgers(task.ends.target) as target:
            everything, standing = scan(source, before.source), scan(target, before.target)
        # In the second round cursors' ledgers are closed, so that it is their very last entry that is read.
        named = named.plus(compacted(task, everything, named, strict=True))
        require_decodable(everything, standing, named)
        return _Sides(everything, standing, moving(task.input, task.ends.source.name, everything, named), named)

    def _remove_orphans(self, sides: _Sides, verified: Verified) -> int:
        found = orphans(sides.source, sides.target, sides.named, verified)
        if not found:
            return 0
        with self._task.ledgers_to_change(self._task.ends.target) as target:
            return target.delete(found, self.progress.require)


class _Alone:
    """Proves that no broker is registered, from the moment it is made.

    Args:
        store: the brokers' metadata store.

    Attributes:
        mark: see `brokers_mark`.
    """

    def __init__(self, store: StoreReader, task: BookieClusterTask) -> None:
        self._store = store
        self.mark = brokers_mark(store)
        # The last broker may go between the mark and the look, and its mark would then be taken for that of a new one.
        while not none_since(store, self.mark):
            if running := brokers(store):
                task.context.waiting_for(
                    WaitKind.BROKERS_RETURNED,
                    f"{_names(running)} to stop: the copy begins anew when no broker is registered",
                    action="stop all brokers",
                )
                task.context.pause(_POLL)
            self.mark = brokers_mark(store)
        task.context.waits_no_more()

    def require(self) -> None:
        """Raise `_BrokersCame` unless it was so all the time."""
        # The parent's zxid too: a broker that came and went between two looks has left ledgers all the same.
        if not none_since(self._store, self.mark):
            raise _BrokersCame


def _unverified(sides: _Sides, verified: Verified, failed: Collection[int]) -> Ledgers:
    return sides.chosen.where(
        lambda one: one.ledger_id not in failed and not verified.holds(one, sides.target.get(one.ledger_id))
    )


def _missing(target: str, sides: _Sides, failed: dict[int, str]) -> tuple[list[FailedItem], int]:
    """References whose ledger does not stand in the target, and how many do; what the source lacks too is no loss."""
    missing: list[FailedItem] = []
    stand = 0
    for one in sides.named:
        standing = sides.target.get(one.ledger_id)
        if standing is not None and standing.closed and one.ledger_id not in failed:
            stand += 1
        elif one.ledger_id in sides.source:
            missing.append(_not_standing(one, target))
    return missing, stand


def _not_standing(reference: LedgerReference, target: str) -> FailedItem:
    why = f"its {reference.kind} ledger does not stand in {target}"
    return FailedItem(ledger_id=reference.ledger_id, path=reference.path, reason=why)


def _names(running: list[Service]) -> str:
    return ", ".join(broker.name for broker in running)

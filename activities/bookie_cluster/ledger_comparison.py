"""Compares both bookie clusters: ledgers to copy, open ledgers, and copies that are not needed any more."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledger_copier import LedgerCopier
from activities.bookie_cluster.ledgers import (
    Ledgers,
    Verified,
    attributed_references,
    compacted,
    moving,
    orphans,
    read_known,
    require_decodable,
    scan,
    still_needed,
)
from activities.bookie_cluster.progress import SwitchProgress
from activities.pulsar.registrations import Service, brokers, brokers_mark
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference
from clients.store import StoreReader
from models.bookie_cluster.input import BookieCluster, Direction
from models.bookie_cluster.results import CopySummary


class Copier(Protocol):
    """Copies ledgers and compares them, as `LedgerCopier` does."""

    failed: dict[int, str]

    def copy(self, records: Ledgers) -> None:
        """Recover, copy and compare."""
        ...

    def compare(self, records: Ledgers) -> None:
        """Compare in full again."""
        ...

    def summary(self, *, already_verified: int) -> CopySummary:
        """Return the summary of the copy."""
        ...


class SwitchStores(Protocol):
    """Reads of copies from both clusters and from brokers, and the copier; tests have a double of it."""

    def scan(self, cluster: BookieCluster, earlier: Ledgers) -> Ledgers:
        """Return all ledgers of a cluster; what has not changed since `earlier` is not decoded again."""
        ...

    def references(self) -> ReferenceTable:
        """Return every reference in Pulsar's metadata to a ledger; see `attributed_references`."""
        ...

    def compacted(
        self, ledgers: Ledgers, named: Iterable[LedgerReference], *, strict: bool
    ) -> Iterable[LedgerReference]:
        """Return references to ledgers of compacted topics that only cursors' ledgers name; see `compacted`."""
        ...

    def read_verified(self) -> Verified:
        """Return the ledgers that earlier attempts of both directions have compared."""
        ...

    def brokers(self) -> list[Service]:
        """Return the brokers that are registered."""
        ...

    def brokers_mark(self) -> int:
        """Return a number that changes whenever a broker registers or goes."""
        ...

    def copier(
        self, progress: SwitchProgress, verified: Verified, *, guard: Callable[[], None], urgent: bool
    ) -> Copier:
        """Return a copier of ledgers; arguments as of `LedgerCopier`."""
        ...


class RealStores:
    """The stores of one step, on real servers.

    Args:
        task: the step, in its direction.
        store: reads the brokers' metadata store.
    """

    def __init__(self, task: BookieClusterTask, store: StoreReader) -> None:
        self._task = task
        self._store = store

    def scan(self, cluster: BookieCluster, earlier: Ledgers) -> Ledgers:
        """Return all ledgers of a cluster."""
        with self._task.ledgers(cluster) as directory:
            return scan(directory, earlier)

    def references(self) -> ReferenceTable:
        """Return every reference in Pulsar's metadata to a ledger."""
        return attributed_references(self._task, self._store)

    def compacted(
        self, ledgers: Ledgers, named: Iterable[LedgerReference], *, strict: bool
    ) -> Iterable[LedgerReference]:
        """Return references to ledgers of compacted topics."""
        return compacted(self._task, ledgers, named, strict=strict)

    def read_verified(self) -> Verified:
        """Return the ledgers that earlier attempts have compared."""
        return read_known(self._task, self._store)

    def brokers(self) -> list[Service]:
        """Return the brokers that are registered."""
        return brokers(self._store)

    def brokers_mark(self) -> int:
        """Return a number that changes whenever a broker registers or goes."""
        return brokers_mark(self._store)

    def copier(
        self, progress: SwitchProgress, verified: Verified, *, guard: Callable[[], None], urgent: bool
    ) -> LedgerCopier:
        """Return a copier of ledgers."""
        return LedgerCopier(self._task, progress, verified, guard=guard, urgent=urgent)


@dataclass(frozen=True)
class LedgerComparison:
    """Both clusters as they were read at one time.

    Attributes:
        source: the ledgers of the one.
        target: those of the other.
        named: the references to ledgers, including those in cursors' ledgers.
        moving: those of the source that move.
        todo: those of them that are not known to be equal.
        open: those that move and are open.
        orphans: see `orphans`.
    """

    source: Ledgers = field(default_factory=Ledgers)
    target: Ledgers = field(default_factory=Ledgers)
    named: ReferenceTable = field(default_factory=ReferenceTable)
    moving: Ledgers = field(default_factory=Ledgers)
    todo: Ledgers = field(default_factory=Ledgers)
    open: Ledgers = field(default_factory=Ledgers)
    orphans: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def read(
        task: BookieClusterTask,
        stores: SwitchStores,
        verified: Verified,
        before: LedgerComparison,
        *,
        failed: Container[int],
        frozen_references: ReferenceTable | None = None,
    ) -> LedgerComparison:
        """Read both clusters.

        Args:
            task: the step, in its direction.
            stores: of the step.
            verified: ledgers that are known to be equal; not read again while both sides have the same ones.
            before: the last comparison, whose unchanged ledgers are reused.
            failed: ledgers that are not tried again.
            frozen_references: the references to ledgers, if no broker runs that changes them: open ledgers are to be
                recovered then, and a bookie that does not answer is an error. By default references are read after the
                ledgers.

        Raises:
            StoreUnsupported: a ledger that is needed cannot be decoded.
            StoreError: a store cannot be read.
        """
        source = stores.scan(task.ends.source, before.source)
        target = stores.scan(task.ends.target, before.target)
        named = stores.references() if frozen_references is None else frozen_references
        # Without brokers cursors' ledgers are closed in the second round, so that their real last entry is
        # read.
        named = named.plus(stores.compacted(source, named, strict=frozen_references is not None))
        # mutant: bookie-cluster/a-ledger-that-cannot-be-decoded-counts-as-lost
        require_decodable(source, target, named)
        chosen = moving(task.input, task.ends.source.name, source, named)
        if task.direction is Direction.BACK:  # mutant: bookie-cluster/lost-copies-count-as-deleted
            chosen = still_needed(chosen, target, named, verified)
        return LedgerComparison(
            source=source,
            target=target,
            named=named,
            moving=chosen,
            todo=chosen.where(
                lambda ledger: (
                    (ledger.closed or frozen_references is not None)
                    and ledger.ledger_id not in failed
                    # mutant: bookie-cluster/nothing-but-ids-is-compared
                    and not verified.holds(ledger, target.get(ledger.ledger_id))
                )
            ),
            open=chosen.where(lambda ledger: not ledger.closed),
            orphans=tuple(orphans(source, target, named, verified)),
        )

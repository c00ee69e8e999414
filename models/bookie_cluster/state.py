"""Facts, figures, certificate and state of the bookie cluster migration."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum

from pydantic import Field

from models.base import Figures
from models.bookie_cluster.results import BrokersStopped, CleanupTargets, CopySummary, SwitchPrecheck
from models.bookie_cluster.updates import CleanupOrder, Pace
from models.bookie_registry import ReadMode
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Bytes, Count, Cursors, Entries, Ledgers, Seconds


class CutoverStage(IntEnum):
    """How far a switch may have come; set before the activity that makes it true."""

    NOTHING = 0
    COPIES = 1
    BROKERS_STOPPED = 2
    DIRECTED = 3
    PROMOTED = 4


class BookieClusterFacts(Figures):
    """Results of checks.

    Attributes:
        registered: clusters that this switch added to the registry.
        epoch: of the last directive in the registry.
        ids_checked: false where the input says that new ids are not compared with old ones.
        precheck: the result of PRECHECK.
        pause_since: the first moment at which clients may have been without a broker, until brokers run again.
        brokers_stopped: the brokers that were stopped.
        deferred: cursors and schemas that stay where they are, and why; after a rollback those in the target.
        read_mode: the clusters that brokers are configured to read from.
        brokers: each registered broker, with the cluster that it uses.
        misrouted_ledgers: ledgers that brokers created in the old cluster since the switch; none is as it should be.
        misplaced_brokers: brokers that are not known to use the new cluster; none is as it should be.
        target_only_ledgers: ledgers that only the new cluster has: what a rollback copies back, with
            `target_only_bytes`.
    """

    registered: list[str] | None = None
    epoch: int | None = None
    ids_checked: bool | None = None
    precheck: SwitchPrecheck | None = None
    pause_since: datetime | None = None
    brokers_stopped: list[str] | None = None
    deferred: list[str] | None = None
    read_mode: ReadMode | None = None
    brokers: list[str] | None = None
    misrouted_ledgers: list[str] | None = None
    misplaced_brokers: list[str] | None = None
    target_only_ledgers: Ledgers | None = None
    target_only_bytes: Bytes | None = None


class CopyFigures(Figures):
    """Figures of a copy of ledgers.

    Attributes:
        copied_ledgers: written, read back and found equal, with `copied_entries` and `copied_bytes`.
        equal_ledgers: were already in the target.
        compared_entries: compared on both sides.
        recovered_ledgers: open ones that were closed first.
        seconds: of the whole copy.
    """

    copied_ledgers: Ledgers
    equal_ledgers: Ledgers
    copied_entries: Entries
    copied_bytes: Bytes
    compared_entries: Entries
    recovered_ledgers: Ledgers
    seconds: Seconds

    @staticmethod
    def of(done: CopySummary, *, before: CopyFigures | None = None) -> CopyFigures:
        """Return the figures of a copy, together with those of one that it continues with."""
        first = before or CopyFigures(
            copied_ledgers=0,
            # What the copy itself has verified is known to those that continue with it.
            equal_ledgers=done.already_verified,
            copied_entries=0,
            copied_bytes=0,
            compared_entries=0,
            recovered_ledgers=0,
            seconds=0.0,
        )
        return CopyFigures(
            copied_ledgers=first.copied_ledgers + done.copied,
            equal_ledgers=first.equal_ledgers + done.equal,
            copied_entries=first.copied_entries + done.entries,
            copied_bytes=first.copied_bytes + done.entry_bytes,
            compared_entries=first.compared_entries + done.compared,
            recovered_ledgers=first.recovered_ledgers + done.recovered,
            seconds=round(first.seconds + done.seconds, 3),
        )


class BookieClusterFigures(Figures):
    """Measured values.

    Attributes:
        blockers: how many a dry run found.
        build: the copy while brokers serve, all rounds together.
        catch_up_rounds: how many these were.
        left_bytes: what was left after the last of them, for the copy without brokers.
        tail: the copy of the rest, while no broker runs.
        removed_copies: copies removed from the target because the source had deleted the ledgers.
        pause_seconds: from the first order to stop, or the first broker's end, to the commit.
        brokers_away_seconds: from there to the first broker on the target.
        rollback_build: in a rollback, the copy back while brokers serve.
        rollback_tail: in a rollback, the copy of the rest, while no broker runs.
        rollback_brokers_away_seconds: the same in a rollback, to the first broker on the source.
        new_ledgers: ledgers that brokers write in the target, as proof: one for each broker.
        promoted_schemas: schemas whose attribution was changed.
        promoted_cursors: cursors whose attribution was changed by their topic's owner.
        promoted_before: carried the attribution already.
        promoted_via_rollover_fallback: cursors whose ledger changed before the owner was asked.
        deferred_cursors: stay where they are for now.
        copies_removed: copies that a rollback removed from the target.
        deleted_from_source: ledgers that the cleanup deleted.
    """

    blockers: Count | None = None
    build: CopyFigures | None = None
    catch_up_rounds: Count | None = None
    left_bytes: Bytes | None = None
    tail: CopyFigures | None = None
    removed_copies: Ledgers | None = None
    pause_seconds: Seconds | None = None
    brokers_away_seconds: Seconds | None = None
    rollback_build: CopyFigures | None = None
    rollback_tail: CopyFigures | None = None
    rollback_brokers_away_seconds: Seconds | None = None
    new_ledgers: Ledgers | None = None
    promoted_schemas: Count | None = None
    promoted_cursors: Cursors | None = None
    promoted_before: Count | None = None
    promoted_via_rollover_fallback: Cursors | None = None
    deferred_cursors: Cursors | None = None
    copies_removed: Ledgers | None = None
    deleted_from_source: Ledgers | None = None


class BookieClusterCertificate(Figures):
    """Certificate of the comparisons.

    Attributes:
        source: metadataServiceUri of the cluster that was left.
        target: metadataServiceUri of the cluster that took over.
        method: what is compared of a ledger, and how.
        compared_entries_in_build: entries compared while brokers served.
        compared_entries_in_tail: entries compared while no broker ran.
        ledgers_compared: ledgers whose metadata were compared.
        references_found: references in Pulsar's metadata whose ledger is in the target.
        references_missing: references whose ledger does not.
        brokers_on_the_target: brokers that were proven to write there, with the evidence.
        copied_back: ledgers that a rollback copied to the source, without those of an attempt whose answer was lost.
        compared_entries_in_rollback: entries that it compared.
        ledgers_compared_in_rollback: ledgers whose metadata were compared before brokers started on the source again.
        brokers_on_the_source: brokers that were proven to write there after a rollback.
        rolled_back_without: the target that was lost, where the operator gave up what only it had.
    """

    source: str | None = None
    target: str | None = None
    method: str | None = None
    compared_entries_in_build: Entries | None = None
    compared_entries_in_tail: Entries | None = None
    ledgers_compared: Ledgers | None = None
    references_found: Count | None = None
    references_missing: Count | None = None
    brokers_on_the_target: list[str] | None = None
    copied_back: Ledgers | None = None
    compared_entries_in_rollback: Entries | None = None
    ledgers_compared_in_rollback: Ledgers | None = None
    brokers_on_the_source: list[str] | None = None
    rolled_back_without: str | None = None


class BookieClusterState(MigrationState[BookieClusterFacts, BookieClusterFigures, BookieClusterCertificate]):
    """The state of one bookie cluster migration.

    Attributes:
        pace: how fast ledgers are copied.
        stage: how far the switch may have come.
        left_little: the last copy next to the traffic has left little for the time without brokers.
        rest_accepted: the operator has decided to cut over all the same.
        resumed: an earlier run was terminated after its commit; this one continues there.
        flipped: that one was ended in CLEANUP, where a rollback is not possible any more.
        stopped: when brokers were stopped last.
        read_mode: as set last on brokers with the plugin.
        order: what the cleanup must delete; None for nothing.
        targets: what a cleanup would delete, as listed last.
        to_delete: ledgers that the cleanup found to delete; None before it has listed them.
        rolled_back_from: how far the switch had come when the rollback started; None while it goes forward.
        brokers_returned: the rollback has ordered brokers to start on the source, and cannot be given up any more.
        stays: the operator has given up the rollback: brokers stay on the target.
        loss_asked_by: with two persons, the person who asked to give up the target; empty if none did.
        without_target: the operator has given up the target: the rollback copies nothing from it.
        tidying: a rollback removes copies from the target now, whose delay is over.
    """

    facts: BookieClusterFacts = Field(default_factory=BookieClusterFacts)
    figures: BookieClusterFigures = Field(default_factory=BookieClusterFigures)
    certificate: BookieClusterCertificate = Field(default_factory=BookieClusterCertificate)
    pace: Pace
    stage: CutoverStage = CutoverStage.NOTHING
    left_little: bool = True
    rest_accepted: bool = False
    resumed: bool = False
    flipped: bool = False
    stopped: BrokersStopped | None = None
    read_mode: ReadMode = ReadMode.DUAL_READ
    order: CleanupOrder | None = None
    targets: CleanupTargets | None = None
    to_delete: Ledgers | None = None
    rolled_back_from: CutoverStage | None = None
    brokers_returned: bool = False
    stays: bool = False
    loss_asked_by: str = ""
    without_target: bool = False
    tidying: bool = False

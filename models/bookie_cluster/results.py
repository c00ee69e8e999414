"""Results of the activities of the bookie cluster migration."""

from __future__ import annotations

from datetime import datetime

from models.base import Result
from models.lifecycle.failures import Blocker, FailedItems
from models.lifecycle.report import PrecheckResult


class Registration(Result):
    """Result of REGISTER.

    Attributes:
        added: the clusters that were added to the registry.
        epoch: of its last directive.
        committed: an earlier run of this migration was terminated after its commit; this one continues there.
        flipped: it had made the target ACTIVE too, and was ended in its cleanup.
    """

    added: tuple[str, ...]
    epoch: int
    committed: bool = False
    flipped: bool = False


class LedgerSurvey(Result):
    """Survey of the ledgers that move.

    Attributes:
        ledgers: ledgers of the source that the switch moves; `unsealed` of them are open or in recovery.
        entry_bytes: sum of their lengths, of each entry once, as their metadata say (open ledgers count as 0).
        kinds: number of ledgers by component (`managed-ledger`, `schema`, ...; `other` for those without).
        references: positions in Pulsar's metadata that refer to a ledger.
        dangling: referred to, but absent from the source already; at most 100 are named.
        largest_ensemble: the largest ensemble among them.
    """

    ledgers: int
    unsealed: int
    entry_bytes: int
    kinds: dict[str, int]
    references: int
    dangling: tuple[str, ...]
    dangling_count: int
    largest_ensemble: int


class IdCheck(Result):
    """The gate of I11: whether every new ledger of the target gets an id above all that are in use.

    Attributes:
        highest: highest id that the source's generator gave out, that one of its ledgers has, or that Pulsar's metadata
            name.
        next_id: the id that the target's generator hands out next.
        cure: number of the node HOB-n that would put it above; 0 where it is above.
    """

    highest: int
    next_id: int
    cure: int

    @property
    def safe(self) -> bool:
        """Whether ids stay unique and grow."""
        return self.next_id > self.highest


class SwitchPrecheck(PrecheckResult):
    """Result of PRECHECK; in a dry run it is the plan.

    Attributes:
        steps: what will be done, in sentences.
        brokers: registered brokers, with their versions.
        bookies: writable bookies of the target.
        free_bytes: space on them; `needed_bytes` is what the copy takes, replicas included.
    """

    steps: tuple[str, ...]
    survey: LedgerSurvey | None
    ids: IdCheck | None
    brokers: tuple[str, ...]
    bookies: tuple[str, ...]
    free_bytes: int
    needed_bytes: int
    estimated_copy_seconds: float
    estimated_pause_seconds: float
    estimate_basis: str


NOT_COPIED = "ledger(s) cannot be copied"
MISSING = "reference(s) whose ledger is missing"


class CopySummary(Result):
    """Result of a copy of ledgers.

    Attributes:
        copied: ledgers written to the target, read back, and found equal.
        equal: ledgers that the target already had, and that were equal in a full comparison.
        already_verified: ledgers that an earlier attempt had verified, and that have not changed since.
        recovered: open ledgers that were fenced and closed first.
        left_open: ledgers that are open; they follow when their writers are stopped.
        deleted: ledgers that were deleted at the source during the copy.
        entries: entries written, with `entry_bytes` of header, digest and data, each counted once.
        compared: entries compared on both sides.
        left_bytes: what a cut-over at this moment would still copy: of ledgers that closed since, and of open
            ones, what their copies lack.
        little: false where more than little is left, and the last round left as much as the one before.
        rounds: how often everything was looked for that the target lacked, and copied.
        removed: copies that were deleted because their ledgers had been deleted at the source.
        failed: ledgers that could not be copied or that differ, and why.
    """

    copied: int = 0
    equal: int = 0
    already_verified: int = 0
    recovered: int = 0
    left_open: int = 0
    deleted: int = 0
    entries: int = 0
    entry_bytes: int = 0
    compared: int = 0
    left_bytes: int = 0
    little: bool = True
    rounds: int = 1
    removed: int = 0
    failed: FailedItems = FailedItems(what=NOT_COPIED)
    seconds: float = 0.0


class BrokersStopped(Result):
    """Nothing of any broker is left.

    Attributes:
        since: the first moment at which clients may have been without a broker: the order to stop, or by hand the end
            of the first broker.
        brokers: who was there.
    """

    since: datetime
    brokers: tuple[str, ...]


class TailCopy(Result):
    """Result of SWITCH with routing `restart`: the target holds everything.

    Attributes:
        copy_summary: what was copied and compared while brokers were stopped.
        checked: ledgers whose metadata were compared, all of the source.
        removed: copies of ledgers that the source has deleted since.
        references: references in Pulsar's metadata whose ledger is in the target.
        missing: references whose ledger does not.
        mark: tells whether a broker has come since; see `brokers_mark`.
    """

    copy_summary: CopySummary
    checked: int
    removed: int
    references: int
    missing: FailedItems = FailedItems(what=MISSING)
    mark: int | None = None


class Directive(Result):
    """`switch-target` was set.

    Attributes:
        epoch: of the directive.
        at: when it was given.
        alone: false where a broker came after the tail had been copied: the tail must follow again.
    """

    epoch: int
    at: datetime
    alone: bool = True


class BrokersOn(Result):
    """Brokers run, and it was proven where they write.

    Attributes:
        brokers: name and evidence of each.
        new_ledgers: ledgers that brokers write there, one for each broker.
        since: when the first of them was registered, as far as it was seen.
        away_since: see `BrokersStopped.since`; None where brokers were not stopped.
        misrouted: in a rollback, ledgers that a broker created in the target after the copy back, so that it must
            follow again; empty if there are none.
        unread: in a rollback, ledgers that were not looked for, and why; empty if all were.
    """

    brokers: tuple[str, ...]
    new_ledgers: int
    since: datetime
    away_since: datetime | None = None
    misrouted: str = ""
    unread: str = ""


class RollbackReadiness(Result):
    """Readiness for a rollback: whether brokers can go back to the source.

    Attributes:
        blockers: what keeps the source from taking them, each with its cure; empty if nothing.
        target_blockers: what keeps the target from being read, whose ledgers are copied back.
        target_down: bookies of the target that do not answer; copies of what they hold may.
    """

    blockers: tuple[Blocker, ...] = ()
    target_blockers: tuple[Blocker, ...] = ()
    target_down: tuple[str, ...] = ()


class Promotion(Result):
    """Result of promoting, or of demoting, attributions.

    Attributes:
        schemas: schema locators rewritten by compare-and-set.
        cursors: cursors rewritten by their topic's owner.
        already: positions that carried the attribution before.
        rollovers: cursors whose ledger changed before the owner was asked (`promotedViaRolloverFallback`).
        deferred: positions whose ledger is open, or not known to be equal on both sides; they stay where they are.
        contested: locators that others kept changing; the next round takes them.
        failed: references whose attribution could not be changed, and why.
    """

    schemas: int
    cursors: int
    already: int
    rollovers: int
    deferred: tuple[str, ...] = ()
    deferred_count: int = 0
    contested: int = 0
    failed: FailedItems


class CleanupTargets(Result):
    """Ledgers of the old cluster that may be deleted.

    Attributes:
        ledgers: how many, with `entry_bytes` in all; `examples` are the lowest ids.
        retained: how many are not, and `reasons` why.
    """

    cluster: str
    ledgers: int
    entry_bytes: int
    examples: tuple[int, ...]
    retained: int
    reasons: tuple[str, ...]


class SwitchCensus(Result):
    """State of the clusters in the window.

    Attributes:
        brokers: each registered broker, with the cluster that it uses.
        misrouted_ledgers: ledgers that brokers created in the old cluster since the switch; none is as it should be.
        misplaced: with routing `restart`, brokers that are not known to use the new cluster, each with the reason.
        attributions_set_again: attributions that a broker had dropped, and that were set again.
        target_only: ledgers that only the new cluster has: what a rollback would copy back, with `target_only_bytes`.
    """

    brokers: tuple[str, ...]
    misrouted_ledgers: tuple[str, ...]
    misplaced: tuple[str, ...] = ()
    attributions_set_again: int
    target_only: int
    target_only_bytes: int
    targets: CleanupTargets


class LedgersDeleted(Result):
    """Result of one bounded step of deleting: how many ledgers were deleted, and how many remain to be deleted."""

    deleted: int
    remaining: int

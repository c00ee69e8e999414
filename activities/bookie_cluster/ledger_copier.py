"""Copies and compares ledgers, records the verified ones, and reports progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import Ledgers, Verified
from activities.bookie_cluster.progress import NOT_COPIED_LEDGERS, SwitchProgress
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from clients.bookkeeper.metadata import LedgerMetadata
from models.bookie_cluster.results import NOT_COPIED, CopySummary
from models.lifecycle.failures import FailedItem
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.bookie_cluster import jobs as ledger_jobs
from spark.bookie_cluster.spec import batches

#: Seconds to wait for bookies of the source that do not answer, before their ledgers count as failed.
_RETRY_TIMEOUT, _RETRY_SECONDS = 60.0, 2.0
# Each try reads them at the source until a bookie refuses.
_RESTARTED = 10.0

#: Keys of the custom metadata by which Pulsar names the user of a ledger.
_OWNERS = ("pulsar/managed-ledger", "pulsar/compactedTopic", "pulsar/schemaId")
_CURSOR = "pulsar/cursor"


class LedgerCopier:
    """Copier of one attempt.

    Args:
        task: the step.
        progress: records verified and failed ledgers.
        verified: the ledgers known to be equal at the start; grows.
        guard: called after each wave; its exception ends the copy.
        urgent: whether brokers are stopped until it is done. If not, the restart of bookies that refuse ids which they
            have deleted is waited for without end; else those ledgers count as failed after a minute.
    """

    def __init__(
        self,
        task: BookieClusterTask,
        progress: SwitchProgress,
        verified: Verified,
        *,
        guard: Callable[[], None] = lambda: None,
        urgent: bool = False,
    ) -> None:
        self._task = task
        self._engine = task.engine
        self._source, self._target = task.ends.source.name, task.ends.target.name
        self._pair = replace(task.pair, urgent=urgent)
        self._progress = progress
        self._verified = verified
        self._guard = guard
        self._waits_for_bookies = not urgent
        self._tag = task.tag()
        self._begun = time.monotonic()
        self._concurrency = 1
        self._records = Ledgers()
        self._copied = self._equal = self._recovered = self._deleted = 0
        self._entries = self._entry_bytes = self._compared = 0
        self._bytes = self._total_bytes = self._ledgers = self._total_ledgers = 0
        self._phase = ProgressTask.COPY
        self._transient: set[int] = set()
        self._refused: set[int] = set()
        self.failed: dict[int, str] = {}

    @property
    def entry_bytes(self) -> int:
        """Bytes of the entries that were written so far."""
        return self._entry_bytes

    def copy(self, records: Ledgers) -> None:
        """Copy ledgers and compare each in full; those that are open are recovered first.

        It waits for a bookie of the source that is down for a while, during a restart for example.

        Raises:
            StoreConflict: a newer attempt has taken over.
            StoreError: a store failed, or too many bookies did; the step can be repeated, and continues.
        """
        self._expect(records, ProgressTask.COPY)
        self._copy(self._records)
        deadline = self._task.context.deadline(_RETRY_TIMEOUT)
        while self._transient and (not deadline.passed or (self._refused and self._waits_for_bookies)):
            self._tell_what_is_tried_again()
            self._task.context.pause(_RESTARTED if self._refused == self._transient else _RETRY_SECONDS)
            again = self._records.only(frozenset(self._transient))
            self._forget_transient()
            self._copy(again)
        self._task.context.clear_waiting()
        for number in self._transient & self._verified.begun.keys():
            self.failed[number] += (
                f"; its open copy stays in {self._target}, because this run may write the id again: brokers there take "
                "what it has for the whole ledger"
            )
        self._progress.add_failed({number: self.failed[number] for number in self._transient})
        self._transient.clear()
        self._refused.clear()

    def copy_open(self, records: Ledgers) -> None:
        """Copy what is confirmed of open ledgers, whose writers continue; failed ledgers wait until they are closed.

        Raises:
            StoreConflict: a newer attempt has taken over.
            StoreError: a store failed; the step can be repeated, and continues.
        """
        parts = batches(records, recover=False, begun=self._verified.begun)
        if not parts:
            return
        begun: dict[int, Begun] = {}

        def take(outcomes: list[CopyOutcome]) -> None:
            self._task.context.check()
            begun.update({outcome.ledger_id: outcome.begun for outcome in outcomes if outcome.begun})
            self._entries += sum(outcome.entries for outcome in outcomes)
            self._entry_bytes += sum(outcome.bytes for outcome in outcomes)
            self._compared += sum(outcome.entries for outcome in outcomes)
            self._concurrency = self._progress.require().concurrency

        ledger_jobs.copy_open(self._engine, self._pair, parts, tag=self._tag, on_outcomes=take, concurrency=self._pace)
        self._note_begun(begun)

    def _tell_what_is_tried_again(self) -> None:
        if self._refused:
            self._task.context.waiting_for(
                WaitKind.BOOKIES,
                f"the restart of bookies of {self._target}: they have deleted {len(self._refused):,} ledgers of these "
                f"ids, and refuse them while they remember that; {name(first := min(self._refused))}: "
                f"{self.failed[first]}",
                action=f"restart the bookies of {self._target} one after the other; the copy continues by itself",
            )
            return
        self._task.context.waiting_for(
            WaitKind.BOOKIES,
            f"bookies of {self._source} to answer, and to take entries: {len(self._transient):,} ledgers are tried "
            f"again, {name(first := min(self._transient))}: {self.failed[first]}",
        )

    def compare(self, records: Ledgers) -> None:
        """Compare ledgers in full again; those that differ count as failed.

        Raises:
            StoreError: as `copy`.
        """
        self._expect(records, ProgressTask.COMPARE)
        parts = batches(self._records, recover=False)
        ledger_jobs.compare(
            self._engine, self._pair, parts, tag=self._tag, on_outcomes=self._take_compared, concurrency=self._pace
        )

    def summary(self, *, already_verified: int = 0, left_open: int = 0, left_bytes: int = 0) -> CopySummary:
        """Return the summary so far."""
        return CopySummary(
            copied=self._copied,
            equal=self._equal,
            already_verified=already_verified,
            recovered=self._recovered,
            left_open=left_open,
            left_bytes=left_bytes,
            deleted=self._deleted,
            entries=self._entries,
            entry_bytes=self._entry_bytes,
            compared=self._compared,
            failed=self._progress.report(
                NOT_COPIED_LEDGERS,
                NOT_COPIED,
                [FailedItem(ledger_id=number, reason=why) for number, why in self.failed.items()],
            ),
            seconds=round(time.monotonic() - self._begun, 3),
        )

    def _copy(self, records: Ledgers) -> None:
        unsealed, sealed = records.where(lambda ledger: not ledger.closed), records.where(lambda ledger: ledger.closed)
        begun = self._verified.begun
        parts = [*batches(unsealed, recover=True, begun=begun), *batches(sealed, recover=False, begun=begun)]
        ledger_jobs.copy(
            self._engine, self._pair, parts, tag=self._tag, on_outcomes=self._take_copied, concurrency=self._pace
        )

    def _forget_transient(self) -> None:
        """Remove ledgers from the failed ones whose bookies were down."""
        for number in self._transient:
            del self.failed[number]
        self._ledgers -= len(self._transient)
        self._bytes -= sum(self._records[number].length for number in self._transient)
        self._transient.clear()
        self._refused.clear()

    def _expect(self, records: Ledgers, task: ProgressTask) -> None:
        if task is not self._phase:
            self._bytes = self._total_bytes = self._ledgers = self._total_ledgers = 0
        self._phase = task
        self._records = records
        self._total_bytes += sum(record.length for record in records.values())
        self._total_ledgers += len(self._records)
        self._tell()

    def _take_copied(self, outcomes: list[CopyOutcome]) -> None:
        self._transient.update(outcome.ledger_id for outcome in outcomes if outcome.transient)
        self._refused.update(outcome.ledger_id for outcome in outcomes if outcome.verdict is Verdict.REFUSED)
        self._remember(outcomes)
        if begun := {outcome.ledger_id: outcome.begun for outcome in outcomes if outcome.begun}:
            self._note_begun(begun)
        for outcome in outcomes:
            record = self._records[outcome.ledger_id]
            self._copied += outcome.verdict is Verdict.COPIED
            self._equal += outcome.verdict is Verdict.EQUAL
            self._deleted += outcome.verdict is Verdict.DELETED
            if outcome.verdict is Verdict.COPIED:
                self._entries += outcome.entries
                self._entry_bytes += outcome.bytes
            if outcome.good:
                self._recovered += not record.closed
                self._compared += outcome.entries

    def _note_begun(self, newly_begun: Mapping[int, Begun]) -> None:
        # Ledgers that have closed since, and are not copied yet, are continued too.
        recorded, copies = self._verified.begun, self._verified.copies
        new = {number: begun for number, begun in {**recorded, **newly_begun}.items() if number not in copies}
        if new != recorded:
            self._verified.begun = new
            self._progress.set_begun(new)

    def _take_compared(self, outcomes: list[CopyOutcome]) -> None:
        self._compared += sum(outcome.entries for outcome in outcomes if outcome.good)
        self._remember(outcomes)

    def _remember(self, outcomes: list[CopyOutcome]) -> None:
        """Persist the results before any step relies on them."""
        self._task.context.check()
        self._guard()
        good = {outcome.ledger_id: outcome.mzxid for outcome in outcomes if outcome.good}
        failed = self._reasons([outcome for outcome in outcomes if outcome.failed])
        self._progress.add_verified(good)
        self._progress.take_back([number for number in failed if number in self._verified.copies])
        # Ledgers whose bookies are only down are tried again first, and are not failed yet.
        self._progress.add_failed({number: why for number, why in failed.items() if number not in self._transient})
        self._verified.copies.update(good)
        for number in failed:
            self._verified.copies.pop(number, None)
            # A comparison in full outweighs what an earlier attempt had verified.
            self._verified.originals.pop(number, None)
        self.failed.update(failed)
        self._ledgers += len(outcomes)
        self._bytes += sum(self._records[outcome.ledger_id].length for outcome in outcomes)
        self._tell()
        # Reads the claim: a superseded attempt ends here, and a changed pace takes effect.
        self._concurrency = self._progress.require().concurrency

    def _pace(self) -> int:
        """Return how many jobs may run at once, as the claim said when it was read last."""
        return self._concurrency

    def _reasons(self, failed: Sequence[CopyOutcome]) -> dict[int, str]:
        """Return why ledgers failed, with who uses each."""
        if not failed:
            return {}
        with self._task.ledgers(self._task.ends.source) as directory:
            records = directory.read([outcome.ledger_id for outcome in failed])
        uses = [usage(record.metadata) if record else "" for record in records]
        return {outcome.ledger_id: self._why(outcome, use) for outcome, use in zip(failed, uses, strict=True)}

    def _why(self, outcome: CopyOutcome, use: str) -> str:
        reason = outcome.detail or str(outcome.verdict)
        if outcome.verdict is Verdict.DIFFERENT:
            reason = f"another ledger has this id in {self._target}: {reason}"
        return f"{reason} ({use})" if use else reason

    def _tell(self) -> None:
        detail = f"{self._ledgers:,} of {self._total_ledgers:,} ledgers"
        self._task.context.progress(self._phase, ProgressUnit.BYTES, self._bytes, self._total_bytes, detail=detail)


def name(ledger_id: int) -> str:
    """Return the name of a ledger in lists; the same in every result."""
    return f"ledger {ledger_id}"


def usage(metadata: LedgerMetadata) -> str:
    """Return the user of a ledger by its own metadata; empty if they do not name it."""
    custom = metadata.custom_map
    owner = next((custom[key].decode(errors="replace") for key in _OWNERS if key in custom), "")
    cursor = custom.get(_CURSOR, b"").decode(errors="replace")
    parts = (metadata.component, owner, f"cursor {cursor}" if cursor else "")
    return " ".join(word for word in parts if word)

"""The namespaces of a blue-green migration, as items of its waves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError

from activities.blue_green import listing
from activities.blue_green.batch import undo
from models.blue_green.batch import BatchInput
from models.blue_green.input import BlueGreenInput
from models.blue_green.state import BatchCertificate, BatchFigures, BlueGreenState
from models.lifecycle.failures import FailedItem
from models.lifecycle.input import OF_PARENT
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.lifecycle.waves import BatchResult, Page, failed_item
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.parent import this_run
from workflows.lifecycle.wave_protocols import ChildSpec

_BATCH = "BlueGreenBatch"


class NamespaceSource:
    """Source of the waves: namespaces of blue in their order, and the results of their batches.

    Args:
        migration: migration whose activities list the namespaces, and whose figures are updated.
    """

    def __init__(self, migration: Migration[BlueGreenInput, BlueGreenState]) -> None:
        self._migration = migration

    async def next_items(self, cursor: str, limit: int) -> Page:
        """Return the namespaces after a cursor."""
        call = Call("List the next namespaces")
        return await self._migration.activities.ask(listing.page, call, cursor, limit)

    async def record_failures(self, failures: Sequence[FailedItem], offset: int) -> str:
        """List namespaces that could not be moved."""
        call = Call("List namespaces that could not be moved")
        return await self._migration.activities.ask(listing.record_failures, call, list(failures), offset)

    def child(self, items: tuple[str, ...]) -> ChildSpec:
        """Return the child workflow that moves these namespaces."""
        fields: dict[str, Any] = self._migration.input.model_dump()
        parent = this_run(self._migration.state)
        own = {**OF_PARENT, "change_windows": self._migration.calendar.windows, "parent": parent, "batch": items}
        batch = BatchInput.model_validate(fields | own)
        return ChildSpec(_BATCH, batch, ", ".join(items))

    async def on_terminated(self, items: tuple[str, ...], why: str) -> None:
        """Release writes to namespaces whose batch was terminated before it was complete."""
        call = Call(f"Keep {', '.join(items)} on {self._migration.input.cluster}, where possible")
        try:
            undone = await self._migration.activities.ask(undo.undo_terminated_batch, call, list(items))
        except (ActivityError, ApplicationError) as error:
            self._migration.board.note(
                f"writes to {', '.join(items)} may still be held back ({why}): {cause_of(error)}"
            )
            return
        for note in (undone.why, *undone.notes):
            if note:
                self._migration.board.note(note)

    def read_result(self, items: tuple[str, ...], result: Any) -> BatchResult:
        """Return the result of a batch, after its figures were added to those of the migration."""
        report = Report[BatchFigures, BatchCertificate].model_validate(result)
        certificate = report.certificate
        self._add(report.figures, certificate)
        failed = certificate.failed
        if report.outcome is Outcome.ROLLED_BACK:
            # An operator rolled back only this batch; its clients stay on blue.
            failed = dict.fromkeys(items, report.summary)
        return BatchResult(failed=tuple(failed_item(name, failed[name]) for name in items if name in failed))

    def _add(self, figures: BatchFigures, certificate: BatchCertificate) -> None:
        whole, proof = self._migration.state.figures, self._migration.state.certificate
        whole.update(
            topics_moved=_sum(whole.topics_moved, figures.topics),
            longest_quiesce_seconds=_longest(whole.longest_quiesce_seconds, figures.quiesce_seconds),
            longest_final_copy_seconds=_longest(whole.longest_final_copy_seconds, figures.final_copy_seconds),
            copied_messages=_sum(whole.copied_messages, figures.copied_messages),
            copied_bytes=_sum(whole.copied_bytes, figures.copied_bytes),
            longest_flip_seconds=_longest(whole.longest_flip_seconds, figures.flip_seconds),
            longest_drain_seconds=_longest(whole.longest_drain_seconds, figures.drain_seconds),
            repaired=_sum(whole.repaired, figures.repaired),
            skipped_messages=_sum(whole.skipped_messages, figures.skipped_messages),
        )
        check, copies = certificate.check, certificate.copies
        proof.update(
            topics_compared=_sum(proof.topics_compared, check and check.topics),
            subscriptions_on_green=_sum(proof.subscriptions_on_green, check and check.subscriptions),
            unused_subscriptions=_sum(proof.unused_subscriptions, check and check.unused_count),
            faults=_sum(proof.faults, check and max(check.fault_count, len(check.faults))),
            entries_compared=_sum(proof.entries_compared, copies and copies.entries),
            subscriptions_copied=_sum(proof.subscriptions_copied, copies and copies.subscriptions),
            missing_clients=_sum(proof.missing_clients, certificate.missing_clients),
            clients=_sum(proof.clients, certificate.clients),
        )


def _sum(total: int | None, more: int | None) -> int:
    return (total or 0) + (more or 0)


def _longest(longest: float | None, other: float | None) -> float:
    return max(longest or 0.0, other or 0.0)

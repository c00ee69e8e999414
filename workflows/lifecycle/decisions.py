"""Decisions of operators inside a phase: it waits for `proceed` or `rollback`, once for each finding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from temporalio import workflow

from models.lifecycle.failures import FailedItem, FailedItems
from models.lifecycle.state import MigrationState
from models.lifecycle.status import Undo, WaitKind
from models.lifecycle.verbs import Verb
from workflows.lifecycle.log import log
from workflows.lifecycle.status import StatusBoard
from workflows.lifecycle.timers import Timers


class Decisions:
    """Gates inside phases, and the decisions made there.

    Args:
        state: of the migration; has the accepted failures.
        status: shows failed items and the wait.
        timers: have the deadline, which also ends the wait.
    """

    def __init__(self, state: MigrationState[Any, Any, Any], status: StatusBoard, timers: Timers) -> None:
        self._state = state
        self._status = status
        self._timers = timers

    async def decide(self, *failures: FailedItems, effect: str) -> bool:
        """Report failures, and wait for the operator's decision on those that were not accepted yet.

        Args:
            failures: items that failed.
            effect: what `proceed` does, in a sentence.

        Returns:
            Whether a decision was needed.
        """
        self._status.report_failures(*failures)
        fresh = [failed for failed in failures if not self._covers(failed)]
        if not fresh:
            return False
        listed = "; ".join(f"{failed.count:,} {failed.what} ({_first(failed.items)})" for failed in fresh)
        await self.wait(f"a decision: {listed}", effect)
        self._state.accepted.update((failed.what, failed) for failed in failures if failed.count)
        return True

    async def wait(self, why: str, effect: str, *, kind: WaitKind = WaitKind.DECISION, after: Undo = Undo.FREE) -> None:
        """Wait inside a phase until the operator sends `proceed`.

        A rollback, where it is legal, or a deadline interrupts the phase.

        Args:
            why: what must be decided, in a sentence.
            effect: what `proceed` does.
            kind: of the wait.
            after: how that is undone.
        """
        verbs = self._state.verbs
        verbs.close_gate(effect, after=after)
        enders = [verb for verb in (Verb.PROCEED, Verb.ROLLBACK) if verb in verbs.legal()]
        bound = self._timers.next_bound()
        action = f"decide: proceed {effect}" + (", rollback undoes the migration" if Verb.ROLLBACK in enders else "")
        self._status.wait_for(kind, why, action=action, until=bound[0] if bound else None, ends_on=enders)
        try:
            await workflow.wait_condition(lambda: verbs.proceed_wanted)
            log(f"decided: proceed {effect}", phase=self._state.running_phase, wait=kind.value)
        finally:
            verbs.open_gate()
            self._status.stop_waiting()

    def forget(self) -> None:
        """Forget failures and decisions, because the direction changes."""
        self._state.failed.clear()
        self._state.accepted.clear()
        self._status.publish()

    def _covers(self, failed: FailedItems) -> bool:
        """Return whether earlier decisions cover all these items.

        A record is covered by a decision on its ledger. A list that is too long to be named is covered only by a
        decision on the same list.
        """
        if not failed.count:
            return True
        same = self._state.accepted.get(failed.what)
        if not failed.all_named:
            return same is not None and same.count == failed.count and same.digest == failed.digest
        accepted = [item for decided in self._state.accepted.values() for item in decided.items]
        keys, ledgers = {item.key for item in accepted}, {item.ledger_id for item in accepted} - {None}
        return all(item.key in keys or item.ledger_id in ledgers for item in failed.items)


def _first(items: Iterable[FailedItem]) -> str:
    named = [str(item) for item in items]
    return f"{', '.join(named[:3])}{', …' if len(named) > 3 else ''}"

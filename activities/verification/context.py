"""Context of a verification: the migration, its servers, and what the attempt before has compared."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask
from clients.errors import StoreUnreachable
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import ProgressTask, ProgressUnit, Status, WaitKind
from models.verification.input import KIND, Readiness, VerificationInput, objection, readiness
from models.verification.results import Tally

_NOTE = "tally"
_ASK_EVERY, _REST = 3.0, 2.0
"""Seconds between two questions to the migration, and between two while clients wait for it."""

_ANSWER_LIMIT = timedelta(seconds=10)


class VerificationTask(StepTask[VerificationInput]):
    """One attempt at a verification. Arguments as in `StepTask`."""

    kind = KIND
    input_type = VerificationInput


class MigrationGate:
    """Says whether the migration still has two sides, and waits while its clients wait for it.

    Args:
        ask: returns the phase of the migration, and whether it runs.
        kind: of the migration.
        context: of the activity.
    """

    def __init__(self, ask: Callable[[], tuple[str, bool]], kind: str, context: ActivityContext) -> None:
        self._ask = ask
        self._kind = kind
        self._context = context
        self._asked = float("-inf")
        #: Services have moved to the target.
        self.committed = False

    def check(self) -> None:
        """Return when both sides may be read.

        Raises:
            ApplicationError: there are no two sides any more.
        """
        while time.monotonic() - self._asked >= _ASK_EVERY:
            phase, running = self._ask()
            if why := objection(self._kind, phase, running=running):
                raise _refused(why)
            state = readiness(self._kind, phase, running=running)
            if state is not Readiness.URGENT:
                self._asked = time.monotonic()
                self.committed = state is Readiness.COMMITTED
                break
            self._context.waiting_for(WaitKind.MIGRATION, f"the migration, for whose {phase} clients wait")
            self._context.pause(_REST)
        self._context.clear_waiting()
        self._context.check()

    def ask_again(self) -> None:
        """Ask the migration at the next check, however recent the last answer is."""
        self._asked = float("-inf")


class Comparison:
    """Counts what was compared, keeps it for the next attempt, and keeps to the throttle.

    Args:
        context: of the activity.
        input: with the throttle.
        gate: of the migration.
        unit: what is counted.
    """

    def __init__(
        self, context: ActivityContext, input: VerificationInput, gate: MigrationGate, unit: ProgressUnit
    ) -> None:
        self.context = context
        self.gate = gate
        self._unit = unit
        self._rate = input.throttle * 1e6 if input.throttle else None
        self._recheck_after = input.recheck_after.total_seconds()
        self._free_at = time.monotonic()
        self.total: int | None = None
        self.tally = _noted(context)

    @property
    def committed(self) -> bool:
        """True if services have moved to the target."""
        return self.gate.committed

    def restart(self) -> Tally:
        """Forget what was compared, and return the new tally."""
        self.tally = Tally()
        return self.tally

    def read(self, size: int) -> None:
        """Take the time that the throttle gives to so many bytes, then wait while the migration is urgent."""
        if self._rate:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            if (pause := self._free_at - time.monotonic()) > 0:
                self.context.pause(pause)
        self.gate.check()

    def wait_before_recheck(self) -> None:
        """Wait for as long as a difference must last; after the commit nothing changes any more that is compared."""
        self.ask_again()
        if not self.committed:
            self.context.pause(self._recheck_after)
            self.ask_again()

    def ask_again(self) -> None:
        """Ask the migration now whether it has committed, and wait while it is urgent."""
        self.gate.ask_again()
        self.gate.check()

    def passed(self, position: list[str], items: int) -> None:
        """Keep that everything up to a position was read: so many more items."""
        self.tally.position = position
        self.tally.seen += items
        self.keep()

    def keep(self) -> None:
        """Keep the tally for the next attempt, and report progress."""
        # Replaced as a whole: the heartbeat reads it in another thread.
        # Escaped: a key of Oxia may be text that UTF-8 does not have.
        self.context.noted = {_NOTE: json.dumps(self.tally.model_dump())}
        detail = f"{self.tally.differing.count:,} differ" if self.tally.differing.count else ""
        self.context.progress(ProgressTask.COMPARE, self._unit, self.tally.seen, self.total, detail=detail)


def _noted(context: ActivityContext) -> Tally:
    """Return the tally of the attempt before; a new one if there was none."""
    try:
        return Tally.model_validate(json.loads(context.noted.get(_NOTE, "{}")))
    except ValueError:
        return Tally()


async def last_phase(client: Client, described: WorkflowExecutionDescription) -> str:
    """Return the running phase of a migration, or its last one.

    Raises:
        RPCError: neither Temporal nor a worker tells it.
        WorkflowQueryFailedError: the migration cannot be replayed.
    """
    if phases := described.search_attributes.get("MigrationPhase"):
        return str(phases[0])
    # A namespace may lack the search attributes.
    handle = client.get_workflow_handle(described.id, run_id=described.run_id)
    status = await handle.query("status", result_type=Status, rpc_timeout=_ANSWER_LIMIT)
    return status.phase


def phase_of(runtime: Runtime, workflow_id: str, run_id: str) -> Callable[[], tuple[str, bool]]:
    """Return a function that asks Temporal for the phase of a migration, and whether it runs.

    Args:
        runtime: of the process.
        workflow_id: of the migration.
        run_id: of its first run.
    """

    def ask() -> tuple[str, bool]:
        handle = runtime.client.get_workflow_handle(workflow_id)
        limit = _ANSWER_LIMIT.total_seconds()
        try:
            described = runtime.ask(handle.describe(rpc_timeout=_ANSWER_LIMIT), limit)
            phase = runtime.ask(last_phase(runtime.client, described), limit)
        except (RPCError, TimeoutError, WorkflowQueryFailedError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                raise _refused(f"Temporal has forgotten {workflow_id}, and does not tell what became of it") from error
            raise StoreUnreachable(
                f"Temporal does not tell the phase of {workflow_id}: {error or 'timed out'}"
            ) from error
        if described.raw_info.first_run_id != run_id:
            raise _refused(f"{workflow_id} was started again, as another migration; verify that one")
        return phase, described.status is WorkflowExecutionStatus.RUNNING

    return ask


def _refused(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.REFUSED, non_retryable=True)

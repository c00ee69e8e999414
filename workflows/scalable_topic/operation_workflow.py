"""Change scalable topics through their brokers, and complete what these leave out (PIP-468)."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from activities.scalable_topic.operations import run as operations
from models.lifecycle.failures import FailedItems, count_blockers
from models.lifecycle.input import Continued
from models.lifecycle.policy import VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Undo
from models.scalable_topic.operation_input import KIND, ScalableOperationInput
from models.scalable_topic.operation_state import OperationCheck, OperationOutcome, OperationState
from models.scalable_topic.phases import OperationPhase as Phase
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.precheck import not_ready, require_ready
from workflows.lifecycle.start import read_start
from workflows.scalable_topic.policy import OPERATION_POLICIES


@workflow.defn
class ScalableOperation(Migration[ScalableOperationInput, OperationState]):
    """Run one operation on scalable topics of a cluster (PIP-468)."""

    @workflow.init
    def __init__(self, input: ScalableOperationInput | Continued) -> None:
        input, state = read_start(ScalableOperationInput, OperationState, input)
        super().__init__(
            input,
            state or OperationState(verbs=VerbState(policy=OPERATION_POLICIES[Phase.PRECHECK])),
            kind=KIND,
            target=input.target_name,
            first=Phase.PRECHECK,
            policies=OPERATION_POLICIES,
            after_cutover=Undo.NONE if input.changes else Undo.FREE,
        )

    @workflow.run
    async def run(self, input: ScalableOperationInput | Continued) -> Report[Any, Any]:
        """Run the operation; the report holds figures and certificate."""
        del input
        return await self.execute(self._carry_out)

    async def _carry_out(self) -> Report[Any, Any]:
        await self.phases.run(Phase.PRECHECK, self._precheck)
        if self.input.dry_run:
            return self.report(Outcome.PLANNED, self._plan_summary())
        await self.phases.rollback_on_failure(self._operate_all, undo=self._roll_back)
        await self.phases.undo(Phase.COMPLETE, self._release)
        outcome = self._outcome
        return self.report(Outcome.DONE_WITH_FAILURES if outcome.failed else Outcome.DONE, _summary(outcome))

    # The phases -------------------------------------------------------------------------------------------------------

    async def _precheck(self) -> None:
        facts = self.state.facts.precheck = await self.activities.run(
            operations.check, Call(f"Find the topics of {self.input.cluster}")
        )
        for warning in facts.warnings:
            self.board.note(f"warning: {warning}")
        self.state.certificate.operation = self.input.operation
        if facts.plan is not None:
            self._record_outcome(facts.plan)
        if self.input.dry_run:
            self.state.figures.blockers = count_blockers(facts.blockers)
            return
        require_ready(facts.blockers)

    async def _operate_all(self) -> None:
        await self.phases.run(Phase.OPERATE, self._operate, holds_inside=True)

    async def _operate(self) -> None:
        await self.hold.wait()
        call = Call(f"{self.input.operation}: {self.input.target_name}")
        outcome = self.state.facts.outcome = await self.activities.run(operations.operate, call)
        self._record_outcome(outcome)

    async def _release(self) -> None:
        released = await self.activities.run(operations.complete, Call("Release the cluster"))
        for note in released.notes:
            self.board.note(note)
        self.state.certificate.completed_at = workflow.now()

    async def _roll_back(self, cause: str) -> str:
        """Release the cluster; changes of finished topics stay."""
        await self.phases.undo(Phase.ROLLBACK, self._release)
        self.board.note(f"changes of finished topics stay ({cause})")
        return ""

    # Inside -----------------------------------------------------------------------------------------------------------

    def _record_outcome(self, outcome: OperationOutcome) -> None:
        """Record the results of topics in notes, figures and certificate."""
        for note in outcome.notes:
            self.board.note(note)
        self.state.figures.update(
            topics=outcome.topics,
            changed_topics=outcome.changed,
            found_topics=outcome.with_findings,
            failed_topics=outcome.failed,
            registered=outcome.registered,
            healed=outcome.healed,
            messages=outcome.messages,
            longest_seconds=outcome.longest_seconds,
        )
        self.state.certificate.update(
            outcomes=list(outcome.outcomes),
            not_named=outcome.changed + outcome.with_findings - len(outcome.outcomes),
        )
        failed = FailedItems(what="topic(s) failed", items=outcome.failures, count=outcome.failed)
        self.board.report_failures(failed)

    def _plan_summary(self) -> str:
        facts = self._facts
        if facts.blockers:
            return not_ready(facts.blockers)
        return f"ready: {_summary(facts.plan or OperationOutcome())}"

    @property
    def _facts(self) -> OperationCheck:
        """The result of PRECHECK."""
        facts = self.state.facts.precheck
        assert facts is not None, "PRECHECK has passed"
        return facts

    @property
    def _outcome(self) -> OperationOutcome:
        """The result of OPERATE."""
        outcome = self.state.facts.outcome
        assert outcome is not None, "OPERATE has passed"
        return outcome


def _summary(outcome: OperationOutcome) -> str:
    counts = {
        "changed": outcome.changed,
        "with findings": outcome.with_findings,
        "as before": outcome.unchanged,
        "failed": outcome.failed,
    }
    summary = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"of {outcome.topics} topics {summary or 'none was processed'}"

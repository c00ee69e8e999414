"""Make one regular topic scalable, with its subscriptions and its messages (PIP-475)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.scalable_topic import cleanup, clients, drain, flip, hold_release, precheck
from models.lifecycle.failures import FailureKind, count_blockers
from models.lifecycle.input import Continued
from models.lifecycle.policy import VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Undo
from models.scalable_topic.input import KIND, ScalableTopicInput
from models.scalable_topic.phases import Phase
from models.scalable_topic.results import CleanedUp, DrainedTopic, FlipAnswer, Precheck, Released
from models.scalable_topic.state import TopicState
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.failures import FAILURES, failure_of, to_exception
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.precheck import not_ready, require_ready
from workflows.lifecycle.start import read_start
from workflows.scalable_topic.grace import GraceWindow
from workflows.scalable_topic.policy import POLICIES, WAITING_AGAIN

_AFTER_REFUSAL = timedelta(seconds=5)
_TRIES_PER_AGE = 30


@workflow.defn
class ScalableTopicMigration(Migration[ScalableTopicInput, TopicState]):
    """Make one regular topic scalable (PIP-475)."""

    @workflow.init
    def __init__(self, input: ScalableTopicInput | Continued) -> None:
        input, state = read_start(ScalableTopicInput, TopicState, input)
        super().__init__(
            input,
            state or TopicState(verbs=VerbState(policy=POLICIES[Phase.PRECHECK])),
            kind=KIND,
            target=input.target_name,
            first=Phase.PRECHECK,
            policies=POLICIES,
            after_cutover=Undo.NONE,
        )
        self.window = GraceWindow(self, clean_up=self._clean_up, forget=self._forget)

    @workflow.run
    async def run(self, input: ScalableTopicInput | Continued) -> Report[Any, Any]:
        """Run the migration; the report holds figures and certificate."""
        del input
        return await self.execute(self._migrate)

    async def _migrate(self) -> Report[Any, Any]:
        await self.phases.run(Phase.PRECHECK, self._precheck)
        if self.input.dry_run:
            return self.report(Outcome.PLANNED, _plan_summary(self._facts))
        await self.phases.rollback_on_failure(self._make_scalable, undo=self._roll_back)
        # Shielded: without it, the policies of the namespace would stay overridden.
        await self.phases.shielded(self._finish)
        proof = self.state.certificate
        outcome = Outcome.DONE_WITH_FAILURES if proof.faults or proof.undrained else Outcome.DONE
        if self.input.parent is None:
            outcome = await self.window.run(Phase.GRACE, Phase.CLEANUP, outcome)
        return self.report(outcome, f"{self.input.topic} is scalable, with {proof.segments} segments")

    # The phases of PIP-475, with additional ones ----------------------------------------------------------------------

    async def _make_scalable(self) -> None:
        await self.phases.run(Phase.CLIENTS, self._await_clients, holds_inside=True)
        await self.phases.run(Phase.GUARD, self._guard)
        await self.phases.run(Phase.FLIP, self._flip)

    async def _finish(self) -> None:
        state = self.state
        if state.undoing is None:
            try:
                await self.phases.run(Phase.DRAIN, self._drain)
                await self.phases.run(Phase.VERIFY, self._verify)
            except FAILURES as error:
                # The policies of the namespace must not stay overridden. The state keeps the cause for a run that
                # continues as new during COMPLETE.
                state.undoing = failure_of(error)
        await self.phases.undo(Phase.COMPLETE, self._complete)
        if state.undoing is not None:
            raise to_exception(state.undoing)

    async def _precheck(self) -> None:
        call = Call(f"Check {self.input.topic}")
        facts = self.state.facts.precheck = await self.activities.run(precheck.precheck, call)
        for warning in facts.warnings:
            self.board.note(f"warning: {warning}")
        self.state.figures.update(backlog_messages=facts.backlog, stored_bytes=facts.stored_bytes)
        if self.input.dry_run:
            self.state.figures.blockers = count_blockers(facts.blockers)
            return
        require_ready(facts.blockers)

    async def _await_clients(self) -> None:
        if not self.hold.reached:
            self._note_unrestored(await self.activities.run(hold_release.recover, Call("Recover from an earlier run")))
            await self._wait_for_clients()
        await self.hold.wait()

    async def _wait_for_clients(self) -> None:
        until = self._clients_until
        call = Call(f"Wait until nothing blocks the flip of {self.input.topic}")
        remaining = await self.activities.run(clients.await_clients, call, until, self._facts.ordered)
        # Brokers forget these types when they reload the topic.
        self.state.facts.precheck = self._facts.model_copy(
            update={"ordered": {**self._facts.ordered, **remaining.ordered}}
        )
        if remaining.waiting:
            raise _not_ready(
                f"{self.input.topic} still has {remaining.waiting}, after {self.input.client_timeout}. "
                "Nothing was changed. Set a longer client_timeout, or stop or upgrade these clients"
            )

    async def _guard(self) -> None:
        call = Call(f"Lock {self.input.topic} and override the policies of its namespace")
        self._note_unrestored(await self.activities.run(hold_release.guard, call, self._facts.ordered))

    async def _flip(self) -> None:
        while (answer := await self._try_flip()).flipped is None:
            await self._wait_after_refusal(answer.refused)
        flipped = self.state.facts.flipped = answer.flipped
        for fault in flipped.faults:
            self.board.note(f"the layout is not as planned: {fault}")
        self.state.figures.update(migrate_seconds=flipped.migrate_seconds, flip_seconds=flipped.seconds)
        self.state.certificate.update(segments=flipped.segments, faults=list(flipped.faults))

    async def _wait_after_refusal(self, why: str) -> None:
        """Wait for clients again, with the topic as it was: a rollback is free during the wait."""
        now = workflow.now()
        if now >= self._clients_until:
            raise _not_ready(f"{self.input.topic} was not changed: {why}. Resolve this, then start again")
        note_text = f"nothing was changed yet: {why}"
        if not any(note.endswith(note_text) for note in self.state.notes[-1:]):
            self.board.note(note_text)
        self.verbs.revise(WAITING_AGAIN)
        self.hold.reopen()
        # A broker may refuse indefinitely for a reason that the client check does not show.
        age = now - self.state.history[-1].started
        pause = max(_AFTER_REFUSAL, age / _TRIES_PER_AGE)
        await self.phases.rest("the next attempt to make it scalable", pause, effect="it is retried immediately")
        await self._wait_for_clients()

    async def _try_flip(self) -> FlipAnswer:
        # After a refusal the window may have ended, and a hook may have a veto by now.
        if not self.hold.plan.begun:
            await self.hold.wait()
            # A rollback that was accepted here must not find a topic that is becoming scalable.
            await self.timers.wait_if_paused()
            self.verbs.revise(self.phases.policies[Phase.FLIP])
        call = Call(f"Make {self.input.topic} scalable")
        return await self.activities.run(flip.flip, call, self._facts.ordered)

    async def _drain(self) -> None:
        begun = self.state.history[-1].started
        # A cancellation must not wait for consumers.
        if not await self.timers.until_proceed(self._watch_drain(begun + self.input.drain_timeout), or_cancelled=True):
            await self._watch_drain(workflow.now())
            # The second check alone took no time.
            self.state.figures.drain_seconds = (workflow.now() - begun).total_seconds()
            by = "`proceed`" if self.verbs.proceed_wanted else "the cancellation"
            self.board.note(f"the wait for old messages was ended by {by}")

    async def _watch_drain(self, until: datetime) -> None:
        call = Call(f"Wait until old messages of {self.input.topic} are consumed")
        self._record_drained(await self.activities.run(drain.drain, call, until))

    def _record_drained(self, drained: DrainedTopic) -> None:
        self.state.facts.drained = drained
        self.state.figures.drain_seconds = drained.seconds
        self.state.certificate.undrained = drained.backlogs
        for name, messages in drained.backlogs.items():
            self.board.note(f"{name} has {messages} unconsumed old messages, which stay available to its consumers")

    async def _verify(self) -> None:
        call = Call(f"Compare {self.input.topic} with the regular topic")
        check = await self.activities.run(drain.verify, call)
        proof = self.state.certificate
        proof.update(
            segments=check.segments,
            subscriptions=check.subscriptions,
            faults=[*(proof.faults or ()), *check.faults],
        )
        for fault in check.faults:
            self.board.alarm(fault)

    async def _complete(self) -> None:
        call = Call("Restore the policies of the namespace")
        released = await self.activities.run(hold_release.complete, call)
        self._note_unrestored(released)
        for fault in released.faults:
            self.board.alarm(fault)
        if released.faults:
            self.state.certificate.faults = [*(self.state.certificate.faults or ()), *released.faults]
        # Set here: the result of the flip may be lost although the topic is scalable.
        self.state.certificate.update(
            migrated_from=self.input.topic,
            partitions=self._facts.parents if self._facts.partitioned else 0,
            completed_at=workflow.now(),
        )

    async def _roll_back(self, cause: str) -> str:
        """Leave the topic regular; if it is scalable already, return why the migration completes instead."""
        obstacles: list[str] = []

        async def undo() -> None:
            call = Call("Restore the policies of the namespace")
            undone = await self.activities.run(hold_release.undo, call)
            obstacles[:] = [undone.why] if undone.why else []
            for note in undone.notes:
                self.board.note(note)

        await self.phases.undo(Phase.ROLLBACK, undo)
        return f"{obstacles[0]} ({cause})" if obstacles else ""

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _clean_up(self) -> CleanedUp:
        return await self.activities.run(cleanup.clean_up, Call(f"Delete the regular topic {self.input.topic}"))

    async def _forget(self, limit: timedelta | None) -> CleanedUp:
        call = Call(f"Delete our claim on {self.input.topic}", total=limit)
        return await self.activities.run(cleanup.forget, call)

    def _note_unrestored(self, released: Released) -> None:
        for note in released.notes:
            self.board.note(note)

    @property
    def _clients_until(self) -> datetime:
        """End of the wait for clients."""
        # The wait starts again at FLIP, so that a hold does not shorten it; topics of a wave have one deadline.
        restarted = self.state.running_phase == Phase.FLIP and self.input.parent is None
        phase = Phase.FLIP if restarted else Phase.CLIENTS
        return next(entry.started for entry in self.state.history if entry.phase == phase) + self.input.client_timeout

    @property
    def _facts(self) -> Precheck:
        """The result of PRECHECK."""
        facts = self.state.facts.precheck
        assert facts is not None, "PRECHECK has passed"
        return facts


def _not_ready(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.NOT_READY, non_retryable=True)


def _plan_summary(facts: Precheck) -> str:
    if facts.blockers:
        return not_ready(facts.blockers)
    return (
        f"ready: {facts.parents} sealed segments with {facts.backlog} messages of {facts.subscriptions} subscriptions, "
        f"and new segments {', '.join(facts.children)}"
    )

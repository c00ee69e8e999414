"""Hooks of a migration: deliveries of events, which never delay it, and questions before cut-overs, which may."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from models.lifecycle.failures import FailureKind
from models.lifecycle.hook_events import (
    ASK,
    CHECK,
    DELIVER,
    Checked,
    Delivered,
    Delivery,
    EventSource,
    EventType,
    HookCheck,
    Question,
    Veto,
    Vetoes,
)
from models.lifecycle.names import summary_line
from models.lifecycle.state import MigrationState
from models.lifecycle.status import Undo, WaitKind
from models.lifecycle.units import Unit
from models.lifecycle.verbs import Verb
from workflows.lifecycle.activity_calls import answer_of
from workflows.lifecycle.continuation import Continuation
from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.status import StatusBoard
from workflows.lifecycle.tasks import LONGEST_RETRY_PAUSE, growing_pause, wait_after_the_end

AnswerT = TypeVar("AnswerT", bound=BaseModel)

OVERRIDE_DELAY = timedelta(seconds=10)
"""A `proceed` that was meant for the hold must not override a veto that follows it."""

# The activities themselves bound each delivery, and report failures as answers: only a lost worker is retried here.
_LIMIT = timedelta(minutes=3)
_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3)
_SHORTEST_BACKOFF, _LONGEST_BACKOFF = timedelta(seconds=5), timedelta(minutes=10)
_LAST_DELIVERIES = timedelta(minutes=1)
_EVENTS = Unit(noun="events")


class VetoGate(NamedTuple):
    """The gate at which a migration waits because of a veto.

    Attributes:
        why: what it waits for.
        action: what an operator can do.
        effect: what `proceed` does.
    """

    why: str
    action: str
    effect: str


class Hooks:
    """Delivers events to the hooks of a migration, and asks those with a veto.

    Args:
        state: of the migration; `outbox` has the events.
        status: gets notes.
        continuation: ends the run.
        names: of the hooks; without any, no command is added to the history.
    """

    def __init__(
        self,
        state: MigrationState[Any, Any, Any],
        status: StatusBoard,
        continuation: Continuation,
        names: tuple[str, ...],
    ) -> None:
        self._state = state
        self._status = status
        self._continuation = continuation
        self._names = tuple(dict.fromkeys(names))
        self._tasks: list[asyncio.Task[None]] = []
        self._ends = False
        state.outbox.register(self._names)

    async def begin(self) -> None:
        """Check that workers know the hooks, and start to deliver events.

        Raises:
            ApplicationError: the worker's settings have no hook of a name.
        """
        if not self._names:
            return
        if not self._state.history:
            await self._check()
        self._tasks += [asyncio.create_task(self._deliver(name)) for name in self._names]

    async def end(self) -> None:
        """Deliver the last events, for at most a minute; those that remain are lost."""
        if not self._tasks:
            return
        self._ends = True
        await wait_after_the_end(
            lambda: not self._state.outbox.events, longest=_LAST_DELIVERIES, summary="last events for hooks"
        )
        for hook in self._state.outbox.hooks.values():
            if lost := hook.pending + hook.lost:
                self._status.note(f"hook {hook.name}: {_EVENTS.format(lost)} not delivered: {hook.error}")

    async def ask(self, step: str) -> Veto | None:
        """Ask the hooks with a veto whether a step may start; return the veto, which is also in the state.

        A hook that does not answer in time has a veto, too.

        Args:
            step: for people, for example `the cut-over`.
        """
        state = self._state
        if not self._names:
            return None
        event = self._status.new_event(
            EventType.CUTOVER_ASKED, f"may {step} start?", id=f"{workflow.info().run_id}-{workflow.uuid4()}"
        )
        question = Question(hooks=self._names, source=self._source(), event=event)
        try:
            answer = await _run(ASK, question, Vetoes, f"Ask hooks whether {step} may start")
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error):
                raise
            answer = Vetoes(vetoes=(Veto(hook=", ".join(self._names), why=f"could not be asked: {cause_of(error)}"),))
        before, state.veto = state.veto, answer.together
        if (veto := state.veto) is not None:
            state.ask_again = workflow.now() + timedelta(seconds=veto.ask_again)
            if before is None or before.why != veto.why:
                self._status.note(f"{step} does not start: veto of {veto.hook}: {veto.why}")
        elif answer.asked:
            self._status.note(f"{step} may start: allowed by {', '.join(answer.asked)}")
        return veto

    async def until_allowed(self, step: str, *, after: Undo) -> bool:
        """Ask before a step, and wait while a hook has a veto; return False if an operator overrides it.

        It is called where the run may continue as new.

        Args:
            step: for people, for example `wave 2`.
            after: how the step is undone.
        """
        verbs = self._state.verbs
        try:
            while await self.ask(step) is not None:
                self.show_veto(step, after=after)
                until = self._state.ask_again
                assert until is not None
                with suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda: verbs.proceed_wanted,
                        timeout=until - workflow.now(),
                        timeout_summary="next question to hooks",
                    )
                if verbs.proceed_wanted:
                    self.override(step)
                    return False
                await self._continuation.checkpoint()
            return True
        finally:
            verbs.open_gate()
            self._status.stop_waiting()

    def show_veto(self, step: str, *, after: Undo) -> None:
        """Close the gate of the veto in the state, and show the wait."""
        state, gate = self._state, veto_gate(self._state, step)
        waiting = state.waiting
        since = waiting.since if waiting and waiting.kind is WaitKind.VETO else workflow.now()
        state.verbs.close_gate(gate.effect, after=after, proceed_not_before=since + OVERRIDE_DELAY, needs_reason=True)
        enders = [verb for verb in (Verb.PROCEED, Verb.ROLLBACK) if verb in state.verbs.legal()]
        self._status.wait_for(WaitKind.VETO, gate.why, action=gate.action, until=state.ask_again, ends_on=enders)

    def override(self, step: str) -> None:
        """Drop the veto in the state, because an operator overrides it."""
        if (veto := self._state.veto) is not None:
            self._status.note(f"{step} starts against the veto of {veto.hook}: {veto.why}")
        self._state.veto = self._state.ask_again = None

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        try:
            checked = await _run(CHECK, HookCheck(hooks=self._names), Checked, "Check the hooks of the input")
        except BaseException:
            self._forget()
            raise
        if checked.problems:
            self._forget()
            raise ApplicationError("; ".join(checked.problems), type=FailureKind.PRECHECK_FAILED, non_retryable=True)

    def _forget(self) -> None:
        self._names = ()
        self._state.outbox.hooks.clear()

    async def _deliver(self, hook: str) -> None:
        outbox, backoff = self._state.outbox, _SHORTEST_BACKOFF
        while True:
            await workflow.wait_condition(lambda: not self._continuation.ended and bool(outbox.next_for(hook)))
            failed_before = outbox.hooks[hook].failing_since
            answer = await self._try(Delivery(hook=hook, source=self._source(), events=outbox.next_for(hook)))
            outbox.delivered(hook, answer, workflow.now())
            if not answer.error:
                backoff = _SHORTEST_BACKOFF
                if failed_before:
                    self._status.note(f"hook {hook}: events are delivered again")
                continue
            if not failed_before:
                self._status.note(f"hook {hook}: events are not delivered, and delivery is repeated: {answer.error}")
            ended_before = self._ends
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda before=ended_before: self._ends != before,
                    timeout=backoff,
                    timeout_summary=summary_line(f"next delivery to the hook {hook}"),
                )
            # After hours more rarely: each attempt stays in the history, and a wait for a decision ends no run.
            longest = growing_pause(_LONGEST_BACKOFF, failed_before or workflow.now(), LONGEST_RETRY_PAUSE)
            backoff = _SHORTEST_BACKOFF if self._ends else min(2 * backoff, longest)

    async def _try(self, delivery: Delivery) -> Delivered:
        try:
            return await _run(DELIVER, delivery, Delivered, f"Deliver events to the hook {delivery.hook}")
        except (ActivityError, ApplicationError) as error:
            return Delivered(error=cause_of(error))

    def _source(self) -> EventSource:
        info, board = workflow.info(), self._status
        return EventSource(
            namespace=info.namespace,
            workflow_id=info.workflow_id,
            run_id=info.first_execution_run_id,
            kind=board.kind,
            cluster=board.cluster,
            target=board.target,
        )


def veto_gate(state: MigrationState[Any, Any, Any], step: str) -> VetoGate:
    """Return the gate of the veto in the state.

    Args:
        state: with a veto.
        step: that does not start.
    """
    veto = state.veto
    assert veto is not None, "there is no veto"
    return VetoGate(
        why=f"the end of the veto of {veto.hook}: {veto.why}",
        action="remove the cause, or give `proceed` with a reason to override the veto",
        effect=f"{step} begins against the veto of {veto.hook}",
    )


async def _run(activity: str, argument: BaseModel, answer: type[AnswerT], summary: str) -> AnswerT:
    """Run an activity of hooks.

    Raises:
        ActivityError: it failed, or was cancelled.
        ApplicationError: its result cannot be decoded.
    """
    options: dict[str, Any] = {
        "args": [argument],
        "result_type": RawValue,
        "start_to_close_timeout": _LIMIT,
        "retry_policy": _RETRIES,
        "cancellation_type": workflow.ActivityCancellationType.TRY_CANCEL,
        "summary": summary_line(summary),
    }
    text = await answer_of(activity, **options)
    try:
        return answer.model_validate_json(text)
    except ValidationError as error:
        raise ApplicationError(f"the answer of {activity} cannot be read", type=FailureKind.UNEXPECTED) from error

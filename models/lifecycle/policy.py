"""Rules for the operator's verbs: which one is legal in which phase.

Each phase has a policy, and a verb is judged by the policy of the running phase. So a verb that comes too early, twice
or too late is answered, and does no harm.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from models.base import Result
from models.lifecycle.auto_throttle import Pause
from models.lifecycle.status import Undo
from models.lifecycle.verbs import ApprovalRequest, Verb, VerbResponse

ENDED = "the migration has ended"
NO_GATE = "no gate is closed"
COMMITTED = "the migration is committed, and cannot be rolled back any more"

TWO_PERSONS = (Undo.COPY_BACK, Undo.NONE)
"""Steps with these ways to undo them need two persons, if the input asks for that."""

# Reasons of refusals that migrations share.
NO_NAME = "two persons must agree, and the sender has no name; send it with `pulsar-migrate`, which names its user"
TOO_SHORT = "the phase is too short to pause"
WINDOW_WAITS = "the migration already waits in the window; `change_window` moves its end"
ROLLING_BACK = "the rollback is running"
CLEANING_UP = "the cleanup is running"
COPY_STOPS = "the copy stops within seconds, and keeps what it has; `resume` continues"
CLEANUP_GATE = "the cleanup ends, and the rest stays"


class PhasePolicy(Result):
    """The verbs that an operator may send while a phase runs.

    Attributes:
        undo: how the phase is undone.
        undo_cost: effect and cost of a rollback now, in one sentence.
        no_rollback: why `rollback` is refused; empty where it is legal.
        no_pause: why `pause` is refused; empty where it is legal.
        pause_effect: what `pause` does here.
        no_cleanup: why `cleanup` is refused; empty where it is legal.
        gate: what `proceed` does here; empty where no gate is closed.
        no_gate: why `proceed` is refused where no gate is closed.
        after_gate: how that is undone.
        gate_needs_reason: `proceed` without a reason is refused here.
        cleanup_effect: what `cleanup` does here.
        after_cleanup: how that is undone.
    """

    undo: Undo
    undo_cost: str
    no_rollback: str = ""
    no_pause: str = ""
    pause_effect: str = "pauses before the next step; `resume` continues"
    no_cleanup: str = "there is nothing to clean up before the migration is committed"
    gate: str = ""
    after_gate: Undo = Undo.FREE
    gate_needs_reason: bool = False
    no_gate: str = NO_GATE
    cleanup_effect: str = "the window ends, and the old side is cleaned up"
    after_cleanup: Undo = Undo.FREE

    def with_cleanup(self, *, deletes: bool) -> PhasePolicy:
        """Return the same policy with the effect of `cleanup`, where it is legal.

        Args:
            deletes: the input asks for the deletion of the old side.
        """
        if self.no_cleanup:
            return self
        effect = "the window ends, and the old side is deleted: it cannot be brought back"
        if not deletes:
            effect = 'the window ends; nothing is deleted, because of "cleanup": "leave" in the input'
        after = Undo.NONE if deletes else self.after_gate
        return self.model_copy(update={"cleanup_effect": effect, "after_cleanup": after})


class VerbState(BaseModel):
    """The accepted verbs, and the policy for the next ones; continue-as-new carries it.

    Attributes:
        policy: of the running phase.
        ended: no verb is legal any more.
        pause: who paused, since when and why; None before `pause` is accepted, and after `resume`.
        rollback_wanted: `rollback` was accepted, and the rollback has not started.
        cleanup_wanted: `cleanup` was accepted in the running phase.
        proceed_wanted: `proceed` was accepted in the running phase, or at its gate.
        proceed_not_before: the closed gate refuses `proceed` before this time.
        two_persons: a step that costs a copy back, or cannot be undone, needs a request and another person's approval.
        request: the open request.
        unapproved: requests that ended without an approval or `reject`, with the cause, until they are recorded.
    """

    policy: PhasePolicy
    ended: bool = False
    pause: Pause | None = None
    rollback_wanted: bool = False
    cleanup_wanted: bool = False
    proceed_wanted: bool = False
    proceed_not_before: datetime | None = None
    two_persons: bool = False
    request: ApprovalRequest | None = None
    unapproved: list[tuple[ApprovalRequest, str]] = []

    def enter(self, policy: PhasePolicy) -> None:
        """Enter a phase; a `cleanup` or `proceed` of the previous phase is dropped."""
        self.policy = policy
        self.proceed_wanted = False
        self.cleanup_wanted = False
        self.proceed_not_before = None
        self._end_request("the next phase has started")
        if policy.no_pause:
            self.pause = None

    def revise(self, policy: PhasePolicy) -> None:
        """Replace the policy of the running phase; accepted verbs stay accepted."""
        self.policy = policy

    def close_gate(
        self,
        effect: str,
        *,
        after: Undo = Undo.FREE,
        proceed_not_before: datetime | None = None,
        needs_reason: bool = False,
    ) -> None:
        """Close a gate inside the running phase; `effect` says what `proceed` does there, `after` how it is undone.

        A gate that an earlier run of the workflow closed stays as it is, with a `proceed` that was accepted since.
        `proceed_not_before` refuses an earlier `proceed`: one that was meant for the previous gate, or was sent twice,
        must not start what cannot be undone. With `needs_reason` a `proceed` must say why.
        """
        self.proceed_not_before = proceed_not_before
        if self.policy.gate != effect:
            self._set_gate(effect, after, needs_reason=needs_reason)

    def open_gate(self, why: str = NO_GATE) -> None:
        """Open the gate, and drop the `proceed` that opened it; `why` refuses another one."""
        self._set_gate("", Undo.FREE)
        self.policy = self.policy.model_copy(update={"no_gate": why})
        self.proceed_not_before = None

    def _set_gate(self, effect: str, after: Undo, *, needs_reason: bool = False) -> None:
        gate = {"gate": effect, "after_gate": after, "gate_needs_reason": needs_reason}
        self.policy = self.policy.model_copy(update=gate)
        self.proceed_wanted = False
        self._end_request(f"`proceed` starts this now: {effect}" if effect else "nothing waits for it any more")

    def _end_request(self, why: str) -> None:
        if self.request is not None:
            self.unapproved.append((self.request, why))
        self.request = None

    def undo(self) -> None:
        """Drop the accepted `rollback`, because the rollback starts."""
        self.rollback_wanted = False

    def commit(self) -> None:
        """Drop an accepted `rollback`, which came too late, and refuse it from now on."""
        self.rollback_wanted = False
        if not self.policy.no_rollback:
            # The next phase may start much later, for example after a pause.
            self.policy = self.policy.model_copy(update={"no_rollback": COMMITTED})

    def end(self) -> None:
        """Refuse every verb from now on."""
        self.ended = True
        self.pause = None
        self._end_request(ENDED)

    @property
    def paused(self) -> bool:
        """True from an accepted `pause` to `resume`."""
        return self.pause is not None

    def legal(self) -> tuple[Verb, ...]:
        """Return the verbs that would be accepted now."""
        return tuple(verb for verb in Verb if not self._refusal(verb))

    def undo_after(self, verb: Verb) -> Undo:
        """Return how the step that a verb starts is undone."""
        match verb:
            case Verb.CLEANUP:
                return self.policy.after_cleanup
            case Verb.PROCEED:
                return self.policy.after_gate
            case Verb.APPROVE if self.request:
                return self.undo_after(self.request.verb)
            case _:
                return Undo.FREE

    def needs_approval(self, verb: Verb) -> bool:
        """Return whether another person must approve a verb before it is applied."""
        return self.two_persons and verb is not Verb.APPROVE and self.undo_after(verb) in TWO_PERSONS

    def judge(
        self,
        verb: Verb,
        now: datetime | None = None,
        *,
        by: str = "",
        reason: str | None = None,
        asked: datetime | None = None,
    ) -> VerbResponse:
        """Return what a verb would do now, without doing it.

        Args:
            verb: judged by the policy of the running phase.
            now: the time.
            by: who sends it; empty for an unknown sender, who can neither ask for an approval nor give one.
            reason: the sender's; None where nothing is sent.
            asked: start of the request that the sender has seen and approves; None where that is not said.
        """
        refusal = (
            self._refusal(verb)
            or self._too_soon(verb, now)
            or self._without_reason(verb, reason)
            or self._wrong_sender(verb, by)
            or self._changed_since(verb, asked)
        )
        why = refusal or self._effect(verb)
        return VerbResponse(verb=verb, accepted=not refusal, why=why, legal=self.legal())

    def take(
        self, verb: Verb, now: datetime, *, by: str = "", reason: str = "", asked: datetime | None = None
    ) -> VerbResponse:
        """Apply a verb if it is legal, or keep it as a request; the response names what is legal after it."""
        response = self.judge(verb, now, by=by, reason=reason, asked=asked)
        if response.accepted:
            if self.needs_approval(verb):
                self.request = ApprovalRequest(verb=verb, effect=self.effect_of(verb), by=by, since=now, reason=reason)
            else:
                self._apply(verb, Pause(by=by, since=now, reason=reason))
        return response.model_copy(update={"legal": self.legal()})

    def _apply(self, verb: Verb, pause: Pause) -> None:
        """Apply a verb; `pause` is the one that it orders, if it is that verb."""
        request = self.request
        if verb in (Verb.APPROVE, Verb.REJECT):
            self.request = None
        else:
            self._end_request(f"`{verb}` was given")
        match verb:
            case Verb.ROLLBACK:
                self.rollback_wanted, self.pause = True, None
            case Verb.CLEANUP:
                self.cleanup_wanted = True
            case Verb.PAUSE:
                self.pause = pause
            case Verb.RESUME:
                self.pause = None
            case Verb.PROCEED:
                self.proceed_wanted, self.cleanup_wanted = True, False
            case Verb.APPROVE:
                assert request is not None, "`approve` is refused without a request"
                self._apply(request.verb, pause)
            case Verb.REJECT:
                pass

    def _refusal(self, verb: Verb) -> str:
        if self.ended:
            return ENDED
        if self.rollback_wanted:
            return "a rollback is running" if verb is not Verb.ROLLBACK else "a rollback was requested already"
        match verb:
            case Verb.ROLLBACK:
                return self.policy.no_rollback or self._window_ended_by()
            case Verb.CLEANUP:
                return self.policy.no_cleanup or self._cleanup_decided()
            case Verb.PAUSE:
                return self.policy.no_pause or ("it is paused already" if self.paused else "")
            case Verb.RESUME:
                return "" if self.paused else "it is not paused"
            case Verb.PROCEED:
                if not self.policy.gate:
                    return self.policy.no_gate
                return "proceed was sent already" if self.proceed_wanted else self._requested(verb)
            case Verb.APPROVE | Verb.REJECT:
                return "" if self.request else "no request for an approval is open"

    def _requested(self, verb: Verb) -> str:
        if self.request is None:
            return ""
        if self.request.verb is verb:
            return f"{self.request.by} has asked for it already; another person must `approve` it"
        # A request that replaced another one could be approved by a person who has read the first one.
        if self.needs_approval(verb):
            return f"{self.request.by} has asked for {self.request.verb}; `reject` that first"
        return ""

    def _wrong_sender(self, verb: Verb, by: str) -> str:
        if not by and (verb is Verb.APPROVE or self.needs_approval(verb)):
            return NO_NAME
        if verb is Verb.APPROVE and self.request and person(by) == person(self.request.by):
            return f"{self.request.by} has asked for it; another person must approve it"
        return ""

    def _changed_since(self, verb: Verb, asked: datetime | None) -> str:
        request = self.request
        if verb is not Verb.APPROVE or asked is None or request is None or request.since == asked:
            return ""
        return f"the request has changed: {request.by} asks for {request.verb} now: {request.effect}; look at it again"

    def _too_soon(self, verb: Verb, now: datetime | None) -> str:
        if verb is not Verb.PROCEED or now is None or self.proceed_not_before is None or now >= self.proceed_not_before:
            return ""
        return f"this gate has just closed, and `proceed` has another effect here: {self.policy.gate}; send it again"

    def _without_reason(self, verb: Verb, reason: str | None) -> str:
        if verb is not Verb.PROCEED or not self.policy.gate_needs_reason or reason is None or reason.strip():
            return ""
        return f"`proceed` needs a reason here: {self.policy.gate}; send it again with --reason TEXT"

    def _window_ended_by(self) -> str:
        # Where `cleanup` is legal a window is open, and one of both verbs has just ended it.
        if self.policy.no_cleanup or not (self.cleanup_wanted or self.proceed_wanted):
            return ""
        return f"the window was ended by {Verb.CLEANUP if self.cleanup_wanted else Verb.PROCEED}"

    def _cleanup_decided(self) -> str:
        # The verb that deletes less wins: `proceed` cancels a `cleanup`, but not the reverse.
        if self.proceed_wanted:
            return "proceed was sent already"
        return "cleanup was requested already" if self.cleanup_wanted else self._requested(Verb.CLEANUP)

    def _effect(self, verb: Verb) -> str:
        effect = self.effect_of(verb)
        return f"asks another person to `approve` it; then: {effect}" if self.needs_approval(verb) else effect

    def effect_of(self, verb: Verb) -> str:
        """Return what a verb does, once another person has approved it where that is needed."""
        match verb:
            case Verb.ROLLBACK:
                return self.policy.undo_cost
            case Verb.CLEANUP:
                return self.policy.cleanup_effect
            case Verb.PAUSE:
                return self.policy.pause_effect
            case Verb.RESUME:
                return "continues"
            case Verb.PROCEED:
                return self.policy.gate
            case Verb.APPROVE:
                return self.request.effect if self.request else ""
            case Verb.REJECT:
                return "the request is dropped, and the migration waits as before"


def person(sender: str) -> str:
    """Return the user of a sender `program:user@machine`; the whole name for other forms."""
    return sender.rpartition("@")[0].rpartition(":")[2] or sender

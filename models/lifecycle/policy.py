"""Which of the operator's verbs is legal when: the part of a migration that needs no server.

A migration goes through phases. Each phase enters with a policy, and a verb is judged by the policy of the phase that
runs. So a verb that is given too early, twice or too late is answered, and does no harm.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from models.base import Result
from models.lifecycle.status import Undo
from models.lifecycle.verbs import Verb, VerbResponse

ENDED = "the migration has ended"
COMMITTED = "what could be undone is over; the migration continues to its end"

# Reasons of refusals that migrations share.
TOO_SHORT = "the phase is too short to pause"
WINDOW_WAITS = "the window is a wait already; `change_window` moves its end"
ROLLING_BACK = "the rollback is under way"
CLEANING_UP = "the cleanup is under way"
CLEANUP_GATE = "the cleanup ends, and what is left stays"


class PhasePolicy(Result):
    """What an operator may do while a phase runs.

    Attributes:
        undo: how the phase is undone.
        undo_cost: what a rollback would do and cost now, in a sentence.
        no_rollback: why `rollback` is refused; empty where it is legal.
        no_pause: why `pause` is refused; empty where it is legal.
        no_cleanup: why `cleanup` is refused; empty where it is legal.
        gate: what `proceed` does here; empty where no gate is closed.
    """

    undo: Undo
    undo_cost: str
    no_rollback: str = ""
    no_pause: str = ""
    no_cleanup: str = "there is nothing to clean up before the migration is committed"
    gate: str = ""


class VerbState(BaseModel):
    """What operators have asked for, and the judgement over what they ask next; continue-as-new carries it.

    Attributes:
        policy: of the running phase.
        ended: nothing is legal any more.
        paused: `pause` was taken, and `resume` was not yet.
        rollback_wanted: `rollback` was taken, and the way back has not begun.
        cleanup_wanted: `cleanup` was taken in the running phase.
        proceed_wanted: `proceed` was taken in the running phase, or at its gate.
        proceed_not_before: before that `proceed` is refused at the gate that is closed.
    """

    policy: PhasePolicy
    ended: bool = False
    paused: bool = False
    rollback_wanted: bool = False
    cleanup_wanted: bool = False
    proceed_wanted: bool = False
    proceed_not_before: datetime | None = None

    def enter(self, policy: PhasePolicy) -> None:
        """Begin a phase; a `cleanup` or `proceed` that was taken belongs to the phase in which it was given."""
        self.policy = policy
        self.proceed_wanted = False
        self.cleanup_wanted = False
        self.proceed_not_before = None
        if policy.no_pause:
            self.paused = False

    def revise(self, policy: PhasePolicy) -> None:
        """Judge the running phase by another policy from now on; what was taken stays taken."""
        self.policy = policy

    def close_gate(self, effect: str, *, proceed_not_before: datetime | None = None) -> None:
        """Close a gate inside the running phase; `effect` says what `proceed` does there.

        A gate that an earlier run of the workflow closed stays as it is, with the `proceed` that was taken there since.
        `proceed_not_before` refuses an earlier `proceed`: one that was meant for the previous gate, or was sent twice,
        must not start what cannot be undone.
        """
        self.proceed_not_before = proceed_not_before
        if self.policy.gate != effect:
            self.policy, self.proceed_wanted = self.policy.model_copy(update={"gate": effect}), False

    def open_gate(self) -> None:
        """The phase continues: the `proceed` that opened its gate is used up."""
        self.policy, self.proceed_wanted = self.policy.model_copy(update={"gate": ""}), False
        self.proceed_not_before = None

    def undo(self) -> None:
        """The way back begins: it honours the rollback, and verbs are judged by its own policy from now on."""
        self.rollback_wanted = False

    def commit(self) -> None:
        """Nothing is undone any more: a rollback that was taken came too late, and none is legal from now on."""
        self.rollback_wanted = False
        if not self.policy.no_rollback:
            # The next phase may begin much later, behind a pause for example.
            self.policy = self.policy.model_copy(update={"no_rollback": COMMITTED})

    def end(self) -> None:
        """Nothing is legal from now on."""
        self.ended = True
        self.paused = False

    def legal(self) -> tuple[Verb, ...]:
        """The verbs that would be accepted now."""
        return tuple(verb for verb in Verb if not self._refusal(verb))

    def judge(self, verb: Verb, now: datetime | None = None) -> VerbResponse:
        """Say what a verb would do now, without doing it."""
        refusal = self._refusal(verb) or self._too_soon(verb, now)
        why = refusal or self._effect(verb)
        return VerbResponse(verb=verb, accepted=not refusal, why=why, legal=self.legal())

    def take(self, verb: Verb, now: datetime | None = None) -> VerbResponse:
        """Judge a verb, and let it take effect where it is legal; the verdict names what is legal after it."""
        verdict = self.judge(verb, now)
        if verdict.accepted:
            match verb:
                case Verb.ROLLBACK:
                    self.rollback_wanted, self.paused = True, False
                case Verb.CLEANUP:
                    self.cleanup_wanted = True
                case Verb.PAUSE:
                    self.paused = True
                case Verb.RESUME:
                    self.paused = False
                case Verb.PROCEED:
                    self.proceed_wanted, self.cleanup_wanted = True, False
        return verdict.model_copy(update={"legal": self.legal()})

    def _refusal(self, verb: Verb) -> str:
        if self.ended:
            return ENDED
        if self.rollback_wanted:
            return "a rollback is under way" if verb is not Verb.ROLLBACK else "a rollback was asked for already"
        match verb:
            case Verb.ROLLBACK:
                return self.policy.no_rollback or self._window_settled()
            case Verb.CLEANUP:
                return self.policy.no_cleanup or self._cleanup_settled()
            case Verb.PAUSE:
                return self.policy.no_pause or ("it is paused already" if self.paused else "")
            case Verb.RESUME:
                return "" if self.paused else "it is not paused"
            case Verb.PROCEED:
                if not self.policy.gate:
                    return "no gate is closed"
                return "proceed was given already" if self.proceed_wanted else ""

    def _too_soon(self, verb: Verb, now: datetime | None) -> str:
        if verb is not Verb.PROCEED or now is None or self.proceed_not_before is None or now >= self.proceed_not_before:
            return ""
        return (
            f"this gate was closed just now, and `proceed` means something else here: {self.policy.gate}; say it again"
        )

    def _window_settled(self) -> str:
        # Where `cleanup` is legal a window is open, and either word has just ended it.
        if self.policy.no_cleanup or not (self.cleanup_wanted or self.proceed_wanted):
            return ""
        return f"the window was ended by {Verb.CLEANUP if self.cleanup_wanted else Verb.PROCEED}"

    def _cleanup_settled(self) -> str:
        # The word that keeps more wins: `proceed` takes a cleanup back, and not the other way round.
        if self.proceed_wanted:
            return "proceed was given already"
        return "cleanup was asked for already" if self.cleanup_wanted else ""

    def _effect(self, verb: Verb) -> str:
        match verb:
            case Verb.ROLLBACK:
                return self.policy.undo_cost
            case Verb.CLEANUP:
                return "the window ends, and what the input says of the source is done"
            case Verb.PAUSE:
                return "pauses; `resume` continues"
            case Verb.RESUME:
                return "continues"
            case Verb.PROCEED:
                return self.policy.gate

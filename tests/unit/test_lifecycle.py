"""Walks of operators and engine through the lifecycle, with the rules of the metadata store migration."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.lifecycle import ENDED, Lifecycle, Rules
from models.metadata_store import Phase
from models.migration import Undo, Verb
from workflows.metadata_store_rules import OFFLINE_COPY, RULES

_LAST = [(phase, RULES[phase]) for phase in (Phase.COMPLETED, Phase.VALIDATION)]
LIVE = [(phase, RULES[phase]) for phase in (Phase.PRECHECK, Phase.PRE_COPY)]
LIVE.extend((phase, RULES[phase]) for phase in (Phase.PREPARATION, Phase.COPYING, Phase.VERIFY))
LIVE.extend(_LAST)
OFFLINE = [(Phase.PRECHECK, RULES[Phase.PRECHECK]), (Phase.COPYING, OFFLINE_COPY), (Phase.VERIFY, OFFLINE_COPY), *_LAST]

BLOCKED = {Phase.PREPARATION, Phase.COPYING, Phase.VERIFY, Phase.COMPLETED, Phase.FAILED}
LONGEST_WAY = 12


@dataclass
class Engine:
    """How the workflow moves the lifecycle: phase after phase, into the way back, and to the end."""

    road: list[tuple[Phase, Rules]]
    lifecycle: Lifecycle = field(init=False)
    phase: Phase = field(init=False)

    def __post_init__(self) -> None:
        self.phase, rules = self.road[0]
        self.lifecycle = Lifecycle(rules)

    @property
    def committed(self) -> bool:
        """Whether the commit is behind."""
        return self.phase in (Phase.VALIDATION, Phase.CLEANUP)

    @property
    def held(self) -> bool:
        """Whether only the operator can move it."""
        return self.lifecycle.paused or self.lifecycle.ended

    def enter(self, phase: Phase, rules: Rules) -> None:
        """Begin a phase."""
        self.phase = phase
        self.lifecycle.enter(rules)

    def step(self, *, committed: bool = False) -> None:
        """What comes next when the work of the phase succeeds or its window ends."""
        assert not self.held
        if self.phase is Phase.FAILED and committed:
            self.lifecycle.commit()
            self.enter(Phase.VALIDATION, RULES[Phase.VALIDATION])
        elif self.phase is Phase.VALIDATION and self.lifecycle.cleanup_wanted:
            self.enter(Phase.CLEANUP, RULES[Phase.CLEANUP])
        elif self.committed or self.phase is Phase.FAILED:
            self.lifecycle.end()
        elif self.lifecycle.rollback_wanted:
            self.fail()
        else:
            phases = [phase for phase, _ in self.road]
            self.enter(*self.road[phases.index(self.phase) + 1])

    def fail(self) -> None:
        """The work of the phase fails for good."""
        if self.phase is Phase.PRECHECK or self.committed:
            self.lifecycle.end()
        else:
            self.enter(Phase.FAILED, RULES[Phase.FAILED])

    def drive(self) -> int:
        """Go to an end with the verbs that are legal; how many moves it took."""
        for moves in range(LONGEST_WAY):
            if self.lifecycle.ended:
                return moves
            if self.lifecycle.paused:
                assert self.lifecycle.take(Verb.RESUME).accepted
            elif Verb.PROCEED in self.lifecycle.legal():
                assert self.lifecycle.take(Verb.PROCEED).accepted
            else:
                self.step()
        raise AssertionError(f"no end from {self.phase}")


class Walks(RuleBasedStateMachine):
    """All orders of the operator's verbs, doubled and late ones too, mixed with the engine's moves."""

    @initialize(offline=st.booleans())
    def start(self, offline: bool) -> None:
        """Start live or offline."""
        self.engine = Engine(OFFLINE if offline else LIVE)
        self.blocked = {Phase.COMPLETED, Phase.FAILED} if offline else BLOCKED

    @rule(verb=st.sampled_from(Verb))
    def give(self, verb: Verb) -> None:
        """An illegal verb changes nothing and names the legal ones; a legal one is answered and takes effect."""
        lifecycle = self.engine.lifecycle
        before, legal = copy.deepcopy(vars(lifecycle)), lifecycle.legal()
        assert lifecycle.judge(verb).accepted is (verb in legal)
        assert vars(lifecycle) == before
        verdict = lifecycle.take(verb)
        assert (verdict.verb, verdict.accepted) == (verb, verb in legal)
        assert verdict.why
        assert verdict.legal == lifecycle.legal()
        assert (vars(lifecycle) == before) is not verdict.accepted

    @precondition(lambda self: not self.engine.held)
    @rule(committed=st.booleans())
    def succeed(self, committed: bool) -> None:
        """The phase's work succeeds."""
        self.engine.step(committed=committed)

    @precondition(lambda self: not self.engine.lifecycle.ended and self.engine.phase is not Phase.FAILED)
    @rule()
    def fail(self) -> None:
        """The phase's work fails, is cancelled, or runs into a deadline."""
        self.engine.fail()

    @precondition(lambda self: self.engine.phase is Phase.VALIDATION and self.engine.lifecycle.cleanup_wanted)
    @rule()
    def refuse_cleanup(self) -> None:
        """The last census finds the source in use."""
        self.engine.lifecycle.cleanup_wanted = False

    @invariant()
    def there_is_a_way_to_an_end(self) -> None:
        """From every state there is a way to an end, and a rollback, where it is legal, is one too."""
        copy.deepcopy(self.engine).drive()
        other = copy.deepcopy(self.engine)
        if other.lifecycle.take(Verb.ROLLBACK).accepted:
            assert not other.committed
            assert other.drive() <= 2

    @invariant()
    def nothing_is_legal_after_the_end(self) -> None:
        """After the end each verb is refused with that reason."""
        lifecycle = self.engine.lifecycle
        if lifecycle.ended:
            assert lifecycle.legal() == ()
            assert {lifecycle.judge(verb).why for verb in Verb} == {ENDED}
            assert not lifecycle.paused

    @invariant()
    def writes_are_never_blocked_by_a_pause(self) -> None:
        """No pause is in force, and none is legal, in a phase in which writes are blocked."""
        if self.engine.phase in self.blocked:
            assert not self.engine.lifecycle.paused
            assert Verb.PAUSE not in self.engine.lifecycle.legal()

    @invariant()
    def cleanup_and_rollback_exclude_each_other(self) -> None:
        """What can be rolled back cannot be cleaned up, and what is committed cannot be rolled back."""
        assert not {Verb.ROLLBACK, Verb.CLEANUP} <= set(self.engine.lifecycle.legal())
        if self.engine.committed:
            assert Verb.ROLLBACK not in self.engine.lifecycle.legal()
            assert not self.engine.lifecycle.rollback_wanted

    @invariant()
    def kept_is_kept(self) -> None:
        """Where `proceed` was given last or alone, no cleanup follows."""
        assert not (self.engine.lifecycle.proceed_wanted and self.engine.lifecycle.cleanup_wanted)


TestWalks = Walks.TestCase
TestWalks.settings = settings(max_examples=80, stateful_step_count=25, deadline=None, derandomize=True)


def test_all_phases_have_rules() -> None:
    """Each phase says how it is undone and what that costs; only the cleanup and the way back have no undo."""
    assert set(RULES) == set(Phase)
    assert all(rules.undo_cost for rules in RULES.values())
    assert {phase for phase, rules in RULES.items() if rules.undo is Undo.NONE} == {Phase.CLEANUP, Phase.FAILED}


def test_verbs_of_each_phase() -> None:
    """The table of what is legal when a phase begins."""
    legal = {phase: Lifecycle(rules).legal() for phase, rules in RULES.items()}
    assert legal == {
        Phase.PRECHECK: (Verb.ROLLBACK,),
        Phase.PRE_COPY: (Verb.ROLLBACK, Verb.PAUSE),
        Phase.PREPARATION: (Verb.ROLLBACK,),
        Phase.COPYING: (Verb.ROLLBACK,),
        Phase.VERIFY: (Verb.ROLLBACK,),
        Phase.COMPLETED: (),
        Phase.VALIDATION: (Verb.CLEANUP, Verb.PROCEED),
        Phase.CLEANUP: (),
        Phase.FAILED: (),
    }
    assert Lifecycle(OFFLINE_COPY).legal() == (Verb.ROLLBACK,)


def test_cleanup_then_proceed() -> None:
    """`proceed` takes a cleanup back; a cleanup after `proceed` is refused."""
    lifecycle = Lifecycle(RULES[Phase.VALIDATION])
    assert lifecycle.take(Verb.CLEANUP).accepted
    assert lifecycle.take(Verb.PROCEED).accepted
    assert not lifecycle.cleanup_wanted
    refused = lifecycle.take(Verb.CLEANUP)
    assert (refused.accepted, refused.why, refused.legal) == (False, "proceed was given already", ())

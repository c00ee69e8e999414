"""Walks of operators and engine through the lifecycle, with the rules of the metadata store migration."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from models.bookie_cluster.input import Routing
from models.bookie_cluster.phases import Phase as SwitchPhase
from models.lifecycle.policy import ENDED, PhasePolicy, VerbState
from models.lifecycle.status import Undo
from models.lifecycle.verbs import Verb, VerbRequest
from models.metadata_store.phases import Phase
from workflows.bookie_cluster.policy import POLICIES as SWITCH_POLICIES
from workflows.metadata_store.policy import OFFLINE_COPY, POLICIES

NOW = datetime(2030, 1, 1, tzinfo=UTC)


_LAST = [(phase, POLICIES[phase]) for phase in (Phase.COMPLETED, Phase.VALIDATION)]
LIVE = [(phase, POLICIES[phase]) for phase in (Phase.PRECHECK, Phase.PRE_COPY)]
LIVE.extend((phase, POLICIES[phase]) for phase in (Phase.PREPARATION, Phase.COPYING, Phase.VERIFY))
LIVE.extend(_LAST)
OFFLINE = [
    (Phase.PRECHECK, POLICIES[Phase.PRECHECK]),
    (Phase.COPYING, OFFLINE_COPY),
    (Phase.VERIFY, OFFLINE_COPY),
    *_LAST,
]

BLOCKED = {Phase.PREPARATION, Phase.COPYING, Phase.VERIFY, Phase.COMPLETED, Phase.FAILED}
LONGEST_WAY = 12


@dataclass
class Engine:
    """How the workflow moves the lifecycle: phase after phase, into the rollback, and to the end."""

    road: list[tuple[Phase, PhasePolicy]]
    lifecycle: VerbState = field(init=False)
    phase: Phase = field(init=False)

    def __post_init__(self) -> None:
        self.phase, rules = self.road[0]
        self.lifecycle = VerbState(policy=rules)

    @property
    def committed(self) -> bool:
        """Return whether the commit is done."""
        return self.phase in (Phase.VALIDATION, Phase.CLEANUP)

    @property
    def blocked(self) -> set[Phase]:
        """Return the phases in which writes are blocked, or a failure may not end the migration."""
        return BLOCKED if self.road is LIVE else {Phase.COMPLETED, Phase.FAILED}

    @property
    def key(self) -> tuple[Phase, bool, bool, bool, bool, bool]:
        """The whole state."""
        own = self.lifecycle
        return (self.phase, own.paused, own.ended, own.rollback_wanted, own.cleanup_wanted, own.proceed_wanted)

    @property
    def held(self) -> bool:
        """Whether only the operator can move it."""
        return self.lifecycle.paused or self.lifecycle.ended

    def enter(self, phase: Phase, rules: PhasePolicy) -> None:
        """Begin a phase."""
        self.phase = phase
        self.lifecycle.enter(rules)

    def step(self, *, committed: bool = False) -> None:
        """Enter the next phase, as if the work of the phase had succeeded or its window had ended."""
        assert not self.held
        if self.phase is Phase.FAILED and committed:
            self.lifecycle.commit()
            self.enter(Phase.VALIDATION, POLICIES[Phase.VALIDATION])
        elif self.phase is Phase.VALIDATION and self.lifecycle.cleanup_wanted:
            self.enter(Phase.CLEANUP, POLICIES[Phase.CLEANUP])
        elif self.committed or self.phase is Phase.FAILED:
            self.lifecycle.end()
        elif self.lifecycle.rollback_wanted:
            self.fail()
        else:
            phases = [phase for phase, _ in self.road]
            self.enter(*self.road[phases.index(self.phase) + 1])

    def fail(self) -> None:
        """Fail the work of the phase finally."""
        if self.phase is Phase.PRECHECK or self.committed:
            self.lifecycle.end()
        else:
            self.enter(Phase.FAILED, POLICIES[Phase.FAILED])

    def drive(self) -> int:
        """Give legal verbs until the migration ends; return how many moves it took."""
        for moves in range(LONGEST_WAY):
            if self.lifecycle.ended:
                return moves
            if self.lifecycle.paused:
                assert self.lifecycle.take(Verb.RESUME, NOW).accepted
            elif Verb.PROCEED in self.lifecycle.legal():
                assert self.lifecycle.take(Verb.PROCEED, NOW).accepted
            else:
                self.step()
        raise AssertionError(f"no end from {self.phase}")


def check_verb(lifecycle: VerbState, verb: Verb) -> None:
    """Check that an illegal verb changes nothing and names the legal ones, and that a legal one takes effect."""
    before, legal = dict(vars(lifecycle)), lifecycle.legal()
    assert lifecycle.judge(verb).accepted is (verb in legal)
    assert vars(lifecycle) == before
    verdict = lifecycle.take(verb, NOW)
    assert (verdict.verb, verdict.accepted) == (verb, verb in legal)
    assert verdict.why
    assert verdict.legal == lifecycle.legal()
    assert (vars(lifecycle) == before) is not verdict.accepted


def check_state(engine: Engine) -> None:
    """Check what must hold in every state that can be reached."""
    lifecycle, legal = engine.lifecycle, engine.lifecycle.legal()
    clone(engine).drive()
    other = clone(engine)
    if other.lifecycle.take(Verb.ROLLBACK, NOW).accepted:
        assert not other.committed
        assert other.drive() <= 2
    if lifecycle.ended:
        assert legal == ()
        assert {lifecycle.judge(verb).why for verb in Verb} == {ENDED}
        assert not lifecycle.paused
    if engine.phase in engine.blocked:
        assert not lifecycle.paused
        assert Verb.PAUSE not in legal
    if engine.committed:
        assert Verb.ROLLBACK not in legal
        assert not lifecycle.rollback_wanted
    assert not {Verb.ROLLBACK, Verb.CLEANUP} <= set(legal)
    assert not (lifecycle.proceed_wanted and lifecycle.cleanup_wanted)


def clone(engine: Engine) -> Engine:
    """Return an engine in the same state."""
    other = copy.copy(engine)
    other.lifecycle = copy.copy(engine.lifecycle)
    return other


def moves(engine: Engine) -> list[Callable[[Engine], None]]:
    """Return all moves that are possible next."""
    possible: list[Callable[[Engine], None]] = [partial(_give, verb=verb) for verb in Verb]
    if not engine.held:
        possible += [Engine.step, _step_committed]
    if not engine.lifecycle.ended and engine.phase is not Phase.FAILED:
        possible.append(Engine.fail)
    if engine.phase is Phase.VALIDATION and engine.lifecycle.cleanup_wanted:
        possible.append(_refuse_cleanup)
    return possible


def _give(engine: Engine, *, verb: Verb) -> None:
    check_verb(engine.lifecycle, verb)


def _step_committed(engine: Engine) -> None:
    engine.step(committed=True)


def _refuse_cleanup(engine: Engine) -> None:
    engine.lifecycle.cleanup_wanted = False


@pytest.mark.parametrize("road", [LIVE, OFFLINE], ids=["live", "offline"])
def test_every_state(road: list[tuple[Phase, PhasePolicy]]) -> None:
    """Every state that verbs, successes and failures can reach, in any order, keeps the promises of the lifecycle."""
    start = Engine(road)
    seen, open_states = {start.key}, [start]
    while open_states:
        engine = open_states.pop()
        check_state(engine)
        for move in moves(engine):
            other = clone(engine)
            move(other)
            if other.key not in seen:
                seen.add(other.key)
                open_states.append(other)
    phases = {phase for phase, _ in road} | {Phase.FAILED, Phase.CLEANUP}
    assert {(phase, ended) for phase, _, ended, *_ in seen} >= {(phase, False) for phase in phases}
    assert any(paused for _, paused, *_ in seen) is (road is LIVE)


class Walks(RuleBasedStateMachine):
    """Long walks: verbs, doubled and late ones too, mixed with the engine's moves."""

    @initialize(offline=st.booleans())
    def start(self, offline: bool) -> None:
        """Start live or offline."""
        self.engine = Engine(OFFLINE if offline else LIVE)

    @rule(verbs=st.lists(st.sampled_from(Verb), min_size=1, max_size=4))
    def give(self, verbs: list[Verb]) -> None:
        """Give verbs, as an operator does."""
        for verb in verbs:
            check_verb(self.engine.lifecycle, verb)

    @rule(choice=st.integers(0, 3))
    def move(self, choice: int) -> None:
        """Move the engine, if it can move."""
        engine_moves = moves(self.engine)[len(Verb) :]
        if choice < len(engine_moves):
            engine_moves[choice](self.engine)

    @invariant()
    def promises_hold(self) -> None:
        """Check that the promises of the lifecycle hold after each move."""
        check_state(self.engine)


TestWalks = Walks.TestCase
TestWalks.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, derandomize=True)


def test_all_phases_have_rules() -> None:
    """Each phase says how it is undone and what that costs; only the cleanup and the rollback have no undo."""
    assert set(POLICIES) == set(Phase)
    assert all(rules.undo_cost for rules in POLICIES.values())
    assert {phase for phase, rules in POLICIES.items() if rules.undo is Undo.NONE} == {Phase.CLEANUP, Phase.FAILED}


def test_verbs_of_each_phase() -> None:
    """The table of what is legal when a phase begins."""
    legal = {phase: VerbState(policy=rules).legal() for phase, rules in POLICIES.items()}
    assert legal == {
        Phase.PRECHECK: (Verb.ROLLBACK,),
        Phase.PRE_COPY: (Verb.ROLLBACK, Verb.PAUSE),
        Phase.CATCH_UP: (Verb.ROLLBACK, Verb.PAUSE),
        Phase.PREPARATION: (Verb.ROLLBACK,),
        Phase.COPYING: (Verb.ROLLBACK,),
        Phase.VERIFY: (Verb.ROLLBACK,),
        Phase.COMPLETED: (),
        Phase.VALIDATION: (Verb.CLEANUP, Verb.PROCEED),
        Phase.CLEANUP: (Verb.PROCEED,),
        Phase.FAILED: (),
    }
    assert VerbState(policy=OFFLINE_COPY).legal() == (Verb.ROLLBACK,)


@pytest.mark.parametrize("verb", [Verb.CLEANUP, Verb.PROCEED])
def test_no_rollback_once_the_window_is_ended(verb: Verb) -> None:
    """The answer that ends a window does not offer the rollback, which nothing would honour any more."""
    lifecycle = VerbState(policy=SWITCH_POLICIES[Routing.RESTART][SwitchPhase.ROLLBACK_WINDOW])
    assert Verb.ROLLBACK in lifecycle.legal()
    assert Verb.ROLLBACK not in lifecycle.take(verb, NOW).legal
    assert lifecycle.take(Verb.ROLLBACK, NOW).why == f"the window was ended by {verb}"


def test_cleanup_then_proceed() -> None:
    """`proceed` takes a cleanup back; a cleanup after `proceed` is refused."""
    lifecycle = VerbState(policy=POLICIES[Phase.VALIDATION])
    assert lifecycle.take(Verb.CLEANUP, NOW).accepted
    assert lifecycle.take(Verb.PROCEED, NOW).accepted
    assert not lifecycle.cleanup_wanted
    refused = lifecycle.take(Verb.CLEANUP, NOW)
    assert (refused.accepted, refused.why, refused.legal) == (False, "proceed was sent already", ())


def test_an_open_request_is_not_replaced() -> None:
    """Another step is asked for when the first request is rejected, and an approval names the request that was read."""
    policy = PhasePolicy(
        undo=Undo.COPY_BACK,
        undo_cost="",
        no_cleanup="",
        gate="the window ends",
        after_gate=Undo.NONE,
        after_cleanup=Undo.NONE,
    )
    verbs = VerbState(policy=policy, two_persons=True)
    assert verbs.take(Verb.PROCEED, NOW, by="x:ana@one").accepted
    replacing = verbs.take(Verb.CLEANUP, NOW, by="x:ana@one")
    assert (replacing.accepted, replacing.why) == (False, "x:ana@one has asked for proceed; `reject` that first")
    assert Verb.CLEANUP not in verbs.legal()
    assert verbs.take(Verb.REJECT, NOW, by="x:ana@one").accepted
    later = NOW + timedelta(seconds=1)
    assert verbs.take(Verb.CLEANUP, later, by="x:ana@one").accepted
    stale = verbs.take(Verb.APPROVE, later, by="x:bo@two", asked=NOW)
    assert (stale.accepted, verbs.cleanup_wanted) == (False, False)
    assert stale.why.startswith("the request has changed: x:ana@one asks for cleanup now")
    assert verbs.take(Verb.APPROVE, later, by="x:bo@two", asked=later).accepted
    assert verbs.cleanup_wanted
    # Printed as the argument for other clients, which have read no request.
    assert VerbRequest(verb=Verb.PROCEED).model_dump(mode="json") == {"verb": "proceed", "reason": ""}


def _ended(end: Callable[[VerbState], object]) -> list[tuple[Verb, str]]:
    """Return the requests that ended without an approval, of a gate at which one is open."""
    policy = PhasePolicy(undo=Undo.COPY_BACK, undo_cost="", gate="the window ends", after_gate=Undo.NONE)
    verbs = VerbState(policy=policy, two_persons=True)
    assert verbs.take(Verb.PROCEED, NOW, by="x:ana@one").accepted
    end(verbs)
    assert verbs.request is None
    return [(asked.verb, why) for asked, why in verbs.unapproved]


def test_a_request_never_ends_unnoticed() -> None:
    """A request that ends without the answer of a person is kept with the cause, until it is recorded."""
    phase = PhasePolicy(undo=Undo.FREE, undo_cost="")
    assert _ended(lambda verbs: verbs.close_gate("brokers stop")) == [
        (Verb.PROCEED, "`proceed` starts this now: brokers stop")
    ]
    assert _ended(lambda verbs: verbs.open_gate()) == [(Verb.PROCEED, "nothing waits for it any more")]
    assert _ended(lambda verbs: verbs.enter(phase)) == [(Verb.PROCEED, "the next phase has started")]
    assert _ended(lambda verbs: verbs.end()) == [(Verb.PROCEED, ENDED)]
    assert _ended(lambda verbs: verbs.take(Verb.ROLLBACK, NOW)) == [(Verb.PROCEED, "`rollback` was given")]
    assert _ended(lambda verbs: verbs.take(Verb.REJECT, NOW)) == []
    assert _ended(lambda verbs: verbs.take(Verb.APPROVE, NOW, by="x:bo@two")) == []

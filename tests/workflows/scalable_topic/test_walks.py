"""Random sequences of operator actions and failures in the migrations to scalable topics: each sequence ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.lifecycle.status import Outcome, Status
from models.lifecycle.verbs import Verb
from models.scalable_topic.phases import NamespacePhase, Phase
from models.scalable_topic.results import Undone
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.lifecycle.walks import CANCEL, DEAF, FAIL, LET, Walk, faults, hang, moves
from tests.workflows.scalable_topic.activities import (
    CAME,
    MANY_ANSWERS,
    SCALABLE,
    TOPICS,
    TURNED_OUT,
    NamespaceScript,
    Script,
)

STEPS = sorted({*SCALABLE, "undo", "clean_up", "forget"})
MANY_STEPS = sorted(
    {*SCALABLE, "undo", "survey", "recover_all", "hold_all", "release_all", "clean_up_all", "forget_all"}
)
UNBROKEN = {"drain", "verify", "complete", "undo", "release_all", "forget", "forget_all"}
"""Steps that neither a cancellation nor a rollback interrupts."""


@dataclass(frozen=True)
class Case:
    """Events of one migration.

    Attributes:
        faults: activities that fail the first time, or that answer although they were cancelled.
        scalable: whether a rollback finds the topic scalable.
        moves: the events, each while the migration waits for something.
        refused: whether clients connect before the first flip.
        hold: whether the migration is held before the flip.
    """

    cleanup: str
    faults: dict[str, str]
    scalable: bool
    moves: list[str]
    refused: bool = False
    hold: bool = False

    def script(self, steps: list[str]) -> tuple[dict[str, Any], list[Any]]:
        """Return the results of the steps, and the first call of each step, which hangs until a move ends it."""
        answers = {**MANY_ANSWERS, "undo": TURNED_OUT if self.scalable else Undone()}
        first = {**answers, "flip": CAME} if self.refused else answers
        hangs = {name: hang(self.faults.get(name, ""), first[name]) for name in steps}
        return {name: [hanging, answers[name]] for name, hanging in hangs.items()}, [*hangs.values()]


def _cases(steps: list[str], most: int) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        cleanup=st.sampled_from(["leave", "remove"]),
        faults=faults(steps),
        scalable=st.booleans(),
        moves=moves(most),
        refused=st.booleans(),
        hold=st.booleans(),
    )


@given(case=_cases(STEPS, 14))
@example(Case("leave", {}, scalable=False, moves=[*[LET] * 5, Verb.ROLLBACK], refused=True))
@example(Case("leave", {"flip": DEAF}, scalable=True, moves=[*[LET] * 4, CANCEL, LET, CANCEL, LET]))
@example(Case("remove", {"undo": FAIL, "guard": FAIL}, scalable=False, moves=[*[LET] * 5, Verb.PROCEED]))
@example(Case("remove", {"clean_up": FAIL}, scalable=False, moves=[*[LET] * 8, Verb.CLEANUP, LET]))
@example(Case("remove", {}, scalable=False, moves=[*[LET] * 5, CANCEL, Verb.PROCEED, *[LET] * 3, Verb.CLEANUP, CANCEL]))
@example(Case("leave", {"drain": FAIL, "complete": FAIL}, scalable=False, moves=[Verb.PAUSE, *[LET] * 6], hold=True))
async def test_every_walk_ends(stage: Harness, case: Case) -> None:
    """After any sequence, policies are restored, and a scalable topic is completed."""
    answers, hangs = case.script(STEPS)
    script = Script(**answers)
    run = await stage.start(script, cleanup=case.cleanup, grace_window="PT15M", hold_before_cutover=case.hold)
    status = await Walk(run, undo_phase=Phase.ROLLBACK, is_idle=_is_idle, unbroken=UNBROKEN).play(case.moves, hangs)

    assert status.deadlines == {}
    phases = [entry.phase for entry in status.history]
    held = [step for step in script.steps if step in ("guard", "undo", "complete")]
    assert held[-1:] != ["guard"]
    if Phase.ROLLBACK in phases:
        assert (Phase.COMPLETE in phases) is case.scalable
    assert (Phase.COMPLETE in phases) is ("complete" in script.steps)
    if status.outcome is Outcome.ROLLED_BACK:
        assert phases[-1] in (Phase.PRECHECK, Phase.ROLLBACK)
    if "clean_up" in script.steps:
        assert "forget" in script.steps or status.outcome in (Outcome.DONE, Outcome.DONE_WITH_FAILURES)


@settings(max_examples=settings().max_examples // 2)
@given(case=_cases(MANY_STEPS, 16))
@example(Case("leave", {}, scalable=True, moves=[*[LET] * 8, Verb.ROLLBACK, LET, LET]))
@example(Case("leave", {"flip": DEAF, "undo": FAIL}, scalable=False, moves=[*[LET] * 7, CANCEL, LET, CANCEL]))
@example(Case("remove", {"hold_all": DEAF, "release_all": FAIL}, scalable=False, moves=[LET, LET, Verb.ROLLBACK, LET]))
async def test_every_walk_of_many_ends(stage: Harness, case: Case) -> None:
    """After any sequence, no topic is half-finished, and policies are restored after all of them."""
    answers, hangs = case.script(MANY_STEPS)
    script = NamespaceScript(names=TOPICS[:1], **answers)
    waves = {"canary": 0, "wave_size": 10, "parallelism": 1, "gate": "none", "deadline": "PT48H"}
    waves |= {"error_budget": {"items": 2}}
    run = await stage.start(
        script, cleanup=case.cleanup, grace_window="PT15M", hold_before_cutover=case.hold, waves=waves
    )
    walk = Walk(run, undo_phase=NamespacePhase.ROLLBACK, is_idle=_is_idle, unbroken=UNBROKEN)
    status = await walk.play(case.moves, hangs)

    assert status.deadlines == {}
    held = [step for step in script.own_steps if step in ("hold_all", "release_all")]
    assert held[-1:] != ["hold_all"]
    for topic in TOPICS[:1]:
        steps = script.steps_of(topic)
        assert "guard" not in steps or "undo" in steps or "complete" in steps
    last_of_topics = max((number for number, call in enumerate(script.calls) if call.step in SCALABLE), default=-1)
    released = [number for number, call in enumerate(script.calls) if call.step == "release_all"]
    assert not released or released[0] > last_of_topics


def _is_idle(status: Status) -> bool:
    """Return true: a migration that shows a reason to wait waits for time or its operator."""
    return True

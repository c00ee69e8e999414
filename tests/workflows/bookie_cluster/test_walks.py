"""Random walks of operators and failures through the bookie cluster switch: each of them comes to an end."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from models.bookie_cluster.input import Direction
from models.bookie_cluster.phases import Phase
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import Verb
from tests.workflows.bookie_cluster.activities import (
    ANSWERS,
    ATTRIBUTION,
    COPY_BACK,
    FAILED,
    HOLED,
    RESTART,
    AttributionScript,
    Script,
)
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run

LET, CANCEL = "let", "cancel"
"""What comes besides the verbs: the step that runs ends; the workflow is cancelled."""

STEPS = sorted({*RESTART, *ATTRIBUTION, *COPY_BACK, "flip_statuses", "remove_copies"})
FAILURE = ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True)
LOSSES = {"build": FAILED, "copy_tail": HOLED}


@dataclass(frozen=True)
class Walk:
    """What happens to one switch.

    Attributes:
        trouble: steps that fail the first time that they may end, or that answer although they were cancelled (`deaf`).
        losses: whether ledgers cannot be copied, so that decisions are due.
        moves: what comes, each at a moment at which the switch waits for something.
    """

    routing: str
    trouble: dict[str, str]
    losses: bool
    moves: list[str]


walks = st.builds(
    Walk,
    routing=st.sampled_from(["restart", "attribution"]),
    trouble=st.dictionaries(st.sampled_from(STEPS), st.sampled_from(["fail", "deaf"]), max_size=2),
    losses=st.booleans(),
    moves=st.lists(st.one_of(st.just(LET), st.sampled_from([*Verb, CANCEL])), max_size=14),
)
GO = [LET] * 8


@settings(max_examples=20, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(walk=walks)
@example(Walk("restart", {}, losses=True, moves=[LET, LET, LET, Verb.PAUSE, Verb.PROCEED, CANCEL]))
@example(Walk("restart", {"set_target": "deaf"}, losses=False, moves=[*[LET] * 6, Verb.ROLLBACK, CANCEL, LET]))
@example(Walk("restart", {"start_brokers": "fail"}, losses=False, moves=[*GO, LET, LET, Verb.CLEANUP]))
@example(Walk("restart", {}, losses=False, moves=[*GO, Verb.ROLLBACK, CANCEL, LET, Verb.PROCEED]))
@example(Walk("attribution", {"promote": "deaf"}, losses=False, moves=[*[LET] * 6, Verb.ROLLBACK, LET, LET, CANCEL]))
async def test_every_walk_ends(stage: Harness, walk: Walk) -> None:
    """Whatever is asked, fails or is deaf: the switch ends, with brokers directed to one cluster and started there."""
    hangs = {step: _hang(walk, step) for step in STEPS}
    script = (Script if walk.routing == "restart" else AttributionScript)(
        **{step: [hang, _answer(walk, step)] for step, hang in hangs.items()}
    )
    run = await stage.start(script, rollback_window="PT15M", deletion_delay="PT15M")
    for move in walk.moves:
        await _settled(run)
        if not await run.running():
            break
        await _make(run, move)
    await _drive(run, hangs)

    status = await run.status()
    assert status.legal_verbs == []
    assert (status.deadlines, "pause_since" in status.facts) == ({}, False)
    assert all(entry.ended and entry.outcome is not Outcome.RUNNING for entry in status.history)
    phases = [entry.phase for entry in status.history]
    directed, started = _last(run, "set_target"), _last(run, "start_brokers")
    if "ROLLED_BACK" in phases:
        assert "CLEANUP" not in phases
        assert directed is not Direction.FORWARD
        assert started is not Direction.FORWARD
        assert started is Direction.BACK or "stop_brokers" not in script.steps
    else:
        assert phases[-1] == "CLEANUP"
        assert directed is Direction.FORWARD
        assert (started is Direction.FORWARD) is (walk.routing == "restart")
    assert script.steps[-1] == "release"


def _last(run: Run, step: str) -> Direction | None:
    """The direction in which a step ran last."""
    return next((call.args[0] for call in reversed(run.script.calls) if call.step == step), None)


async def _make(run: Run, move: str) -> None:
    """Make a move, and wait until a step that it ends has ended."""
    hanging, before = run.script.hanging, await run.status()
    if move == LET:
        if hanging:
            hanging.release()
    elif move == CANCEL:
        await run.handle.cancel()
    else:
        await run.signal(Verb(move))
    undoing = before.phase == "ROLLED_BACK"
    ends = move == LET or (move == CANCEL and not undoing) or (move == Verb.ROLLBACK and move in before.legal_verbs)
    async with asyncio.timeout(20):
        while ends and hanging and run.script.hanging is hanging:  # noqa: ASYNC110 - the step ends on the worker's side
            await asyncio.sleep(0.01)


async def _settled(run: Run) -> None:
    """Wait until the switch itself waits: for a step that hangs, for somebody, or for nothing any more."""
    async with asyncio.timeout(20):
        while await run.running():
            if run.script.hanging or _stands(await run.status()):
                return
            await asyncio.sleep(0.02)


def _stands(status: Status) -> bool:
    """Whether it is paused, at a decision, in a window with the first census done, or about to repeat the way back."""
    if status.waiting is None:
        return False
    return (
        status.phase != Phase.ROLLBACK_WINDOW
        or status.waiting.kind is not WaitKind.WINDOW
        or "target_only_ledgers" in status.facts
    )


async def _drive(run: Run, hangs: dict[str, Hang]) -> None:
    """The way to an end that there is from everywhere: steps end, decisions are taken, a pause is taken back."""
    for hang in hangs.values():
        hang.release()
    await _settled(run)
    while await run.running() and (waiting := (await run.status()).waiting):
        if waiting.kind is WaitKind.PAUSE:
            await run.signal(Verb.RESUME)
        elif waiting.kind is WaitKind.DECISION:
            await run.signal(Verb.PROCEED)
        else:
            break
        await _settled(run)
    with contextlib.suppress(WorkflowFailureError):
        await run.report()


def _hang(walk: Walk, step: str) -> Hang:
    trouble = walk.trouble.get(step, "")
    failure = FAILURE if trouble == "fail" else None
    return Hang(deaf=trouble == "deaf", failure=failure, answer=_answer(walk, step))


def _answer(walk: Walk, step: str) -> Any:
    return LOSSES.get(step, ANSWERS[step]) if walk.losses else ANSWERS[step]

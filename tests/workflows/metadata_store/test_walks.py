"""Random walks of operators and failures through the metadata store migration: each of them comes to an end."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Status
from models.lifecycle.verbs import Verb
from models.metadata_store.flag import FlagPhase
from models.metadata_store.results import Restoration
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.metadata_store.activities import ANSWERS, LIVE, OFFLINE, Script

LET, CANCEL = "let", "cancel"
"""What comes besides the verbs: the step that runs ends; the workflow is cancelled."""

STEPS = sorted({*LIVE, *OFFLINE, "unblock_writes"})
FAILURE = ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True)
GIVEN_BACK = Restoration(committed=False, flag=FlagPhase.FAILED)
COMMITTED = Restoration(committed=True, flag=FlagPhase.COMPLETED)


@dataclass(frozen=True)
class Walk:
    """What happens to one migration.

    Attributes:
        trouble: steps that fail when they may end, or that answer although they were cancelled (`deaf`).
        committed: what the way back finds.
        moves: what comes, each at a moment at which the migration waits for something.
    """

    mode: str
    cleanup: str
    trouble: dict[str, str]
    committed: bool
    moves: list[str]


walks = st.builds(
    Walk,
    mode=st.sampled_from(["live", "offline"]),
    cleanup=st.sampled_from(["leave", "remove"]),
    trouble=st.dictionaries(st.sampled_from(STEPS), st.sampled_from(["fail", "deaf"]), max_size=2),
    committed=st.booleans(),
    moves=st.lists(st.one_of(st.just(LET), st.sampled_from([*Verb, CANCEL])), max_size=10),
)


@settings(max_examples=20, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(walk=walks)
@example(Walk("live", "leave", {}, committed=False, moves=[LET, Verb.PAUSE, LET, CANCEL]))
@example(Walk("live", "remove", {"verify": "deaf"}, committed=True, moves=[*[LET] * 4, Verb.ROLLBACK, CANCEL, LET]))
@example(Walk("live", "leave", {"prepare": "fail", "unblock_writes": "fail"}, committed=False, moves=[LET] * 3))
async def test_every_walk_ends(stage: Harness, walk: Walk) -> None:
    """Whatever is asked, fails or is deaf: the migration ends, and writes are committed or were given back."""
    found = COMMITTED if walk.committed else GIVEN_BACK
    hangs = {step: _hang(walk.trouble.get(step, ""), found if step == "unblock_writes" else None) for step in STEPS}
    # What cannot be given up is tried until it succeeds: the way back, and a commit that had begun.
    lasting = {"unblock_writes": [hangs["unblock_writes"], found], "complete": [hangs["complete"], ANSWERS["complete"]]}
    answers: dict[str, Any] = {**hangs, **lasting}
    run = await stage.start(Script(**answers), mode=walk.mode, cleanup=walk.cleanup, validation_window="PT15M")
    for move in walk.moves:
        await _settled(run)
        if not await run.running():
            break
        await _make(run, move)
    await _drive(run, hangs)

    status = await run.status()
    assert status.legal_verbs == []
    assert all(entry.ended and entry.outcome is not Outcome.RUNNING for entry in status.history)
    last = next((step for step in reversed(run.script.steps) if step in ("prepare", "complete", "unblock_writes")), "")
    assert last != "prepare"
    phases = [entry.phase for entry in status.history]
    if last == "complete":
        assert "VALIDATION" in phases
    if "FAILED" in phases:
        assert ("VALIDATION" in phases) is walk.committed


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
    # A commit that turned out to have begun is finished on the way back, which nothing interrupts.
    undoing = any(entry.phase == "FAILED" for entry in before.history)
    ends = move == LET or (move == CANCEL and not undoing) or (move == Verb.ROLLBACK and move in before.legal_verbs)
    async with asyncio.timeout(20):
        while ends and hanging and run.script.hanging is hanging:  # noqa: ASYNC110 - the step ends on the worker's side
            await asyncio.sleep(0.01)


async def _settled(run: Run) -> None:
    """Wait until the migration itself waits: for a step that hangs, for somebody, or for nothing any more."""
    async with asyncio.timeout(20):
        while await run.running():
            status = await run.status()
            if run.script.hanging or _stands(status):
                return
            await asyncio.sleep(0.02)


def _stands(status: Status) -> bool:
    """Whether it is paused, in its window with the first census done, or about to repeat the way back."""
    if status.waiting is None:
        return False
    return status.paused or "still_on_source" in status.facts or status.phase == "FAILED"


async def _drive(run: Run, hangs: dict[str, Hang]) -> None:
    """The way to an end that there is from everywhere: all steps end, and a pause is taken back."""
    await _settled(run)
    for hang in hangs.values():
        hang.release()
    if await run.running() and (await run.status()).paused:
        await run.signal(Verb.RESUME)
        await _settled(run)
    with contextlib.suppress(WorkflowFailureError):
        await run.report()


def _hang(trouble: str, answer: Any) -> Hang:
    return Hang(deaf=trouble == "deaf", failure=FAILURE if trouble == "fail" else None, answer=answer)

"""The way back of the migration of one topic: free before the flip, none behind it, and policies never stay held."""

from __future__ import annotations

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError, CancelledError

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Undo, WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.phases import Phase
from models.scalable_topic.results import ClientsGone, DrainedTopic, Undone
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.scalable_topic.activities import (
    ANSWERS,
    BEFORE_FLIP,
    CAME,
    REMOVE,
    SCALABLE,
    TOPIC,
    TURNED_OUT,
    Script,
)

DENIED = ApplicationError("no right", type=FailureKind.DENIED, non_retryable=True)
BEHIND = ("flip", "drain", "verify", "complete")
"""Steps behind the point of no return."""


async def _at(stage: Harness, step: str, hang: Hang | None = None, **answers: object) -> tuple[Run, Hang]:
    """Return a migration that is in the midst of a step, the first time that it takes it."""
    hang = hang or Hang()
    run = await stage.start(Script(**{step: [hang, ANSWERS[step]], **answers}))
    await hang.entered()
    return run, hang


async def test_rollback_in_the_precheck(stage: Harness) -> None:
    """Where nothing was begun a rollback has nothing to undo."""
    run, _ = await _at(stage, "precheck")
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.ROLLED_BACK, ["precheck"])


@pytest.mark.parametrize("step", BEFORE_FLIP[1:])
async def test_rollback_before_the_flip(stage: Harness, step: str) -> None:
    """A rollback cancels the step that runs, puts policies back, and leaves the topic regular."""
    run, _ = await _at(stage, step, undo=Undone(notes=("retention stays",)))
    assert (await run.status()).undo is Undo.FREE
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert run.script.steps == [*BEFORE_FLIP[: BEFORE_FLIP.index(step) + 1], "undo"]
    assert run.script.cancelled == [step]
    assert report.outcome is Outcome.ROLLED_BACK
    assert [entry.outcome for entry in report.history[-2:]] == [Outcome.ROLLED_BACK, Outcome.DONE]
    assert report.notes[-1].endswith("retention stays")


async def test_rollback_while_it_is_held(stage: Harness) -> None:
    """A migration that is held before the flip can be rolled back instead."""
    run = await stage.start(Script(), hold_before_cutover=True)
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP[:-1], "undo"]


async def test_rollback_while_clients_that_came_are_waited_for(stage: Harness) -> None:
    """A flip that was refused has changed nothing, so there is a way back until it is tried again."""
    hang = Hang()
    run = await stage.start(Script(flip=CAME, await_clients=[ClientsGone(), hang]))
    await _try_again(run)
    await hang.entered()
    status = await run.status()
    assert (status.phase, status.undo, status.legal_verbs) == (Phase.FLIP, Undo.FREE, [Verb.ROLLBACK])
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "flip", "await_clients", "undo"]


async def test_a_rollback_is_kept_though_clients_leave_meanwhile(stage: Harness) -> None:
    """A rollback that was accepted while clients were waited for is not followed by another flip."""
    hang = Hang(deaf=True)
    run = await stage.start(Script(flip=[CAME, ANSWERS["flip"]], await_clients=[ClientsGone(), hang]))
    await _try_again(run)
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "flip", "await_clients", "undo"]


async def test_rollback_between_two_tries(stage: Harness) -> None:
    """Before clients are looked at again there is a way back too."""
    run = await stage.start(Script(flip=CAME))
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    assert status.waiting is not None
    assert (status.undo, status.waiting.ends_on) == (Undo.FREE, (Verb.PROCEED, Verb.ROLLBACK))
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "flip", "undo"]


async def test_there_is_no_way_back_in_the_second_try(stage: Harness) -> None:
    """Once clients have left again the flip is what it was: it cannot be rolled back."""
    hang = Hang()
    run = await stage.start(Script(flip=[CAME, hang]))
    await _try_again(run)
    await hang.entered()
    status = await run.status()
    assert (status.undo, status.legal_verbs) == (Undo.NONE, [])
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


@pytest.mark.parametrize("step", BEHIND)
async def test_rollback_behind_the_point_of_no_return(stage: Harness, step: str) -> None:
    """From the flip on a rollback is refused with the reason, and the migration continues to its end."""
    run, hang = await _at(stage, step)
    assert (await run.status()).undo is Undo.NONE
    await run.signal(Verb.ROLLBACK)
    hang.release()
    report = await run.report()
    assert run.script.steps == [*SCALABLE, "forget"]
    assert report.outcome is Outcome.DONE
    assert any("rollback refused: the topic is " in note for note in report.notes)


async def test_a_topic_that_turned_out_to_be_scalable(stage: Harness) -> None:
    """A failure that comes when the topic is scalable all the same is noted, and the migration continues to its end."""
    run = await stage.start(Script(flip=DENIED, undo=TURNED_OUT))
    report = await run.report()
    assert run.script.steps == [*BEFORE_FLIP, "flip", "undo", "drain", "verify", "complete", "forget"]
    assert [entry.phase for entry in report.history[3:5]] == [Phase.FLIP, Phase.ROLLBACK]
    assert report.outcome is Outcome.DONE
    assert report.summary == f"{TOPIC} is scalable, with 3 segments"
    assert any(note.endswith("it turned out to be scalable (no right)") for note in report.notes)
    assert (report.certificate["migrated_from"], report.certificate["partitions"]) == (TOPIC, 3)


async def test_a_rollback_that_comes_too_late(stage: Harness) -> None:
    """A rollback that was accepted, and finds the topic scalable, comes too late; the migration goes on to its end."""
    run, _ = await _at(stage, "guard", undo=TURNED_OUT)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert run.script.steps == [*BEFORE_FLIP, "undo", "drain", "verify", "complete", "forget"]
    assert report.outcome is Outcome.DONE


async def test_a_step_that_ends_all_the_same(stage: Harness) -> None:
    """A step that answers although it was cancelled does not take the migration past the rollback."""
    run, _ = await _at(stage, "guard", Hang(deaf=True))
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "undo"]


@pytest.mark.parametrize(("failing", "phase"), [("undo", Phase.ROLLBACK), ("complete", Phase.COMPLETE)])
async def test_policies_are_put_back_until_that_succeeds(stage: Harness, failing: str, phase: Phase) -> None:
    """Both steps that put policies back are repeated until they succeed; `proceed` begins the next try at once."""
    run = await stage.start(
        Script(
            **{failing: [DENIED, DENIED, ANSWERS[failing]], "flip": DENIED if failing == "undo" else ANSWERS["flip"]}
        )
    )
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    assert (status.phase, status.legal_verbs) == (phase, [Verb.PROCEED])
    await run.signal(Verb.PROCEED)
    if failing == "undo":
        assert (await run.typed_failure()).message == "no right"
    else:
        assert (await run.report()).outcome is Outcome.DONE
    assert run.script.steps.count(failing) == 3


@pytest.mark.parametrize("step", BEFORE_FLIP[1:])
async def test_failure_before_the_flip(stage: Harness, step: str) -> None:
    """A step that fails for good is undone, and its typed failure is the workflow's."""
    run = await stage.start(Script(**{step: DENIED}))
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.DENIED, "no right")
    assert run.script.steps == [*BEFORE_FLIP[: BEFORE_FLIP.index(step) + 1], "undo"]
    status = await run.status()
    assert [(entry.phase, entry.outcome) for entry in status.history[-1:]] == [(Phase.ROLLBACK, Outcome.DONE)]


@pytest.mark.parametrize("step", ["drain", "verify"])
async def test_failure_behind_the_flip(stage: Harness, step: str) -> None:
    """A look that fails for good puts the policies back all the same, and the workflow fails for its reason."""
    run = await stage.start(Script(**{step: DENIED}))
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.DENIED, "no right")
    assert run.script.steps == [*SCALABLE[: SCALABLE.index(step) + 1], "complete"]
    status = await run.status()
    assert [entry.outcome for entry in status.history[-2:]] == [Outcome.FAILED, Outcome.DONE]
    assert status.outcome is Outcome.FAILED


@pytest.mark.parametrize("step", BEFORE_FLIP)
async def test_cancelled_before_the_flip(stage: Harness, step: str) -> None:
    """A workflow that is cancelled puts policies back first, and ends as cancelled."""
    run, _ = await _at(stage, step)
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    undone = [] if step == "precheck" else ["undo"]
    assert run.script.steps == [*BEFORE_FLIP[: BEFORE_FLIP.index(step) + 1], *undone]
    assert run.script.cancelled == [step]
    assert (await run.handle.describe()).status is WorkflowExecutionStatus.CANCELED


@pytest.mark.parametrize("scalable", [False, True])
async def test_cancelled_in_the_flip(stage: Harness, scalable: bool) -> None:
    """A flip that is cancelled ends as nothing or as all of it, whatever is found of it then."""
    hang = Hang()
    run = await stage.start(Script(flip=hang, undo=TURNED_OUT if scalable else Undone()), **REMOVE)
    await hang.entered()
    await run.handle.cancel()
    if scalable:
        assert (await run.report()).outcome is Outcome.DONE
        assert run.script.steps == [*BEFORE_FLIP, "flip", "undo", *SCALABLE[5:], "forget"]
    else:
        assert isinstance(await run.failure(), CancelledError)
        assert run.script.steps == [*BEFORE_FLIP, "flip", "undo"]


async def test_cancelled_in_the_drain(stage: Harness) -> None:
    """Old messages are waited for no longer: what is left is counted, policies are put back, and all that is told."""
    hang = Hang()
    left = DrainedTopic(seconds=1.0, backlogs={"billing": 7})
    run = await stage.start(Script(drain=[hang, left]), drain_timeout="P7D", **REMOVE)
    await hang.entered()
    await run.handle.cancel()
    report = await run.report()
    assert run.script.cancelled == ["drain"]
    assert run.script.steps == [*SCALABLE[:5], "drain", *SCALABLE[5:], "forget"]
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.certificate["undrained"] == {"billing": 7}
    assert any("the wait for old messages was ended by the cancellation" in note for note in report.notes)


@pytest.mark.parametrize("step", BEHIND[2:])
async def test_cancelled_behind_the_flip(stage: Harness, step: str) -> None:
    """What is behind the flip comes to its end: policies are put back; no window is kept, and nothing is deleted."""
    hang = Hang()
    run = await stage.start(Script(**{step: [hang, ANSWERS[step]]}), **REMOVE)
    await hang.entered()
    await run.handle.cancel()
    await run.until(lambda status: any("the workflow was cancelled" in note for note in status.notes))
    hang.release()
    report = await run.report()
    assert run.script.cancelled == []
    assert run.script.steps == [*SCALABLE, "forget"]
    assert report.outcome is Outcome.DONE


async def _try_again(run: Run) -> None:
    """Begin the next attempt at the flip, as an operator can do."""
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    await run.signal(Verb.PROCEED)

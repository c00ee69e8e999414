"""The rollback of the migration of one topic: free before the flip, refused after it; policies are always restored."""

from __future__ import annotations

from datetime import timedelta

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
from workflows.scalable_topic import workflow as migration

DENIED = ApplicationError("no right", type=FailureKind.DENIED, non_retryable=True)
AFTER_FLIP = ("flip", "drain", "verify", "complete")
"""Steps after the point of no return."""


async def _at(stage: Harness, step: str, hang: Hang | None = None, **answers: object) -> tuple[Run, Hang]:
    """Return a migration in the first call of a step."""
    hang = hang or Hang()
    run = await stage.start(Script(**{step: [hang, ANSWERS[step]], **answers}))
    await hang.entered()
    return run, hang


async def test_rollback_in_the_precheck(stage: Harness) -> None:
    """A rollback in the precheck has nothing to undo."""
    run, _ = await _at(stage, "precheck")
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.ROLLED_BACK, ["precheck"])


@pytest.mark.parametrize("step", BEFORE_FLIP[1:])
async def test_rollback_before_the_flip(stage: Harness, step: str) -> None:
    """A rollback cancels the running step, restores policies, and leaves the topic regular."""
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
    """A migration that is held before the flip can be rolled back."""
    run = await stage.start(Script(), hold_before_cutover=True)
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP[:-1], "undo"]


async def test_rollback_while_clients_that_came_are_waited_for(stage: Harness) -> None:
    """After a refused flip a rollback is legal until the next attempt."""
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


async def test_a_rollback_holds_although_clients_leave(stage: Harness) -> None:
    """After an accepted rollback no flip follows, even if the clients leave."""
    hang = Hang(deaf=True)
    run = await stage.start(Script(flip=[CAME, ANSWERS["flip"]], await_clients=[ClientsGone(), hang]))
    await _try_again(run)
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "flip", "await_clients", "undo"]


async def test_rollback_between_two_tries(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback is legal before the next check of the clients."""
    monkeypatch.setattr(migration, "_AFTER_REFUSAL", timedelta(minutes=10))
    run = await stage.start(Script(flip=CAME))
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    assert status.waiting is not None
    assert (status.undo, status.waiting.ends_on) == (Undo.FREE, (Verb.PROCEED, Verb.ROLLBACK))
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "flip", "undo"]


async def test_the_second_try_cannot_be_rolled_back(stage: Harness) -> None:
    """The second attempt of the flip cannot be rolled back either."""
    hang = Hang()
    run = await stage.start(Script(flip=[CAME, hang]))
    await _try_again(run)
    await hang.entered()
    status = await run.status()
    assert (status.undo, status.legal_verbs) == (Undo.NONE, [])
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


@pytest.mark.parametrize("step", AFTER_FLIP)
async def test_rollback_after_the_point_of_no_return(stage: Harness, step: str) -> None:
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
    """A failure after which the topic is scalable is noted, and the migration continues to its end."""
    run = await stage.start(Script(flip=DENIED, undo=TURNED_OUT))
    report = await run.report()
    assert run.script.steps == [*BEFORE_FLIP, "flip", "undo", "drain", "verify", "complete", "forget"]
    assert [entry.phase for entry in report.history[3:5]] == [Phase.FLIP, Phase.ROLLBACK]
    assert report.outcome is Outcome.DONE
    assert report.summary == f"{TOPIC} is scalable, with 3 segments"
    assert any(note.endswith("it turned out to be scalable (no right)") for note in report.notes)
    assert (report.certificate["migrated_from"], report.certificate["partitions"]) == (TOPIC, 3)


async def test_a_rollback_that_comes_too_late(stage: Harness) -> None:
    """An accepted rollback that finds the topic scalable has no effect, and the migration continues to its end."""
    run, _ = await _at(stage, "guard", undo=TURNED_OUT)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert run.script.steps == [*BEFORE_FLIP, "undo", "drain", "verify", "complete", "forget"]
    assert report.outcome is Outcome.DONE


async def test_a_step_that_succeeds_despite_its_cancellation(stage: Harness) -> None:
    """A step that succeeds although it was cancelled does not prevent the rollback."""
    run, _ = await _at(stage, "guard", Hang(deaf=True))
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "undo"]


@pytest.mark.parametrize(("failing", "phase"), [("undo", Phase.ROLLBACK), ("complete", Phase.COMPLETE)])
async def test_policies_are_restored_until_that_succeeds(stage: Harness, failing: str, phase: Phase) -> None:
    """Both steps that restore policies are retried until they succeed; `proceed` retries at once."""
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
    """A permanent failure of a step is rolled back, and the workflow fails with its type."""
    run = await stage.start(Script(**{step: DENIED}))
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.DENIED, "no right")
    assert run.script.steps == [*BEFORE_FLIP[: BEFORE_FLIP.index(step) + 1], "undo"]
    status = await run.status()
    assert [(entry.phase, entry.outcome) for entry in status.history[-1:]] == [(Phase.ROLLBACK, Outcome.DONE)]


@pytest.mark.parametrize("step", ["drain", "verify"])
async def test_failure_after_the_flip(stage: Harness, step: str) -> None:
    """A check that fails permanently still restores the policies, and the workflow fails for its reason."""
    run = await stage.start(Script(**{step: DENIED}))
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.DENIED, "no right")
    assert run.script.steps == [*SCALABLE[: SCALABLE.index(step) + 1], "complete"]
    status = await run.status()
    assert [entry.outcome for entry in status.history[-2:]] == [Outcome.FAILED, Outcome.DONE]
    assert status.outcome is Outcome.FAILED


@pytest.mark.parametrize("step", BEFORE_FLIP)
async def test_cancelled_before_the_flip(stage: Harness, step: str) -> None:
    """A cancelled workflow restores policies first, and ends as cancelled."""
    run, _ = await _at(stage, step)
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    undone = [] if step == "precheck" else ["undo"]
    assert run.script.steps == [*BEFORE_FLIP[: BEFORE_FLIP.index(step) + 1], *undone]
    assert run.script.cancelled == [step]
    assert (await run.handle.describe()).status is WorkflowExecutionStatus.CANCELED


@pytest.mark.parametrize("scalable", [False, True])
async def test_cancelled_in_the_flip(stage: Harness, scalable: bool) -> None:
    """A cancelled flip is completed or undone, depending on the state of the topic."""
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
    """A cancelled drain counts and reports the remaining messages, and policies are restored."""
    hang = Hang()
    drained = DrainedTopic(seconds=1.0, backlogs={"billing": 7})
    run = await stage.start(Script(drain=[hang, drained]), drain_timeout="P7D", **REMOVE)
    await hang.entered()
    await run.handle.cancel()
    report = await run.report()
    assert run.script.cancelled == ["drain"]
    assert run.script.steps == [*SCALABLE[:5], "drain", *SCALABLE[5:], "forget"]
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.certificate["undrained"] == {"billing": 7}
    assert any("the wait for old messages was ended by the cancellation" in note for note in report.notes)


@pytest.mark.parametrize("step", AFTER_FLIP[2:])
async def test_cancelled_after_the_flip(stage: Harness, step: str) -> None:
    """A workflow cancelled after the flip restores policies, keeps no window, and deletes nothing."""
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
    """Start the next attempt of the flip, as an operator can do."""
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    await run.signal(Verb.PROCEED)

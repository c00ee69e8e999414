"""The metadata store migration's rollback: by the operator, by failures, by deadlines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError, CancelledError

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.metadata_store.phases import Phase
from models.metadata_store.results import Restoration
from models.migration_flag import FlagPhase
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.metadata_store.activities import ANSWERS, LIVE, Script
from workflows.lifecycle import phases
from workflows.lifecycle.caller import UNNAMED

UNDO = ["unblock_writes", "clear_target"]
COMMITTED = Restoration(committed=True, flag=FlagPhase.COMPLETED)
UNBLOCKED = Restoration(committed=False, flag=FlagPhase.FAILED)
DENIED = ApplicationError("no right to write", type=FailureKind.DENIED, non_retryable=True)
SHORT: dict[str, Any] = {"blocked_deadline": "PT8S", "preparation_timeout": "PT8S"}
"""Passes while a step hangs, which takes as long as it says; before that, a busy machine does the steps before it."""


@pytest.mark.parametrize(
    ("step", "phase"),
    [("pre_copy", "PRE_COPY"), ("prepare", "PREPARATION"), ("copy_changes", "COPYING"), ("verify", "VERIFY")],
)
async def test_rollback_in_each_phase(stage: Harness, step: str, phase: str) -> None:
    """A rollback cancels the step that runs, gives writes back, removes the copy, and ends as rolled back."""
    run, report = await _rolled_back(stage, step)
    assert run.script.steps == [*LIVE[: LIVE.index(step) + 1], *UNDO]
    assert run.script.cancelled == [step]
    assert [entry.phase for entry in report.history[-2:]] == [phase, Phase.FAILED]
    assert report.history[-2].outcome is Outcome.ROLLED_BACK
    assert report.outcome is Outcome.ROLLED_BACK
    assert report.figures["removed_from_target"] == 12
    # Writes were not blocked here.
    assert any(note.endswith("brokers write to the source again (flag: FAILED)") for note in report.notes)


@pytest.mark.parametrize("step", ["copy_whole", "verify"])
async def test_rollback_offline(stage: Harness, step: str) -> None:
    """An offline copy and its verification can be rolled back too."""
    run, report = await _rolled_back(stage, step, mode="offline")
    assert run.script.cancelled == [step]
    assert run.script.steps[-2:] == UNDO
    assert report.outcome is Outcome.ROLLED_BACK


async def test_rollback_in_the_precheck(stage: Harness) -> None:
    """A rollback during the precheck ends the migration, but not before writes are free that an earlier run blocked."""
    hang = Hang()
    run = await stage.start(Script(precheck=hang, unblock_leftover=True))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert (run.script.steps, run.script.cancelled) == (["precheck", "unblock_leftover"], ["precheck"])
    assert report.outcome is Outcome.ROLLED_BACK
    assert "they are unblocked now" in report.notes[-1]


async def test_rollback_given_twice(stage: Harness) -> None:
    """A second rollback changes nothing: the rollback runs once."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang))
    await hang.entered()
    for reason in ("first", "second"):
        await run.signal(Verb.ROLLBACK, reason)
    report = await run.report()
    assert run.script.steps == ["precheck", "pre_copy", "prepare", *UNDO]
    assert any(f"Z rollback (first) by {UNNAMED}: " in note for note in report.notes)
    assert any(
        "Z rollback refused: " in note and note.endswith(f"(second); sent by {UNNAMED}") for note in report.notes
    )


async def test_long_reason_is_cut(stage: Harness) -> None:
    """A reason of 1 MB is noted in part, with what happens, so that the state stays small."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK, "x" * 1_000_000)
    report = await run.report()
    (note,) = [note for note in report.notes if "Z rollback (xxx" in note]
    assert f"xxx…) by {UNNAMED}: " in note
    assert len(note) < 1_000


async def test_a_rollback_that_failed_is_retried_at_once(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two attempts of the rollback status names `proceed`, which starts the next one without waiting."""
    monkeypatch.setattr(phases, "_SHORTEST_BACKOFF", timedelta(minutes=10))
    hang = Hang()
    run = await stage.start(Script(prepare=hang, unblock_writes=[DENIED, UNBLOCKED]))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    assert status.waiting is not None
    assert (status.waiting.ends_on, status.legal_verbs) == (("proceed",), [Verb.PROCEED])
    assert (await run.steer(Verb.PROCEED)).why == "the rollback is retried now"
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps.count("unblock_writes") == 2


async def test_rollback_during_the_commit_is_refused(stage: Harness) -> None:
    """A rollback that arrives while the commit is in flight is refused with the reason, and the commit is completed."""
    hang = Hang()
    run = await stage.start(Script(complete=hang), validation_window="PT0S")
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    hang.release()
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert run.script.steps == LIVE
    refusal = f"rollback refused: the commit is running. Legal now: none; sent by {UNNAMED}"
    assert any(note.endswith(refusal) for note in report.notes)


async def test_rollback_after_the_commit_is_refused(stage: Harness) -> None:
    """After the commit a rollback is refused; the refusal names the failback."""
    run = await stage.start()
    await run.until(lambda status: status.phase == Phase.VALIDATION)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert "unblock_writes" not in run.script.steps
    refused = next(note for note in report.notes if "rollback refused" in note)
    assert '"mode": "offline" and "replace_target": true. Legal now: cleanup, proceed' in refused


async def test_rollback_of_a_step_that_ends_all_the_same(stage: Harness) -> None:
    """A step that answers although it was cancelled does not take the migration past the rollback."""
    run, report = await _rolled_back(stage, "verify", deaf=True)
    assert run.script.steps == [*LIVE[:5], *UNDO]
    assert report.outcome is Outcome.ROLLED_BACK


@pytest.mark.parametrize("step", LIVE[1:])
async def test_failure_in_each_phase(stage: Harness, step: str) -> None:
    """A step that fails permanently rolls the migration back, and its typed failure is the workflow's."""
    run = await stage.start(Script(**{step: DENIED}))
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.DENIED, "no right to write")
    assert run.script.steps == [*LIVE[: LIVE.index(step) + 1], *UNDO]
    status = await run.status()
    assert status.outcome is Outcome.FAILED
    assert [entry.outcome for entry in status.history[-2:]] == [Outcome.FAILED, Outcome.DONE]
    assert status.history[-2].note == "Denied: no right to write"
    assert status.legal_verbs == []


async def test_failure_of_the_precheck(stage: Harness) -> None:
    """A precheck that fails permanently fails the migration with its type, and reports what is unknown."""
    run = await stage.start(Script(precheck=DENIED, unblock_leftover=DENIED))
    assert (await run.typed_failure()).type == FailureKind.DENIED
    assert run.script.steps == ["precheck", "unblock_leftover"]
    assert (
        "it is not known whether an earlier run left metadata writes blocked; see break-glass"
        in (await run.status()).notes[-1]
    )


async def test_failure_offline(stage: Harness) -> None:
    """An offline copy that fails permanently is removed from the target."""
    run = await stage.start(Script(copy_whole=DENIED), mode="offline")
    assert (await run.typed_failure()).type == FailureKind.DENIED
    assert run.script.steps == ["precheck", "copy_whole", *UNDO]


@pytest.mark.parametrize(
    "step",
    ["prepare", *(pytest.param(step, marks=pytest.mark.exhaustive) for step in ("copy_changes", "verify", "complete"))],
)
async def test_blocked_deadline(stage: Harness, step: str) -> None:
    """Writes that stay blocked past the deadline are unblocked, although the step runs and heartbeats."""
    run = await stage.start(Script(**{step: Hang()}), **SHORT)
    failure = await run.typed_failure()
    assert failure.type == FailureKind.DEADLINE
    assert failure.message == "longest time with writes blocked: the deadline passed"
    assert run.script.cancelled == [step]
    assert run.script.steps[-2:] == UNDO


async def test_deadline_when_the_commit_had_happened(stage: Harness) -> None:
    """A deadline that passes while the commit is in flight does no harm: the migration finishes it and continues."""
    script = Script(complete=[Hang(), ANSWERS["complete"]], unblock_writes=COMMITTED)
    run = await stage.start(script, **SHORT, validation_window="PT0S")
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert script.steps == [*LIVE, "unblock_writes", "complete"]
    assert [entry.phase for entry in report.history[-3:]] == [Phase.FAILED, Phase.COMPLETED, Phase.VALIDATION]
    assert report.figures["blocked_seconds"] == ANSWERS["complete"].blocked_seconds
    assert any("had been committed before it was interrupted, and continues" in note for note in report.notes)


async def test_rollback_when_the_commit_had_happened(stage: Harness) -> None:
    """A rollback that finds the migration committed changes nothing: the window opens, and cleanup is legal."""
    hang = Hang()
    run = await stage.start(Script(verify=hang, unblock_writes=COMMITTED))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    status = await run.until(lambda status: status.phase == Phase.VALIDATION)
    assert status.legal_verbs == [Verb.CLEANUP, Verb.PROCEED]
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert "clear_target" not in run.script.steps


async def test_cancelled_migration_rolls_back(stage: Harness) -> None:
    """A workflow that is cancelled rolls back first, and ends as cancelled."""
    hang = Hang()
    run = await stage.start(Script(copy_changes=hang))
    await hang.entered()
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert run.script.cancelled == ["copy_changes"]
    assert run.script.steps[-2:] == UNDO
    assert (await run.handle.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_a_cancellation_does_not_let_the_rollback_overtake_a_step(stage: Harness) -> None:
    """A workflow that is cancelled while a step ends for a rollback undoes only after the end of that step."""
    hang = Hang(late=True)
    run = await stage.start(Script(pre_copy=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    await hang.cancelled()
    await run.cancel()
    status = await run.status()
    hang.release()
    assert isinstance(await run.failure(), CancelledError)
    assert status.phase == Phase.PRE_COPY
    assert run.script.steps == ["precheck", "pre_copy", *UNDO]


async def test_cancellation_does_not_interrupt_the_rollback(stage: Harness) -> None:
    """A cancellation that arrives while writes are unblocked waits until that is done."""
    work, rollback_on_failure = Hang(), Hang()
    run = await stage.start(Script(prepare=work, unblock_writes=rollback_on_failure))
    await work.entered()
    await run.signal(Verb.ROLLBACK)
    await rollback_on_failure.entered()
    await run.handle.cancel()
    await run.until(lambda status: any("the workflow was cancelled" in note for note in status.notes))
    rollback_on_failure.release()
    report = await run.report()
    assert run.script.cancelled == ["prepare"]
    assert run.script.steps[-2:] == UNDO
    assert report.outcome is Outcome.ROLLED_BACK


async def test_rollback_is_repeated(stage: Harness) -> None:
    """A rollback that fails permanently is tried again until it succeeds: writes are never left blocked."""
    blocked = UNBLOCKED.model_copy(update={"blocked_seconds": 1.5})
    script = Script(prepare=DENIED, unblock_writes=[DENIED, DENIED, blocked])
    run = await stage.start(script)
    failure = await run.typed_failure()
    assert failure.type == FailureKind.DENIED
    assert script.steps[3:] == ["unblock_writes"] * 3 + ["clear_target"]
    notes = (await run.status()).notes
    assert [note.partition("retried in ")[2] for note in notes if "is retried" in note] == [
        "5 s: Denied: no right to write",
        "10 s: Denied: no right to write",
    ]
    assert any("(flag: FAILED). Autorecovery ended in all bookies" in note for note in notes)


async def test_a_foreign_flag_that_blocks_writes_is_reported(stage: Harness) -> None:
    """If a foreign flag blocks writes, or our claim was removed, the rollback does not report success."""
    held = Restoration(committed=False, flag=FlagPhase.PREPARATION)
    run = await stage.start(Script(prepare=DENIED, unblock_writes=held))
    await run.typed_failure()
    notes = (await run.status()).notes
    assert any(
        "metadata writes are blocked: the flag is PREPARATION, which is not this migration's" in note for note in notes
    )
    assert not any("brokers write to the source again" in note for note in notes)


async def test_metadata_that_another_command_moved_are_reported(stage: Harness) -> None:
    """If Pulsar's own command has moved the metadata, the rollback does not report that the source is in use."""
    moved = Restoration(committed=False, flag=FlagPhase.COMPLETED)
    run = await stage.start(Script(prepare=DENIED, unblock_writes=moved))
    await run.typed_failure()
    notes = (await run.status()).notes
    assert any("another command moved the metadata" in note for note in notes)
    assert not any("brokers write to the source again" in note for note in notes)


async def test_target_out_of_reach(stage: Harness) -> None:
    """A target that cannot be reached is tried for ten minutes, then its copy is left to the next start."""
    unreachable = ApplicationError("no route", type=FailureKind.UNREACHABLE)
    run = await stage.start(Script(verify=DENIED, clear_target=unreachable))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.DENIED
    assert run.script.steps.count("clear_target") > 10
    status = await run.status()
    assert status.notes[-1].endswith("the next start of this migration uses it: Unreachable: no route")


async def _rolled_back(stage: Harness, step: str, *, deaf: bool = False, **fields: Any) -> tuple[Run, Any]:
    hang = Hang(deaf=deaf)
    run = await stage.start(Script(**{step: hang}), **fields)
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    return run, await run.report()

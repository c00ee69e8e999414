"""Verbs and updates of a running metadata store migration, and its status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from models.lifecycle.audit import fault_of
from models.lifecycle.auto_throttle import AutoThrottle, CopyOrders
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Progress, ProgressReport, ProgressTask, ProgressUnit, WaitKind, WaitReason
from models.lifecycle.verbs import Speed, Verb, VerbRequest
from models.metadata_store.phases import Phase
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.metadata_store.activities import HELD, Script, between_rounds
from workflows.lifecycle.caller import UNNAMED
from workflows.lifecycle.migration import MOST_REFUSALS


async def test_pause_holds_before_writes_are_blocked(stage: Harness) -> None:
    """A pause lets the copy end, holds before PREPARATION for as long as it likes, and `resume` continues."""
    run = await _paused(stage, blocked_deadline="PT1M", validation_window="PT0S")
    await stage.env.sleep(timedelta(hours=8))
    status = await run.until(between_rounds(run.script))
    assert (status.phase, status.paused, status.deadlines) == (Phase.CATCH_UP, True, {})
    assert status.legal_verbs == [Verb.ROLLBACK, Verb.RESUME]
    assert status.waiting is not None
    assert (status.waiting.kind, status.waiting.ends_on) == (WaitKind.PAUSE, ("resume", "rollback"))
    await run.signal(Verb.RESUME)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.stages == HELD


async def test_pause_that_is_ended_in_time(stage: Harness) -> None:
    """A pause that is ended before the copy ends has no effect."""
    hang = Hang()
    run = await stage.start(Script(pre_copy=hang), validation_window="PT0S")
    await hang.entered()
    assert (await run.steer(Verb.PAUSE)).legal == (Verb.ROLLBACK, Verb.RESUME)
    assert (await run.steer(Verb.RESUME)).legal == (Verb.ROLLBACK, Verb.PAUSE)
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


async def test_rollback_while_paused(stage: Harness) -> None:
    """A paused migration can be rolled back."""
    run = await _paused(stage)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert run.script.stages == ["precheck", "pre_copy", "catch_up", "unblock_writes", "clear_target"]


async def test_cancellation_while_paused(stage: Harness) -> None:
    """A paused migration that is cancelled rolls back."""
    run = await _paused(stage)
    await run.handle.cancel()
    await run.failure()
    assert run.script.stages == ["precheck", "pre_copy", "catch_up", "unblock_writes", "clear_target"]


async def test_pause_is_refused_while_writes_are_blocked(stage: Harness) -> None:
    """A pause is refused while writes are blocked, and the refusal names the verb that gives them back."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang), validation_window="PT0S")
    await hang.entered()
    refusal = await run.refusal("steer", VerbRequest(verb=Verb.PAUSE))
    assert refusal.message == (
        "pause refused: metadata writes are blocked, and a pause would prolong that; `rollback` unblocks them. "
        "Legal now: rollback"
    )
    hang.release()
    await run.report()


async def test_refused_verb_changes_nothing(stage: Harness) -> None:
    """A verb that the update `steer` refuses enters the audit trail, but not the notes; many refusals do neither."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang), validation_window="PT0S")
    await hang.entered()
    notes = (await run.status()).notes
    for verb in (Verb.CLEANUP, Verb.PROCEED, Verb.RESUME):
        assert (await run.refusal("steer", VerbRequest(verb=verb))).type == FailureKind.REFUSED
    assert (await run.status()).notes == notes
    for _ in range(MOST_REFUSALS):
        await run.refusal("steer", VerbRequest(verb=Verb.RESUME))
    hang.release()
    report = await run.report()
    assert [entry.what for entry in report.audit[:3]] == ["steer", "steer", "steer"]
    assert report.audit[2].result.startswith("resume refused: it is not paused")
    assert (len(report.audit), await _updates(run)) == (MOST_REFUSALS, MOST_REFUSALS)
    assert not fault_of(report.audit)


async def test_accepted_verb_is_answered(stage: Harness) -> None:
    """An accepted verb is answered with what it does and what is legal then."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang))
    await hang.entered()
    verdict = await run.steer(Verb.ROLLBACK)
    assert verdict.accepted
    assert verdict.why.startswith("a rollback sets the flag to FAILED")
    assert verdict.legal == ()
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert await _updates(run) == 1


async def test_malformed_messages_are_refused(stage: Harness) -> None:
    """A malformed message is refused in one line, an update's error or a note; the migration continues."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang), validation_window="PT0S")
    await hang.entered()
    refusal = await run.refusal("steer", {"verb": "rolback"})
    assert refusal.type == FailureKind.INVALID_INPUT
    assert refusal.message.startswith("verb: Input should be 'rollback', 'cleanup'")
    assert refusal.message.endswith("Cure: correct this; needed are verb, optional are reason, asked")
    before = len((await run.status()).notes)
    await run.handle.signal("rollback", {"x": 1})
    await run.handle.signal("rollback", args=["one", "two"])
    await run.handle.signal("cleanup", 7)
    await run.handle.signal("rolback")
    await run.handle.signal("report_progress", {"nothing": "of this kind"})
    status = await run.status()
    by, cure = f" by {UNNAMED}", "send no reason, or a text: --input '\"OPS-1\"'"
    assert [note.partition("Z ")[2] for note in status.notes[before:]] == [
        f"rollback refused: invalid reason {{'x': 1}}{by}; {cure}",
        f"rollback refused: invalid reason one two{by}; {cure}",
        f"cleanup refused: invalid reason 7{by}; {cure}",
        f"unknown signal 'rolback'{by}; valid signals: rollback, cleanup, pause, resume, proceed, approve, reject",
    ]
    assert status.legal_verbs == [Verb.ROLLBACK]
    # More than enter the audit trail: requests that count must stay in it.
    for _ in range(MOST_REFUSALS):
        await run.signal(Verb.PAUSE)
    hang.release()
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert [entry.what for entry in report.audit[:5]] == ["rollback", "rollback", "cleanup", "rolback", "pause"]
    assert len(report.audit) == MOST_REFUSALS


@pytest.mark.parametrize(("step", "mode"), [("pre_copy", "live"), ("copy_whole", "offline")])
async def test_throttle(stage: Harness, step: str, mode: str) -> None:
    """The throttle can be set and lifted while the bulk copy runs."""
    hang = Hang()
    run = await stage.start(Script(**{step: hang}), mode=mode, validation_window="PT0S")
    await hang.entered()
    for speed in (2.5, None):
        answer = await run.update("set_throttle", Speed(megabytes_per_second=speed))
        assert answer == {"megabytes_per_second": speed}
    assert [call.args for call in run.script.calls if call.step == "set_speed"] == [
        (Speed(megabytes_per_second=2.5),),
        (Speed(),),
    ]
    hang.release()
    report = await run.report()
    assert [note.partition("Z ")[2] for note in report.notes if "throttle" in note] == [
        f"throttle is now 2.5 MB/s, set by {UNNAMED}",
        f"throttle is now off, set by {UNNAMED}",
    ]


async def test_pause_and_throttle_reach_a_running_copy(stage: Harness) -> None:
    """The copy learns by a query who has paused it, and what throttles it; neither adds an activity."""
    hang = Hang()
    wanted = {"http": "http://127.0.0.1:9/may-copy"}
    run = await stage.start(Script(pre_copy=hang), validation_window="PT0S", auto_throttle=wanted)
    await hang.entered()
    assert await _orders(run) == CopyOrders(throttle=AutoThrottle.model_validate(wanted))
    answer = await run.steer(Verb.PAUSE)
    assert answer.why == "the copy stops within seconds, and keeps what it has; `resume` continues"
    pause = (await _orders(run)).pause
    assert pause is not None
    assert str(pause) == "`resume`: paused by the operator"
    assert (await run.status()).pause == pause
    await run.update("set_auto_throttle", AutoThrottle())
    await run.signal(Verb.RESUME)
    assert await _orders(run) == CopyOrders(throttle=AutoThrottle())
    assert (await run.status()).pause is None
    hang.release()
    report = await run.report()
    assert any("the automatic throttle is now off" in note for note in report.notes)
    assert run.script.steps.count("pre_copy") == 1


async def test_a_rollback_ends_a_pause(stage: Harness) -> None:
    """A copy that stops for the rollback is not held on its way."""
    hang = Hang()
    run = await stage.start(Script(pre_copy=hang))
    await hang.entered()
    await run.signal(Verb.PAUSE, "OPS-7")
    assert (await _orders(run)).pause is not None
    await run.signal(Verb.ROLLBACK)
    assert (await _orders(run)).pause is None
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


async def _orders(run: Run) -> CopyOrders:
    return CopyOrders.model_validate(await run.handle.query("copy_orders"))


async def test_no_throttle_of_an_offline_copy(stage: Harness) -> None:
    """The update is refused as the input is: all services wait for this copy."""
    hang = Hang()
    run = await stage.start(Script(copy_whole=hang), mode="offline", validation_window="PT0S")
    await hang.entered()
    refusal = await run.refusal("set_auto_throttle", {"http": "http://127.0.0.1:9/"})
    assert "all services wait for an offline copy" in refusal.message
    hang.release()
    await run.report()


async def test_throttle_where_nothing_is_copied(stage: Harness) -> None:
    """The throttle is refused where no bulk copy runs: in a pause after the copy, and while writes are blocked."""
    run = await _paused(stage, Script(prepare=(hang := Hang())), validation_window="PT0S")
    speed = Speed(megabytes_per_second=1)
    assert (await run.refusal("set_throttle", speed)).message == "no bulk copy runs now"
    await run.signal(Verb.RESUME)
    await hang.entered()
    assert (await run.refusal("set_throttle", speed)).type == FailureKind.REFUSED
    hang.release()
    await run.report()
    assert "set_speed" not in run.script.steps


async def test_throttle_below_nothing(stage: Harness) -> None:
    """A throttle of zero is refused with the field's name."""
    hang = Hang()
    run = await stage.start(Script(pre_copy=hang), validation_window="PT0S")
    await hang.entered()
    refusal = await run.refusal("set_throttle", {"megabytes_per_second": 0})
    assert "megabytes_per_second: Input should be greater than 0. Cure: " in refusal.message
    hang.release()
    await run.report()


async def test_throttle_that_cannot_be_set(stage: Harness) -> None:
    """A throttle that does not reach the target fails its update, and the migration still completes."""
    hang = Hang()
    unreachable = ApplicationError("no route", type=FailureKind.UNREACHABLE, non_retryable=True)
    run = await stage.start(Script(pre_copy=hang, set_speed=unreachable), validation_window="PT0S")
    await hang.entered()
    with pytest.raises(WorkflowUpdateFailedError):
        await run.update("set_throttle", Speed(megabytes_per_second=1))
    hang.release()
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert [(entry.what, entry.accepted, entry.result) for entry in report.audit] == [
        ("set_throttle", False, "no route")
    ]


async def test_status_shows_the_reports_of_steps(stage: Harness) -> None:
    """Progress and reasons to wait that a step reports are in the status until the next phase starts."""
    hang, next_hang = Hang(), Hang()
    run = await stage.start(Script(pre_copy=hang, prepare=next_hang), validation_window="PT0S")
    await hang.entered()
    progress = Progress(
        task=ProgressTask.COPY, unit=ProgressUnit.RECORDS, done=3, total=12, as_of=datetime(2026, 5, 4, tzinfo=UTC)
    )
    reason = WaitReason(kind=WaitKind.STORE, why="the store", action="look at its log")
    await run.handle.signal("report_progress", ProgressReport(progress=progress, waiting=reason))
    first = await run.status()
    await run.handle.signal("report_progress", ProgressReport(waiting=reason))
    second = await run.status()
    assert first.waiting is not None
    assert first.progress == progress
    assert first.waiting.model_dump(include=set(WaitReason.model_fields)) == reason.model_dump()
    assert (second.progress, second.waiting) == (progress, first.waiting)
    await run.handle.signal("report_progress", ProgressReport())
    assert (await run.status()).waiting is None
    hang.release()
    await next_hang.entered()
    assert (await run.status()).progress is None
    next_hang.release()
    await run.report()


async def _paused(stage: Harness, script: Script | None = None, **fields: Any) -> Run:
    """Start a migration that holds before PREPARATION."""
    hang = Hang()
    script = script or Script()
    script.say("pre_copy", hang)
    run = await stage.start(script, **fields)
    await hang.entered()
    await run.signal(Verb.PAUSE)
    assert (await run.status()).paused
    hang.release()
    idle = between_rounds(script)
    await run.until(lambda status: status.waiting is not None and idle(status))
    return run


async def _updates(run: Run) -> int:
    """Return the number of updates in the history."""
    events = (await run.handle.fetch_history()).events
    return sum(event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED for event in events)

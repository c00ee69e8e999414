"""A metadata store migration that holds before its cut-over: signals that end the hold, and work during it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from models.lifecycle.audit import fault_of
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import CutoverPlan, Outcome, Status, WaitKind
from models.lifecycle.verbs import CutoverTime, HoldChange, Verb
from models.metadata_store.phases import Phase
from models.metadata_store.results import Preparation
from tests.workflows.lifecycle.doubles import OWN_QUEUE, Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.lifecycle.one_task import in_one_task
from tests.workflows.lifecycle.persons import ANA, BO, Persons
from tests.workflows.metadata_store.activities import ANSWERS, HELD, LIVE, Script, between_rounds
from workflows.lifecycle import hold
from workflows.metadata_store import workflow as migration

LOST = Preparation(ephemerals=0, seconds=0.0, gap="this worker did not watch the source from the start")
READY = ANSWERS["prepare"]


async def test_hold_before_cutover(stage: Harness) -> None:
    """A held migration catches up for as long as it likes, says who ends the wait, and `proceed` cuts over."""
    run = await _held(stage, hold_before_cutover=True)
    await stage.env.sleep(timedelta(hours=30))
    status = await _between_rounds(run)
    assert (status.phase, status.cutover.hold, status.deadlines) == (Phase.CATCH_UP, True, {})
    assert status.legal_verbs == [Verb.ROLLBACK, Verb.PAUSE, Verb.PROCEED]
    assert status.waiting is not None
    assert status.waiting.ends_on == ("proceed", "hold_before_cutover", "rollback")
    assert status.waiting.action == "give `proceed` to cut over"
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert run.script.stages == HELD
    rounds = [call.args[1] for call in run.script.calls if call.step == "catch_up"]
    # They grow longer, and the last one waits for nothing.
    assert (rounds[0], max(rounds), rounds[-1]) == (10, 3600, 0)
    prepared = [call for call in run.script.calls if call.step in ("copy_changes", "verify", "complete")]
    assert {call.args[0].since_zxid for call in prepared if call.args} == {99}


async def test_hold_is_released_by_its_update(stage: Harness) -> None:
    """The update can hold a migration that copies, release it again, and is refused once the cut-over has started."""
    copying, preparing = Hang(), Hang()
    run = await stage.start(Script(pre_copy=copying, prepare=preparing), validation_window="PT0S")
    await copying.entered()
    assert await run.update("hold_before_cutover", HoldChange(hold=True)) == CutoverPlan(hold=True).model_dump()
    copying.release()
    await _between_rounds(run)
    await run.update("hold_before_cutover", HoldChange(hold=False))
    await preparing.entered()
    for name, change in {"hold_before_cutover": HoldChange(hold=True), "cutover_at": CutoverTime(at=None)}.items():
        refusal = await run.refusal(name, change)
        assert (refusal.type, refusal.message) == (FailureKind.REFUSED, "the cut-over has started")
    preparing.release()
    assert (await run.report()).outcome is Outcome.DONE


@pytest.mark.parametrize("later", [("hold_before_cutover", True), ("cutover_at", timedelta(hours=20))])
async def test_a_later_order_counts_more_than_a_proceed(
    stage: Harness, monkeypatch: pytest.MonkeyPatch, later: tuple[str, Any]
) -> None:
    """A hold, or a time, that is answered while a `proceed` is not acted on yet is not lost."""
    run = await _held(stage, hold_before_cutover=True)
    update, value = later
    now = await stage.env.get_current_time()
    order = HoldChange(hold=True) if value is True else CutoverTime(at=now + value)
    async with in_one_task(run, monkeypatch):
        await run.signal(Verb.PROCEED)
        answer = asyncio.create_task(run.update(update, order))
    assert CutoverPlan.model_validate(await answer).hold
    assert (await run.status()).cutover.hold
    status = await _between_rounds(run)
    assert Verb.PROCEED in status.legal_verbs
    assert any("`proceed`" in note and "dropped" in note for note in status.notes)
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


async def test_a_rollback_does_not_overtake_the_last_round(stage: Harness) -> None:
    """A rollback that comes while a `proceed` ends a round of the copy undoes only after the end of that round."""
    hang = Hang(late=True)
    run = await stage.start(Script(catch_up=hang), hold_before_cutover=True)
    await hang.entered()
    await run.steer(Verb.PROCEED)
    await hang.cancelled()
    await run.steer(Verb.ROLLBACK)
    status = await run.status()
    hang.release()
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert status.phase == Phase.CATCH_UP
    assert run.script.steps == [*HELD[:3], "unblock_writes", "clear_target"]


async def test_cutover_at(stage: Harness) -> None:
    """The cut-over starts at its time, which can be moved; no operator is needed."""
    now = await stage.env.get_current_time()
    run = await _held(stage, cutover_at=(now + timedelta(hours=30)).isoformat())
    status = await run.status()
    assert status.waiting is not None
    assert status.waiting.until == status.cutover.at
    assert status.waiting.ends_on == ("proceed", "cutover_at", "rollback")
    assert "has passed" in (await run.refusal("cutover_at", CutoverTime(at=datetime(2001, 1, 1, tzinfo=UTC)))).message
    sooner = now + timedelta(hours=20)
    await run.update("cutover_at", CutoverTime(at=sooner))
    assert (await _between_rounds(run)).cutover.at == sooner
    report = await run.report()
    begun = next(entry for entry in report.history if entry.phase == Phase.PREPARATION).started
    assert sooner <= begun < sooner + timedelta(minutes=5)
    assert run.script.stages == HELD


async def test_a_request_without_an_answer_is_recorded(stage: Harness, command: Client) -> None:
    """A request that ends without an approval, here by a pause, is in the notes and in the audit trail."""
    run = await _held(stage, hold_before_cutover=True, two_persons=True)
    persons = Persons(command, run)
    assert (await persons.steer(ANA, Verb.PROCEED, "OPS-1")).accepted
    await persons.steer(BO, Verb.PAUSE)
    status = await run.until(lambda status: status.request is None and status.paused)
    asked, ended, paused = (await persons.audit()).entries
    assert (asked.accepted, ended.accepted, paused.accepted) == (True, False, True)
    assert (ended.by, ended.what, ended.reason) == (ANA, "proceed", "OPS-1")
    assert ended.result == "the request ended without an approval: `pause` was given"
    assert any(note.endswith(f"proceed by {ANA}: {ended.result}") for note in status.notes)
    await persons.steer(BO, Verb.ROLLBACK)
    report = await run.report()
    assert [entry.what for entry in report.audit] == ["proceed", "proceed", "pause", "rollback"]
    assert not fault_of(report.audit)


async def test_cutover_time_is_cleared(stage: Harness) -> None:
    """Without its time the cut-over begins as soon as it can; a time without its zone is refused."""
    now = await stage.env.get_current_time()
    run = await _held(stage, cutover_at=(now + timedelta(hours=30)).isoformat())
    assert "timezone" in (await run.refusal("cutover_at", {"at": "2030-01-01T00:00:00"})).message
    await run.update("cutover_at", CutoverTime(at=None))
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.stages == HELD


async def test_pause_while_held(stage: Harness) -> None:
    """A pause in a hold outlasts it: `proceed` is legal again when `resume` was given."""
    run = await _held(stage, hold_before_cutover=True)
    await run.signal(Verb.PAUSE)
    paused = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.PAUSE)
    assert paused.legal_verbs == [Verb.ROLLBACK, Verb.RESUME]
    await run.signal(Verb.RESUME)
    await _between_rounds(run)
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.stages == HELD


async def test_hold_over_runs(server: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A held migration continues as new runs, keeps its verbs and changes, and continues where it had caught up."""
    monkeypatch.setattr(hold, "_SHORTEST_ROUND", timedelta(milliseconds=300))
    script = Script()
    run = await server.start(script, history_limit=30, hold_before_cutover=True, validation_window="PT0S")
    await run.until_runs(3)
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    assert (status.phase, status.cutover.hold) == (Phase.CATCH_UP, True)
    assert script.steps.count("pre_copy") == 1
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


async def test_rollback_while_held(stage: Harness) -> None:
    """A held migration can be rolled back; its round is cancelled first."""
    run = await _held(stage, hold_before_cutover=True)
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.stages == ["precheck", "pre_copy", "catch_up", "unblock_writes", "clear_target"]


async def test_failure_while_held(stage: Harness) -> None:
    """A catch-up that fails permanently ends the hold: the migration rolls back."""
    broken = ApplicationError("differs", type=FailureKind.VERIFICATION_FAILED, non_retryable=True)
    run = await stage.start(Script(catch_up=broken), hold_before_cutover=True)
    assert (await run.typed_failure()).type == FailureKind.VERIFICATION_FAILED
    assert run.script.stages == ["precheck", "pre_copy", "catch_up", "unblock_writes", "clear_target"]


async def test_watcher_lost_before_the_cutover(stage: Harness) -> None:
    """A worker that would need to scan sets no flag: it catches up first, and the deadline counts from then."""
    preparing = Hang()
    run = await stage.start(Script(prepare=[LOST, preparing]), validation_window="PT0S", blocked_deadline="PT1M")
    await preparing.entered()
    status = await run.status()
    entered = next(entry for entry in status.history if entry.phase == Phase.PREPARATION).started
    assert status.deadlines["longest time with writes blocked"] > entered + timedelta(minutes=1)
    preparing.release()
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.steps == [*LIVE[:2], "prepare", "catch_up", *LIVE[2:]]
    assert {call.queue for call in run.script.calls if call.step in ("catch_up", "prepare")} == {OWN_QUEUE}


async def test_no_deadline_while_a_new_watcher_catches_up(stage: Harness) -> None:
    """The deadline for blocked writes does not run while a new watcher catches up: writes are not blocked then."""
    catching_up = Hang()
    script = Script(prepare=[LOST, READY], catch_up=catching_up)
    run = await stage.start(script, validation_window="PT0S", blocked_deadline="PT1M")
    await catching_up.entered()
    status = await run.status()
    assert (status.phase, status.deadlines) == (Phase.PREPARATION, {})
    catching_up.release()
    assert (await run.report()).outcome is Outcome.DONE


async def test_watchers_lost_repeatedly(stage: Harness) -> None:
    """Further tries of the cut-over come at growing intervals; a run that has grown continues as new between them."""
    script = Script(prepare=[*[LOST] * 9, READY])
    run = await stage.start(script, history_limit=30, validation_window="PT0S", blocked_deadline="PT1M")
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert await run.runs() > 1
    assert script.steps == [*LIVE[:2], *["prepare", "catch_up"] * 9, *LIVE[2:]]
    preparation = next(entry for entry in report.history if entry.phase == Phase.PREPARATION)
    assert preparation.seconds(preparation.started) > 600


async def test_watchers_lost_too_often(stage: Harness) -> None:
    """The tenth try of the cut-over that finds a gap ends the migration, which rolls back."""
    run = await stage.start(Script(prepare=LOST), validation_window="PT0S")
    failure = await run.typed_failure()
    assert failure.type == FailureKind.NOT_READY
    assert failure.message == (
        "the cut-over was tried 10 times, and each time changes of the source were not known: "
        f"{LOST.gap}. Start again when workers stay alive and the source changes less"
    )
    assert run.script.steps.count("prepare") == 10
    assert run.script.steps[-2:] == ["unblock_writes", "clear_target"]


async def test_proceed_tries_the_cutover_again_at_once(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the next try of the cut-over is waited for, status says why, and `proceed` ends the wait."""
    monkeypatch.setattr(migration, "_SHORTEST_REST", timedelta(minutes=5))
    preparing = Hang()
    run = await stage.start(Script(prepare=[LOST, LOST, LOST, preparing]), validation_window="PT0S")
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    assert status.waiting is not None
    assert status.waiting.why == f"the next try of the cut-over ({LOST.gap})"
    assert status.legal_verbs == [Verb.ROLLBACK, Verb.PROCEED]
    await run.signal(Verb.PROCEED)
    await preparing.entered()
    preparing.release()
    assert (await run.report()).outcome is Outcome.DONE


async def _between_rounds(run: Run) -> Status:
    idle = between_rounds(run.script)
    return await run.until(
        lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD and idle(status)
    )


async def _held(stage: Harness, **fields: Any) -> Run:
    """Start a migration that holds before its cut-over, after its first round."""
    run = await stage.start(Script(), validation_window="PT0S", **fields)
    await _between_rounds(run)
    return run

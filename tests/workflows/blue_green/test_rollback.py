"""The rollback of the blue-green migration: of a batch, and of the whole."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from models.blue_green.phases import BatchPhase
from models.blue_green.results import Drained, Quiet, Released, Undone
from models.lifecycle.failures import FailedItem, FailureKind
from models.lifecycle.status import Outcome, ProgressReport, Status, WaitKind, WaitReason
from models.lifecycle.verbs import Verb
from temporal.converter import DATA_CONVERTER
from tests.workflows.blue_green.activities import ANSWERS, BATCH, Script
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from workflows.lifecycle.continuation import Continuation

BEFORE = ["precheck", "register", "provision", "disable_load_shedding"]
UNDOABLE = Undone(undone=False, terminated=3, why="3 topics are terminated on blue")


@pytest.mark.parametrize("step", ["load", "quiesce", "flip"])
async def test_rollback_before_topics_are_terminated(stage: Harness, step: str) -> None:
    """A rollback cancels the batch that runs, leaves its clients with blue, and puts the settings back."""
    hang = Hang()
    script = Script()
    script.say(step, hang)
    run = await stage.start(script)
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert run.script.steps == [*BEFORE, *BATCH[: BATCH.index(step) + 1], "undo", "release"]
    assert run.script.cancelled == [step]
    assert report.outcome is Outcome.ROLLED_BACK


async def test_a_rollback_lists_what_failed(stage: Harness) -> None:
    """A namespace that a rollback keeps on blue is in the complete list, which the report names."""
    hang = Hang()
    run = await stage.start(Script(quiesce=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    listed = [item.path for call in run.script.calls if call.step == "record_failures" for item in call.args[0]]
    assert listed == ["acme/audit"]
    assert [(failed.count, failed.listed_in) for failed in report.failed_items] == [(1, ANSWERS["record_failures"])]


async def test_a_rollback_without_the_list_ends(stage: Harness) -> None:
    """A run that may not write the list any more, because it lost its claim, releases the rest all the same."""
    hang = Hang()
    lost = ApplicationError("another run holds the claim", type=FailureKind.CONFLICT, non_retryable=True)
    run = await stage.start(Script(quiesce=hang, record_failures=lost))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert (report.outcome, run.script.steps[-1]) == (Outcome.ROLLED_BACK, "release")
    assert any("1 failed items are not listed: Conflict: another run holds the claim" in note for note in report.notes)


async def test_rollback_after_the_termination_ends_the_batch(stage: Harness) -> None:
    """A batch whose topics are terminated continues to its end, and no other begins."""
    hang = Hang()
    run = await stage.start(Script(flip=hang, undo=UNDOABLE, release=Released(moved=1)))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert run.script.steps == [*BEFORE, *BATCH[:4], "undo", "drain", "verify", "release"]
    assert report.outcome is Outcome.ROLLED_BACK
    assert any("1 namespaces have moved, and stay on green" in note for note in report.notes)


async def test_rollback_in_the_drain_waits_for_the_batch(stage: Harness) -> None:
    """A running drain is not interrupted: the batch is completed."""
    hang = Hang()
    run = await stage.start(Script(drain=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    await run.until(lambda status: status.waiting is not None and "after their cancellation" in status.waiting.why)
    hang.release()
    report = await run.report()
    assert run.script.steps == [*BEFORE, *BATCH, "release"]
    assert run.script.cancelled == []
    assert report.outcome is Outcome.ROLLED_BACK


async def test_busy_topics_undo_their_batch(stage: Harness) -> None:
    """If writes do not become quiet, nothing is flipped; the batch is undone, and the operator is asked."""
    busy = Quiet(seconds=15, busy=("persistent://acme/audit/a",))
    run = await stage.start(Script(quiesce=[busy, Quiet(seconds=1)]))
    await run.until(_asks_about_failures)
    assert run.script.steps == [*BEFORE, *BATCH[:3], "undo"]
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert (report.figures["namespaces_moved"], report.figures["namespaces_failed"]) == (2, 1)


async def test_a_batch_that_is_rolled_back_alone_has_failed(stage: Harness) -> None:
    """An operator may end one batch: its namespace stays with blue, and does not count as moved."""
    hang = Hang()
    run = await stage.start(Script(quiesce=[hang, Quiet(seconds=1)]))
    await hang.entered()
    await run.client.get_workflow_handle(f"{run.handle.id}/acme/audit").signal(Verb.ROLLBACK.value)
    status = await run.until(_asks_about_failures)
    assert status.failed_items[0].items[0].path == "acme/audit"
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert (report.figures["namespaces_moved"], report.figures["namespaces_failed"]) == (2, 1)


async def test_what_is_left_on_blue_fails_its_namespace(stage: Harness) -> None:
    """A batch that is not drained in time counts as failed, with the topic and the reason."""
    undrained = FailedItem(
        path="persistent://acme/audit/a", reason="subscription s has 5 messages left, and no consumer"
    )
    run = await stage.start(
        Script(drain=[Drained(seconds=9, remaining=(undrained,), remaining_count=1), Drained(seconds=1)])
    )
    status = await run.until(_asks_about_failures)
    assert status.failed_items[0].items[0].path == "acme/audit"
    assert "subscription s has 5 messages left" in status.failed_items[0].items[0].reason
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


async def test_failure_of_a_step_undoes_its_batch(stage: Harness) -> None:
    """A step that fails permanently rolls its batch back."""
    failure = ApplicationError("no right", type=FailureKind.DENIED, non_retryable=True)
    run = await stage.start(Script(flip=failure))
    status = await run.until(_asks_about_failures)
    assert "no right" in status.failed_items[0].items[0].reason
    assert run.script.steps[-1] == "undo"
    await run.signal(Verb.ROLLBACK)
    await run.report()


@pytest.mark.parametrize("step", ["quiesce", "flip"])
async def test_writes_do_not_wait_for_a_server_for_ever(stage: Harness, step: str) -> None:
    """Retries of a step while writes are held back have a limit; then its batch is rolled back."""
    script = Script(names=("acme/audit",))
    script.say(step, ApplicationError("broker-2 does not answer", type=FailureKind.UNREACHABLE))
    run = await stage.start(script)
    assert "broker-2 does not answer" in (await run.typed_failure()).message
    assert run.script.steps[-2:] == ["undo", "release"]
    assert run.script.steps.count(step) > 1


async def test_nothing_moved_is_a_failure(stage: Harness) -> None:
    """A migration none of whose namespaces could be moved puts everything back, and fails with the reason."""
    busy = Quiet(seconds=15, busy=("persistent://acme/audit/a",))
    run = await stage.start(Script(quiesce=busy, names=("acme/audit",)))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.VERIFICATION_FAILED
    assert "persistent://acme/audit/a" in failure.message
    assert run.script.steps[-2:] == ["undo", "release"]


async def test_a_batch_reports_the_stop_switch(stage: Harness) -> None:
    """A batch that the stop switch holds tells its migration so, once, and that it holds no longer."""
    hang = Hang()
    run = await stage.start(Script(load=hang, names=("acme/audit",)), grace_window="PT0S")
    await hang.entered()
    batch = run.client.get_workflow_handle(f"{run.handle.id}/acme/audit")
    stop = WaitReason(kind=WaitKind.STOP_SWITCH, why="the stop switch is set: OPS-1")
    for waiting in (stop, stop, None):
        await batch.signal("report_progress", ProgressReport(waiting=waiting))
    async with asyncio.timeout(120):
        while len(reports := await _reports_of_items(run)) < 2:  # noqa: ASYNC110 - only Temporal has them
            await asyncio.sleep(0.05)
    assert [(report.item, report.waiting and report.waiting.kind) for report in reports] == [
        (batch.id, WaitKind.STOP_SWITCH),
        (batch.id, None),
    ]
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


@pytest.mark.parametrize("step", ["load", "verify"])
async def test_a_report_arrives_before_a_run_of_its_batch_ends(
    stage: Harness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A run of a batch that ends, or continues as new, first waits until its migration has its reports."""
    handle_of = workflow.get_external_workflow_handle

    def slow_handle(*args: Any, **options: Any) -> Any:
        async def signal(*given: Any) -> None:
            await workflow.sleep(60)
            await handle_of(*args, **options).signal(*given)

        return SimpleNamespace(signal=signal)

    def due(continuation: Continuation) -> bool:
        passed = continuation._state.passed  # pyright: ignore[reportPrivateUsage] - of the run that the test ends
        info = workflow.info()
        return info.parent is not None and info.continued_run_id is None and BatchPhase.LOAD in passed

    monkeypatch.setattr(workflow, "get_external_workflow_handle", slow_handle)
    monkeypatch.setattr(Continuation, "due", property(due))
    hang = Hang()
    script = Script(names=("acme/audit",))
    script.say(step, hang)
    run = await stage.start(script, grace_window="PT0S")
    await hang.entered()
    batch = run.client.get_workflow_handle(f"{run.handle.id}/acme/audit")
    stop = WaitReason(kind=WaitKind.STOP_SWITCH, why="the stop switch is set: OPS-1")
    for waiting in (stop, None):
        await batch.signal("report_progress", ProgressReport(waiting=waiting))
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE
    reports = await _reports_of_items(run)
    assert [report.waiting and report.waiting.kind for report in reports] == [WaitKind.STOP_SWITCH, None]


async def _reports_of_items(run: Run) -> list[ProgressReport]:
    """Return what items of the waves have reported so far."""
    events = [event.workflow_execution_signaled_event_attributes for event in (await run.handle.fetch_history()).events]
    given = [payload for event in events if event.signal_name == "report_progress" for payload in event.input.payloads]
    reports: list[ProgressReport] = await DATA_CONVERTER.decode(given, [ProgressReport] * len(given)) if given else []
    return [report for report in reports if report.item]


async def test_rollback_is_refused_once_all_have_moved(stage: Harness) -> None:
    """A pause during the last batch waits until its end, where there is nothing to undo any more."""
    hang = Hang()
    run = await stage.start(Script(drain=hang, names=("acme/audit",)), grace_window="PT0S")
    await hang.entered()
    await run.signal(Verb.PAUSE)
    running = await run.until(lambda status: status.waiting is not None and "`resume`" in status.waiting.action)
    assert running.waiting is not None
    assert (running.waiting.kind, running.waiting.action) == (WaitKind.ITEMS, "give `resume` to continue")
    hang.release()
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.PAUSE)
    assert status.legal_verbs == [Verb.RESUME]
    assert status.waiting is not None
    assert status.waiting.ends_on == (Verb.RESUME,)
    await run.signal(Verb.ROLLBACK)
    await run.signal(Verb.RESUME)
    report = await run.report()
    assert run.script.steps == [*BEFORE, *BATCH, "complete", "finish"]
    assert report.outcome is Outcome.DONE
    assert any("rollback refused" in note for note in report.notes)


async def test_rollback_is_refused_in_the_window(stage: Harness) -> None:
    """Once all have moved, a rollback is refused, with the way that there is."""
    run = await stage.start(Script())
    await run.until(lambda status: status.phase == "GRACE" and status.waiting is not None)
    await run.signal(Verb.ROLLBACK)
    status = await run.status()
    assert any("rollback refused" in note and "blue and green swapped" in note for note in status.notes)
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


def _asks_about_failures(status: Status) -> bool:
    return status.waiting is not None and status.waiting.kind is WaitKind.ERROR_BUDGET

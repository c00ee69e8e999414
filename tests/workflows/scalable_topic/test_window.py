"""The regular topic after the flip: the grace window and the cleanup, and their early ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.exceptions import ApplicationError, CancelledError

from models.lifecycle.claim import ParentRun
from models.lifecycle.failures import FailedItem, FailureKind
from models.lifecycle.status import Outcome, Status, Undo, WaitKind
from models.lifecycle.verbs import Verb, WindowChange
from models.scalable_topic.phases import Phase
from models.scalable_topic.results import CleanedUp
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.scalable_topic.activities import REMOVE, SCALABLE, TOPIC, Script

DENIED = ApplicationError("no right to delete", type=FailureKind.DENIED, non_retryable=True)


async def test_the_window_ends_and_the_topic_is_deleted(stage: Harness) -> None:
    """With `cleanup_at_window_end` the regular topic is deleted at the end of the window."""
    run = await stage.start(Script(), **REMOVE, grace_window="PT3H")
    report = await run.report()
    assert run.script.steps == [*SCALABLE, "clean_up"]
    window, cleanup = report.history[-2:]
    assert (window.phase, cleanup.phase) == (Phase.GRACE, Phase.CLEANUP)
    assert 3 * 3600 <= window.seconds(window.started) < 3 * 3600 + 60
    assert report.figures["deleted_topics"] == 1
    assert report.outcome is Outcome.DONE


async def test_the_window_ends_and_the_topic_stays(stage: Harness) -> None:
    """Without it nothing is deleted at the end of the window, and the report says so."""
    run = await stage.start(Script(), cleanup="remove", grace_window="PT3H")
    report = await run.report()
    assert run.script.steps == [*SCALABLE, "forget"]
    assert any("regular topics were left as they are" in note for note in report.notes)
    assert report.outcome is Outcome.DONE


async def test_cleanup_ends_the_window(stage: Harness) -> None:
    """`cleanup` deletes the regular topic at once; a rollback is refused, with what can be done instead."""
    run = await stage.start(Script(), cleanup="remove")
    status = await run.until(_in_window)
    assert (status.undo, status.legal_verbs) == (Undo.NONE, [Verb.CLEANUP, Verb.PROCEED])
    await run.signal(Verb.ROLLBACK)
    await run.signal(Verb.CLEANUP)
    report = await run.report()
    assert any("rollback refused: the topic is scalable and cannot become regular" in note for note in report.notes)
    assert run.script.steps == [*SCALABLE, "clean_up"]
    assert report.figures["deleted_topics"] == 1


async def test_proceed_keeps_the_topic(stage: Harness) -> None:
    """`proceed` ends the window without a cleanup, also if one would follow at its end."""
    run = await stage.start(Script(), **REMOVE)
    await run.until(_in_window)
    await run.signal(Verb.PROCEED, "a reader still uses it")
    report = await run.report()
    assert run.script.steps == [*SCALABLE, "forget"]
    assert "deleted_topics" not in report.figures


async def test_the_window_can_be_moved(stage: Harness) -> None:
    """`change_window` sets the remaining time."""
    run = await stage.start(Script(), **REMOVE, grace_window="P1D")
    await run.until(_in_window)
    await run.update("change_window", WindowChange(remaining=timedelta(hours=1)))
    window = (await run.report()).history[-2]
    assert 3600 <= window.seconds(window.started) < 3660


async def test_topics_that_stay_are_named(stage: Harness) -> None:
    """The report names topics that the cleanup does not delete, with the reason."""
    stays = FailedItem(path=TOPIC, reason="2 clients are connected to it")
    run = await stage.start(
        Script(clean_up=CleanedUp(remaining=(stays,), remaining_count=1)), **REMOVE, grace_window="PT0S"
    )
    report = await run.report()
    assert report.failed_items[0].items == (stays,)
    assert (report.outcome, report.figures["deleted_topics"]) == (Outcome.DONE, 0)


async def test_a_cleanup_that_fails_ends(stage: Harness) -> None:
    """A failed cleanup releases the cluster, and the topic is scalable."""
    run = await stage.start(Script(clean_up=DENIED), **REMOVE, grace_window="PT0S")
    report = await run.report()
    assert run.script.steps == [*SCALABLE, "clean_up", "forget"]
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert any("the deletion of regular topics did not complete: no right to delete" in note for note in report.notes)
    assert not any("left as they are" in note for note in report.notes)


async def test_a_cleanup_is_ended_by_proceed(stage: Harness) -> None:
    """`proceed` ends a slow cleanup, and the cluster is released."""
    hang = Hang()
    run = await stage.start(Script(clean_up=hang), **REMOVE, grace_window="PT0S")
    await hang.entered()
    assert (await run.status()).legal_verbs == [Verb.PROCEED]
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert run.script.cancelled == ["clean_up"]
    assert run.script.steps == [*SCALABLE, "clean_up", "forget"]
    assert report.outcome is Outcome.DONE
    assert any("the cleanup was ended by `proceed`; the remaining regular topics stay" in note for note in report.notes)


@pytest.mark.parametrize("fields", [{}, {"cleanup": "remove", "grace_window": "PT0S"}])
async def test_records_that_stay_are_reported(stage: Harness, fields: dict[str, Any]) -> None:
    """The report says so if the records of the migration cannot be removed."""
    run = await stage.start(Script(forget=DENIED), **fields)
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert any("stay in the metadata store: no right to delete" in note for note in report.notes)


async def test_cancelled_in_the_window(stage: Harness) -> None:
    """A workflow that is cancelled in its window deletes nothing, removes its records, and ends as cancelled."""
    run = await stage.start(Script(), **REMOVE)
    await run.until(_in_window)
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert run.script.steps == [*SCALABLE, "forget"]


async def test_cancelled_in_the_cleanup(stage: Harness) -> None:
    """A cancelled cleanup releases the cluster before the workflow ends."""
    hang = Hang()
    run = await stage.start(Script(clean_up=hang), **REMOVE, grace_window="PT0S")
    await hang.entered()
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert run.script.cancelled == ["clean_up"]
    assert run.script.steps == [*SCALABLE, "clean_up", "forget"]


async def test_a_cancelled_workflow_does_not_wait_for_the_cluster(stage: Harness) -> None:
    """If another migration holds the cluster by then, the wait for it ends after a minute."""
    run = await stage.start(Script(), **REMOVE)
    await run.until(_in_window)
    await run.handle.cancel()
    await run.failure()
    events = (await run.handle.fetch_history()).events
    last = [event.activity_task_scheduled_event_attributes for event in events if _schedules(event)][-1]
    assert last.activity_type.name == "scalable_topic_forget"
    assert last.schedule_to_close_timeout.ToTimedelta() == timedelta(minutes=1)


async def test_a_topic_of_many_has_no_window(stage: Harness) -> None:
    """A topic of a wave has no window and no cleanup; its parent has them."""
    parent = ParentRun.model_validate(
        {"workflow_id": "scalable-namespace/c", "run_id": "1", "started": "2026-01-01T00:00:00Z"}
    )
    run = await stage.start(Script(), **REMOVE, parent=parent.model_dump(mode="json"))
    report = await run.report()
    assert run.script.steps == SCALABLE
    assert report.history[-1].phase == Phase.COMPLETE


def _in_window(status: Status) -> bool:
    return status.waiting is not None and status.waiting.kind is WaitKind.WINDOW


def _schedules(event: HistoryEvent) -> bool:
    return event.HasField("activity_task_scheduled_event_attributes")

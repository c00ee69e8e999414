"""The controller of a topic as a workflow: one change at a time, none left by halves, and one life over many runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from models.lifecycle.failures import FailureKind
from models.segment import SubscriptionKind
from models.segment_layout import SegmentLayout
from models.topic_controller.input import (
    Deletion,
    MergeRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.record import Change, Mutation
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.topic_controller.activities import Script, layout_of, status_of

CHANGE = ["prepare", "seal", "commit"]
"""The steps of a split or a merge, in the proposal's order."""


def _broken(kind: FailureKind = FailureKind.CONFLICT) -> ApplicationError:
    return ApplicationError("broken", type=kind, non_retryable=True)


async def test_a_life(stage: Harness) -> None:
    """Updates answer with the layout that they made, and the deletion ends the workflow."""
    run = await stage.start(Script())
    split = SegmentLayout.model_validate(await run.update("split", SplitRequest(segment=0)))
    assert [one.descriptor for one in split.active] == ["0000-3fff-2", "4000-7fff-3", "8000-ffff-1"]
    merged = SegmentLayout.model_validate(await run.update("merge", MergeRequest(segments=(1, 3))))
    assert [one.descriptor for one in merged.active] == ["0000-3fff-2", "4000-ffff-4"]
    assert await layout_of(run) == merged
    await run.update("create_subscription", SubscriptionRequest(name="work", kind=SubscriptionKind.QUEUE))
    status = await status_of(run)
    assert (status.topic, status.epoch, status.changes, status.sealed) == ("acme/shop/orders", 2, 2, 3)
    assert (status.subscriptions, status.doing, status.waiting) == ({"work": SubscriptionKind.QUEUE}, "", "")
    await run.update("delete_subscription", Unsubscription(name="work"))
    await run.update("delete", Deletion())
    assert await run.handle.result() == "acme/shop/orders is deleted"
    assert run.script.steps == ["open", *CHANGE, *CHANGE, "subscribe", "unsubscribe", "delete"]


async def test_changes_come_one_after_the_other(stage: Harness) -> None:
    """Two splits at once are done in turn; a third one of a segment that is sealed by then is refused."""
    hang = Hang()
    run = await stage.start(Script(seal=[hang, None]))
    first = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    others = [asyncio.ensure_future(run.update("split", SplitRequest(segment=number))) for number in (1, 0)]
    # Both are in the history before the first has its answer.
    async with asyncio.timeout(30):
        while True:
            if await _accepted(run) == 3:
                break
            await asyncio.sleep(0.05)
    assert run.script.steps == ["open", "prepare", "seal"]
    hang.release()
    assert SegmentLayout.model_validate(await first).epoch == 1
    assert SegmentLayout.model_validate(await others[0]).epoch == 2
    with pytest.raises(Exception, match="Workflow update failed"):
        await others[1]
    assert run.script.steps == ["open", *CHANGE, *CHANGE]


async def test_a_change_that_cannot_begin_changes_nothing(stage: Harness) -> None:
    """What fails before the first segment is ended fails its update, and the topic goes on as it was."""
    run = await stage.start(Script(prepare=[_broken(), None]))
    refusal = await run.refusal("split", SplitRequest(segment=0))
    assert (refusal.type, refusal.message) == (FailureKind.CONFLICT, "broken")
    assert (await status_of(run)).epoch == 0
    assert SegmentLayout.model_validate(await run.update("split", SplitRequest(segment=0))).epoch == 1


@pytest.mark.parametrize("step", ["seal", "commit"])
async def test_a_change_that_has_begun_comes_to_its_end(stage: Harness, step: str) -> None:
    """Behind the end of a segment nothing leads back: steps are repeated, and status says why it waits."""
    script = Script(**{step: [_broken(), _broken(), Hang(), None]})
    run = await stage.start(script)
    change = asyncio.ensure_future(run.update("split", SplitRequest(segment=1)))
    async with asyncio.timeout(30):
        while script.hanging is None:
            await stage.env.sleep(timedelta(seconds=1))
    status = await status_of(run)
    assert status.waiting == "the next try, since the last failed: broken"
    assert (status.doing, status.pending) == (
        "split of 1",
        Mutation(change=Change.SPLIT, segments=(1,), epoch=0),
    )
    script.hanging.release()
    assert SegmentLayout.model_validate(await change).epoch == 1
    assert (await status_of(run)).waiting == ""


async def test_what_an_earlier_run_began_is_done(stage: Harness) -> None:
    """A run that finds a change under way goes on with it before it takes another."""
    pending = Mutation(change=Change.SPLIT, segments=(1,), epoch=0)
    script = Script()
    script.record = script.record.begun(pending)
    run = await stage.start(script)
    assert SegmentLayout.model_validate(await run.update("split", SplitRequest(segment=0))).epoch == 2
    assert script.steps == ["open", *CHANGE, *CHANGE]
    assert script.calls[1].args == (pending,)


async def test_a_deletion_that_an_earlier_run_began_is_done(stage: Harness) -> None:
    """A topic by halves is deleted, and not led."""
    script = Script()
    script.record = script.record.model_copy(update={"deleting": True})
    run = await stage.start(script)
    assert await run.handle.result() == "acme/shop/orders is deleted"
    assert script.steps == ["open", "delete"]


async def test_who_does_not_lead_any_more_ends(stage: Harness) -> None:
    """A run that another one has superseded fails its update and ends; it tries nothing again."""
    run = await stage.start(Script(seal=_broken(FailureKind.NOT_LEADER)))
    refusal = await run.refusal("split", SplitRequest(segment=0))
    assert refusal.type == FailureKind.NOT_LEADER
    assert (await run.typed_failure()).type == FailureKind.NOT_LEADER
    assert run.script.steps == ["open", "prepare", "seal"]


async def test_a_topic_that_cannot_be_opened_fails(stage: Harness) -> None:
    """The failure of the first step is the workflow's, and names its kind."""
    run = await stage.start(Script(open=_broken()))
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.CONFLICT, "broken")


async def test_a_cancellation_waits_for_a_change(stage: Harness) -> None:
    """A controller that is cancelled amid a split ends when that is done."""
    hang = Hang()
    script = Script(seal=hang)
    run = await stage.start(script)
    change = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    await run.handle.cancel()
    hang.release()
    assert SegmentLayout.model_validate(await change).epoch == 1
    with pytest.raises(WorkflowFailureError) as failed:
        await run.handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert script.record.pending is None


async def test_a_signal_is_refused(stage: Harness) -> None:
    """A signal that there is not is noted, with its cure."""
    run = await stage.start(Script())
    await run.update("create_subscription", SubscriptionRequest(name="work"))
    await run.handle.signal("split", 1)
    await run.update("create_subscription", SubscriptionRequest(name="work"))
    assert "split refused: there is no such signal. Cure: send an update" in (await status_of(run)).notes[-1]


async def test_one_life_over_many_runs(stage: Harness) -> None:
    """A run continues as the next with all that it knows, also while updates come."""
    run = await stage.start(Script(), history_limit=40)
    segment = 0
    for epoch in range(1, 9):
        layout = SegmentLayout.model_validate(await run.update("split", SplitRequest(segment=segment)))
        assert layout.epoch == epoch
        segment = layout.active[0].segment_id
    assert await run.runs() > 1
    status = await status_of(run)
    assert (status.epoch, status.changes) == (8, 8)


async def _accepted(run: Run) -> int:
    """Updates that passed their validators."""
    events = (await run.handle.fetch_history()).events
    return sum(1 for event in events if event.HasField("workflow_execution_update_accepted_event_attributes"))

"""The workflow of a topic's controller: one change at a time, none left half-finished, one life over many runs."""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import ProgressReport, WaitKind, WaitReason
from models.segments.segment import SubscriptionKind
from models.topic_controller.admission import MAX_SUBSCRIPTIONS_OF_TOPIC
from models.topic_controller.input import (
    ControllerUrls,
    Deletion,
    MergeRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.record import Change, Mutation
from models.topic_controller.sessions import GraceChange, Registrations
from models.topic_controller.state import ChangePreview, LayoutChange
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.topic_controller.activities import Script, layout_of, status_of, until, until_taken
from workflows.lifecycle.caller import UNNAMED

CHANGE = ["prepare", "seal", "commit"]
"""The steps of a split or a merge, in the proposal's order."""


def _broken(kind: FailureKind = FailureKind.CONFLICT) -> ApplicationError:
    return ApplicationError("broken", type=kind, non_retryable=True)


async def test_the_lifecycle_of_a_topic(stage: Harness) -> None:
    """Updates answer with what they made, the layout is the store's, and the deletion ends the workflow."""
    script = Script()
    run = await stage.start(script)
    split = LayoutChange.model_validate(await run.update("split", SplitRequest(segment=0)))
    assert [segment.descriptor for segment in split.made] == ["0000-3fff-2", "4000-7fff-3"]
    assert (split.epoch, split.sealed) == (1, (0,))
    merged = LayoutChange.model_validate(await run.update("merge", MergeRequest(segments=(1, 3))))
    assert [segment.descriptor for segment in merged.made] == ["4000-ffff-4"]
    assert [segment.descriptor for segment in (await layout_of(run)).active] == ["0000-3fff-2", "4000-ffff-4"]
    assert await layout_of(run) == script.record.plain
    await run.update("create_subscription", SubscriptionRequest(name="work", kind=SubscriptionKind.QUEUE))
    status = await status_of(run)
    assert (status.topic, status.epoch, status.changes, status.sealed) == ("acme/shop/orders", 2, 2, 3)
    assert (status.subscriptions, status.doing, status.waiting) == ({"work": SubscriptionKind.QUEUE}, "", "")
    await run.update("delete_subscription", Unsubscription(name="work"))
    await run.update("delete", Deletion())
    assert await run.handle.result() == "acme/shop/orders is deleted"
    assert run.script.steps == ["open", *CHANGE, *CHANGE, "subscribe", "unsubscribe", "delete"]


async def test_findings_about_brokers_are_noted(stage: Harness) -> None:
    """The status names what the opening found about the brokers' releases."""
    script = Script()
    script.warnings = ("known defect TERMINATE_REOPENS",)
    run = await stage.start(script)
    await run.update("stats", None)
    assert [note.partition("Z ")[2] for note in (await status_of(run)).notes] == ["known defect TERMINATE_REOPENS"]


async def test_a_dry_run_tells_what_a_change_does(stage: Harness) -> None:
    """A preview names the segments that the change makes afterwards, or the reason of its refusal; nothing is done."""
    hang = Hang()
    run = await stage.start(Script(seal=[hang, None]))
    await run.update("create_subscription", SubscriptionRequest(name="work"))
    split = await _preview(run, "preview_split", SplitRequest(segment=0))
    merge = await _preview(run, "preview_merge", MergeRequest(segments=(1, 0)))
    assert (merge.accepted, merge.epoch, [made.descriptor for made in merge.makes]) == (True, 1, ["0000-ffff-2"])
    absent = await _preview(run, "preview_split", SplitRequest(segment=7))
    assert (absent.accepted, absent.epoch, absent.makes) == (False, 0, ())
    assert "7" in absent.why
    assert "prepare" not in run.script.steps
    splitting = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    assert (await _preview(run, "preview_split", SplitRequest(segment=1))).after == "split of 0"
    hang.release()
    done = LayoutChange.model_validate(await splitting)
    assert (split.accepted, split.why, split.epoch, split.seals) == (True, "", done.epoch, done.sealed)
    assert [made.descriptor for made in split.makes] == [made.descriptor for made in done.made]
    assert (split.subscriptions, split.consumers, split.after) == (1, 0, "")
    assert "sealed" in (await _preview(run, "preview_split", SplitRequest(segment=0))).why


async def _preview(run: Run, query: str, request: SplitRequest | MergeRequest) -> ChangePreview:
    return ChangePreview.model_validate(await run.handle.query(query, request))


async def test_changes_come_one_after_the_other(stage: Harness) -> None:
    """Two concurrent splits are made in order; a third one of a segment that is sealed by then is refused."""
    hang = Hang()
    run = await stage.start(Script(seal=[hang, None]))
    first = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    others = [asyncio.ensure_future(run.update("split", SplitRequest(segment=number))) for number in (1, 0)]
    # Both are in the history before the first has its answer.
    await _until_accepted(run, 3)
    assert run.script.steps == ["open", "prepare", "seal"]
    hang.release()
    assert LayoutChange.model_validate(await first).epoch == 1
    assert LayoutChange.model_validate(await others[0]).epoch == 2
    with pytest.raises(Exception, match="Workflow update failed"):
        await others[1]
    assert run.script.steps == ["open", *CHANGE, *CHANGE]


async def test_a_change_that_cannot_begin_changes_nothing(stage: Harness) -> None:
    """A failure before the first segment is ended fails its update, and the topic continues as it was."""
    run = await stage.start(Script(prepare=[_broken(), None]))
    refusal = await run.refusal("split", SplitRequest(segment=0))
    assert (refusal.type, refusal.message) == (FailureKind.CONFLICT, "broken")
    assert (await status_of(run)).epoch == 0
    assert LayoutChange.model_validate(await run.update("split", SplitRequest(segment=0))).epoch == 1


async def test_a_change_that_brokers_refuse_is_given_up(stage: Harness) -> None:
    """A refused change, also of an earlier run, blocks no other change, and is not made later."""
    script = Script()
    script.record = script.record.with_pending(Mutation(change=Change.SPLIT, segments=(1,), epoch=0))
    script.limit = "no more topics"
    run = await stage.start(script)
    refusal = await run.refusal("split", SplitRequest(segment=0))
    assert (refusal.type, refusal.message) == (FailureKind.REFUSED, script.limit)
    status = await status_of(run)
    assert (status.pending, status.epoch) == (None, 0)
    assert "the split of 1 was abandoned before it terminated a segment: no more topics" in status.notes[-1]
    script.limit = ""
    # An attempt gave one up, and died before it reported that: its ids are not used again.
    script.record = script.record.with_next_segment(script.record.next_segment_id + 2)
    split = LayoutChange.model_validate(await run.update("split", SplitRequest(segment=0)))
    assert (split.epoch, split.sealed, [segment.segment_id for segment in split.made]) == (1, (0,), [6, 7])
    assert await layout_of(run) == script.record.plain


async def test_subscriptions_that_are_created_at_once(stage: Harness) -> None:
    """Subscriptions under way count for the limit, and have their kind, until they fail."""
    creating = Hang(failure=_broken())
    script = Script(subscribe=[creating, None])
    names = [f"s{number}" for number in range(MAX_SUBSCRIPTIONS_OF_TOPIC)]
    script.subscriptions = dict.fromkeys(names[1:], SubscriptionKind.STREAM)
    run = await stage.start(script)
    await run.update("stats", None)
    failing = asyncio.ensure_future(run.refusal("create_subscription", SubscriptionRequest(name=names[0])))
    await creating.entered()
    async with run.within(60):
        refusal = await run.refusal("create_subscription", SubscriptionRequest(name="other"))
    assert "the topic has 200 subscriptions, and at most 200 are allowed" in refusal.message
    queue = SubscriptionRequest(name=names[0], kind=SubscriptionKind.QUEUE)
    assert "is STREAM, and not QUEUE" in (await run.refusal("create_subscription", queue)).message
    again = asyncio.ensure_future(run.update("create_subscription", SubscriptionRequest(name=names[0])))
    creating.release()
    assert (await failing).message == "broken"
    await again
    assert len((await status_of(run)).subscriptions) == MAX_SUBSCRIPTIONS_OF_TOPIC


async def test_a_lost_compare_and_set_is_redone(stage: Harness) -> None:
    """A change that began with another layout than the store's begins again, after the change that runs there."""
    script = Script()
    run = await stage.start(script)
    await status_of(run)
    script.record = script.record.with_controller_urls(("http://elsewhere",))
    script.record = script.record.with_pending(Mutation(change=Change.SPLIT, segments=(1,), epoch=1))
    split = LayoutChange.model_validate(await run.update("split", SplitRequest(segment=0)))
    assert (split.epoch, [segment.segment_id for segment in split.made]) == (3, [4, 5])
    assert await layout_of(run) == script.record.plain
    # What fits no more is refused.
    script.record = script.record.with_pending(Mutation(change=Change.MERGE, segments=(2, 3), epoch=3))
    refusal = await run.refusal("split", SplitRequest(segment=2))
    assert (refusal.type, refusal.message) == (FailureKind.REFUSED, "segment 2 is sealed")


async def test_a_step_that_waits_says_why(stage: Harness) -> None:
    """The cause of a step's retries is in the status, and the signal that reports it is not refused."""
    run = await stage.start(Script())
    await run.update("stats", None)
    waiting = WaitReason(kind=WaitKind.RETRY, why="the next attempt of a step: no broker")
    await run.handle.signal("report_progress", ProgressReport(waiting=waiting))
    await run.update("stats", None)
    assert ((await status_of(run)).waiting, (await status_of(run)).notes) == (waiting.why, ())
    await run.handle.signal("report_progress", ProgressReport())
    await run.update("stats", None)
    assert (await status_of(run)).waiting == ""


@pytest.mark.parametrize("step", ["seal", "commit"])
async def test_a_change_that_has_begun_comes_to_its_end(stage: Harness, step: str) -> None:
    """After the end of a segment there is no rollback: steps are repeated, and status says why it waits."""
    script = Script(**{step: [_broken(), _broken(), Hang(), None]})
    run = await stage.start(script)
    change = asyncio.ensure_future(run.update("split", SplitRequest(segment=1)))
    async with asyncio.timeout(120):
        while script.hanging is None:
            await stage.env.sleep(timedelta(seconds=1))
    status = await status_of(run)
    assert status.waiting == "the next attempt, since the last one failed: broken"
    assert (status.doing, status.pending) == (
        "split of 1",
        Mutation(change=Change.SPLIT, segments=(1,), epoch=0),
    )
    script.hanging.release()
    assert LayoutChange.model_validate(await change).epoch == 1
    assert (await status_of(run)).waiting == ""


async def test_a_change_that_fails_for_hours_does_not_fill_the_history(stage: Harness) -> None:
    """Its steps are repeated more rarely, since no run ends before the change does, but at least every hour."""
    script = Script(seal=_broken())
    run = await stage.start(script)
    change = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    for _ in range(12):
        await stage.env.sleep(timedelta(hours=1))
    attempts = script.steps.count("seal")
    # A minute apart, attempts of twelve hours would be 8,000 events.
    assert await run.events() < 1_500
    await stage.env.sleep(timedelta(hours=2))
    assert script.steps.count("seal") > attempts
    script.say("seal", None)
    await stage.env.sleep(timedelta(hours=1.1))
    assert LayoutChange.model_validate(await change).epoch == 1


async def test_a_change_that_was_removed_from_the_store(stage: Harness) -> None:
    """It is noted there again, and comes to its end; where another layout is there it is given up."""
    hang = Hang(failure=_broken())
    script = Script(seal=[hang, None])
    run = await stage.start(script)
    before = script.record
    change = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    script.record = before
    hang.release()
    assert LayoutChange.model_validate(await change).epoch == 1
    assert script.steps == ["open", "prepare", "seal", "prepare", "seal", "commit"]

    hang = Hang(failure=_broken())
    script.say("seal", [hang, None])
    refusing = asyncio.ensure_future(run.refusal("split", SplitRequest(segment=1)))
    await hang.entered()
    script.record = script.record.model_copy(update={"pending": None}).with_controller_urls(("http://x",))
    hang.release()
    assert (await refusing).message == "the split of 1 was removed from the layout, which is at epoch 2; decide again"
    assert LayoutChange.model_validate(await run.update("split", SplitRequest(segment=1))).epoch == 3
    assert await layout_of(run) == script.record.plain


async def test_an_old_layout_that_was_restored(stage: Harness) -> None:
    """The run does not lead by it any more, so no change starts from it."""
    script = Script()
    run = await stage.start(script)
    old = script.record
    await run.update("split", SplitRequest(segment=0))
    newest = script.record
    script.record = old
    refusal = await run.refusal("split", SplitRequest(segment=1))
    assert "has epoch 0, but clients have epoch 1" in refusal.message
    script.record = newest
    assert LayoutChange.model_validate(await run.update("split", SplitRequest(segment=1))).epoch == 2


async def test_a_change_of_an_earlier_run_is_completed(stage: Harness) -> None:
    """A run that finds a change under way continues with it before it takes another."""
    pending = Mutation(change=Change.SPLIT, segments=(1,), epoch=0)
    script = Script()
    script.record = script.record.with_pending(pending)
    run = await stage.start(script)
    assert LayoutChange.model_validate(await run.update("split", SplitRequest(segment=0))).epoch == 2
    assert script.steps == ["open", *CHANGE, *CHANGE]
    assert script.calls[1].args == (pending,)


async def test_a_deletion_that_an_earlier_run_began_is_done(stage: Harness) -> None:
    """A topic half-finished is deleted, and not led."""
    script = Script()
    script.record = script.record.model_copy(update={"deleting": True})
    run = await stage.start(script)
    assert await run.handle.result() == "acme/shop/orders is deleted"
    assert script.steps == ["open", "delete"]


async def test_a_superseded_run_ends(stage: Harness) -> None:
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


async def test_a_change_of_an_earlier_run_that_was_removed(stage: Harness) -> None:
    """The first run notes it, and controls the topic: only another change replaces segments that are terminated."""
    sealing = Hang(failure=_broken())
    script = Script(seal=sealing)
    before = script.record
    script.record = before.with_pending(Mutation(change=Change.SPLIT, segments=(1,), epoch=0))
    run = await stage.start(script)
    await sealing.entered()
    script.record = before.with_controller_urls(("http://x",))
    sealing.release()
    script.say("seal", None)
    async with asyncio.timeout(30):
        change = LayoutChange.model_validate(await run.update("split", SplitRequest(segment=1)))
    assert (change.epoch, change.sealed) == (2, (1,))
    removed = "could not finish the split of 1: the split of 1 was removed from the layout, which is at epoch 1"
    assert any(removed in note for note in (await status_of(run)).notes)


async def test_a_cancellation_waits_for_a_change(stage: Harness) -> None:
    """A controller that is cancelled during a split ends when that is done."""
    hang = Hang()
    script = Script(seal=hang)
    run = await stage.start(script)
    change = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    await run.handle.cancel()
    hang.release()
    assert LayoutChange.model_validate(await change).epoch == 1
    await _until_cancelled(run)
    assert script.record.pending is None


async def test_a_cancellation_waits_for_a_change_of_an_earlier_run(stage: Harness) -> None:
    """A controller that is cancelled while it finishes what another run began ends when that and its updates are done.

    A cancellation before the topic is open ends it at once.
    """
    hang = Hang()
    script = Script(seal=hang)
    script.record = script.record.with_pending(Mutation(change=Change.SPLIT, segments=(1,), epoch=0))
    run = await stage.start(script)
    await hang.entered()
    creating = asyncio.ensure_future(run.update("create_subscription", SubscriptionRequest(name="work")))
    await _until_accepted(run, 1)
    await run.handle.cancel()
    hang.release()
    async with run.within():
        await creating
        await _until_cancelled(run)
    assert (script.record.pending, script.record.epoch, script.cancelled) == (None, 1, [])

    opening = Hang()
    run = await stage.start(Script(open=opening))
    await opening.entered()
    await run.handle.cancel()
    await _until_cancelled(run)
    assert run.script.cancelled == ["open"]


async def test_a_cancellation_at_the_end_of_a_run_waits_for_a_change(stage: Harness) -> None:
    """A controller that is cancelled while it waits for its updates, to continue as the next run, completes them."""
    publishing, sealing = Hang(), Hang()
    script = Script(publish_assignments=[publishing, None], seal=[sealing, None])
    run = await stage.start(script, history_limit=50, auto_scale={})
    await run.update("create_subscription", SubscriptionRequest(name="bill"))
    registering = asyncio.ensure_future(run.update("register", Registrations(subscription="bill", consumers=("a",))))
    await publishing.entered()
    while not await _has_ended_watching(run):
        await run.update("set_grace", GraceChange(grace=timedelta(hours=1)))
    splitting = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await sealing.entered()
    await run.handle.cancel()
    publishing.release()
    async with run.within():
        await registering
        sealing.release()
        assert LayoutChange.model_validate(await splitting).epoch == 1
        await _until_cancelled(run)
    assert (script.record.pending, script.cancelled) == (None, [])


async def test_addresses_of_the_controller_have_an_epoch(stage: Harness) -> None:
    """Clients take other addresses for another layout; the same ones again, and invalid addresses, change nothing."""
    script = Script()
    run = await stage.start(script)
    await run.update("set_controller_urls", ControllerUrls(urls=("https://one:8443",)))
    await run.update("set_controller_urls", ControllerUrls(urls=("https://one:8443",)))
    assert ((await status_of(run)).epoch, script.record.controller_urls) == (1, ("https://one:8443",))
    refusal = await run.refusal("set_controller_urls", {"urls": ["one:8443"]})
    assert "expected http://host:port or https://host:port" in refusal.message
    split = LayoutChange.model_validate(await run.update("split", SplitRequest(segment=0)))
    assert (split.epoch, script.record.controller_urls) == (2, ("https://one:8443",))


async def test_a_signal_is_refused(stage: Harness) -> None:
    """A signal that there is not is noted, with its cure."""
    run = await stage.start(Script())
    await run.update("create_subscription", SubscriptionRequest(name="work"))
    await run.handle.signal("split", 1)
    await run.update("create_subscription", SubscriptionRequest(name="work"))
    expected = f"unknown signal 'split' by {UNNAMED} was ignored; send an update instead"
    assert expected in (await status_of(run)).notes[-1]


async def test_one_life_over_many_runs(server: Harness) -> None:
    """A run continues as the next with all that it knows, also while updates come.

    The time-skipping server loses the end of a run that an update meets.
    """
    run = await server.start(Script(), history_limit=40)
    segment = 0
    for epoch in range(1, 9):
        split = functools.partial(run.update, "split", SplitRequest(segment=segment))
        layout = LayoutChange.model_validate(await until_taken(split))
        assert layout.epoch == epoch
        segment = layout.made[0].segment_id
    assert await run.runs() > 1
    status = await status_of(run)
    assert (status.epoch, status.changes) == (8, 8)


async def test_a_continued_run_whose_topic_cannot_be_opened(server: Harness) -> None:
    """It notes why, and continues: it knows the topic, and the cause may pass. A run that another superseded ends."""
    script = Script(open=[None, _broken(FailureKind.DENIED)])
    run, grace = await server.start(script, history_limit=30), GraceChange(grace=timedelta(hours=1))
    while await run.runs() == 1:
        await until_taken(functools.partial(run.update, "set_grace", grace))
    reason = "could not open the topic again, and continues: broken"
    await until(run, lambda status: any(reason in note for note in status.notes))
    split = functools.partial(run.update, "split", SplitRequest(segment=0))
    assert LayoutChange.model_validate(await until_taken(split)).epoch == 1
    script.say("open", _broken(FailureKind.NOT_LEADER))
    while await run.running():
        with suppress(RPCError, WorkflowUpdateFailedError):
            await run.update("set_grace", grace)
    assert (await run.typed_failure()).type == FailureKind.NOT_LEADER


async def test_an_old_layout_that_was_restored_before_the_next_run(server: Harness) -> None:
    """A continued run does not adopt it either: it keeps its own layout, and refuses changes until that is back."""
    script, old = Script(), Script().record
    run, grace = await server.start(script, history_limit=30), GraceChange(grace=timedelta(hours=1))
    await run.update("split", SplitRequest(segment=0))
    newest, script.record = script.record, old
    while await run.runs() == 1:
        await until_taken(functools.partial(run.update, "set_grace", grace))
    await until(run, lambda status: any("has epoch 0, but clients have epoch 1" in note for note in status.notes))
    assert await layout_of(run) == newest.plain
    split = SplitRequest(segment=1)
    refusal = await until_taken(functools.partial(run.refusal, "split", split))
    assert "has epoch 0, but clients have epoch 1" in refusal.message
    script.record = newest
    assert LayoutChange.model_validate(await until_taken(functools.partial(run.update, "split", split))).epoch == 2
    await until_taken(functools.partial(run.update, "delete", Deletion()))


async def _until_accepted(run: Run, count: int) -> None:
    """Wait until so many updates have passed their validators."""
    async with asyncio.timeout(120):
        while True:
            events = (await run.handle.fetch_history()).events
            if sum(event.HasField("workflow_execution_update_accepted_event_attributes") for event in events) == count:
                return
            await asyncio.sleep(0.05)


async def _until_cancelled(run: Run) -> None:
    with pytest.raises(WorkflowFailureError) as ended:
        await run.handle.result()
    assert isinstance(ended.value.cause, CancelledError)


async def _has_ended_watching(run: Run) -> bool:
    """Return whether the run has cancelled its poll of auto scale, so that it only waits for updates."""
    events = (await run.handle.fetch_history()).events
    return any(event.HasField("activity_task_cancel_requested_event_attributes") for event in events)

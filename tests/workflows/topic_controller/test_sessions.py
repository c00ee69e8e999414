"""Sessions of consumers: they outlive connections, workers and runs, and only changes are published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError

from models.lifecycle.failures import FailureKind
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import Deletion, SplitRequest, SubscriptionRequest, Unsubscription
from models.topic_controller.observation import Observation
from models.topic_controller.record import Change, Mutation
from models.topic_controller.sessions import (
    ConsumerAssignment,
    Departures,
    GraceChange,
    Registrations,
    StoredSessions,
    SubscriptionChanges,
)
from models.topic_controller.state import LayoutChange, OpenRequest, PreparedChange
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.topic_controller.activities import CREATED_MS, Script, long_timers, status_of, until, until_taken
from tests.workflows.topic_controller.conftest import BILL, Start, register
from workflows.topic_controller import sessions

ResultT = TypeVar("ResultT")

_DENIED = ApplicationError("no permission", type=FailureKind.DENIED, non_retryable=True)


async def _assignments(run: Run) -> dict[str, tuple[int, ...]]:
    answer = await run.handle.query("assignments", BILL)
    return {name: tuple(ids) for name, ids in answer.items()}


async def _until_assigned(run: Run, wanted: dict[str, tuple[int, ...]]) -> None:
    async with asyncio.timeout(120):
        while True:
            if await _assignments(run) == wanted:
                return
            await asyncio.sleep(0.05)


async def _leave(run: Run, *consumers: str) -> None:
    await run.update("unregister", Departures(subscription=BILL, consumers=consumers))


def _published(script: Script) -> list[dict[str, tuple[int, ...]]]:
    return [dict(subscription.assignments) for changes in script.published for subscription in changes.subscriptions]


async def test_consumers_share_segments(start: Start) -> None:
    """A consumer that joins gets its segments; of the others only those whose segments change get a new assignment."""
    script = Script()
    run = await start(script)
    assert await register(run, "b") == {"b": (0, 1)}
    assert await register(run, "c") == {"c": (1,)}
    assert await register(run, "d") == {"d": ()}
    assert _published(script) == [{"b": (0, 1)}, {"b": (0,), "c": (1,)}, {"d": ()}]
    await _leave(run, "b", "unknown")
    await until(run, lambda status: status.consumers == {BILL: 2} and len(script.published) == 4)
    assert script.published[-1].subscriptions == (
        SubscriptionChanges(subscription=BILL, assignments={"c": (0,), "d": (1,)}, ended=("b",)),
    )
    generations = [changes.generation for changes in script.published]
    assert generations == sorted({*generations})
    # The step has come to its end before the workflow knows of it.
    await _until_assigned(run, {"c": (0,), "d": (1,)})


async def test_a_late_leave_does_not_end_the_successors_session(start: Start) -> None:
    """The leave of an old process does not end the session of the process that has its name now."""
    script = Script()
    run = await start(script)
    for instance in ("old", "new"):
        joins = Registrations(subscription=BILL, consumers=("a",), instances={"a": instance})
        await run.update("register", joins)
    for instance, remaining in (("old", {"a": (0, 1)}), ("new", {})):
        leaves = Departures(subscription=BILL, consumers=("a",), instances={"a": instance})
        await run.update("unregister", leaves)
        assert await _assignments(run) == remaining


async def test_a_leave_without_an_instance(start: Start) -> None:
    """A person, or a client without an instance, ends the session of that name."""
    run = await start(Script())
    await run.update("register", Registrations(subscription=BILL, consumers=("a",), instances={"a": "new"}))
    await _leave(run, "a")
    assert await _assignments(run) == {}
    await register(run, "b")
    await run.update("unregister", Departures(subscription=BILL, consumers=("b",), instances={"b": "any"}))
    assert await _assignments(run) == {}


async def test_sessions_of_another_client(start: Start) -> None:
    """Another client can neither take over a session nor end it, until its owner has ended it."""
    run = await start(Script())
    mine, other = ({"a": "token:one"}, {"a": "token:two"})
    await run.update("register", Registrations(subscription=BILL, consumers=("a",), owners=mine))
    for name, request in (
        ("register", Registrations(subscription=BILL, consumers=("b", "a"), owners=other)),
        ("unregister", Departures(subscription=BILL, consumers=("a",), owners=other)),
    ):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.update(name, request)
        assert isinstance(refused.value.cause, ApplicationError)
        assert (refused.value.cause.type, refused.value.cause.details) == (
            FailureKind.REFUSED,
            ({"consumers": ["a"]},),
        )
    assert await _assignments(run) == {"a": (0, 1)}
    await run.update("unregister", Departures(subscription=BILL, consumers=("a",), owners=mine))
    await run.update("register", Registrations(subscription=BILL, consumers=("a",), owners=other))


async def test_a_new_run_takes_sessions_back(start: Start) -> None:
    """After a run was terminated, consumers get their assignments again, and take them for newer."""
    begun_ms = time.time_ns() // 1_000_000
    script = Script()
    script.subscriptions[BILL] = SubscriptionKind.STREAM
    script.sessions[BILL] = StoredSessions(consumers=("a", "b"))
    run = await start(script)
    await until(run, lambda status: status.consumers == {BILL: 2} and len(script.published) == 1)
    assert _published(script) == [{"a": (0,), "b": (1,)}]
    assert script.published[0].generation >= begun_ms
    assert script.calls[0].args == (OpenRequest(recover_sessions=True),)


async def test_a_layout_that_is_gone_is_published_again(start: Start) -> None:
    """A layout that no client can see any more is published again, without changes for consumers."""
    seen = Hang(answer=Observation(unpublished=True))
    script = Script(observe=[seen, None])
    run = await start(script)
    await register(run, "a")
    await seen.entered()
    seen.release()
    await until(run, lambda _: len(script.published) == 2)
    assert (script.published[-1].layout, script.published[-1].subscriptions) == (True, ())


async def test_a_consumer_that_returns_disturbs_no_other(start: Start) -> None:
    """A consumer that registers again has what it had, and no other consumer gets an assignment."""
    script = Script(observe=[Observation(gone={BILL: ("a",)}), None])
    run = await start(script)
    before = await register(run, "a", "b")
    await until(run, lambda status: f"{BILL}/a" in status.away)
    assert await register(run, "a") == {"a": before["a"]}
    assert (await status_of(run)).away == {}
    assert len(script.published) == 1


async def test_a_missing_consumer_is_evicted(start: Start) -> None:
    """A consumer that was missed for the whole grace is evicted, and others read its segments."""
    gone = {BILL: ("a",)}
    late = Hang(answer=Observation(gone=gone, expired=gone))
    script = Script(observe=[Observation(gone=gone), late, None])
    run = await start(script)
    assert await register(run, "a", "b") == {"a": (0,), "b": (1,)}
    await late.entered()
    watching = script.calls[-1].args[0]
    assert (watching.subscriptions, watching.grace_seconds) == ((BILL,), 60)
    assert [*watching.gone[BILL]] == ["a"]
    late.release()
    await until(run, lambda status: status.consumers == {BILL: 1} and len(script.published) == 2)
    assert _published(script)[-1] == {"b": (0, 1)}
    assert script.published[-1].subscriptions[0].ended == ("a",)
    assert await register(run, "a") == {"a": (0,)}


async def test_an_old_observation_does_not_evict_a_consumer_that_is_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observation from before a consumer returned does not end its session."""
    # The observer is not replaced before it answers.
    monkeypatch.setattr(sessions, "_BATCH_WINDOW", timedelta(minutes=5))
    gone = {BILL: ("a",)}
    late = Hang(deaf=True, answer=Observation(gone=gone, expired=gone))
    run = await start(Script(observe=[Observation(gone=gone), late, None]))
    await register(run, "a", "b")
    await late.entered()
    assert await register(run, "a") == {"a": (0,)}
    late.release()
    await until(run, lambda status: status.consumers == {BILL: 2})
    assert await _assignments(run) == {"a": (0,), "b": (1,)}


async def test_children_are_read_when_their_parents_are_consumed(start: Start) -> None:
    """After a split the parent's reader keeps it, and the new segments are assigned when it is consumed."""
    before, drained = Hang(), Hang(answer=Observation(drained={BILL: (0,)}))
    script = Script(observe=before)
    run = await start(script)
    assert await register(run, "a", "b") == {"a": (0,), "b": (1,)}
    await before.entered()
    script.say("observe", [drained, None])
    await run.update("split", SplitRequest(segment=0))
    await drained.entered()
    await until(run, lambda _: _published(script)[-1] == {"a": (0, 1), "b": ()})
    drained.release()
    await _until_assigned(run, {"a": (2, 1), "b": (3,)})


async def test_a_consumed_segment_that_has_messages_again(start: Start) -> None:
    """Its reader gets it back, and its children wait until it is consumed again."""
    drained = Hang(answer=Observation(drained={BILL: (0,)}))
    unconsumed_again = Hang(answer=Observation(drained={BILL: (0,)}, unconsumed_again={BILL: (0,)}))
    drained_again = Hang(answer=Observation(drained={BILL: (0,)}))
    script = Script(observe=[Hang(), drained, unconsumed_again, drained_again, None])
    run = await start(script)
    assert await register(run, "a", "b") == {"a": (0,), "b": (1,)}
    await run.update("split", SplitRequest(segment=0))
    await drained.entered()
    drained.release()
    await _until_assigned(run, {"a": (2, 1), "b": (3,)})
    await unconsumed_again.entered()
    unconsumed_again.release()
    await _until_assigned(run, {"a": (0, 1), "b": ()})
    assert any("segment 0 has unacknowledged messages again" in note for note in (await status_of(run)).notes)
    await drained_again.entered()
    drained_again.release()
    await _until_assigned(run, {"a": (2, 1), "b": (3,)})


async def test_brokers_are_asked_before_the_first_consumer_reads(start: Start) -> None:
    """Segments that were consumed, or have messages again, while no observer ran count before anything is assigned."""
    script = Script()
    script.drained = {BILL: (0,)}
    run = await start(script)
    assert await register(run, "a") == {"a": (0, 1)}
    assert "find_drained" not in [call.step for call in script.calls], "nothing is sealed"
    await run.update("split", SplitRequest(segment=0))
    await _leave(run, "a")
    assert await register(run, "a") == {"a": (2, 3, 1)}
    assert await register(run, "b") == {"b": (3,)}
    asked = [call.args for call in script.calls if call.step == "find_drained"]
    assert asked == [((BILL,),)], "brokers are not asked while a consumer is there"
    await _leave(run, "a", "b")
    script.drained = {}
    assert await register(run, "b") == {"b": (0, 1)}


async def test_a_consumer_that_registers_during_the_check(start: Start) -> None:
    """Its subscription is checked as well before it gets an assignment."""
    asking, other = Hang(), "other"
    script = Script(find_drained=[asking, None])
    script.drained = {BILL: (0,), other: (0,)}
    run = await start(script)
    await run.update("create_subscription", SubscriptionRequest(name=other))
    await run.update("split", SplitRequest(segment=0))
    first = asyncio.ensure_future(register(run, "a"))
    await asking.entered()
    second = asyncio.ensure_future(run.update("register", Registrations(subscription=other, consumers=("b",))))
    await until(run, lambda status: status.consumers.get(other) == 1)
    asking.release()
    assert await first == {"a": (2, 3, 1)}
    assignment = ConsumerAssignment.model_validate((await second)["b"])
    assert [segment.segment_id for segment in assignment.segments] == [2, 3, 1]


async def test_a_grace_that_changes_holds_at_once(stage: Harness, start: Start) -> None:
    """The observer begins again with the new grace, and with what it has waited for so far."""
    script = Script(observe=[Observation(gone={BILL: ("a",)}), None])
    run = await start(script)
    await register(run, "a")
    await until(run, lambda status: bool(status.away))
    await run.update("set_grace", GraceChange(grace=timedelta(hours=2)))
    async with asyncio.timeout(120):
        while not [call for call in script.calls if call.step == "observe" and call.args[0].grace_seconds == 7200]:
            await stage.env.sleep(timedelta(milliseconds=500))
    assert [*script.calls[-1].args[0].gone[BILL]] == ["a"]


async def test_an_assignment_that_is_not_published_is_tried_again(start: Start) -> None:
    """A registration has its answer when it is noted and published, and not before."""
    failure = ApplicationError("no broker", type=FailureKind.CONFLICT, non_retryable=True)
    script = Script(publish_assignments=[failure, None])
    run = await start(script)
    assert await register(run, "a") == {"a": (0, 1)}
    assert [call.step for call in script.calls].count("publish_assignments") == 2


async def test_a_publication_that_keeps_failing(stage: Harness, start: Start) -> None:
    """Registrations are refused with its reason, pauses become longer, and the session stays for the next attempt."""
    script = Script(publish_assignments=_DENIED)
    run = await start(script)
    joins = Registrations(subscription=BILL, consumers=("a",))
    refusal = await run.refusal("register", joins)
    assert (refusal.type, refusal.message) == (FailureKind.DENIED, "no permission")
    await stage.env.sleep(timedelta(minutes=1))
    status = await status_of(run)
    assert status.consumers == {BILL: 1}
    assert status.waiting.endswith("the last one failed: no permission")
    assert [note for note in status.notes if "no permission" in note] == [status.notes[-1]]
    pauses = long_timers((await run.handle.fetch_history()).events).values()
    assert [pause.total_seconds() for pause in pauses][:5] == [2, 4, 8, 16, 20]
    # Of a failure from before it, a registration waits for the next attempt.
    joining = asyncio.ensure_future(register(run, "b"))
    await until(run, lambda status: status.consumers == {BILL: 2})
    script.say("publish_assignments", None)
    await stage.env.sleep(timedelta(seconds=20))
    assert await joining == {"b": (1,)}
    assert await register(run, "a") == {"a": (0,)}
    assert (await status_of(run)).waiting == ""


async def test_a_change_that_keeps_failing_after_its_commit(stage: Harness, start: Start) -> None:
    """Registrations are refused with its reason while their publication waits for it, and the sessions stay."""
    script = Script()
    script.say("commit", _committed_but_not_published(script))
    run = await start(script)
    splitting = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await until(run, lambda status: bool(status.waiting))
    await _until_refused(stage, run, "a")
    await _until_refused(stage, run, "b")
    status = await status_of(run)
    assert (status.consumers, status.doing) == ({BILL: 2}, "split of 0")
    assert status.waiting.endswith("the last one failed: no permission")
    script.say("commit", None)
    await _while_time_passes(stage, splitting)
    assert LayoutChange.model_validate(await splitting).epoch == 1
    assert await register(run, "a", "b") == {"a": (0, 1), "b": ()}
    assert (await status_of(run)).waiting == ""


async def test_a_change_of_an_earlier_run_that_keeps_failing(stage: Harness) -> None:
    """Registrations are refused with its reason until the topic is open."""
    script = Script()
    script.subscriptions[BILL] = SubscriptionKind.STREAM
    script.record = script.record.with_pending(Mutation(change=Change.SPLIT, segments=(0,), epoch=0))
    script.say("commit", _committed_but_not_published(script))
    run = await stage.start(script)
    await _until_refused(stage, run, "a")
    script.say("commit", None)
    await _while_time_passes(stage, asyncio.ensure_future(until(run, lambda status: not status.doing)))
    assert await register(run, "a") == {"a": (0, 1)}
    await run.update("delete", Deletion())
    await run.handle.result()


async def test_a_cancelled_run_that_saw_the_layout_of_a_change(start: Start) -> None:
    """A later change that keeps failing before its commit refuses no registrations."""
    seen, committing, publishing = Hang(), Hang(), Hang(answer=PreparedChange())
    script = Script(observe=[seen, None], commit=[committing, None])
    run = await start(script)
    await register(run, "a")
    await seen.entered()
    splitting = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await committing.entered()
    script.record = script.record.with_commit(CREATED_MS + 1)
    script.say("publish_assignments", [publishing, None])
    registering = asyncio.ensure_future(register(run, "b"))
    await publishing.entered()
    await run.handle.cancel()
    seen.answer = Observation(layout=script.record)
    # The observer reports the layout while the run waits for the end of the change.
    await asyncio.sleep(1)
    seen.release()
    await asyncio.sleep(1)
    script.say("seal", _DENIED)
    committing.release()
    await splitting
    failing = asyncio.ensure_future(run.update("split", SplitRequest(segment=1)))
    await until(run, lambda status: bool(status.waiting))
    await asyncio.sleep(3)
    publishing.release()
    await registering
    assert (await register(run, "c")).keys() == {"c"}
    script.say("seal", None)
    await failing


def _committed_but_not_published(script: Script) -> Callable[[object], NoReturn]:
    def commit(_: object) -> NoReturn:
        if script.record.pending:
            script.record = script.record.with_commit(CREATED_MS + 1)
        raise _DENIED.with_traceback(None)

    return commit


async def _while_time_passes(stage: Harness, waiting: asyncio.Future[Any]) -> None:
    """Wait in small steps while time is skipped: a longer one would not end while a consumer is observed."""
    async with asyncio.timeout(60):
        while not waiting.done():
            await stage.env.sleep(timedelta(seconds=1))


async def _until_refused(stage: Harness, run: Run, consumer: str) -> None:
    """Register a consumer, and let time pass until it is refused for a missing permission."""
    refusing = asyncio.ensure_future(run.refusal("register", Registrations(subscription=BILL, consumers=(consumer,))))
    await _while_time_passes(stage, refusing)
    refusal = await refusing
    assert (refusal.type, refusal.message) == (FailureKind.DENIED, "no permission")


async def test_a_run_whose_publication_keeps_failing_continues_as_the_next(
    server: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration does not keep a run from its end, so its history does not grow without limit."""
    monkeypatch.setattr(sessions, "_FIRST_BACKOFF", timedelta(milliseconds=50))
    monkeypatch.setattr(sessions, "_MAX_BACKOFF", timedelta(milliseconds=50))
    script = Script(publish_assignments=_DENIED)
    run = await server.start(script, history_limit=60)
    await run.update("create_subscription", SubscriptionRequest(name=BILL))
    joining = asyncio.ensure_future(register(run, "a"))
    await run.until_runs(2)
    with pytest.raises(WorkflowUpdateFailedError):
        await joining
    script.say("publish_assignments", None)
    assert await until_taken(lambda: register(run, "a")) == {"a": (0, 1)}
    assert (await status_of(run)).waiting == ""


async def test_consumers_of_missing_subscriptions_are_refused(start: Start) -> None:
    """Consumers of a subscription that is not there, or needs no session, are refused."""
    run = await start(Script())
    await run.update("create_subscription", SubscriptionRequest(name="work", kind=SubscriptionKind.QUEUE))
    for name, why in (("work", "its consumers need no session"), ("none", "there is no subscription none")):
        refusal = await run.refusal("register", Registrations(subscription=name, consumers=("a",)))
        assert why in refusal.message


async def test_deleted_subscriptions_have_no_sessions(start: Start) -> None:
    """Consumers of a deleted subscription have no sessions, and those of a deleted topic neither."""
    run = await start(Script())
    await register(run, "a", "b")
    await run.update("delete_subscription", Unsubscription(name=BILL))
    assert (await status_of(run)).consumers == {}
    await run.update("create_subscription", SubscriptionRequest(name=BILL))
    assert await register(run, "c") == {"c": (0, 1)}
    await run.update("delete", Deletion())
    assert "is deleted" in await run.handle.result()


async def _again(run: Run) -> dict[str, tuple[int, ...]]:
    return await until_taken(lambda: register(run, "a", "b"))


# The time-skipping server's clock stays locked where a run that observes is continued as the next (seen).
@pytest.mark.exhaustive
async def test_sessions_outlive_a_run(start: Start) -> None:
    """The next run of the workflow has the same sessions, and publishes no assignment."""
    script = Script()
    run = await start(script, history_limit=60)
    assert await register(run, "a", "b") == {"a": (0,), "b": (1,)}
    for _ in range(25):
        assert await _again(run) == {"a": (0,), "b": (1,)}
    assert await run.runs() > 1
    assert len(script.published) == 1


# The time-skipping server loses the answer of an update that ends with its workflow, and its clock stays locked (seen).
@pytest.mark.exhaustive
@pytest.mark.parametrize("step", ["publish_assignments", "observe"])
async def test_a_run_that_does_not_lead_any_more_publishes_nothing(start: Start, step: str) -> None:
    """A run whose sessions are another's ends."""
    lost = ApplicationError("superseded", type=FailureKind.NOT_LEADER, non_retryable=True)
    run = await start(Script(**{step: lost}))
    # Its answer may be lost with the workflow.
    joining = asyncio.ensure_future(register(run, "a"))
    assert (await run.typed_failure()).type == FailureKind.NOT_LEADER
    joining.cancel()
    await asyncio.wait([joining])


async def test_a_run_ends_while_it_publishes(start: Start) -> None:
    """A cancellation that a step only answers to, while assignments are published, ends the run all the same."""
    telling = Hang(deaf=True)
    run = await start(Script(publish_assignments=[None, telling]))
    await register(run, "a", "b")
    await _leave(run, "b")
    await telling.entered()
    await run.handle.cancel()
    with pytest.raises(WorkflowFailureError) as ended:
        await run.handle.result()
    assert isinstance(ended.value.cause, CancelledError)

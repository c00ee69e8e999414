"""The migration of many topics: waves, the error budget, the limit of the hold, and the rollback."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError, CancelledError

from models.lifecycle.failures import Blocker, FailedItem, FailureKind
from models.lifecycle.preview import VerbPreview
from models.lifecycle.status import Outcome, ProgressUnit, Status, Undo, WaitKind
from models.lifecycle.verbs import Verb, VerbRequest
from models.scalable_topic.phases import NamespacePhase as Phase
from models.scalable_topic.results import (
    CleanedUp,
    ClientsGone,
    DrainedTopic,
    FlipAnswer,
    Released,
    TopicCheck,
)
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run, bound_to_plan
from tests.workflows.lifecycle.persons import ANA, BO, Persons
from tests.workflows.scalable_topic.activities import (
    ANSWERS,
    CHILD,
    FLIPPED,
    FOUND,
    REMOVE,
    TOPICS,
    TURNED_OUT,
    NamespaceScript,
)
from workflows.lifecycle.caller import UNNAMED

DENIED = ApplicationError("no right", type=FailureKind.DENIED, non_retryable=True)
BLOCKER = Blocker(code="NO_TOPICS", cause="no regular topic fits acme/shop/*", cure="correct the patterns")
STILL_THERE = ClientsGone(waiting="1 connections of clients that cannot follow: producer p")
HELD = ["survey", "recover_all", "hold_all"]
STUCK = TOPICS[1]
LONG = 180.0
"""Seconds that 200 topics may take on a busy machine."""
SHORT = "PT20S"
"""A limit that passes while a step hangs, and in which a busy machine has migrated one topic before."""


async def test_dry_run_gives_the_plan(stage: Harness) -> None:
    """A dry run ends after the precheck, and names topics that cannot become scalable."""
    blocked = FailedItem(path="acme/shop/bills", reason="[COMPACTED] it is compacted")
    survey = FOUND.model_copy(update={"blocked": (blocked,), "blocked_count": 1})
    run = await stage.start(NamespaceScript(survey=survey), dry_run=True)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.PLANNED, ["survey"])
    assert report.summary == (
        "ready: 5 topics in 1 namespaces, with 200 messages of 10 subscriptions; "
        "1 of them cannot become scalable as they are"
    )
    assert [(failed.what, failed.items) for failed in report.failed_items] == [
        ("topic(s) cannot become scalable", (blocked,))
    ]
    assert (report.figures["blockers"], report.figures["stored_bytes"]) == (0, 25_000)


async def test_dry_run_names_blockers(stage: Harness) -> None:
    """A dry run that finds blockers succeeds, and names each with its cure."""
    survey = FOUND.model_copy(update={"blockers": (BLOCKER,)})
    report = await (await stage.start(NamespaceScript(survey=survey), dry_run=True)).report()
    assert (report.outcome, report.figures["blockers"]) == (Outcome.PLANNED, 1)
    assert report.summary.startswith("not ready: [NO_TOPICS]")


async def test_blockers_fail_the_migration(stage: Harness) -> None:
    """Blockers end a migration before anything is written."""
    run = await stage.start(NamespaceScript(survey=FOUND.model_copy(update={"blockers": (BLOCKER,)})))
    failure = await run.typed_failure()
    assert (failure.type, run.script.steps) == (FailureKind.PRECHECK_FAILED, ["survey"])


async def test_whole_path(stage: Harness) -> None:
    """Policies are overridden once for all topics, each topic has its own workflow, and the report has the sums."""
    longest = FLIPPED.model_copy(update={"seconds": 4.0})
    run, script = await _start(stage, topics={TOPICS[3]: {"flip": FlipAnswer(flipped=longest)}})
    report = await run.report()
    assert script.own_steps == [*HELD, "release_all", "forget_all"]
    assert [script.steps_of(topic) for topic in TOPICS] == 5 * [CHILD]
    assert [entry.phase for entry in report.history] == [Phase.PRECHECK, Phase.GUARD, Phase.MIGRATE, Phase.COMPLETE]
    assert report.outcome is Outcome.DONE
    assert report.summary == f"5 topics of {report.cluster} are scalable"
    guard, complete = report.history[1], report.history[3]
    assert guard.ended is not None
    assert complete.ended is not None
    held = (complete.ended - guard.ended).total_seconds()
    assert report.figures.pop("held_seconds") == pytest.approx(held, abs=0.1)
    assert report.figures == {
        "topics_scalable": 5,
        "topics_failed": 0,
        "backlog_messages": 200,
        "stored_bytes": 25_000,
        "longest_flip_seconds": 4.0,
        "longest_drain_seconds": 2.0,
    }
    assert report.certificate.pop("completed_at")
    assert report.certificate == {"segments": 15, "subscriptions": 10, "undrained": 0, "faults": 0}


async def test_topics_share_what_their_parent_has(stage: Harness) -> None:
    """Each topic gets the options of its parent, and is neither held nor cleaned up by itself."""
    windows = {"change_windows": {"not_before": "1990-01-01T00:00:00Z"}}
    run, script = await _start(
        stage, names=TOPICS[:1], force=True, client_timeout="PT3H", **REMOVE, **windows, grace_window="PT0S"
    )
    await run.report()
    child = next(call.input for call in script.calls if call.step == "flip")
    parent = next(call.input for call in script.calls if call.step == "survey")
    shared = {"force", "client_timeout", "drain_timeout", "auto_scale", "metadata_url", "admin_urls", "credentials"}
    shared.add("change_windows")
    assert child.model_dump(include=shared) == parent.model_dump(include=shared)
    own = child.model_dump()
    assert (own["hold_before_cutover"], own["topic"]) == (False, f"persistent://{TOPICS[0]}")
    assert own["parent"]["workflow_id"] == run.handle.id
    assert own["parent"]["run_id"] == run.handle.first_execution_run_id
    assert script.own_steps == [*HELD, "release_all", "clean_up_all"]
    assert script.steps_of(TOPICS[0]) == CHILD


async def test_it_is_held_before_the_first_topic(stage: Harness) -> None:
    """By default nothing is changed without `proceed`."""
    run, script = await _start(stage, hold_before_cutover=True)
    status = await run.until(_waits(WaitKind.HOLD))
    assert (status.phase, status.undo, script.own_steps) == (Phase.GUARD, Undo.FREE, HELD[:2])
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.exhaustive)])
async def test_many_topics_with_two_that_fail(stage: Harness, count: int) -> None:
    """The waves have a canary, a gate and an error budget; the report names both failed topics with their reasons."""
    names = [f"acme/shop/orders-{number:03}" for number in range(count)]
    failing = {name: {"await_clients": STILL_THERE} for name in (names[10], names[15])}
    waves: dict[str, Any] = {"canary": 2, "wave_size": 30, "parallelism": 10, "gate": "canary", "deadline": "PT48H"}
    waves["error_budget"] = {"items": 1}
    run, script = await _start(stage, names=names, topics=failing, waves=waves)

    gate = await run.until(_waits(WaitKind.GATE))
    assert gate.progress is not None
    assert (gate.progress.done, gate.progress.total, gate.progress.unit) == (2, count, ProgressUnit.TOPICS)
    await run.signal(Verb.PROCEED)

    held = await run.until(_waits(WaitKind.ERROR_BUDGET), LONG)
    assert held.waiting is not None
    assert "2 items failed, and the error budget is 1" in held.waiting.why
    assert "/failed of zk:zk:2181/pulsar" in held.waiting.why
    begun = {name for name in names if script.steps_of(name)}
    assert begun < {*names}
    await run.signal(Verb.PROCEED)

    report = await run.report(LONG)
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert (report.figures["topics_scalable"], report.figures["topics_failed"]) == (count - 2, 2)
    (failed,) = report.failed_items
    assert {item.path: item.reason for item in failed.items} == script.failures
    assert (failed.count, failed.listed_in) == (2, "/failed of zk:zk:2181/pulsar")
    assert set(script.failures) == set(failing)
    assert all("clients that cannot follow: producer p" in reason for reason in script.failures.values())
    assert all(script.steps_of(name)[-1] == "undo" for name in failing)
    assert script.own_steps == [*HELD, "release_all", "forget_all"]
    # Each topic names itself a few times in the history of its parent, and no page of topics repeats another.
    assert await run.events() < 12 * count


async def test_a_name_that_only_a_partition_may_have(stage: Harness) -> None:
    """A topic that has it stays regular, with the reason, and the others become scalable."""
    odd = f"{TOPICS[1]}-partition-1"
    waves: dict[str, Any] = {"canary": 0, "error_budget": {"items": 1}, "deadline": "PT48H"}
    run, script = await _start(stage, names=(*TOPICS[:2], odd, TOPICS[2]), waves=waves)
    report = await run.report()
    assert (report.outcome, report.figures["topics_scalable"]) == (Outcome.DONE_WITH_FAILURES, 3)
    assert [*script.failures] == [odd]
    assert script.failures[odd].startswith(f"topic: 'persistent://{odd}' is not the full name of a persistent topic")
    assert script.steps_of(odd) == []


async def test_a_canary_that_fails_stops_the_waves(stage: Harness) -> None:
    """With `when_held: stop` a failed canary ends the migration without further topics, and policies are restored."""
    waves = {"canary": 1, "wave_size": 10, "gate": "none", "when_held": "stop", "deadline": "PT48H"}
    run, script = await _start(stage, topics={TOPICS[0]: {"precheck": DENIED}}, waves=waves)
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert script.own_steps == [*HELD, "release_all", "forget_all"]
    assert [script.steps_of(topic) for topic in TOPICS[1:]] == 4 * [[]]
    assert script.failures == {TOPICS[0]: "Denied: no right"}


async def test_faults_of_a_topic_are_a_failure(stage: Harness) -> None:
    """A scalable topic with faults counts as failed; one with unconsumed old messages is reported separately."""
    check = TopicCheck(faults=("billing has no record",), segments=3, subscriptions=2, pruned=0)
    drained = DrainedTopic(seconds=9.0, backlogs={"billing": 7})
    run, script = await _start(stage, topics={STUCK: {"verify": check}, TOPICS[2]: {"drain": drained}}, **BUDGET)
    report = await run.report()
    assert script.failures == {STUCK: "billing has no record"}
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert (report.figures["topics_scalable"], report.figures["topics_failed"]) == (4, 1)
    assert (report.certificate["faults"], report.certificate["undrained"]) == (1, 1)
    assert report.figures["longest_drain_seconds"] == 9.0


async def test_unconsumed_messages_change_the_outcome(stage: Harness) -> None:
    """Unconsumed old messages of one topic make the outcome `DONE_WITH_FAILURES`."""
    drained = DrainedTopic(seconds=9.0, backlogs={"billing": 7})
    run, script = await _start(stage, topics={STUCK: {"drain": drained}})
    report = await run.report()
    assert (report.outcome, script.failures) == (Outcome.DONE_WITH_FAILURES, {})


async def test_policies_are_held_for_as_long_as_the_input_says(stage: Harness) -> None:
    """After `hold_limit` no further topic starts, waiting ones stay regular, and policies are restored."""
    script = NamespaceScript(topics={STUCK: {"await_clients": Hang()}})
    waves = {"canary": 1, "wave_size": 1, "gate": "none", "deadline": "PT48H"}
    run = await stage.start(script, waves=waves, hold_limit=SHORT)
    report = await run.report()
    assert script.steps_of(STUCK) == [*CHILD[:3], "undo"]
    assert script.failures == {STUCK: "cancelled with its parent"}
    assert [script.steps_of(topic) for topic in TOPICS[2:]] == 3 * [[]]
    assert script.own_steps == [*HELD, "release_all", "forget_all"]
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert (report.figures["topics_scalable"], report.figures["topics_failed"]) == (1, 1)
    assert (report.failed_items[0].count, report.failed_items[0].listed_in) == (1, "/failed of zk:zk:2181/pulsar")
    assert any("policies were overridden for 0:00:20, the hold_limit" in note for note in report.notes)


async def test_waves_are_changed_while_they_run(stage: Harness) -> None:
    """A change counts from the next topic on; what the input would refuse is refused. A receipt changes nothing."""
    waves = {"canary": 1, "wave_size": 1, "gate": "every wave", "deadline": "PT48H"}
    run, script = await _start(stage, **bound_to_plan(NamespaceScript(), next(stage.clusters), waves=waves))
    await run.until(_waits(WaitKind.GATE))
    for wrong, why in (
        ({"parallelism": 0}, "greater than or equal to 1"),
        ({"batch_size": 2}, "waves.batch_size must be 1"),
        ({"paralelism": 2}, "paralelism"),
        ({"deadline": "PT1S"}, "is not longer than client_timeout"),
    ):
        assert why in (await run.refusal("change_waves", wrong)).message
    preview = VerbPreview.model_validate(await run.handle.query("preview", VerbRequest(verb=Verb.PROCEED)))
    assert (preview.effect, preview.undo) == ("begins the next wave", Undo.NONE)
    answer = await run.update("change_waves", {"gate": "none", "wave_size": 10})
    assert (answer["gate"], answer["wave_size"], answer["canary"]) == ("none", 10, 1)
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert (report.outcome, script.failures) == (Outcome.DONE, {})
    assert any(f"waves: gate: none, wave_size: 10, changed by {UNNAMED}" in note for note in report.notes)


async def test_a_change_is_not_a_way_around_two_persons(stage: Harness, command: Client) -> None:
    """With `two_persons` no change of the waves avoids a gate, with or without a name; other changes are accepted."""
    waves = {"canary": 1, "wave_size": 1, "gate": "every wave", "deadline": "PT48H"}
    run, script = await _start(stage, waves=waves, two_persons=True, hold_before_cutover=True)
    persons = Persons(command, run)
    await run.until(_waits(WaitKind.HOLD))
    await persons.steer(ANA, Verb.PROCEED)
    await persons.steer(BO, Verb.APPROVE)
    await run.until(_waits(WaitKind.GATE))
    for change in ({"gate": "none"}, {"wave_size": 10}, {"error_budget": {"items": 10}}):
        why = f"the new {next(iter(change))} would avoid that"
        assert why in (await run.refusal("change_waves", change)).message
        assert why in await persons.refusal(ANA, "change_waves", change)
    assert (await run.update("change_waves", {"parallelism": 4}))["parallelism"] == 4
    assert [script.steps_of(topic) for topic in TOPICS[1:]] == [[]] * len(TOPICS[1:])
    await run.signal(Verb.ROLLBACK)
    await run.report()


async def test_the_limit_ends_a_wait_for_the_operator(stage: Harness) -> None:
    """A gate without an answer ends at the limit, so that policies are restored."""
    waves = {"canary": 1, "wave_size": 1, "gate": "every wave", "deadline": "PT48H"}
    run, script = await _start(stage, waves=waves, hold_limit="PT5H")
    report = await run.report()
    migrate = next(entry for entry in report.history if entry.phase == Phase.MIGRATE)
    assert 5 * 3600 <= migrate.seconds(migrate.started) < 5 * 3600 + 60
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert (report.figures["topics_scalable"], script.failures) == (1, {})
    assert 5 * 3600 <= report.figures["held_seconds"] < 5 * 3600 + 60


async def test_status_names_topics_that_do_not_end_at_the_limit(stage: Harness) -> None:
    """After the limit the status names the workflows that are waited for, and since when, and drops those that end."""
    hangs = {topic: Hang() for topic in TOPICS[:2]}
    script = NamespaceScript(topics={topic: {"verify": hang} for topic, hang in hangs.items()}, names=TOPICS[:2])
    waves = {"canary": 0, "gate": "none", "deadline": "PT48H"}
    run = await stage.start(script, hold_limit=SHORT, waves=waves)
    for hang in hangs.values():
        await hang.entered()
    first, second = (_child(run, topic).id for topic in hangs)
    status = await run.until(lambda status: status.waiting is not None and first in status.waiting.why)
    limit = next(note.partition("Z ")[0] for note in status.notes if "the hold_limit" in note)
    assert status.waiting is not None
    assert status.waiting.why == f"{first}, {second} to end, after their cancellation at {limit}Z"
    hangs[TOPICS[0]].release()
    await run.until(lambda status: status.waiting is not None and status.waiting.why.startswith(f"{second} to end"))
    hangs[TOPICS[1]].release()
    assert (await run.report()).outcome is Outcome.DONE_WITH_FAILURES


async def test_a_rollback_at_the_limit_waits_for_scalable_topics(stage: Harness) -> None:
    """A topic that has been flipped when the limit passes is completed before policies are restored."""
    hang = Hang()
    script = NamespaceScript(topics={TOPICS[0]: {"verify": hang}})
    run = await stage.start(script, hold_limit=SHORT)
    await hang.entered()
    await run.until(lambda status: any("the hold_limit" in note for note in status.notes))
    await run.signal(Verb.ROLLBACK)
    await _child(run, TOPICS[0]).query("status")
    assert "release_all" not in script.steps
    hang.release()
    report = await run.report()
    assert script.steps_of(TOPICS[0]) == CHILD
    assert script.steps[-2:] == ["complete", "release_all"]
    assert report.outcome is Outcome.ROLLED_BACK


@pytest.mark.parametrize("step", HELD[1:])
async def test_rollback_before_the_first_topic(stage: Harness, step: str) -> None:
    """A rollback before the first topic restores policies, and nothing has changed."""
    hang = Hang()
    run, script = await _start(stage, **{step: hang})
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert script.own_steps == [*HELD[: HELD.index(step) + 1], "release_all"]
    assert (report.outcome, script.cancelled) == (Outcome.ROLLED_BACK, [step])


async def test_rollback_ends_topics_that_wait(stage: Harness) -> None:
    """A rollback withdraws waiting topics, completes scalable ones, and reports their number.

    The migration does not wait for consumers of these any more.
    """
    waiting, draining, verifying = Hang(), Hang(), Hang()
    drain = [draining, ANSWERS["drain"]]
    topics = {STUCK: {"await_clients": waiting}, TOPICS[2]: {"verify": verifying}, TOPICS[3]: {"drain": drain}}
    run, script = await _start(stage, topics=topics)
    await waiting.entered()
    await verifying.entered()
    await draining.entered()
    await run.until(lambda status: status.progress is not None and status.progress.done == 2)
    assert (await run.status()).undo is Undo.FREE
    await run.signal(Verb.ROLLBACK)
    status = await run.until(_waits(WaitKind.ITEMS))
    assert status.waiting is not None
    assert "after their cancellation" in status.waiting.why
    verifying.release()
    report = await run.report()
    assert script.steps_of(STUCK) == [*CHILD[:3], "undo"]
    assert script.steps_of(TOPICS[2]) == CHILD
    assert script.steps_of(TOPICS[3]) == [*CHILD[:5], *CHILD[5:6], *CHILD[5:]]
    assert script.own_steps == [*HELD, "release_all"]
    assert report.outcome is Outcome.ROLLED_BACK
    assert (report.figures["topics_scalable"], report.figures["topics_failed"]) == (4, 1)
    assert any("4 topics are scalable and stay scalable (rolled back by the operator)" in note for note in report.notes)
    assert script.failures == {STUCK: "cancelled with its parent"}
    states = [(await _child(run, topic).describe()).status for topic in (STUCK, TOPICS[2])]
    assert states == [WorkflowExecutionStatus.CANCELED, WorkflowExecutionStatus.COMPLETED]


async def test_rollback_finds_a_topic_scalable(stage: Harness) -> None:
    """A topic that turns out to be scalable during its rollback counts as done."""
    hang = Hang()
    topics = {STUCK: {"flip": hang, "undo": TURNED_OUT}}
    run, script = await _start(stage, names=TOPICS[:2], topics=topics)
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert script.steps_of(STUCK) == [*CHILD[:5], "undo", *CHILD[5:]]
    assert any("2 topics are scalable and stay scalable" in note for note in report.notes)


async def test_cancelled_during_its_waves(stage: Harness) -> None:
    """A cancelled workflow ends its topics first, restores policies, and ends as cancelled."""
    hang = Hang()
    run, script = await _start(stage, names=TOPICS[:2], topics={STUCK: {"guard": hang}})
    await hang.entered()
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert script.steps_of(STUCK) == [*CHILD[:4], "undo"]
    assert script.own_steps == [*HELD, "release_all"]


async def test_policies_are_restored_until_that_succeeds(stage: Harness) -> None:
    """COMPLETE is retried until it succeeds."""
    run, script = await _start(stage, names=TOPICS[:1], release_all=[DENIED, DENIED, Released()])
    report = await run.report()
    assert script.own_steps == [*HELD, *3 * ["release_all"], "forget_all"]
    assert report.outcome is Outcome.DONE


async def test_failure_of_the_guard(stage: Harness) -> None:
    """If policies cannot be overridden, no topic starts, and the workflow fails for that reason."""
    run, script = await _start(stage, hold_all=DENIED)
    assert (await run.typed_failure()).message == "no right"
    assert script.steps == [*HELD, "release_all"]


async def test_cleanup(stage: Harness) -> None:
    """In the window `cleanup` deletes all regular topics that are not needed, and names the others."""
    stays = FailedItem(path=f"persistent://{STUCK}", reason="2 clients are connected to it")
    cleaned = CleanedUp(deleted=4, remaining=(stays,), remaining_count=1)
    run, script = await _start(stage, clean_up_all=cleaned, cleanup="remove")
    status = await run.until(_waits(WaitKind.WINDOW))
    assert status.legal_verbs == [Verb.CLEANUP, Verb.PROCEED]
    await run.signal(Verb.CLEANUP)
    report = await run.report()
    assert script.own_steps == [*HELD, "release_all", "clean_up_all"]
    assert report.figures["deleted_topics"] == 4
    assert any(failed.items == (stays,) for failed in report.failed_items)


async def test_a_topic_that_an_operator_rolled_back_has_failed(stage: Harness) -> None:
    """A topic that an operator rolled back stays regular, and does not count as scalable."""
    hang = Hang()
    run, script = await _start(stage, topics={STUCK: {"await_clients": hang}}, **BUDGET)
    await hang.entered()
    await _child(run, STUCK).signal(Verb.ROLLBACK.value)
    report = await run.report()
    assert script.failures == {STUCK: "rolled back by the operator"}
    assert (report.figures["topics_scalable"], report.figures["topics_failed"]) == (4, 1)


BUDGET: dict[str, Any] = {
    "waves": {"canary": 1, "wave_size": 10, "gate": "none", "error_budget": {"items": 2}, "deadline": "PT48H"}
}


async def _start(stage: Harness, **given: Any) -> tuple[Run, NamespaceScript]:
    """Start a migration; keywords that are not results of steps are fields of its input."""
    of_script = {name: value for name, value in given.items() if name in {"names", "topics", *NamespaceScript.usual}}
    script = NamespaceScript(**of_script)
    return await stage.start(script, **{name: given[name] for name in given.keys() - of_script.keys()}), script


def _waits(kind: WaitKind) -> Any:
    def waits(status: Status) -> bool:
        return status.waiting is not None and status.waiting.kind is kind

    return waits


def _child(run: Run, topic: str) -> Any:
    return run.client.get_workflow_handle(f"{run.handle.id}/{topic}")

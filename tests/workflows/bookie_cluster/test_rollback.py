"""Rollbacks of the bookie cluster migration: by the operator, by failures, by deadlines, from every phase."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError, CancelledError

from models.bookie_cluster.input import Direction, Proof
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import BrokersStopped, CopySummary, Directive, LedgersDeleted
from models.bookie_cluster.updates import ReadModeChange
from models.bookie_registry import ReadMode
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb, WindowChange
from tests.workflows.bookie_cluster.activities import (
    ANSWERS,
    ATTRIBUTION,
    BEGIN,
    BEGIN_BACK,
    BUILT,
    CONTESTED,
    COPY_BACK,
    FAILED,
    HOLED,
    PROMOTED,
    RESTART,
    STOPPED_BACK,
    TAIL,
    TOO_LOW,
    AttributionScript,
    Script,
    stopped,
)
from tests.workflows.bookie_cluster.steering import window_open
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from workflows.lifecycle.caller import UNNAMED

BACK = Direction.BACK
DENIED = ApplicationError("no right to write", type=FailureKind.DENIED, non_retryable=True)
CLEAR = ["remove_copies", "release"]
LIFT = ["advance_ids", "check_ids"]
"""Once brokers were stopped, one may have started on the target by mistake."""

UNDO_RESTART: dict[str, list[str]] = {
    "register": ["release"],
    "precheck": ["release"],
    "build": BEGIN_BACK,
    "stop_brokers": ["start_brokers", "release"],
    "check_ids": [*LIFT, "start_brokers", "release"],
    "copy_tail": [*LIFT, "start_brokers", "release"],
    "set_target": [*STOPPED_BACK, "release"],
    "start_brokers": [*STOPPED_BACK, "release"],
}
"""The rollback of routing `restart` from each step."""

UNDO_ATTRIBUTION: dict[str, list[str]] = {
    "register": ["release"],
    "precheck": ["release"],
    "build": CLEAR,
    "check_ids": CLEAR,
    "set_target": ["set_target", *CLEAR],
    "promote": ["set_target", "promote", *CLEAR],
}
"""The rollback of routing `attribution` from each step."""

CASES = [
    *((Script, RESTART, step, undo) for step, undo in UNDO_RESTART.items()),
    *((AttributionScript, ATTRIBUTION, step, undo) for step, undo in UNDO_ATTRIBUTION.items()),
]
IDS = [f"{script.input['routing']}-{step}" for script, _, step, _ in CASES]
INTERRUPTED = {name: case for name, case in zip(IDS, CASES, strict=True) if "register" not in case}
"""REGISTER takes no rollback: not even an earlier run's commit is known there."""


@pytest.mark.parametrize(("script", "road", "step", "undo"), INTERRUPTED.values(), ids=INTERRUPTED)
async def test_rollback_in_each_step(
    stage: Harness, script: type[Script], road: list[str], step: str, undo: list[str]
) -> None:
    """A rollback cancels the step that runs, undoes as much as was done, and ends as rolled back."""
    run = await _hanging(stage, script, step)
    await run.signal(Verb.ROLLBACK, "brokers report errors")
    report = await run.report()
    assert run.script.steps == [*road[: road.index(step) + 1], *undo]
    assert run.script.cancelled == [step]
    assert report.outcome is Outcome.ROLLED_BACK
    assert [entry.outcome for entry in report.history[-2:]] == [Outcome.ROLLED_BACK, Outcome.DONE]
    assert report.history[-1].phase == Phase.ROLLED_BACK
    _all_go_back(run, len(undo))


async def test_rollback_needs_no_decision(stage: Harness) -> None:
    """A step that answers although a rollback has cancelled it is not followed by a gate that its answer closes."""
    late = Hang(deaf=True, answer=HOLED)
    run = await stage.start(Script(copy_tail=late))
    await late.entered()
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*RESTART[: RESTART.index("copy_tail") + 1], *UNDO_RESTART["copy_tail"]]


@pytest.mark.parametrize(("script", "road", "step", "undo"), CASES, ids=IDS)
async def test_failure_in_each_step(
    stage: Harness, script: type[Script], road: list[str], step: str, undo: list[str]
) -> None:
    """A step that fails for good takes the switch back, and its typed failure is the workflow's."""
    run = await stage.start(script(**{step: [DENIED, script.usual[step]]}))
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.DENIED, "no right to write")
    assert run.script.steps == [*road[: road.index(step) + 1], *undo]
    assert (await run.status()).legal_verbs == []


@pytest.mark.parametrize(("script", "road", "step", "undo"), CASES, ids=IDS)
async def test_cancellation_in_each_step(
    stage: Harness, script: type[Script], road: list[str], step: str, undo: list[str]
) -> None:
    """A cancelled workflow is rolled back first, and ends as cancelled."""
    run = await _hanging(stage, script, step)
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert run.script.steps == [*road[: road.index(step) + 1], *undo]
    assert (await run.handle.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_every_attempt_of_the_rollback_counts(stage: Harness) -> None:
    """Ledgers that a failed attempt copied back count, even if the next attempt is in another run."""
    again = CopySummary(equal=BUILT.copied, compared=BUILT.compared)
    # While an activity runs no new run begins. A query that meets the end of a run would leave the time-skipping server
    # with a workflow task that it takes no answer to, and no time would pass any more.
    hang = Hang()
    script = Script(build=[BUILT, BUILT, again], stop_brokers=[stopped, DENIED, stopped], census=hang)
    run = await stage.start(script, history_limit=3)
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert run.script.steps.count("build") == 3
    assert report.certificate["copied_back"] == BUILT.copied + TAIL.copy_summary.copied


@pytest.mark.parametrize(
    ("script", "undo"),
    [(Script, [*COPY_BACK, "release"]), (AttributionScript, ["set_target", "promote", *CLEAR])],
)
async def test_rollback_in_the_window(stage: Harness, script: type[Script], undo: list[str]) -> None:
    """Within the window a rollback brings brokers back; its cost says what would be copied."""
    run = await stage.start(script())
    status = await window_open(run)
    assert status.legal_verbs == [Verb.ROLLBACK, Verb.CLEANUP, Verb.PROCEED]
    assert status.waiting is not None
    assert status.waiting.ends_on == ("cleanup", "proceed", "rollback")
    gained = "(5 ledgers with 2.5 MB at the last look)"
    assert status.undo_cost.endswith(gained) is (script is Script)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-len(undo) :] == undo
    assert (await run.status()).deadlines == {}
    _all_go_back(run, len(undo))


async def test_cancellation_in_the_window(stage: Harness) -> None:
    """A switch that is cancelled within the window is rolled back."""
    run = await stage.start(Script())
    await window_open(run)
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert run.script.steps[-len(COPY_BACK) - 1 :] == [*COPY_BACK, "release"]


async def test_rollback_after_the_window(stage: Harness) -> None:
    """Once the window is over a rollback is refused; the refusal names the failback that remains."""
    hang = Hang()
    run = await stage.start(Script(flip_statuses=hang), rollback_window="PT0S")
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    hang.release()
    report = await run.report()
    assert report.outcome is Outcome.DONE
    refused = next(note for note in report.notes if "rollback refused" in note)
    assert "the window is over" in refused
    assert "source and target swapped" in refused


async def test_copies_are_left_where_messages_were_written(stage: Harness) -> None:
    """After brokers wrote to the target its ledgers are not deleted by a rollback; the report says how to."""
    run = await stage.start(Script())
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert "remove_copies" not in run.script.steps
    assert any("the ledgers in new were left as they are" in note for note in report.notes)
    # What was copied back while brokers served counts too.
    assert report.certificate["copied_back"] == BUILT.copied + TAIL.copy_summary.copied
    assert report.certificate["ledgers_compared_in_rollback"] == TAIL.checked
    assert 150 <= report.figures["rollback_brokers_away_seconds"] < 190


# The pause ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["check_ids", "copy_tail"])
async def test_longest_pause(stage: Harness, step: str) -> None:
    """Past the longest pause brokers go back to the source, though the step lives and heartbeats."""
    # It passes while the step hangs; before that, a busy machine stops the brokers.
    run = await stage.start(Script(**{step: [Hang(), ANSWERS[step]]}), pause_deadline="PT8S")
    failure = await run.typed_failure()
    assert (failure.type, failure.message) == (FailureKind.DEADLINE, "longest pause: the deadline passed")
    assert run.script.cancelled == [step]
    # The copies stay, for the next start.
    assert run.script.steps[-4:] == [*LIFT, "start_brokers", "release"]
    assert "remove_copies" not in run.script.steps
    assert (await run.status()).deadlines == {}


async def test_longest_pause_at_a_decision(stage: Harness) -> None:
    """A decision that is not taken while brokers are stopped ends with the longest pause."""
    run = await stage.start(Script(copy_tail=HOLED), pause_deadline="PT30M")
    assert (await run.typed_failure()).type == FailureKind.DEADLINE
    assert run.script.steps == [*RESTART[:6], *LIFT, "start_brokers", "release"]


async def test_stopping_brokers_is_not_part_of_the_pause(stage: Harness) -> None:
    """The pause counts from the end of the first broker; the wait for people who stop brokers does not count."""
    hang = Hang(answer=_stopped_late)
    run = await stage.start(Script(stop_brokers=hang), pause_deadline="PT4S", rollback_window="PT0S")
    await hang.entered()
    assert (await run.status()).deadlines == {}
    await stage.env.sleep(timedelta(seconds=5))
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


async def test_pause_is_refused_while_brokers_are_stopped(stage: Harness) -> None:
    """A pause is refused while brokers are stopped; status says since when they are."""
    hang = Hang()
    run = await stage.start(Script(copy_tail=hang), rollback_window="PT0S")
    await hang.entered()
    status = await run.status()
    assert status.legal_verbs == [Verb.ROLLBACK]
    assert "pause_since" in status.facts
    hang.release()
    await run.report()
    assert "pause_since" not in (await run.status()).facts


async def test_proof_that_does_not_come_can_be_waived(stage: Harness) -> None:
    """`proceed` ends the wait for brokers to be gone, or to be proven: the step runs again and asks for less."""
    steps = {step: [Hang(), ANSWERS[step]] for step in ("stop_brokers", "start_brokers")}
    run = await stage.start(Script(**steps), rollback_window="PT0S")
    for step, (hang, _) in steps.items():
        await hang.entered()
        status = await run.status()
        assert status.legal_verbs == [Verb.ROLLBACK, Verb.PROCEED], step
        await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE
    asked = [(call.step, call.args[1]) for call in run.script.calls if call.step in steps]
    assert asked == [(step, proof) for step in steps for proof in (Proof.FULL, Proof.WAIVED)]
    assert run.script.cancelled == list(steps)


@pytest.mark.parametrize("back", [False, True])
async def test_copy_is_repeated_if_a_broker_registered(stage: Harness, back: bool) -> None:
    """A broker that came after the tail was copied, at a decision say: the tail follows before the directive."""
    late = Directive(epoch=7, at=datetime.now(UTC), alone=False)
    first = [ANSWERS["set_target"]] if back else []
    run = await stage.start(Script(set_target=[*first, late, ANSWERS["set_target"]]))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    again = ["copy_tail", "set_target"]
    there = [*RESTART[:-1], *([] if back else again), "start_brokers"]
    assert [step for step in run.script.steps if step != "census"] == [
        *there,
        *COPY_BACK[:-1],
        *(again if back else []),
        "start_brokers",
        "release",
    ]
    assert any("a broker came after everything had been copied" in note for note in report.notes)


# Events during the rollback ---------------------------------------------------------------------------------------


async def test_a_failed_rollback_is_repeated(stage: Harness) -> None:
    """A failed rollback is repeated; brokers that may run on the source already are not stopped again."""
    starts = [ANSWERS["start_brokers"], DENIED, ANSWERS["start_brokers"]]
    run = await stage.start(Script(start_brokers=starts))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-len(COPY_BACK) - 2 :] == [*COPY_BACK, "start_brokers", "release"]
    assert any("it is retried in 5 s: Denied: no right to write" in note for note in report.notes)


async def test_ids_of_the_source_must_be_lifted(stage: Harness) -> None:
    """Brokers do not start on the source before its next id lies above all that the target handed out."""
    checks = [ANSWERS["check_ids"], TOO_LOW, ANSWERS["check_ids"]]
    run = await stage.start(Script(check_ids=checks))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    # Brokers are stopped at the second attempt: nothing is copied next to them.
    assert run.script.steps[-len(COPY_BACK) - 5 :] == [*COPY_BACK[:6], *STOPPED_BACK, "release"]
    assert any("the next ledger of old would get the id 21" in note for note in report.notes)


async def test_failures_of_the_rollback_wait_for_a_decision(stage: Harness) -> None:
    """A rollback waits once for a decision on ledgers that cannot be copied back."""
    starts = [ANSWERS["start_brokers"], DENIED, ANSWERS["start_brokers"]]
    run = await stage.start(Script(copy_tail=[TAIL, HOLED], start_brokers=starts))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    status = await run.until(lambda status: status.phase == Phase.ROLLED_BACK and status.waiting is not None)
    assert status.waiting is not None
    assert status.waiting.ends_on == ("proceed",)
    assert status.legal_verbs == [Verb.PROCEED]
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert report.failed_items[0] == FAILED.failed
    assert run.script.steps.count("copy_tail") == 2


async def test_a_store_that_never_answers_ends_the_start(stage: Harness) -> None:
    """A wrong address of the metadata store ends the switch after minutes, so that a corrected one can be started."""
    silent = ApplicationError("connection refused", type=FailureKind.UNREACHABLE)
    run = await stage.start(Script(register=silent, release=silent))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.UNREACHABLE
    assert set(run.script.steps) == {"register", "release"}
    history = (await run.status()).history
    assert sum(entry.seconds(history[-1].started) for entry in history) < 300


async def test_contested_positions_during_the_rollback(stage: Harness) -> None:
    """Attributions that others keep changing hold the rollback, which is repeated until none remains."""
    promotes = [ANSWERS["promote"], *[CONTESTED] * 5, ANSWERS["promote"]]
    run = await stage.start(AttributionScript(promote=promotes))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-9:] == [*["promote"] * 5, "set_target", "promote", *CLEAR]


async def test_rollback_given_twice(stage: Harness) -> None:
    """A second rollback changes nothing: the rollback runs once."""
    run = await _hanging(stage, Script, "build")
    for reason in ("first", "second"):
        await run.signal(Verb.ROLLBACK, reason)
    report = await run.report()
    assert run.script.steps == [*BEGIN, *BEGIN_BACK]
    assert any("rollback refused: " in note and note.endswith(f"(second); sent by {UNNAMED}") for note in report.notes)


async def test_cancellation_does_not_interrupt_the_rollback(stage: Harness) -> None:
    """A cancellation that arrives while brokers are brought back waits until they are."""
    back = Hang()
    run = await stage.start(Script(start_brokers=[ANSWERS["start_brokers"], back]))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    await back.entered()
    await run.handle.cancel()
    await run.until(lambda status: any("the workflow was cancelled" in note for note in status.notes))
    back.release()
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-2:] == ["start_brokers", "release"]


async def test_copies_stay_for_the_next_start(stage: Harness) -> None:
    """With `restart` nothing is deleted by a rollback: bookies would refuse these ids at the next start."""
    run = await _hanging(stage, Script, "copy_tail")
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert "remove_copies" not in run.script.steps
    assert "copies_removed" not in report.figures
    assert any("a new start of this switch uses them" in note for note in report.notes)


@pytest.mark.parametrize(
    ("script", "step", "note"),
    [
        (AttributionScript, "remove_copies", "not all copies"),
        (AttributionScript, "release", "own nodes"),
        (Script, "find_early_ledgers", "whether a broker wrote to new too early"),
    ],
)
async def test_cleanup_that_fails_does_not_block_the_rollback(
    stage: Harness, script: type[Script], step: str, note: str
) -> None:
    """Copies, nodes and early ledgers that cannot be handled are reported, and do not block the end of the rollback."""
    run = await _hanging(stage, script, "build")
    run.script.say(step, DENIED)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert any(note in text and text.endswith("Denied: no right to write") for text in report.notes[-2:])


@pytest.mark.parametrize(("deleted", "remaining"), [(5, 0), (0, 5)])
async def test_copies_are_removed_in_parts(stage: Harness, deleted: int, remaining: int) -> None:
    """Copies are removed in bounded steps until none is left, or none can be removed."""
    run = await _hanging(stage, AttributionScript, "build")
    run.script.say(
        "remove_copies",
        [LedgersDeleted(deleted=500, remaining=5), LedgersDeleted(deleted=deleted, remaining=remaining)],
    )
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert run.script.steps.count("remove_copies") == 2
    assert report.figures["copies_removed"] == 500 + deleted
    assert any(f"{remaining} copies stay in the target" in note for note in report.notes) is bool(remaining)


# The delay of the deletion, routing `attribution` -------------------------------------------------------------------


async def test_copies_are_deleted_after_a_delay(stage: Harness) -> None:
    """After a rollback the target's copies are kept for the plan's delay, and then deleted."""
    run = await _rolled_back(stage, deletion_delay="PT30H")
    status = await run.until(lambda status: "window" in status.deadlines)
    assert (status.phase, status.legal_verbs) == (Phase.ROLLED_BACK, [Verb.CLEANUP, Verb.PROCEED])
    assert status.waiting is not None
    assert status.waiting.kind is WaitKind.WINDOW
    assert status.waiting.until == status.waiting.since + timedelta(hours=30)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-4:] == ["set_target", "promote", *CLEAR]


@pytest.mark.parametrize(("verb", "steps"), [(Verb.CLEANUP, CLEAR), (Verb.PROCEED, ["release"])])
async def test_delay_is_ended(stage: Harness, verb: Verb, steps: list[str]) -> None:
    """`cleanup` deletes the copies at once, and `proceed` keeps them."""
    run = await _rolled_back(stage)
    await run.until(lambda status: "window" in status.deadlines)
    await run.signal(verb)
    report = await run.report()
    assert run.script.steps[-len(steps) - 1 :] == ["promote", *steps]
    assert any("the copies in new were left as they are" in note for note in report.notes) is (verb is Verb.PROCEED)


@pytest.mark.parametrize("staying", [(), ("t/new: its ledger 9 is open",)], ids=["nothing", "a cursor"])
async def test_what_stays_in_the_target_is_named(stage: Harness, staying: tuple[str, ...]) -> None:
    """After a rollback the report names what stays attributed to the target, and not what stayed in the source."""
    back = PROMOTED.model_copy(update={"deferred": staying, "deferred_count": len(staying)})
    run = await stage.start(AttributionScript(promote=[PROMOTED, back]), deletion_delay="PT0S")
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert (await run.status()).facts["deferred"] == list(staying)
    assert any("1 cursors and schemas stay attributed to new" in note for note in report.notes) is bool(staying)


async def test_delay_that_is_cancelled(stage: Harness) -> None:
    """A cancellation while the copies are kept leaves them where they are; brokers are on the source already."""
    run = await _rolled_back(stage)
    await run.until(lambda status: "window" in status.deadlines)
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert run.script.steps[-3:] == ["set_target", "promote", "release"]


async def test_cleanup_that_is_cancelled(stage: Harness) -> None:
    """A cancellation in the cleanup ends it; what is deleted is gone, and the switch's own nodes leave the registry."""
    hang = Hang()
    script = Script(delete_ledgers=hang)
    run = await stage.start(script, rollback_window="PT0S", cleanup="remove", cleanup_at_window_end=True)
    await hang.entered()
    await run.handle.cancel()
    assert isinstance(await run.failure(), CancelledError)
    assert script.steps[-2:] == ["delete_ledgers", "release"]


async def test_cleanup_that_is_ended(stage: Harness) -> None:
    """`proceed` ends a cleanup; the ledgers that are left stay, and the switch's own nodes leave the registry."""
    hang = Hang()
    script = Script(delete_ledgers=hang)
    run = await stage.start(script, rollback_window="PT0S", cleanup="remove", cleanup_at_window_end=True)
    await hang.entered()
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert script.cancelled == ["delete_ledgers"]
    assert script.steps[-2:] == ["delete_ledgers", "release"]
    assert any("the cleanup was ended by `proceed`" in note for note in report.notes)


async def test_delay_is_changed(stage: Harness) -> None:
    """The delay can be made shorter while it runs."""
    run = await _rolled_back(stage)
    await run.until(lambda status: "window" in status.deadlines)
    await run.update("change_window", WindowChange(remaining=timedelta(0)))
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-2:] == CLEAR


async def test_read_mode_is_restored(stage: Harness) -> None:
    """A rollback lets brokers read both clusters again before it changes where they write."""
    run = await stage.start(AttributionScript(), deletion_delay="PT0S")
    await window_open(run)
    await run.update("set_read_mode", ReadModeChange(mode=ReadMode.NEW_CLUSTER_ONLY))
    await run.signal(Verb.ROLLBACK)
    await run.report()
    assert run.script.steps[-5:] == ["set_read_mode", "set_target", "promote", *CLEAR]
    modes = [call.args[0].mode for call in run.script.calls if call.step == "set_read_mode"]
    assert modes == [ReadMode.NEW_CLUSTER_ONLY, ReadMode.DUAL_READ]


def _stopped_late(begun: datetime) -> BrokersStopped:
    # Later than it is released: what is left of the deadline is for a busy machine.
    return stopped(begun + timedelta(seconds=25))


async def _hanging(stage: Harness, script: type[Script], step: str) -> Run:
    """Start a switch in which a step hangs the first time that it runs."""
    hang = Hang()
    run = await stage.start(script(**{step: [hang, script.usual[step]]}))
    await hang.entered()
    return run


async def _rolled_back(stage: Harness, **fields: Any) -> Run:
    run = await stage.start(AttributionScript(), **fields)
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    return run


def _all_go_back(run: Run, steps: int) -> None:
    """Assert that every step of the rollback that has a direction has the direction BACK."""
    assert all(call.args[0] == BACK for call in run.script.calls[-steps:] if call.args)

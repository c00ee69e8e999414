"""Rollbacks of routing `restart` in which a broker writes to the target after everything was copied back."""

from __future__ import annotations

from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError

from activities.bookie_cluster import brokers
from models.bookie_cluster.input import Direction, Proof
from models.bookie_cluster.results import BrokersOn, RollbackReadiness
from models.bookie_cluster.updates import TargetLoss
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Status, Undo
from models.lifecycle.verbs import Verb
from tests.workflows.bookie_cluster.activities import (
    ANSWERS,
    BEGIN,
    BUILT,
    COPY_BACK,
    RESTART,
    STOPPED_BACK,
    TAIL,
    Script,
)
from tests.workflows.bookie_cluster.steering import window_open
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run

DENIED = ApplicationError("no right to write", type=FailureKind.DENIED, non_retryable=True)
EARLY = ApplicationError(
    "a broker was started on new too early", brokers.TOO_EARLY, type=FailureKind.CONFLICT, non_retryable=True
)
AGAIN = STOPPED_BACK[1:]
"""The steps that follow a misrouted ledger: the rollback does not ask again whether brokers can go back."""


def _misrouted(now: object) -> BrokersOn:
    started: BrokersOn = ANSWERS["start_brokers"](now)
    return started.model_copy(update={"misrouted": "ledger(s) 9"})


def _minutes(status: Status) -> float:
    """Return how long the rollback took."""
    undone = status.history[-1]
    assert undone.ended is not None
    return (undone.ended - undone.started).total_seconds() / 60


async def _rolled_back(stage: Harness, **answers: object) -> Run:
    """Give a rollback in the window, in which a broker writes to the target."""
    starts = [ANSWERS["start_brokers"], _misrouted, ANSWERS["start_brokers"]]
    run = await stage.start(Script(start_brokers=starts))
    await window_open(run)
    for step, answer in answers.items():
        run.script.say(step, answer)
    await run.signal(Verb.ROLLBACK)
    return run


async def test_the_copy_back_is_repeated(stage: Harness) -> None:
    """Brokers stop again, what the target gained since is copied back, and brokers start on the source."""
    run = await _rolled_back(stage)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert [step for step in run.script.steps if step != "census"] == [*RESTART, *COPY_BACK, *AGAIN, "release"]
    assert report.certificate["copied_back"] == BUILT.copied + 2 * TAIL.copy_summary.copied
    assert any("a broker created ledger(s) 9 in new: brokers stop again" in note for note in report.notes)
    starts = [call.args for call in run.script.calls if call.step == "start_brokers"]
    assert starts[1:] == [(Direction.BACK, Proof.FULL, Undo.COPY_BACK)] * 2


async def test_what_a_broker_wrote_to_the_target_too_early_is_copied_back(stage: Harness) -> None:
    """A broker started on the target before the switch directed it there: the rollback finds its ledger."""
    stop = Hang()
    run = await stage.start(
        Script(stop_brokers=[stop, ANSWERS["stop_brokers"]], start_brokers=[_misrouted, ANSWERS["start_brokers"]])
    )
    await stop.entered()
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    before = run.script.steps[: run.script.steps.index("start_brokers") + 1]
    assert run.script.steps[len(before) :] == [*AGAIN, "release"]
    assert report.certificate["copied_back"] == TAIL.copy_summary.copied


async def test_what_a_broker_wrote_to_the_target_during_the_copy_is_copied_back(stage: Harness) -> None:
    """A broker started on the target while the others serve: all stop, and what it wrote is copied back."""
    run = await stage.start(Script(build=EARLY))
    assert (await run.typed_failure()).type == FailureKind.CONFLICT
    assert run.script.steps == [*BEGIN, *AGAIN, "release"]
    assert (await run.status()).figures["rollback_tail"]["copied_ledgers"] == TAIL.copy_summary.copied


async def test_what_was_written_too_early_is_copied_back_although_the_stores_were_away(stage: Harness) -> None:
    """The rollback waits for stores that fail after the round which noticed the broker, also in another run."""
    away = ApplicationError("new does not answer", type=FailureKind.UNREACHABLE)
    script = Script(build=EARLY, find_early_ledgers=away, advance_ids=[DENIED, *[away] * 120, ANSWERS["advance_ids"]])
    run = await stage.start(script, history_limit=3)
    assert (await run.typed_failure()).type == FailureKind.CONFLICT
    status = await run.status()
    assert status.figures["rollback_tail"]["copied_ledgers"] == TAIL.copy_summary.copied
    assert await run.runs() > 1
    assert _minutes(status) > 15


async def test_a_broker_that_the_rollback_notices_first_is_not_overlooked(stage: Harness) -> None:
    """The operator orders the rollback before a round of the copy has noticed what a broker wrote to the target."""
    run = await stage.start(Script(build=(copy := Hang()), find_early_ledgers="ledger(s) 9"))
    await copy.entered()
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEGIN, "find_early_ledgers", *AGAIN, "release"]


async def test_a_rollback_at_the_moment_of_the_proof_copies_back(stage: Harness) -> None:
    """The operator's rollback and the round that noticed the broker come together: the copy back follows."""
    copy = Hang(late=True, failure=EARLY)
    run = await stage.start(Script(build=copy))
    await copy.entered()
    await run.signal(Verb.ROLLBACK)
    await copy.cancelled()
    copy.release()
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEGIN, *AGAIN, "release"]


async def test_a_proof_at_the_end_of_the_hold_is_kept(stage: Harness) -> None:
    """The operator cuts over while the round that noticed the broker ends: no broker is directed to the target."""
    copy = Hang(late=True, failure=EARLY)
    run = await stage.start(Script(build=[BUILT, copy, BUILT]), hold_before_cutover=True)
    await copy.entered()
    await run.signal(Verb.PROCEED)
    await copy.cancelled()
    copy.release()
    assert (await run.typed_failure()).type == FailureKind.CONFLICT
    assert run.script.stages == [*BEGIN, *AGAIN, "release"]


async def test_a_target_that_cannot_be_read_is_noted(stage: Harness) -> None:
    """A rollback before the directive names the ledgers that it has not looked for."""
    started: BrokersOn = ANSWERS["start_brokers"](datetime.now(UTC))
    unread = started.model_copy(update={"unread": "ledgers of new with ids above 5 (new does not answer)"})
    run = await stage.start(Script(stop_brokers=(stop := Hang()), start_brokers=unread))
    await stop.entered()
    await run.signal(Verb.ROLLBACK)
    notes = (await run.report()).notes
    assert any("whether a broker created ledgers of new with ids above 5 (new does not" in note for note in notes)


async def test_a_copy_back_that_fails_is_repeated_before_brokers_start(stage: Harness) -> None:
    """A repeated rollback still knows that a ledger is only in the target, also in another run of the workflow."""
    script = Script(
        start_brokers=[ANSWERS["start_brokers"], _misrouted, ANSWERS["start_brokers"]],
        copy_tail=[TAIL, TAIL, DENIED, TAIL],
        census=(hang := Hang()),
    )
    run = await stage.start(script, history_limit=3)
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-11:] == [*AGAIN[: AGAIN.index("copy_tail") + 1], *AGAIN, "release"]


async def test_a_copy_back_that_is_repeated_is_not_given_up(stage: Harness) -> None:
    """Brokers have written to the source, so that they do not stay on the target; a lost target can be given up."""
    copy = Hang()
    run = await _rolled_back(stage, copy_tail=[TAIL, copy])
    await copy.entered()
    status = await run.status()
    run.script.say("check_rollback", RollbackReadiness(target_down=("bookies of new are down: bookie-3",)))
    await run.update("rollback_without_target", TargetLoss(cluster="new"))
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert status.legal_verbs == []
    assert run.script.cancelled == ["copy_tail"]
    assert run.script.steps[-4:] == ["do_without_target", "set_target", "start_brokers", "release"]
    assert run.script.calls[-2].args == (Direction.BACK, Proof.FULL, Undo.NONE)

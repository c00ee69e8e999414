"""Rollbacks of routing `restart` in which a cluster is dead: given up, or continued without the target."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from models.bookie_cluster.input import Direction, Proof
from models.bookie_cluster.results import RollbackReadiness
from models.bookie_cluster.updates import TargetLoss
from models.lifecycle.failures import Blocker, FailureKind
from models.lifecycle.status import Outcome, Undo
from models.lifecycle.verbs import Verb
from tests.workflows.bookie_cluster.activities import (
    ANSWERS,
    BLOCKER,
    BUILT,
    COPY_BACK,
    HOLED,
    RESTART,
    AttributionScript,
    Script,
)
from tests.workflows.bookie_cluster.steering import give_up, waits_for_bookies, window_open
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.lifecycle.persons import ANA, BO, Persons
from workflows.bookie_cluster import cutover_restart

DENIED = ApplicationError("no right to write", type=FailureKind.DENIED, non_retryable=True)
GONE = RollbackReadiness(target_blockers=(Blocker(code="UNREADABLE", cause="zk-2 does not answer.", cure="start it"),))
DOWN = RollbackReadiness(target_down=("bookies of new are down: bookie-3",))
WITHOUT = "rollback_without_target"
TARGET = TargetLoss(cluster="new")
WITHOUT_TARGET = ["stop_brokers", "do_without_target", "set_target", "start_brokers"]


async def test_a_proceed_that_is_given_twice(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second `proceed`, meant for the previous gate, is refused with the reason and does not give the rollback up."""
    monkeypatch.setattr(cutover_restart, "_GATE_DELAY", timedelta(minutes=5))
    stops, copy = Hang(), Hang()
    run = await stage.start(Script())
    await window_open(run)
    run.script.say("stop_brokers", [stops, ANSWERS["stop_brokers"]])
    run.script.say("advance_ids", [copy])
    await run.signal(Verb.ROLLBACK)
    await stops.entered()
    await run.signal(Verb.PROCEED)
    await copy.entered()
    await run.signal(Verb.PROCEED)
    copy.release()
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert any("proceed refused: this gate has just closed" in note for note in report.notes)


async def test_a_source_that_is_dead_is_named_before_brokers_stop(stage: Harness) -> None:
    """A source that cannot take brokers back holds the rollback before anybody is stopped, until that is cured."""
    dead = RollbackReadiness(blockers=(BLOCKER,))
    run = await stage.start(Script(check_rollback=[dead, dead, ANSWERS["check_rollback"]]))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    steps = [step for step in run.script.steps if step != "census"]
    assert steps == [*RESTART, "check_rollback", "check_rollback", *COPY_BACK, "release"]


async def test_a_rollback_that_is_given_up(stage: Harness) -> None:
    """`proceed` leaves brokers on the target where the source is dead; they are proven there, nothing is deleted."""
    dead = RollbackReadiness(blockers=(BLOCKER,))
    run = await stage.start(Script(check_rollback=dead), cleanup="remove", cleanup_at_window_end=True)
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    status = await waits_for_bookies(run)
    assert status.legal_verbs == [Verb.PROCEED]
    assert status.waiting is not None
    assert "old cannot take brokers back: [IDS_TOO_LOW]" in status.waiting.why
    await give_up(run)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    steps = [step for step in run.script.steps if step not in ("census", "check_rollback")]
    assert steps == [*RESTART, "start_brokers", "flip_statuses", "release"]
    assert any("the rollback is given up: brokers stay on new" in note for note in report.notes)


@pytest.mark.parametrize(
    ("step", "cancelled"),
    [
        ("build", False),
        ("copy_tail", True),
        pytest.param("advance_ids", False, marks=pytest.mark.exhaustive),
        pytest.param("copy_tail", False, marks=pytest.mark.exhaustive),
        pytest.param("build", True, marks=pytest.mark.exhaustive),
        pytest.param("advance_ids", True, marks=pytest.mark.exhaustive),
    ],
)
async def test_a_source_that_dies_during_the_rollback(stage: Harness, step: str, cancelled: bool) -> None:
    """`proceed` ends a copy to a source that died during the rollback: brokers start on the target, where they stay.

    So it ends as done even if a cancellation began the rollback: brokers use the target, and nothing was undone.
    """
    hang = Hang()
    run = await stage.start(Script())
    await window_open(run)
    run.script.say(step, hang)
    await (run.handle.cancel() if cancelled else run.signal(Verb.ROLLBACK))
    await hang.entered()
    assert (await run.status()).legal_verbs == [Verb.PROCEED]
    await give_up(run)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert run.script.cancelled == [step]
    steps = [name for name in run.script.steps if name != "census"]
    begun = COPY_BACK[: COPY_BACK.index(step) + 1]
    assert steps == [*RESTART, *begun, "start_brokers", "flip_statuses", "release"]
    assert [call.args[0] for call in run.script.calls if call.step == "start_brokers"] == [Direction.FORWARD] * 2
    assert sum("the rollback is given up: brokers stay on new" in note for note in report.notes) == 1
    assert any("the switch ends as if its window had" in note for note in report.notes)
    assert not any("had been committed before" in note for note in report.notes)


async def test_a_rollback_from_misrouted_ledgers_is_given_up(stage: Harness) -> None:
    """Ledgers that a broker created in the source start the rollback; once it is given up, they start no other one."""
    dead = RollbackReadiness(blockers=(BLOCKER,))
    misrouted = ApplicationError("a broker created ledger(s) 9 in old", type=FailureKind.CONFLICT, non_retryable=True)
    run = await stage.start(Script(start_brokers=[misrouted, ANSWERS["start_brokers"]], check_rollback=dead))
    await waits_for_bookies(run)
    await give_up(run)
    assert (await run.report()).outcome is Outcome.DONE
    starts = [call.args for call in run.script.calls if call.step == "start_brokers"]
    assert starts == [(Direction.FORWARD, Proof.FULL, Undo.COPY_BACK), (Direction.FORWARD, Proof.FULL, Undo.NONE)]


async def test_a_rollback_stays_given_up(stage: Harness) -> None:
    """A rollback that was given up does not start again if the start of brokers on the target must be repeated."""
    dead = RollbackReadiness(blockers=(BLOCKER,))
    starts = [ANSWERS["start_brokers"], DENIED, ANSWERS["start_brokers"]]
    run = await stage.start(Script(check_rollback=dead, start_brokers=starts))
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    await waits_for_bookies(run)
    await give_up(run)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.steps[-4:] == ["start_brokers", "start_brokers", "flip_statuses", "release"]


# Without the target --------------------------------------------------------------------------------------------------


async def test_a_target_that_is_lost_is_given_up(stage: Harness) -> None:
    """The wait names the dead cluster; the update has brokers go back, and what refers to lost ledgers is decided on.

    Nothing is asked of the target from then on, and the certificate says what was done.
    """
    run = await stage.start(Script(check_rollback=GONE))
    await window_open(run)
    run.script.say("do_without_target", HOLED)
    await run.signal(Verb.ROLLBACK)
    waiting = (await waits_for_bookies(run)).waiting
    assert waiting is not None
    assert "new cannot be read" in waiting.why
    assert WITHOUT in waiting.action
    await run.update(WITHOUT, TARGET)
    await run.until(lambda status: Verb.PROCEED in status.legal_verbs and bool(status.failed_items))
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert report.certificate["rolled_back_without"] == "new"
    steps = [step for step in run.script.steps if step not in ("census", "check_rollback")]
    assert steps == [*RESTART, *WITHOUT_TARGET, "release"]


async def test_two_persons_give_a_target_up(stage: Harness, command: Client) -> None:
    """With `two_persons` one person asks for it, and nothing is given up before another one sends the same."""
    run = await stage.start(Script(check_rollback=GONE), two_persons=True, hold_before_cutover=True)
    # Its first round has ended: the test server cannot cancel a step that ends at that moment.
    await run.until(lambda status: status.figures.get("catch_up_rounds", 0) > BUILT.rounds)
    persons = Persons(command, run)
    await persons.steer(ANA, Verb.PROCEED)
    await persons.steer(BO, Verb.APPROVE)
    await window_open(run)
    await run.signal(Verb.ROLLBACK)
    await waits_for_bookies(run)
    assert "the sender has no name" in (await run.refusal(WITHOUT, TARGET)).message
    assert not await persons.give_up(ANA, "new")
    assert "another person must send the same" in await persons.refusal(ANA, WITHOUT, TARGET)
    assert "do_without_target" not in run.script.steps
    assert await persons.give_up(BO, "new")
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    acts = [(entry.by, entry.accepted) for entry in report.audit if entry.what == WITHOUT]
    assert acts[-3:] == [(ANA, True), (ANA, False), (BO, True)]


@pytest.mark.parametrize("step", ["build", "advance_ids", "copy_tail"])
async def test_a_target_that_dies_during_the_rollback(stage: Harness, step: str) -> None:
    """The update ends a copy that waits for the target, and the rollback continues without it."""
    hang = Hang()
    run = await stage.start(Script(check_rollback=[ANSWERS["check_rollback"], GONE, DOWN, GONE]))
    await window_open(run)
    if step != "build":
        run.script.say("check_rollback", [ANSWERS["check_rollback"], ANSWERS["check_rollback"], DOWN])
    run.script.say(step, [hang, ANSWERS[step]])
    await run.signal(Verb.ROLLBACK)
    await hang.entered()
    await run.update(WITHOUT, TARGET)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.cancelled == [step]
    steps = [name for name in run.script.steps if name not in ("census", "check_rollback")]
    begun = [name for name in COPY_BACK[: COPY_BACK.index(step) + 1] if name != "check_rollback"]
    assert steps == [*RESTART, *begun, *WITHOUT_TARGET[step != "build" :], "release"]


async def test_a_target_that_answers_is_not_given_up(stage: Harness) -> None:
    """The update is refused if the target can be read, for another cluster, and if no rollback copies anything."""
    stop = Hang()
    run = await stage.start(Script())
    await window_open(run)
    assert "nothing is copied back" in str(await run.refusal(WITHOUT, TARGET))
    run.script.say("stop_brokers", [stop, ANSWERS["stop_brokers"]])
    await run.signal(Verb.ROLLBACK)
    await stop.entered()
    assert "'old' is not the cluster that brokers leave" in str(await run.refusal(WITHOUT, TargetLoss(cluster="old")))
    assert "new can be read, and all its bookies answer" in str(await run.refusal(WITHOUT, TARGET))
    stop.release()
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert "do_without_target" not in run.script.steps


async def test_brokers_with_the_plugin_go_back_without_copies(stage: Harness) -> None:
    """With routing `attribution` nothing is copied back, so that there is nothing to give up."""
    run = await stage.start(AttributionScript())
    await window_open(run)
    assert "copies nothing" in str(await run.refusal(WITHOUT, TARGET))
    await run.handle.cancel()
    await run.failure()

"""A bookie cluster migration that holds before its cut-over: its copy is kept up to date, and who ends the hold."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from models.bookie_cluster.input import Direction
from models.bookie_cluster.phases import Phase
from models.lifecycle.failures import FailureKind
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import CutoverTime, HoldChange, Verb
from tests.workflows.bookie_cluster.activities import (
    ANSWERS,
    ATTRIBUTION,
    BEGIN,
    BEGIN_BACK,
    BUILT,
    FAILED,
    RESTART,
    AttributionScript,
    Script,
)
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from workflows.lifecycle import hold

DONE = [*RESTART, "flip_statuses", "release"]
HELD_TWICE = [*RESTART, "census", "flip_statuses", "release"]
"""With a second hold, at the end of the window."""
MUCH = BUILT.model_copy(update={"left_bytes": 900_000_000, "little": False})
ROUND = BUILT.model_copy(
    update={
        "copied": 3,
        "equal": 0,
        "already_verified": 1196,
        "entry_bytes": 1_000,
        "left_bytes": 70,
        "rounds": 2,
        "removed": 1,
    }
)

# Rounds begin to grow longer after some minutes.
_LONG = timedelta(minutes=6)


async def test_hold_before_cutover(stage: Harness) -> None:
    """A held switch copies what comes for as long as it likes; after `proceed` one last round, and brokers stop."""
    run = await _held(stage, hold_before_cutover=True)
    await stage.env.sleep(_LONG)
    status = await _after_a_round(stage, run)
    assert (status.phase, status.cutover.hold, status.deadlines) == (Phase.BUILD, True, {})
    assert status.legal_verbs == [Verb.ROLLBACK, Verb.PAUSE, Verb.PROCEED]
    assert status.waiting is not None
    assert status.waiting.ends_on == ("proceed", "hold_before_cutover", "rollback")
    assert status.figures["left_bytes"] == ROUND.left_bytes
    before = status.figures["catch_up_rounds"]
    await run.signal(Verb.PROCEED)
    report = await _end_window(run)
    assert report.outcome is Outcome.DONE
    assert run.script.stages == HELD_TWICE
    rounds = _rounds(run)
    # The first copies what is there. The others grow longer, and the last one waits for nothing.
    assert (rounds[0], rounds[1], rounds[-1]) == (0, 10, 0)
    assert max(rounds) > rounds[1]
    assert report.figures["catch_up_rounds"] >= before + ROUND.rounds
    assert report.figures["build"]["copied_ledgers"] == BUILT.copied + ROUND.copied * _answered(report.figures)
    assert report.figures["removed_copies"] == _answered(report.figures) + 1


async def test_pause_before_brokers_stop(stage: Harness) -> None:
    """A pause in BUILD lasts as long as it likes, with rounds; `resume` leads to one more, and brokers stop."""
    hang = Hang()
    run = await stage.start(Script(build=[hang, ROUND]), pause_deadline="PT1M", rollback_window="PT0S")
    await hang.entered()
    await run.signal(Verb.PAUSE)
    hang.release()
    await run.until(lambda status: _waits(status, WaitKind.PAUSE))
    await stage.env.sleep(_LONG)
    status = await _after_a_round(stage, run)
    assert (status.phase, status.legal_verbs) == (Phase.BUILD, [Verb.ROLLBACK, Verb.RESUME])
    assert run.script.stages == BEGIN
    assert status.figures["left_bytes"] == ROUND.left_bytes
    await run.signal(Verb.RESUME)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.stages == DONE
    assert _rounds(run)[-1] == 0


async def test_no_round_without_a_hold(stage: Harness) -> None:
    """A switch without a hold copies once, and continues."""
    run = await stage.start(Script(), rollback_window="PT0S")
    report = await run.report()
    assert _rounds(run) == [0]
    assert report.figures["catch_up_rounds"] == 1


async def test_no_pause_once_the_cutover_has_begun(stage: Harness) -> None:
    """Hold, time and pause are refused from the moment on at which nothing is caught up with any more."""
    stopping = Hang()
    run = await stage.start(Script(stop_brokers=stopping), rollback_window="PT0S")
    await stopping.entered()
    for name, change in {"hold_before_cutover": HoldChange(hold=True), "cutover_at": CutoverTime(at=None)}.items():
        assert (await run.refusal(name, change)).message == "the cut-over has started"
    assert Verb.PAUSE not in (await run.status()).legal_verbs
    stopping.release()
    await run.report()


async def test_cutover_at(stage: Harness) -> None:
    """Brokers stop at the configured time without an operator, right after the last round."""
    at = await stage.env.get_current_time() + timedelta(minutes=10)
    run = await _held(stage, cutover_at=at.isoformat())
    report = await run.report()
    begun = next(entry for entry in report.history if entry.phase == Phase.SWITCH).started
    assert at <= begun < at + timedelta(minutes=5)
    assert (run.script.stages, _rounds(run)[-1]) == (DONE, 0)


async def test_a_remainder_that_does_not_shrink_needs_an_order(stage: Harness) -> None:
    """If producers are as fast as the copy, brokers are not stopped without an order that knows how much is left."""
    run = await stage.start(Script(build=MUCH), rollback_window="PT0S")
    status = await run.until(lambda status: _waits(status, WaitKind.DECISION))
    assert (status.phase, "stop_brokers" in run.script.steps) == (Phase.BUILD, False)
    assert Verb.ROLLBACK in status.legal_verbs
    await stage.env.sleep(_LONG)
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert any("what is left to copy without brokers does not shrink: 900" in note for note in report.notes)
    assert report.figures["left_bytes"] == MUCH.left_bytes
    # What changed during the decision is copied before brokers stop.
    assert _rounds(run) == [0, 0]


@pytest.mark.parametrize("paused", [False, True])
async def test_the_cutover_is_held_during_the_decision_on_the_rest(stage: Harness, *, paused: bool) -> None:
    """While an operator decides on what is left, the cut-over can be held and paused; the decision counts after it."""
    run = await stage.start(Script(build=MUCH), rollback_window="PT0S")
    status = await run.until(lambda status: _waits(status, WaitKind.DECISION))
    assert (status.cutover.begun, Verb.PAUSE in status.legal_verbs) == (False, True)
    if paused:
        await run.signal(Verb.PAUSE)
    else:
        await run.update("hold_before_cutover", HoldChange(hold=True))
    await run.signal(Verb.PROCEED)
    kind = WaitKind.PAUSE if paused else WaitKind.HOLD
    # The test server cannot cancel a round that ends at that moment.
    await run.until(lambda status: _waits(status, kind) and status.figures["catch_up_rounds"] > MUCH.rounds)
    assert run.script.stages == BEGIN
    await run.signal(Verb.RESUME if paused else Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE
    assert (run.script.stages, _rounds(run)[-1]) == (DONE, 0)


async def test_a_decision_on_the_rest_outlives_a_run(server: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that is held after the decision, and continues as a new run, does not ask again."""
    monkeypatch.setattr(hold, "_SHORTEST_ROUND", timedelta(milliseconds=300))
    run = await server.start(Script(build=MUCH), history_limit=40, rollback_window="PT0S")
    await run.until(lambda status: _waits(status, WaitKind.DECISION))
    await run.update("hold_before_cutover", HoldChange(hold=True))
    await run.signal(Verb.PROCEED)
    await run.until_runs(2)
    await run.until(lambda status: _waits(status, WaitKind.HOLD))
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


async def test_one_order_is_enough(stage: Harness) -> None:
    """An operator who cuts over from the hold has seen how much is left, and is not asked again."""
    run = await stage.start(Script(build=MUCH), rollback_window="PT0S", hold_before_cutover=True)
    status = await run.until(_has_caught_up)
    assert any("does not shrink" in note for note in status.notes)
    await run.signal(Verb.PROCEED)
    assert (await _end_window(run)).outcome is Outcome.DONE


async def test_a_decision_is_followed_by_a_round(stage: Harness) -> None:
    """Changes during the decision about ledgers that cannot be copied are copied before brokers stop."""
    run = await stage.start(Script(build=[FAILED, ROUND]), rollback_window="PT0S")
    await run.until(lambda status: _waits(status, WaitKind.DECISION))
    await stage.env.sleep(_LONG)
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.stages == DONE
    assert _rounds(run) == [0, 0]


async def test_ledgers_that_fail_while_held(stage: Harness) -> None:
    """Ledgers that cannot be copied any more are named while the switch is held, and decided on after the hold."""
    run = await _held(stage, build=[BUILT, FAILED], hold_before_cutover=True)
    await run.until(lambda status: bool(status.failed_items))
    await run.signal(Verb.PROCEED)
    status = await run.until(lambda status: _waits(status, WaitKind.DECISION))
    assert (status.phase, "stop_brokers" in run.script.steps) == (Phase.BUILD, False)
    # The operator who decides can hold the cut-over again.
    await run.update("hold_before_cutover", HoldChange(hold=True))
    await run.signal(Verb.PROCEED)
    rounds = status.figures["catch_up_rounds"]
    # The round after the decision, and one of the hold.
    await run.until(lambda now: _waits(now, WaitKind.HOLD) and now.figures["catch_up_rounds"] > rounds + 1)
    await run.signal(Verb.PROCEED)
    assert (await _end_window(run)).outcome is Outcome.DONE
    assert run.script.stages == HELD_TWICE


async def test_hold_over_runs(server: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A held switch continues as new runs, keeps its instructions, and copies everything only once."""
    monkeypatch.setattr(hold, "_SHORTEST_ROUND", timedelta(milliseconds=300))
    script = Script(build=[ANSWERS["build"], ROUND])
    run = await server.start(script, history_limit=40, rollback_window="PT0S", hold_before_cutover=True)
    await run.until_runs(3)
    status = await run.until(lambda status: _waits(status, WaitKind.HOLD))
    assert (status.phase, status.cutover.hold) == (Phase.BUILD, True)
    assert status.figures["build"]["copied_ledgers"] < 2 * BUILT.copied
    await run.signal(Verb.PROCEED)
    report = await _end_window(run)
    assert report.outcome is Outcome.DONE
    assert (run.script.stages, _rounds(run).count(0)) == (HELD_TWICE, 2)


@pytest.mark.parametrize("broken", [False, True])
async def test_held_switch_is_rolled_back(stage: Harness, broken: bool) -> None:
    """A rollback, and a round that fails for good, lead out of the hold; the copies stay for the next start."""
    if broken:
        conflict = ApplicationError("others write there", type=FailureKind.CONFLICT, non_retryable=True)
        run = await stage.start(Script(build=[BUILT, conflict]), hold_before_cutover=True)
        assert (await run.typed_failure()).type == FailureKind.CONFLICT
    else:
        run = await _held(stage, hold_before_cutover=True)
        await run.signal(Verb.ROLLBACK)
        assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.stages == [*BEGIN, *BEGIN_BACK]


async def test_attribution_is_held_too(stage: Harness) -> None:
    """With routing `attribution` writes are directed after the hold, and what is promoted is copied until then."""
    run = await stage.start(AttributionScript(), rollback_window="PT0S", hold_before_cutover=True)
    await run.until(_has_caught_up)
    await run.signal(Verb.PROCEED)
    assert (await _end_window(run)).outcome is Outcome.DONE
    assert run.script.stages == [*ATTRIBUTION, *HELD_TWICE[-3:]]


async def _end_window(run: Run) -> Report:
    """Order the commit at the end of the window, which its time alone does not end; return the report."""
    await run.until(lambda status: status.phase == Phase.ROLLBACK_WINDOW and _waits(status, WaitKind.HOLD))
    status = await run.status()
    assert set(status.legal_verbs) == {Verb.ROLLBACK, Verb.CLEANUP, Verb.PROCEED}
    await run.signal(Verb.PROCEED)
    return await run.report()


def _rounds(run: Run) -> list[float]:
    """Return how long each call of BUILD was to continue."""
    return [call.args[1] for call in run.script.calls if call.step == "build" and call.args[0] == Direction.FORWARD]


def _answered(figures: dict[str, Any]) -> int:
    """Return how many rounds of a hold were not cancelled, the last one included."""
    return (figures["catch_up_rounds"] - BUILT.rounds) // ROUND.rounds


def _waits(status: Status, kind: WaitKind) -> bool:
    return status.waiting is not None and status.waiting.kind is kind


async def _held(stage: Harness, *, build: Any = None, **fields: Any) -> Run:
    """Start a switch that holds before its cut-over, with one round done."""
    script = Script(build=build or [ANSWERS["build"], ROUND])
    run = await stage.start(script, rollback_window="PT0S", **fields)
    await run.until(_has_caught_up)
    return run


async def _after_a_round(stage: Harness, run: Run) -> Status:
    """Wait, while time passes, until a round has just ended: the test server cannot cancel a timer that ends then."""
    rounds = len(_rounds(run))
    while len(_rounds(run)) == rounds:
        await stage.env.sleep(timedelta(seconds=1))
    return await run.until(
        lambda status: status.figures["catch_up_rounds"] == BUILT.rounds + ROUND.rounds * (len(_rounds(run)) - 1)
    )


def _has_caught_up(status: Status) -> bool:
    """Return whether a round of the hold has ended: the test server cannot cancel a step that ends at that moment."""
    return _waits(status, WaitKind.HOLD) and status.figures.get("catch_up_rounds", 0) > BUILT.rounds

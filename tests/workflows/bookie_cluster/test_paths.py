"""The bookie cluster migration from its start to its report."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError

from models.bookie_cluster.input import Direction
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import LedgersDeleted, Registration
from models.bookie_cluster.updates import CleanupOrder
from models.lifecycle.failures import FailedItem, FailedItems, FailureKind
from models.lifecycle.names import SEARCH_ATTRIBUTES
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from tests.workflows.bookie_cluster.activities import (
    ATTRIBUTION,
    BEGIN,
    BEGIN_BACK,
    BLOCKED,
    BUILT,
    CONTESTED,
    FAILED,
    HOLED,
    LOST,
    MISSING,
    NOT_COPIED,
    NOT_PROMOTED,
    PLAN,
    PROMOTED,
    RESTART,
    SAFE,
    TARGETS,
    TOO_LOW,
    AttributionScript,
    Script,
)
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, until_at_rest

FORWARD = Direction.FORWARD
COMMITTED = Registration(added=(), epoch=7, committed=True)
CONFLICT = ApplicationError("another client wrote there", type=FailureKind.CONFLICT, non_retryable=True)


@pytest.mark.parametrize("blocked", [False, True])
async def test_dry_run(stage: Harness, blocked: bool) -> None:
    """A dry run only looks: it registers nothing, and gives the steps, or the blockers with their cures."""
    run = await stage.start(Script(precheck=BLOCKED) if blocked else Script(), dry_run=True)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.PLANNED, ["precheck"])
    assert [note.partition("Z ")[2] for note in report.notes][:2] == [
        "warning: a ledger has one replica only",
        "step 1: register both clusters",
    ]
    assert report.figures["blockers"] == int(blocked)
    assert report.summary == (
        'not ready: [IDS_TOO_LOW] new ids would collide. Cure: set "advance_ids"'
        if blocked
        else "ready: about 12 s of copying 1,200 ledgers next to the traffic, then about 3 s between the brokers' stop "
        "and start (a probe wrote 5.7 MB/s just now)"
    )


async def test_blockers(stage: Harness) -> None:
    """Blockers end the switch before anything is copied, and its own nodes leave the registry."""
    run = await stage.start(Script(precheck=BLOCKED))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert failure.message == '1 blocker(s):\n1. [IDS_TOO_LOW] new ids would collide. Cure: set "advance_ids"'
    assert run.script.steps == ["register", "precheck", "release"]


@pytest.mark.parametrize("scripted", [Script, AttributionScript])
async def test_resumed_after_the_commit(stage: Harness, scripted: type[Script]) -> None:
    """A new start after a termination after the commit directs no broker again, and can still be rolled back."""
    script = scripted(register=COMMITTED)
    run = await stage.start(script)
    await run.until(lambda status: status.phase == Phase.ROLLBACK_WINDOW)
    assert "set_target" not in script.steps
    assert ("build" in script.steps) == (scripted is AttributionScript), "PROMOTE builds what came since"
    # The time-skipping server loses a workflow task that cancels an activity which has ended by then.
    await until_at_rest(run.handle)
    await run.signal(Verb.ROLLBACK)
    if scripted is AttributionScript:
        await run.until(lambda status: status.phase == Phase.ROLLED_BACK and "window" in status.deadlines)
        await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert "set_target" in script.steps


async def test_resumed_and_blocked(stage: Harness) -> None:
    """A blocked resumed switch keeps its nodes in the registry, so that the next start knows of the commit."""
    run = await stage.start(Script(register=COMMITTED, precheck=BLOCKED))
    assert (await run.typed_failure()).type == FailureKind.PRECHECK_FAILED
    assert run.script.steps == ["register", "precheck"]


async def test_resumed_in_the_cleanup(stage: Harness) -> None:
    """A switch resumed in CLEANUP cannot be rolled back; it deletes what the input orders and releases the claim."""
    cleaning = COMMITTED.model_copy(update={"flipped": True})
    run = await stage.start(Script(register=cleaning), cleanup="remove", cleanup_at_window_end=True)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert phases(report) == ["REGISTER", "CLEANUP"]
    assert run.script.steps == ["register", "flip_statuses", "list_targets", "delete_ledgers", "release"]
    assert any("a previous run was terminated in CLEANUP" in note for note in report.notes)


async def test_restart(stage: Harness) -> None:
    """With routing `restart` the steps come in the proposal's order; figures and certificate say what was proven."""
    run = await stage.start(Script(), rollback_window="PT1H")
    report = await run.report()
    steps = [step for step in run.script.steps if step != "census"]
    assert steps == [*RESTART, "flip_statuses", "release"]
    assert phases(report) == ["REGISTER", "PRECHECK", "BUILD", "SWITCH", "PROMOTE", "ROLLBACK_WINDOW", "CLEANUP"]
    assert report.outcome is Outcome.DONE
    window = report.history[-2]
    assert 3600 <= window.seconds(window.started) < 3660
    # The doubled steps say 40 s and 150 s after their own begin.
    assert 40 <= report.figures["pause_seconds"] < 60
    assert 150 <= report.figures["brokers_away_seconds"] < 190
    assert report.certificate["compared_entries_in_build"] == 34_200
    assert (report.certificate["ledgers_compared"], report.certificate["references_missing"]) == (1200, 0)
    assert report.certificate["brokers_on_the_target"] == ["broker-1: created ledger 4294967296"]
    assert report.notes[-1].endswith("Z the ledgers of old were left as they are")


async def test_attribution(stage: Harness) -> None:
    """With routing `attribution` no broker stops; what came after BUILD is built before it is promoted."""
    run = await stage.start(AttributionScript(), rollback_window="PT0S")
    report = await run.report()
    assert run.script.steps == [*ATTRIBUTION, "flip_statuses", "release"]
    assert report.outcome is Outcome.DONE
    assert report.figures["promoted_schemas"] == 100
    assert report.figures["promoted_via_rollover_fallback"] == 2
    assert (await run.status()).facts["deferred"] == ["t/sub: its ledger 8 is open"]


async def test_search_attributes(stage: Harness) -> None:
    """Kind, phase and target are search attributes; the target is the new cluster's name."""
    run = await stage.start(Script(), rollback_window="PT0S")
    await run.report()
    attributes = (await run.handle.describe()).typed_search_attributes
    values = [attributes[SearchAttributeKey.for_keyword(name)] for name in SEARCH_ATTRIBUTES]
    assert values == ["bookie-cluster", "CLEANUP", "new"]


async def test_steps_know_their_direction(stage: Harness) -> None:
    """Every step that has a direction goes forward on the way forward."""
    run = await stage.start(Script(), rollback_window="PT0S", advance_ids=True)
    await run.report()
    args = {call.step: call.args for call in run.script.calls}
    moving = ("advance_ids", "build", "stop_brokers", "check_ids", "copy_tail", "set_target", "start_brokers")
    assert all(args[step][0] == FORWARD for step in moving)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"routng": "restart"}, "routng: there is no such field"),
        ({"target": PLAN["source"]}, "source and target have the same name"),
        ({"pause_deadline": "soon"}, "pause_deadline: invalid duration 'soon'"),
    ],
)
async def test_wrong_input(stage: Harness, wrong: dict[str, Any], named: str) -> None:
    """A plan that does not fit fails the workflow at once, and the failure names the fault."""
    failure = await (await stage.start(Script(), **wrong)).typed_failure()
    assert failure.type == FailureKind.INVALID_INPUT
    assert named in failure.message


# Ids (invariant I11) ------------------------------------------------------------------------------------------------


async def test_ids_are_advanced_first(stage: Harness) -> None:
    """With `advance_ids` the target's generator is lifted before anything is copied."""
    run = await stage.start(Script(), rollback_window="PT0S", advance_ids=True)
    report = await run.report()
    assert run.script.steps[:4] == ["register", "precheck", "advance_ids", "build"]
    assert any("the next ledger of new gets the id 4,294,967,296" in note for note in report.notes)


@pytest.mark.parametrize("script", [Script, AttributionScript])
async def test_low_ids_at_the_switch(stage: Harness, script: type[Script]) -> None:
    """Ids that fell behind during BUILD stop the switch before brokers are directed; the failure names the cure."""
    run = await stage.start(script(check_ids=[TOO_LOW, SAFE]))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert "the id 21, which is not above the highest in use, 1,300" in failure.message
    assert failure.message.endswith("create /ledgersB/idgen-long/HOB-0000000001")
    assert not {"copy_tail", "set_target", "promote"} & set(run.script.steps)
    assert run.script.steps[-2:] == (["start_brokers", "release"] if script is Script else ["remove_copies", "release"])


async def test_low_ids_are_raised_again(stage: Harness) -> None:
    """Ids that fell behind are lifted again where the plan allows it, and the switch continues."""
    run = await stage.start(Script(check_ids=TOO_LOW), rollback_window="PT0S", advance_ids=True)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.steps[3:7] == ["build", "stop_brokers", "check_ids", "advance_ids"]


async def test_ids_that_cannot_be_lifted(stage: Harness) -> None:
    """A generator whose next id stays too low although it was raised stops the switch."""
    run = await stage.start(Script(advance_ids=TOO_LOW), advance_ids=True)
    assert (await run.typed_failure()).type == FailureKind.PRECHECK_FAILED
    assert run.script.steps == ["register", "precheck", "advance_ids", *BEGIN_BACK]


async def test_ids_unchecked_in_a_laboratory(stage: Harness) -> None:
    """`skip_idgen_precheck` leaves the check out, and status says so in red from the precheck to the end."""
    hang = Hang()
    run = await stage.start(Script(copy_tail=hang), rollback_window="PT0S", skip_idgen_precheck=True)
    await hang.entered()
    status = await run.status()
    assert status.alarms == ["LAB ONLY: ids are not checked; messages can be lost"]
    assert status.facts["ids_checked"] is False
    hang.release()
    report = await run.report()
    assert "check_ids" not in run.script.steps
    assert any("🔴 LAB ONLY" in note for note in report.notes)


# Ledgers that fail --------------------------------------------------------------------------------------------------


async def test_failed_ledgers_wait_for_a_decision(stage: Harness) -> None:
    """BUILD waits for a decision on ledgers that cannot be copied; after `proceed` the report names them."""
    other = FailedItem(ledger_id=77, path="/managed-ledgers/u", reason="its data ledger is not in new")
    lost = FailedItems.of(MISSING, [*LOST.items, other])
    holed = HOLED.model_copy(update={"missing": lost})
    run = await stage.start(Script(build=FAILED, copy_tail=holed), rollback_window="PT0S")
    status = await run.until(lambda status: status.waiting is not None)
    assert status.waiting is not None
    assert status.phase == Phase.BUILD
    assert status.waiting.kind is WaitKind.DECISION
    assert "2 ledger(s) cannot be copied" in status.waiting.why
    assert status.waiting.action == (
        "decide: proceed continues without these ledgers: brokers on the target will not find them, "
        "rollback undoes the migration"
    )
    assert status.waiting.ends_on == ("proceed", "rollback")
    assert status.legal_verbs == [Verb.ROLLBACK, Verb.PAUSE, Verb.PROCEED]
    assert "stop_brokers" not in run.script.steps
    await run.signal(Verb.PROCEED)
    # Nothing was said of the ledger 77 before.
    status = await run.until(lambda status: status.phase == Phase.SWITCH and status.waiting is not None)
    assert status.waiting is not None
    assert status.waiting.kind is WaitKind.DECISION
    assert all(item in status.waiting.why for item in lost.lines())
    assert status.waiting.until == status.deadlines["longest pause"]
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.failed_items == [FAILED.failed, lost]


async def test_failures_that_are_known_are_not_asked_again(stage: Harness) -> None:
    """Ledgers for which the operator has decided in BUILD do not hold the pause, nor do positions in them."""
    named = [FailedItem(ledger_id=7, reason="timed out"), FailedItem(ledger_id=9, reason="differs")]
    again = FAILED.model_copy(update={"failed": FailedItems.of(NOT_COPIED, named)})
    script = Script(build=FAILED, copy_tail=HOLED.model_copy(update={"copy_summary": again}))
    run = await stage.start(script, rollback_window="PT0S")
    await run.until(lambda status: status.waiting is not None)
    await run.signal(Verb.PROCEED)
    assert (await run.report()).failed_items == [again.failed, LOST]


async def test_failures_that_heal(stage: Harness) -> None:
    """A ledger that could be copied in the pause is not a failure any more."""
    run = await stage.start(Script(build=FAILED), rollback_window="PT0S")
    await run.until(lambda status: status.waiting is not None)
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert (report.outcome, report.failed_items) == (Outcome.DONE, [])


async def test_rollback_instead_of_proceed(stage: Harness) -> None:
    """A rollback at the decision ends the switch; the copies stay."""
    run = await stage.start(Script(build=FAILED))
    await run.until(lambda status: status.waiting is not None)
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert (report.outcome, report.failed_items) == (Outcome.ROLLED_BACK, [])
    assert run.script.steps == [*BEGIN, *BEGIN_BACK]


async def test_many_failures_are_counted(stage: Harness) -> None:
    """Items that are not named are counted."""
    ledgers = [FailedItem(ledger_id=number, reason="differs") for number in range(1, 1_103)]
    many = FAILED.model_copy(update={"failed": FailedItems.of(NOT_COPIED, ledgers, listed_in="/progress/failed")})
    run = await stage.start(Script(build=many), rollback_window="PT0S")
    status = await run.until(lambda status: status.waiting is not None)
    (failed,) = status.failed_items
    assert failed.lines()[-1] == "1,002 more ledger(s) cannot be copied, listed in /progress/failed"
    await run.signal(Verb.ROLLBACK)
    await run.report()


async def test_attribution_needs_no_decision(stage: Harness) -> None:
    """With routing `attribution` what cannot be copied or promoted stays readable, and is named in the report."""
    failed = FailedItems.of(NOT_PROMOTED, [FailedItem(path="schema 7", reason="not copied")])
    promotion = PROMOTED.model_copy(update={"failed": failed})
    run = await stage.start(AttributionScript(build=[BUILT, FAILED], promote=promotion), rollback_window="PT0S")
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.failed_items == [FAILED.failed, failed]


async def test_contested_positions_are_tried_again(stage: Harness) -> None:
    """Positions that other clients change during a round are repeated in the next round."""
    run = await stage.start(AttributionScript(promote=[CONTESTED, CONTESTED, PROMOTED]), rollback_window="PT0S")
    report = await run.report()
    assert run.script.steps.count("promote") == 3
    assert not any("contested" in note for note in report.notes)


async def test_positions_that_stay_contested(stage: Harness) -> None:
    """After five rounds contested positions are reported; they are not failures (PIP-477, "Failure Handling")."""
    run = await stage.start(AttributionScript(promote=CONTESTED), rollback_window="PT0S")
    report = await run.report()
    assert run.script.steps.count("promote") == 5
    assert report.outcome is Outcome.DONE
    assert any("3 references are contested and stay as they are" in note for note in report.notes)


# Cleanup ------------------------------------------------------------------------------------------------------------


async def test_cleanup_at_the_windows_end(stage: Harness) -> None:
    """Statuses flip first, and then ledgers are deleted in bounded steps until none is left."""
    parts = [LedgersDeleted(deleted=500, remaining=600), LedgersDeleted(deleted=600, remaining=0)]
    script = Script(delete_ledgers=parts)
    run = await stage.start(script, rollback_window="PT0S", cleanup="remove", cleanup_at_window_end=True)
    report = await run.report()
    tail = ["flip_statuses", "list_targets", "delete_ledgers", "delete_ledgers", "release"]
    assert script.steps == [*RESTART, *tail]
    assert report.figures["deleted_from_source"] == 1100
    assert script.calls[-2].args == (CleanupOrder(src_cluster="old"),)


async def test_no_more_deletions_than_allowed(stage: Harness) -> None:
    """`max_deletions` bounds all steps of the cleanup together."""
    parts = [LedgersDeleted(deleted=500, remaining=600), LedgersDeleted(deleted=200, remaining=400)]
    script = Script(delete_ledgers=parts)
    fields: dict[str, Any] = {"cleanup": "remove", "cleanup_at_window_end": True, "max_deletions": 700}
    report = await (await stage.start(script, rollback_window="PT0S", **fields)).report()
    given = [call.args[0].max_deletions for call in script.calls if call.step == "delete_ledgers"]
    assert given == [700, 200]
    assert report.figures["deleted_from_source"] == 700
    assert report.notes[-1].endswith("400 ledgers of old that could be deleted are still there")


async def test_a_part_that_was_repeated(stage: Harness) -> None:
    """It counts also what its lost attempt may not have deleted; the figure never says more than there was."""
    parts = [LedgersDeleted(deleted=1000, remaining=600), LedgersDeleted(deleted=600, remaining=0)]
    script = Script(delete_ledgers=parts)
    run = await stage.start(script, rollback_window="PT0S", cleanup="remove", cleanup_at_window_end=True)
    report = await run.report()
    assert script.steps.count("delete_ledgers") == 2
    assert report.figures["deleted_from_source"] == 1100
    assert not any("could be deleted" in note for note in report.notes)


async def test_cleanup_without_progress_ends(stage: Harness) -> None:
    """A step that deletes nothing ends the cleanup, though some are left."""
    script = Script(delete_ledgers=LedgersDeleted(deleted=0, remaining=1100))
    run = await stage.start(script, rollback_window="PT0S", cleanup="remove", cleanup_at_window_end=True)
    report = await run.report()
    assert script.steps.count("delete_ledgers") == 1
    assert report.notes[-1].endswith("1,100 ledgers of old that could be deleted are still there")


@pytest.mark.parametrize("step", ["flip_statuses", "list_targets", "delete_ledgers"])
async def test_cleanup_that_fails(stage: Harness, step: str) -> None:
    """A cleanup that fails does not undo the switch: it ends with failures, and its own nodes leave the registry."""
    script = Script(**{step: CONFLICT})
    run = await stage.start(script, rollback_window="PT0S", cleanup="remove", cleanup_at_window_end=True)
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert [items.lines() for items in report.failed_items] == [["cleanup: Conflict: another client wrote there"]]
    assert script.steps[-2:] == [step, "release"]


async def test_nothing_to_delete(stage: Harness) -> None:
    """Nothing is deleted if the list is empty."""
    script = Script(list_targets=TARGETS.model_copy(update={"ledgers": 0}))
    run = await stage.start(script, rollback_window="PT0S", cleanup="remove", cleanup_at_window_end=True)
    assert (await run.report()).outcome is Outcome.DONE
    assert script.steps[-2:] == ["list_targets", "release"]


def phases(report: Report) -> list[str]:
    """Return the phases that a switch went through."""
    return [entry.phase for entry in report.history]

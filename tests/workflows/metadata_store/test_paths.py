"""The metadata store migration from its start to its report, without trouble."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey

from activities.lifecycle.precheck import Findings
from activities.pulsar.fingerprint import check_receipt
from models.lifecycle.auto_throttle import AutoThrottle
from models.lifecycle.failures import Blocker, FailureKind
from models.lifecycle.names import SEARCH_ATTRIBUTES
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.results import ChangeCopy
from tests.workflows.lifecycle.doubles import OWN_QUEUE, Hang
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.metadata_store.activities import COPIED, LIVE, OFFLINE, PLAN, READY, SURVEY, Script

BLOCKERS = (
    Blocker(code="TARGET_NOT_EMPTY", cause="the target holds records.", cure="empty it"),
    Blocker(code="FLAG_HELD", cause="another migration runs.", cure="wait"),
)


async def test_dry_run_gives_the_plan(stage: Harness) -> None:
    """A dry run ends after the precheck, planned, and says how long copying and blocking would take."""
    run = await stage.start(dry_run=True)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.PLANNED, ["precheck"])
    assert report.summary == (
        "ready: about 4 s of copying next to the traffic, then about 2 s with metadata writes blocked "
        "(the source was read in 1.0 s just now)"
    )
    assert report.notes[0].endswith("Z warning: the target is not empty")


async def test_a_plan_without_blockers_has_a_receipt(stage: Harness) -> None:
    """The receipt of a dry run has the input and the facts, and starts a migration of the same input only."""
    facts = {"pulsar-migrate": "0.2.0", "broker b-1": "Pulsar 5.0.1"}
    ready = READY.model_copy(update={"fingerprint": facts})
    plan = await (await stage.start(Script(precheck=ready), dry_run=True)).report()
    assert plan.receipt is not None
    assert (plan.receipt.facts, plan.receipt.kind) == (facts, "metadata-store")
    assert plan.receipt.counts["survey.records"] == SURVEY.records
    assert plan.receipt.input == {"cluster": plan.cluster, **PLAN}
    receipt = plan.receipt.model_dump(mode="json")
    assert (await (await stage.start(cluster=plan.cluster, receipt=receipt)).report()).outcome is Outcome.DONE
    failure = await (await stage.start(cluster=plan.cluster, receipt=receipt, concurrency=4)).typed_failure()
    assert failure.type == FailureKind.INVALID_INPUT
    assert "the input differs from the receipt: concurrency: 16 → 4; plan again" in failure.message


async def test_a_start_with_a_receipt_can_be_throttled(stage: Harness) -> None:
    """A throttle that is set later is not compared with the plan."""
    ready = READY.model_copy(update={"fingerprint": {"broker b-1": "Pulsar 5.0.1"}})
    plan = await (await stage.start(Script(precheck=ready), dry_run=True)).report()
    assert plan.receipt is not None
    hang, receipt = Hang(), plan.receipt.model_dump(mode="json")
    run = await stage.start(Script(precheck=ready, pre_copy=hang), cluster=plan.cluster, receipt=receipt)
    await hang.entered()
    throttle = AutoThrottle(http="http://127.0.0.1:9/may-copy")
    assert AutoThrottle.model_validate(await run.update("set_auto_throttle", throttle)) == throttle
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


async def test_a_plan_with_blockers_has_no_receipt(stage: Harness) -> None:
    """A plan that is not ready binds no start."""
    blocked = READY.model_copy(update={"blockers": BLOCKERS, "fingerprint": {"broker b-1": "Pulsar 5.0.1"}})
    assert (await (await stage.start(Script(precheck=blocked), dry_run=True)).report()).receipt is None


async def test_drift_ends_the_start_before_anything_is_written(stage: Harness) -> None:
    """Facts that differ from the receipt end the workflow as `PrecheckFailed`, with each difference."""
    findings, seen = Findings(), {"broker b-1": "Pulsar 5.0.2"}
    ready = READY.model_copy(update={"fingerprint": {"broker b-1": "Pulsar 5.0.1"}})
    plan = await (await stage.start(Script(precheck=ready), dry_run=True)).report()
    assert plan.receipt is not None
    receipt = plan.receipt.model_dump(mode="json")
    input = MetadataStoreInput.model_validate({**plan.receipt.input, "receipt": receipt})
    check_receipt(findings, input, seen)
    drifted = ready.model_copy(update={"blockers": (*findings.blockers,)})
    run = await stage.start(Script(precheck=drifted), cluster=plan.cluster, receipt=receipt)
    failure = await run.typed_failure()
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert "[RECEIPT_DRIFT] 1 facts differ from the receipt of " in failure.message
    assert "broker b-1: Pulsar 5.0.1 → Pulsar 5.0.2" in failure.message
    assert run.script.steps == ["precheck"]


async def test_dry_run_names_blockers(stage: Harness) -> None:
    """A dry run with blockers is a plan too, which names each of them with its cure."""
    run = await stage.start(Script(precheck=READY.model_copy(update={"blockers": BLOCKERS})), dry_run=True)
    report = await run.report()
    assert report.outcome is Outcome.PLANNED
    assert report.summary == (
        "not ready: [TARGET_NOT_EMPTY] the target holds records. Cure: empty it; "
        "[FLAG_HELD] another migration runs. Cure: wait"
    )


async def test_blockers_fail_the_migration(stage: Harness) -> None:
    """Blockers end a migration before anything is written; the failure lists all of them."""
    run = await stage.start(Script(precheck=READY.model_copy(update={"blockers": BLOCKERS})))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert failure.message == (
        "2 blocker(s):\n1. [TARGET_NOT_EMPTY] the target holds records. Cure: empty it\n"
        "2. [FLAG_HELD] another migration runs. Cure: wait"
    )
    assert run.script.steps == ["precheck"]


async def test_live_path(stage: Harness) -> None:
    """A live migration takes the proposal's phases in order, waits a day, and leaves the source as it is."""
    run = await stage.start()
    report = await run.report()
    assert run.script.steps[:6] == LIVE
    assert set(run.script.steps[6:]) == {"census"}
    assert report.outcome is Outcome.DONE
    assert phases(report) == [
        "PRECHECK",
        "PRE_COPY",
        "CATCH_UP",
        "PREPARATION",
        "COPYING",
        "VERIFY",
        "COMPLETED",
        "VALIDATION",
    ]
    assert all(entry.outcome is Outcome.DONE and entry.ended for entry in report.history)
    window = report.history[-1]
    assert 86_400 <= window.seconds(window.started) < 86_460
    assert report.figures["blocked_seconds"] == 1.75
    assert report.certificate["differences"] == 0
    assert (report.certificate["caught_up"], report.certificate["repaired"]) == (1, 2)
    assert report.notes[-1].endswith("Z the source zk:zk-1:2181/pulsar was left as it is")


async def test_steps_get_what_earlier_ones_found(stage: Harness) -> None:
    """The copy knows how many records to expect, and the steps while writes are blocked get the copy's result."""
    run = await stage.start(validation_window="PT0S")
    await run.report()
    args = {call.step: call.args for call in run.script.calls}
    assert args["pre_copy"] == (12,)
    assert args["copy_changes"] == (COPIED,)
    assert args["verify"] == (COPIED,)
    assert args["complete"] == (COPIED,)


async def test_blocked_steps_run_where_the_source_is_watched(stage: Harness) -> None:
    """From preparation to commit all steps go to the worker that watches; others to any."""
    run = await stage.start(validation_window="PT0S")
    await run.report()
    own = [call.step for call in run.script.calls if call.queue == OWN_QUEUE]
    assert own == ["prepare", "copy_changes", "verify", "complete", "follow", "forget_watch"]


async def test_lost_worker_is_replaced(stage: Harness) -> None:
    """A queue without a worker costs its seconds once: any other worker takes this step and the next ones."""
    gone = COPIED.model_copy(update={"worker_queue": "pulsar-migrate@gone"})
    run = await stage.start(Script(pre_copy=gone), validation_window="PT0S")
    report = await run.report()
    assert {call.queue for call in run.script.calls} == {"pulsar-migrate"}
    assert run.script.steps == LIVE
    assert sum("the worker that watches the source, or Temporal, was away" in note for note in report.notes) == 1


async def test_lost_watch_is_reported(stage: Harness) -> None:
    """A change copy that scanned says why in the notes, and the figures say by what it knew the changes."""
    changes = ChangeCopy(by="scan", gap="the watch's session expired", changed=4, written=3, deleted=1, seconds=2.0)
    run = await stage.start(Script(copy_changes=changes), validation_window="PT0S")
    report = await run.report()
    assert any("scanned by transaction ids: the watch's session expired" in note for note in report.notes)
    assert report.figures["changes_known_by"] == "scan"


async def test_offline_path(stage: Harness) -> None:
    """An offline migration copies once, verifies and completes; it has no preparation."""
    run = await stage.start(mode="offline", validation_window="PT0S")
    report = await run.report()
    assert run.script.steps == OFFLINE
    assert phases(report) == ["PRECHECK", "COPYING", "VERIFY", "COMPLETED", "VALIDATION"]
    assert report.outcome is Outcome.DONE


async def test_search_attributes(stage: Harness) -> None:
    """Kind, phase and target of a migration are search attributes."""
    run = await stage.start(validation_window="PT0S")
    await run.report()
    attributes = (await run.handle.describe()).typed_search_attributes
    values = [attributes[SearchAttributeKey.for_keyword(name)] for name in SEARCH_ATTRIBUTES]
    assert values == ["metadata-store", "VALIDATION", PLAN["target"]]


async def test_transient_failures_are_retried(stage: Harness) -> None:
    """A step that fails for the moment is tried again."""
    run = await stage.start(Script(pre_copy=[ConnectionError("no route"), COPIED]), validation_window="PT0S")
    await run.report()
    assert run.script.steps[:4] == ["precheck", "pre_copy", "pre_copy", "prepare"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"blocked_deadlin": "PT1M"}, "blocked_deadlin: there is no such field"),
        ({"blocked_deadline": "soon"}, "blocked_deadline: invalid duration 'soon'; write 90s, 30m, 24h, 2d or PT24H"),
        ({"blocked_deadline": 300}, "blocked_deadline: 300 has no unit"),
        ({"dry_run": "true"}, "dry_run: 'true' is neither true nor false"),
        ({"source": "one:2181"}, "source: 'one:2181' has no scheme; write zk:one:2181"),
        ({"blocked_deadline": "30s"}, "input: blocked_deadline (30.0 s) is shorter than preparation_timeout"),
        ({"cleanup_at_window_end": True}, "input: cleanup_at_window_end does nothing"),
        ({"source": "etcd://one:2379"}, "source: 'etcd://one:2379' names a store that is not supported"),
        ({"source": None}, "source: Input should be a valid string"),
    ],
)
async def test_wrong_input_fails_at_once(stage: Harness, wrong: dict[str, Any], named: str) -> None:
    """A plan that does not fit fails the workflow at once, and the failure names the field."""
    run = await stage.start_raw({**PLAN, "cluster": next(stage.clusters), **wrong}, Script())
    failure = await run.typed_failure()
    assert (failure.type, failure.non_retryable) == (FailureKind.INVALID_INPUT, True)
    assert failure.message.startswith(f"the input is wrong: {named}")
    assert "Cure: correct this; needed are cluster, source, target, optional are " in failure.message
    assert (await run.handle.describe()).status is WorkflowExecutionStatus.FAILED


def phases(report: Report) -> list[str]:
    """Return the phases that a migration went through."""
    return [entry.phase for entry in report.history]

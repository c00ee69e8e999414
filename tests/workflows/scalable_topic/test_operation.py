"""An operation on scalable topics from its start to its report, and its early ends."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import Blocker, FailedItem, FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.operation_input import KIND
from models.scalable_topic.operation_state import OperationCheck, OperationOutcome
from models.scalable_topic.phases import OperationPhase
from models.scalable_topic.results import Released
from tests.workflows.lifecycle import doubles
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness

DONE = OperationOutcome(
    topics=3, changed=2, unchanged=1, outcomes=("a/b/c: split", "a/b/d: split"), registered=4, longest_seconds=1.5
)
FAILED = DONE.model_copy(
    update={"changed": 1, "failed": 1, "failures": (FailedItem(path="a/b/d", reason="no leader"),), "notes": ("x",)}
)
BLOCKER = Blocker(code="NO_TOPICS", cause="none fits.", cure="correct the patterns")


class Script(doubles.Script):
    """A script of the steps of an operation."""

    kind: ClassVar[str] = KIND
    input: ClassVar[dict[str, Any]] = {
        "metadata_url": "zk:zk:2181",
        "admin_urls": ["http://broker:8080"],
        "topics": ["a/b/*"],
        "operation": "split",
    }
    usual: ClassVar[dict[str, Any]] = {
        "check_operation": OperationCheck(topics=3),
        "operate": DONE,
        "complete_operation": Released(),
    }


WHOLE = ["check_operation", "operate", "complete_operation"]


async def test_whole_path(stage: Harness) -> None:
    """The operation processes the topics, releases the cluster, and reports the results."""
    run = await stage.start(Script())
    report = await run.report()
    assert run.script.steps == WHOLE
    assert (report.outcome, report.summary) == (Outcome.DONE, "of 3 topics 2 changed, 1 as before")
    assert report.certificate.pop("completed_at")
    assert report.certificate == {
        "operation": "split",
        "outcomes": ["a/b/c: split", "a/b/d: split"],
        "not_named": 0,
    }
    assert (report.figures["registered"], report.figures["longest_seconds"]) == (4, 1.5)


async def test_dry_run(stage: Harness) -> None:
    """A dry run ends with the plan, or with blockers."""
    run = await stage.start(Script(check_operation=OperationCheck(topics=3, plan=DONE)), dry_run=True)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.PLANNED, WHOLE[:1])
    assert report.summary == "ready: of 3 topics 2 changed, 1 as before"
    run = await stage.start(Script(check_operation=OperationCheck(blockers=(BLOCKER,))), dry_run=True)
    assert (await run.report()).summary == "not ready: [NO_TOPICS] none fits. Cure: correct the patterns"


async def test_blockers_fail_it(stage: Harness) -> None:
    """Blockers fail the operation before anything is changed."""
    run = await stage.start(Script(check_operation=OperationCheck(blockers=(BLOCKER,))))
    assert (await run.typed_failure()).type == FailureKind.PRECHECK_FAILED
    assert run.script.steps == WHOLE[:1]


async def test_failed_topics_are_named(stage: Harness) -> None:
    """Failed topics are named, the others are processed, and the outcome says so."""
    run = await stage.start(Script(operate=FAILED))
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert [item.path for failed in report.failed_items for item in failed.items] == ["a/b/d"]
    assert any(note.endswith("x") for note in report.notes)
    assert run.script.steps == WHOLE


async def test_rollback_releases_the_cluster(stage: Harness) -> None:
    """A rollback cancels the running step and releases the cluster; finished topics stay changed."""
    hang = Hang()
    run = await stage.start(Script(operate=hang))
    await hang.entered()
    assert (await run.status()).phase == OperationPhase.OPERATE
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert (report.outcome, run.script.cancelled) == (Outcome.ROLLED_BACK, ["operate"])
    assert run.script.steps == WHOLE
    assert "changes of finished topics stay" in report.notes[-1]


async def test_a_failure_releases_the_cluster(stage: Harness) -> None:
    """An operation fails with the reason if another migration holds the cluster."""
    held = ApplicationError("held by another", type=FailureKind.CONFLICT, non_retryable=True)
    run = await stage.start(Script(operate=held))
    assert (await run.typed_failure()).message == "held by another"
    assert run.script.steps == WHOLE


@pytest.mark.parametrize("verb", [Verb.PROCEED, Verb.ROLLBACK])
async def test_it_waits_for_proceed(stage: Harness, verb: Verb) -> None:
    """With `hold_before_cutover` no topic is changed before `proceed`, and `rollback` ends the wait."""
    run = await stage.start(Script(), hold_before_cutover=True)
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    assert run.script.steps == WHOLE[:1]
    await run.signal(verb)
    report = await run.report()
    assert report.outcome is (Outcome.DONE if verb is Verb.PROCEED else Outcome.ROLLED_BACK)
    assert ("operate" in run.script.steps) is (verb is Verb.PROCEED)


async def test_inapplicable_verbs_are_refused(stage: Harness) -> None:
    """An operation refuses pause and cleanup."""
    hang = Hang()
    run = await stage.start(Script(operate=hang))
    await hang.entered()
    legal = (await run.status()).legal_verbs
    assert legal == [Verb.ROLLBACK]
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE

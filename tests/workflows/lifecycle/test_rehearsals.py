"""Rehearsals: what comes before a cut-over is done, and undone, and nothing is cut over."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from models.bookie_cluster.results import Registration
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from tests.workflows.blue_green import activities as blue_green
from tests.workflows.bookie_cluster import activities as bookie_cluster
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.metadata_store import activities as metadata_store
from tests.workflows.scalable_topic import activities as scalable_topic


async def test_metadata_store(stage: Harness) -> None:
    """A rehearsal copies and compares all records without a hold, and removes the copy; the certificate says so."""
    run = await stage.start(metadata_store.Script(), until="PRE_COPY", hold_before_cutover=True)
    report = await run.report()
    assert run.script.steps == ["precheck", "pre_copy", "unblock_writes", "clear_target"]
    assert report.outcome is Outcome.REHEARSED
    assert report.summary == "rehearsed up to PRE_COPY, and undone; nothing was cut over"
    assert [entry.outcome for entry in report.history] == [Outcome.DONE] * 3
    compared = metadata_store.COPIED.compared
    assert (report.certificate["compared_in_pre_copy"], report.certificate["differences"]) == (compared, 0)


async def test_bookie_cluster(stage: Harness) -> None:
    """A rehearsal copies and compares all ledgers without a hold; the copies stay for the next start."""
    run = await stage.start(bookie_cluster.Script(), until="BUILD", hold_before_cutover=True)
    report = await run.report()
    assert run.script.stages == [*bookie_cluster.BEGIN, "find_early_ledgers", "release"]
    assert report.outcome is Outcome.REHEARSED
    assert any("a new start of this switch uses them" in note for note in report.notes)
    assert report.certificate["compared_entries_in_build"] > 0


@pytest.mark.parametrize("flipped", [False, True])
async def test_a_committed_switch_is_not_rehearsed(stage: Harness, flipped: bool) -> None:
    """A switch that an earlier run has committed is refused, and nothing of it is touched."""
    registration = Registration(added=(), epoch=3, committed=True, flipped=flipped)
    run = await stage.start(bookie_cluster.Script(register=registration), until="BUILD")
    failure = await run.typed_failure()
    assert failure.type == FailureKind.NOT_READY
    assert "an earlier run of this switch has committed" in failure.message
    assert run.script.steps == ["register"]


async def test_blue_green(stage: Harness) -> None:
    """Green gets what it lacks, and no batch starts."""
    run = await stage.start(blue_green.Script(), until="PROVISION", hold_before_cutover=True)
    report = await run.report()
    assert report.outcome is Outcome.REHEARSED
    assert run.script.steps == ["precheck", "register", "provision", "release"]
    assert report.figures["created"] == {"namespaces": 3, "topics": 12}


async def test_scalable_topic(stage: Harness) -> None:
    """The topic is locked and released again, and brokers are not asked to change it."""
    run = await stage.start(scalable_topic.Script(), until="GUARD", hold_before_cutover=True)
    report = await run.report()
    assert report.outcome is Outcome.REHEARSED
    assert run.script.steps == ["precheck", "recover", "await_clients", "guard", "undo"]


async def test_a_rehearsal_is_rolled_back(stage: Harness) -> None:
    """A rollback in a rehearsal ends it as rolled back, and a failure as failed."""
    hang = Hang()
    run = await stage.start(metadata_store.Script(pre_copy=hang), until="PRE_COPY")
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    broken = ApplicationError("no right to write", type=FailureKind.DENIED, non_retryable=True)
    failed = await stage.start(metadata_store.Script(pre_copy=broken), until="PRE_COPY")
    assert (await failed.typed_failure()).type == FailureKind.DENIED

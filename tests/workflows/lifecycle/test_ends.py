"""Cancellations of migrations whose work has ended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateStage

from models.bookie_cluster.updates import CleanupOrder
from models.hooks import Hook
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from tests.workflows.bookie_cluster import activities as switch
from tests.workflows.bookie_cluster.steering import window_open
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.metadata_store import activities as store


async def test_a_cancellation_during_the_last_deliveries(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that is done returns its report, and waits for its hooks no longer than without a cancellation."""
    monkeypatch.setitem(stage.hooks, "chat", Hook(command=("sh", "-c", "exit 9")))
    run = await stage.start(store.Script(), hooks=["chat"], validation_window="PT0S")
    await run.until(lambda status: status.outcome is Outcome.DONE)
    done = await stage.env.get_current_time()
    await stage.env.sleep(timedelta(seconds=30))
    await run.cancel()
    assert (await run.report()).outcome is Outcome.DONE
    closed = (await run.handle.describe()).close_time
    assert closed
    assert timedelta(seconds=50) < closed - done < timedelta(seconds=70)


async def test_a_cancellation_while_an_update_ends(stage: Harness) -> None:
    """A migration that is rolled back returns its report after its last update has ended."""
    hang = Hang()
    run = await stage.start(switch.Script(list_targets=hang))
    await window_open(run)
    await run.handle.start_update(  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation
        "clean_up", CleanupOrder(src_cluster="old"), wait_for_stage=WorkflowUpdateStage.ACCEPTED
    )
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    await run.until(lambda status: status.outcome is Outcome.ROLLED_BACK)
    await run.cancel()
    assert await run.running()
    hang.release()
    assert (await run.report()).outcome is Outcome.ROLLED_BACK

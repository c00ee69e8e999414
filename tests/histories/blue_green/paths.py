"""The main paths of the blue-green migration and of its batches, as saved histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from models.blue_green.copies import FinalCopy
from models.blue_green.results import Census, Drained, Quiet, Undone
from models.lifecycle.failures import Blocker, FailedItem
from models.lifecycle.verbs import Verb
from tests.workflows.blue_green.activities import NAMESPACES, READY, Script
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run


async def _whole(stage: Harness) -> Run:
    """Through all phases, with a cleanup that has to wait once."""
    looks = [Census(opened={"broker-1": count}) for count in (50, 53, 53)]
    script = Script(census=looks)
    return await stage.start(script, cleanup="remove", cleanup_at_window_end=True, grace_window="PT5M")


async def _dry_run(stage: Harness) -> Run:
    """A dry run."""
    return await stage.start(Script(), dry_run=True)


async def _blockers(stage: Harness) -> Run:
    """Ended by its precheck."""
    blocker = Blocker(code="BLUE_NO_SWEEP", cause="broker-1 never looks.", cure="set it")
    return await stage.start(Script(precheck=READY.model_copy(update={"blockers": (blocker,)})))


async def _steered(stage: Harness) -> Run:
    """Asked a question, held before the flip, paused, and with a failed canary that is accepted."""
    asked = READY.model_copy(update={"questions": ("readers keep message ids outside of Pulsar",)})
    busy = Quiet(seconds=15, busy=("persistent://acme/audit/a",))
    run = await stage.start(Script(precheck=asked, quiesce=[busy, Quiet(seconds=1)]), hold_before_cutover=True)
    await run.until(lambda status: status.phase == "PRECHECK" and status.waiting is not None)
    await run.signal(Verb.PROCEED, "they are restarted by hand")
    await run.until(lambda status: status.phase == "PROVISION" and status.waiting is not None)
    await run.signal(Verb.PROCEED)
    await run.until(lambda status: bool(status.failed_items) and Verb.PROCEED in status.legal_verbs)
    await run.signal(Verb.PROCEED)
    await run.until(lambda status: status.phase == "GRACE" and status.waiting is not None)
    await run.signal(Verb.PROCEED)
    return run


async def _rolled_back(stage: Harness) -> Run:
    """Rolled back while writes of the first batch were held back."""
    hang = Hang()
    run = await stage.start(Script(quiesce=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK, "wrong day")
    return run


async def _batch(stage: Harness) -> Run:
    """A batch without trouble."""
    return _first_batch(await _finished(await stage.start(Script(), grace_window="PT0S")))


async def _batch_with_a_copy(stage: Harness) -> Run:
    """A batch that copies backlogs, whose copy is not in time at first."""
    final_copy = [FinalCopy(seconds=15.0, in_time=False), FinalCopy(seconds=0.5)]
    waves = {"canary": 0, "gate": "none", "attempts": 2}
    run = await stage.start(Script(final_copy=final_copy), idle_subscriptions="copy", waves=waves, grace_window="PT0S")
    return _first_batch(await _finished(run))


async def _batch_with_faults(stage: Harness) -> Run:
    """A batch that is not drained in time."""
    left = FailedItem(path="persistent://acme/audit/a", reason="subscription s has 5 messages left")
    drained = Drained(seconds=9, remaining=(left,), remaining_count=1)
    run = await stage.start(Script(drain=drained), grace_window="PT0S")
    await run.until(lambda status: bool(status.failed_items) and Verb.PROCEED in status.legal_verbs)
    await run.signal(Verb.ROLLBACK)
    return _first_batch(await _finished(run))


async def _batch_undone(stage: Harness) -> Run:
    """A batch that was taken back."""
    return _first_batch(await _finished(await _rolled_back(stage)))


async def _batch_behind_its_point_of_no_return(stage: Harness) -> Run:
    """A batch that was told to go back when its topics were terminated."""
    hang = Hang()
    undo = Undone(undone=False, terminated=3, why="3 topics are terminated on blue")
    run = await stage.start(Script(flip=hang, undo=undo))
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    return _first_batch(await _finished(run))


async def _finished(run: Run) -> Run:
    await run.report()
    return run


def _first_batch(run: Run) -> Run:
    return replace(run, handle=run.client.get_workflow_handle(f"{run.handle.id}/{NAMESPACES[0]}"))


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "whole": _whole,
    "dry-run": _dry_run,
    "blockers": _blockers,
    "steered": _steered,
    "rolled-back": _rolled_back,
    "batch": _batch,
    "batch-with-a-copy": _batch_with_a_copy,
    "batch-with-faults": _batch_with_faults,
    "batch-undone": _batch_undone,
    "batch-behind-its-point-of-no-return": _batch_behind_its_point_of_no_return,
}
"""Each starts one migration, and takes it to where only time passes."""

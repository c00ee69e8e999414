"""Sealed segments leave the layout when a look says so, and not before; a look that finds nothing leaves no trace."""

from __future__ import annotations

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.topic_controller.input import Deletion, SplitRequest
from models.topic_controller.pruning import PruneRequest, PruneResult, Pruning, PruningChange
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.topic_controller.activities import Script, layout_of, status_of, until

CHANGE = ["prepare", "seal", "commit"]


async def test_idle_checks_do_not_grow_the_history(stage: Harness) -> None:
    """A topic is checked for days, and its history does not grow."""
    script = Script()
    run = await stage.start(script)
    await run.update("split", SplitRequest(segment=0))
    await stage.env.sleep(timedelta(hours=2))
    events = await run.events()
    looks = len(script.calls)
    await stage.env.sleep(timedelta(days=3))
    assert len(script.calls) >= looks + 24
    assert await run.events() == events
    await run.update("delete", Deletion())
    await run.handle.result()


async def test_removable_segments_are_pruned(stage: Harness) -> None:
    """When a check finds removable segments, they are removed from the layout, as they are by the next check."""
    script = Script()
    run = await stage.start(script)
    script.say("await_prune", [True, None])
    await run.update("split", SplitRequest(segment=0))
    await until(run, lambda status: status.sealed == 0)
    assert script.steps == ["open", *CHANGE, "prune"]
    assert await layout_of(run) == script.record.plain
    status = await status_of(run)
    assert (status.epoch, status.retired, status.active) == (2, 1, ("0000-3fff-2", "4000-7fff-3", "8000-ffff-1"))
    assert "pruned segment 0 from the layout" in status.notes[-1]
    await run.update("split", SplitRequest(segment=2))
    assert await layout_of(run) == script.record.plain


async def test_pruning_on_request(stage: Harness) -> None:
    """An operator can request a pruning, also while it is off, and gets the removed segments."""
    script = Script()
    run = await stage.start(script, pruning=None)
    await run.update("split", SplitRequest(segment=0))
    pruned = PruneResult.model_validate(await run.update("prune", PruneRequest()))
    assert (pruned.removed, pruned.record) == ((0,), None)
    assert script.calls[-1].args[0].pruning == Pruning(after=timedelta())
    assert "await_prune" not in [call.step for call in script.calls]
    await run.update("set_pruning", PruningChange(pruning=Pruning(delete_after=timedelta(days=7))))
    await until(run, lambda _: script.calls[-1].step == "await_prune")
    assert script.calls[-1].args[0].retired == {"0000-7fff-0": script.record.retired[0].removed_at_ms}
    status = await status_of(run)
    assert (status.pruning, status.doing) == (Pruning(delete_after=timedelta(days=7)), "")


async def test_a_prune_that_fails_is_tried_again(stage: Harness) -> None:
    """It is tried less and less often, and the topic continues in the meantime."""
    script = Script(prune=[ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True), None])
    run = await stage.start(script)
    script.say("await_prune", [True, True, None])
    await run.update("split", SplitRequest(segment=0))
    await stage.env.sleep(timedelta(minutes=1))
    await until(run, lambda status: status.sealed == 0)
    assert script.steps == ["open", *CHANGE, "prune", "prune"]
    assert any(note.endswith("broken") for note in (await status_of(run)).notes)

"""A topic scales by itself when a look says so, by the same steps as by hand, and only says so in a dry run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.topic_controller.input import SplitRequest
from models.topic_controller.record import Change, Mutation
from models.topic_controller.scale_decision import Decision
from models.topic_controller.state import Scaling
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.topic_controller.activities import CREATED_MS, Script, status_of, until

CHANGE = ["prepare", "seal", "commit"]
HOT = Decision(change=Change.SPLIT, segments=(0,), why="it is hot")
COLD = Decision(change=Change.MERGE, segments=(2, 3), why="both are idle")


async def _scaling(run: Run) -> Scaling:
    return Scaling.model_validate(await run.handle.query("auto_scale"))


def _checks(script: Script) -> list[Any]:
    return [call.args[0] for call in script.calls if call.step == "await_scale"]


async def test_off_by_default(stage: Harness) -> None:
    """The load is not checked without a policy, nor when it is removed or disabled."""
    script = Script()
    run = await stage.start(script)
    await run.update("stats", None)
    assert ((await status_of(run)).auto_scale, _checks(script)) == ("off", [])
    await run.update("set_auto_scale", {"policy": {"enabled": False}})
    await run.update("set_auto_scale", {"policy": None})
    await run.update("stats", None)
    assert ((await status_of(run)).auto_scale, _checks(script)) == ("off", [])


async def test_due_changes_are_made(stage: Harness) -> None:
    """Due splits and merges are done and reported, and begin the cooldowns of the segments that are checked next."""
    script = Script(await_scale=[HOT, COLD, None])
    run = await stage.start(script, pruning=None, auto_scale={"maxSegments": 4})
    status = await until(run, lambda status: status.epoch == 2)
    assert script.steps == ["open", *CHANGE, *CHANGE]
    assert status.active == ("0000-7fff-4", "8000-ffff-1")
    assert any(note.endswith("auto scale: split of 0, since it is hot") for note in status.notes)
    scaling = await _scaling(run)
    assert (scaling.decision, status.auto_scale) == ("merge of 2 and 3: both are idle", "on")
    await until(run, lambda _: len(_checks(script)) == 3)
    first, second, third = _checks(script)
    assert (first.changed_at_ms, [segment.descriptor for segment in first.segments]) == (
        0,
        ["0000-7fff-0", "8000-ffff-1"],
    )
    assert (second.changed_at_ms, third.changed_at_ms) == (CREATED_MS + 1, CREATED_MS + 2)
    assert [segment.depth for segment in third.segments] == [1, 0]


async def test_a_dry_run_only_says_so(stage: Harness) -> None:
    """Nothing is changed, and the same is not said again before its cooldown is over."""
    script = Script(await_scale=[HOT, None])
    run = await stage.start(script, auto_scale={"dryRun": True})
    status = await until(run, lambda status: bool(status.notes))
    assert status.notes[-1].endswith("dry run: would do the split of 0, since it is hot")
    assert (status.epoch, status.auto_scale, script.steps) == (0, "dry run", ["open"])
    await until(run, lambda _: len(_checks(script)) == 2)
    decided_at = (await _scaling(run)).decided_at
    assert decided_at is not None
    assert _checks(script)[-1].changed_at_ms == round(decided_at.timestamp() * 1000)


async def test_a_failed_change_begins_no_cooldown(stage: Harness) -> None:
    """A split that could not begin is decided again after ten seconds, as if it had not been tried."""
    script = Script(await_scale=[HOT, HOT, None])
    script.limit = "brokers make no more topics"
    run = await stage.start(script, auto_scale={"splitCooldownSeconds": 600})
    await until(run, lambda status: any("brokers make no more topics" in note for note in status.notes))
    script.limit = ""
    await stage.env.sleep(timedelta(seconds=10))
    status = await until(run, lambda status: len(status.active) == 3)
    assert status.epoch == 1
    await until(run, lambda _: len(_checks(script)) == 3)
    assert [task.changed_at_ms for task in _checks(script)] == [0, 0, CREATED_MS + 1]


async def test_a_new_run_knows_the_cooldown(stage: Harness) -> None:
    """A change by an earlier run, and one by hand, begin the cooldown: the layout has their times."""
    script = Script()
    script.record = script.record.with_pending(Mutation(change=Change.SPLIT, segments=(1,), epoch=0)).with_commit(
        CREATED_MS + 1
    )
    run = await stage.start(script, pruning=None, auto_scale={})
    await until(run, lambda _: len(_checks(script)) == 1)
    await run.update("split", SplitRequest(segment=0))
    await until(run, lambda _: len(_checks(script)) == 2)
    assert [task.changed_at_ms for task in _checks(script)] == [CREATED_MS + 1, CREATED_MS + 2]


async def test_after_a_change_by_hand_the_load_is_checked_again(stage: Harness) -> None:
    """The segments of the new layout are checked; a decision that no longer fits is refused, and not tried again."""
    script = Script()
    run = await stage.start(script, pruning=None, auto_scale={})
    await until(run, lambda _: len(_checks(script)) == 1)
    script.say("await_scale", [HOT, None])
    await run.update("split", SplitRequest(segment=0))
    await until(run, lambda _: len(_checks(script)) >= 2)
    status = await until(run, lambda status: any("segment 0 is sealed" in note for note in status.notes))
    assert status.epoch == 1


async def test_a_change_by_hand_comes_first(stage: Harness) -> None:
    """A decision that was made during a change by hand is dropped: both could exceed the policy's limit of segments."""
    hang, looking = Hang(), Hang(answer=Decision(change=Change.SPLIT, segments=(1,), why="2 segments are fewer than 3"))
    script = Script(prepare=[hang, None], await_scale=[looking, None])
    run = await stage.start(script, pruning=None, auto_scale={"minSegments": 3, "maxSegments": 3})
    await looking.entered()
    splitting = asyncio.create_task(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    looking.release()
    await until(run, lambda status: any("split of 1" in note for note in status.notes))
    hang.release()
    await splitting
    status = await until(run, lambda status: any("the layout has changed" in note for note in status.notes))
    assert (status.epoch, len(status.active)) == (1, 3)
    assert script.steps == ["open", *CHANGE]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"windows": [{"open": ["0 7 * * *"], "duration": "2h", "minSegments": 2, "zone": "No/Where"}]}, "No/Where"),
        ({"minSegments": 9, "maxSegments": 8}, "minSegments 9 is more than maxSegments 8"),
    ],
)
async def test_an_invalid_policy_is_refused(stage: Harness, policy: dict[str, object], why: str) -> None:
    """An invalid policy changes nothing."""
    run = await stage.start(Script())
    refusal = await run.refusal("set_auto_scale", {"policy": policy})
    assert why in refusal.message
    assert (await _scaling(run)).policy is None


async def test_another_policy_ends_the_pause_after_failures(stage: Harness) -> None:
    """The pause grows with each failure; an operator that has corrected the cause need not wait for its end."""
    broken = ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True)
    script = Script(await_scale=[broken, broken, broken, None])
    run = await stage.start(script, auto_scale={})
    for number, rest in enumerate((10, 20, 0), 1):
        await until(run, lambda status, number=number: len(status.notes) == number)
        await stage.env.sleep(timedelta(seconds=rest))
    # The third rest is of 40 s, longer than is waited for here.
    await run.update("set_auto_scale", {"policy": {"maxSegments": 8}})
    await until(run, lambda _: len(_checks(script)) == 4)


async def test_idle_checks_do_not_grow_the_history(stage: Harness) -> None:
    """A topic with auto scale is checked for days, and its history does not grow."""
    script = Script()
    run = await stage.start(script, auto_scale={})
    await until(run, lambda _: bool(_checks(script)))
    # Its other tasks may start after the first check.
    await stage.env.sleep(timedelta(hours=2))
    events = await run.events()
    await stage.env.sleep(timedelta(days=2))
    assert len(_checks(script)) > 24
    assert await run.events() == events

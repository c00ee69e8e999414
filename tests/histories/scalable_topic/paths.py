"""The main paths of the migration of one topic, as saved histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError

from models.lifecycle.claim import ParentRun
from models.lifecycle.failures import Blocker, FailureKind
from models.lifecycle.status import WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.results import DrainedTopic, TopicCheck
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.scalable_topic.activities import ANSWERS, CAME, READY, REMOVE, TURNED_OUT, Script

_BROKEN = ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True)
_LEFT = DrainedTopic(seconds=9.0, backlogs={"billing": 7})


async def _whole(stage: Harness) -> Run:
    """Through all phases, with the window and the cleanup."""
    return await stage.start(Script(), **REMOVE, grace_window="PT5M")


async def _dry_run(stage: Harness) -> Run:
    """A dry run."""
    return await stage.start(Script(), dry_run=True)


async def _blockers(stage: Harness) -> Run:
    """Ended by its precheck."""
    blocker = Blocker(code="COMPACTED", cause="orders is compacted.", cure="end its compaction")
    return await stage.start(Script(precheck=READY.model_copy(update={"blockers": (blocker,)})))


async def _steered(stage: Harness) -> Run:
    """Held and paused before the flip, refused once, told to drain no longer, with faults, and cleaned up by signal."""
    hang = Hang()
    check = TopicCheck(faults=("billing has no record",), segments=3, subscriptions=2, pruned=0)
    script = Script(flip=[CAME, ANSWERS["flip"]], drain=[hang, _LEFT], verify=check)
    run = await stage.start(script, hold_before_cutover=True, cleanup="remove")
    await _waiting(run, WaitKind.HOLD)
    await run.signal(Verb.PAUSE)
    await _waiting(run, WaitKind.PAUSE)
    await run.signal(Verb.RESUME)
    await _waiting(run, WaitKind.HOLD)
    await run.signal(Verb.PROCEED)
    await _waiting(run, WaitKind.RETRY)
    await run.signal(Verb.PROCEED)
    await hang.entered()
    await run.signal(Verb.PROCEED, "billing is gone")
    await _waiting(run, WaitKind.WINDOW)
    await run.signal(Verb.CLEANUP)
    return run


async def _rolled_back(stage: Harness) -> Run:
    """Rolled back while its policies were about to be held."""
    hang = Hang()
    run = await stage.start(Script(guard=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK, "wrong day")
    return run


async def _rolled_back_between_tries(stage: Harness) -> Run:
    """Rolled back when its flip had been refused."""
    run = await stage.start(Script(flip=CAME))
    await _waiting(run, WaitKind.RETRY)
    await run.signal(Verb.ROLLBACK)
    return run


async def _failed(stage: Harness) -> Run:
    """Undone since a step failed, at the second try."""
    return await stage.start(Script(guard=_BROKEN, undo=[_BROKEN, ANSWERS["undo"]]))


async def _scalable_all_the_same(stage: Harness) -> Run:
    """Went on when its flip had failed, since the topic was scalable."""
    return await stage.start(Script(flip=_BROKEN, undo=TURNED_OUT))


async def _failed_behind_the_flip(stage: Harness) -> Run:
    """A look failed when the topic was scalable; policies were put back at the second try."""
    return await stage.start(Script(verify=_BROKEN, complete=[_BROKEN, ANSWERS["complete"]]))


async def _cancelled(stage: Harness) -> Run:
    """Cancelled while it drained: no window follows."""
    hang = Hang()
    run = await stage.start(Script(drain=hang), **REMOVE)
    await hang.entered()
    await run.handle.cancel()
    await run.until(lambda status: any("the workflow was cancelled" in note for note in status.notes))
    hang.release()
    return run


async def _failed_cleanup(stage: Harness) -> Run:
    """Its cleanup failed."""
    return await stage.start(Script(clean_up=_BROKEN), **REMOVE, grace_window="PT5M")


async def _of_many(stage: Harness) -> Run:
    """As one of many topics."""
    parent = ParentRun(workflow_id="scalable-namespace/c", run_id="1", started=datetime(2026, 1, 1, tzinfo=UTC))
    return await stage.start(Script(), parent=parent.model_dump(mode="json"))


async def _waiting(run: Run, kind: WaitKind) -> None:
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is kind)


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "whole": _whole,
    "dry-run": _dry_run,
    "blockers": _blockers,
    "steered": _steered,
    "rolled-back": _rolled_back,
    "rolled-back-between-tries": _rolled_back_between_tries,
    "failed": _failed,
    "scalable-all-the-same": _scalable_all_the_same,
    "failed-behind-the-flip": _failed_behind_the_flip,
    "cancelled": _cancelled,
    "failed-cleanup": _failed_cleanup,
    "of-many": _of_many,
}
"""Each starts one migration, and takes it to where only time passes."""

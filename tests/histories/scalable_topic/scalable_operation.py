"""The main paths of an operation on scalable topics, as saved histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from models.lifecycle.status import WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.operation_state import OperationCheck
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.scalable_topic.test_operation import BLOCKER, DONE, FAILED, Script


async def _whole(stage: Harness) -> Run:
    """Held before it begins, and with a topic that failed."""
    run = await stage.start(Script(operate=FAILED), hold_before_cutover=True)
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    await run.signal(Verb.PROCEED)
    return run


async def _dry_run(stage: Harness) -> Run:
    """A dry run."""
    return await stage.start(Script(check_operation=OperationCheck(topics=3, plan=DONE)), dry_run=True)


async def _blockers(stage: Harness) -> Run:
    """Ended by its precheck."""
    return await stage.start(Script(check_operation=OperationCheck(blockers=(BLOCKER,))))


async def _rolled_back(stage: Harness) -> Run:
    """Rolled back amid its topics."""
    hang = Hang()
    run = await stage.start(Script(operate=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK, "wrong day")
    return run


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "whole": _whole,
    "dry-run": _dry_run,
    "blockers": _blockers,
    "rolled-back": _rolled_back,
}
"""Each starts one operation, and takes it to where only time passes."""

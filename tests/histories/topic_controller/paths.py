"""The main paths of the controller of a topic, as saved histories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.segment import SubscriptionKind
from models.topic_controller.input import (
    Deletion,
    MergeRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.record import Change, Mutation
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.topic_controller.activities import Script


def _broken(kind: FailureKind) -> ApplicationError:
    return ApplicationError("broken", type=kind, non_retryable=True)


async def _life(stage: Harness) -> Run:
    """Subscriptions, a split, a merge, statistics, and the end."""
    run = await stage.start(Script())
    for name, kind in (("work", SubscriptionKind.QUEUE), ("bill", SubscriptionKind.STREAM)):
        await run.update("create_subscription", SubscriptionRequest(name=name, kind=kind))
    await run.update("split", SplitRequest(segment=0))
    await run.update("merge", MergeRequest(segments=(1, 3)))
    await run.update("stats", None)
    await run.update("delete_subscription", Unsubscription(name="bill"))
    await run.update("delete", Deletion(force=True))
    return run


async def _carried_on(stage: Harness) -> Run:
    """Begun amid a merge of an earlier run, whose steps fail twice."""
    script = Script(seal=[_broken(FailureKind.CONFLICT), None], commit=[_broken(FailureKind.DENIED), None])
    script.record = script.record.begun(Mutation(change=Change.MERGE, segments=(0, 1), epoch=0))
    run = await stage.start(script)
    await run.update("delete", Deletion())
    return run


async def _superseded(stage: Harness) -> Run:
    """Ended since another run leads."""
    run = await stage.start(Script(prepare=_broken(FailureKind.NOT_LEADER)))
    await run.refusal("split", SplitRequest(segment=0))
    return run


async def _cancelled(stage: Harness) -> Run:
    """Cancelled amid a split, which comes to its end."""
    hang = Hang(failure=_broken(FailureKind.CONFLICT))
    run = await stage.start(Script(seal=[hang, None]))
    split = asyncio.ensure_future(run.update("split", SplitRequest(segment=0)))
    await hang.entered()
    await run.handle.cancel()
    hang.release()
    await split
    return run


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "life": _life,
    "carried-on": _carried_on,
    "superseded": _superseded,
    "cancelled": _cancelled,
}

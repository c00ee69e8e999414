"""The main paths of the controller of a topic, as saved histories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import (
    ControllerUrls,
    Deletion,
    MergeRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.observation import Observation
from models.topic_controller.pruning import PruneRequest, PruningChange
from models.topic_controller.record import Change, Mutation
from models.topic_controller.scale_decision import Decision
from models.topic_controller.sessions import Departures, GraceChange, Registrations
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.topic_controller.activities import Script, until


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


async def _continued(stage: Harness) -> Run:
    """Begun amid a merge of an earlier run, whose steps fail twice."""
    script = Script(seal=[_broken(FailureKind.CONFLICT), None], commit=[_broken(FailureKind.DENIED), None])
    script.record = script.record.with_pending(Mutation(change=Change.MERGE, segments=(0, 1), epoch=0))
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


async def _pruned(stage: Harness) -> Run:
    """What is sealed goes when a look says so, and at once."""
    script = Script(await_prune=[True, None])
    run = await stage.start(script)
    await run.update("split", SplitRequest(segment=0))
    await until(run, lambda status: status.sealed == 0)
    await run.update("set_pruning", PruningChange(pruning=None))
    await run.update("split", SplitRequest(segment=1))
    await run.update("prune", PruneRequest())
    await run.update("delete", Deletion())
    return run


async def _coordinated(stage: Harness) -> Run:
    """Consumers that share, go, lose their session, read children and come back; what observers see, early and late."""
    gone = {"bill": ("a",)}
    late, drained = Hang(answer=Observation(gone=gone, expired=gone)), Hang(answer=Observation(drained={"bill": (0,)}))
    script = Script(observe=[Observation(gone=gone), late, None])
    run = await stage.start(script, pruning=None)
    await run.update("create_subscription", SubscriptionRequest(name="bill"))
    await run.update("register", Registrations(subscription="bill", consumers=("a", "b")))
    await late.entered()
    late.release()
    await until(run, lambda status: status.consumers == {"bill": 1} and len(script.published) == 2)
    script.say("observe", [drained, None])
    await run.update("split", SplitRequest(segment=0))
    await drained.entered()
    await run.update("set_grace", GraceChange(grace=timedelta(hours=1)))
    drained.release()
    await until(run, lambda _: script.published[-1].subscriptions[0].assignments == {"b": (2, 3, 1)})
    await run.update("unregister", Departures(subscription="bill", consumers=("b",)))
    await run.update("register", Registrations(subscription="bill", consumers=("c",)))
    await run.update("delete", Deletion())
    return run


async def _auto_scaled(stage: Harness) -> Run:
    """A split and a merge by themselves, then a dry run, and one run after the other."""
    out = Decision(change=Change.SPLIT, segments=(0,), why="it is hot")
    back = Decision(change=Change.MERGE, segments=(2, 3), why="both are idle")
    again = Decision(change=Change.SPLIT, segments=(1,), why="it is hot")
    script = Script(await_scale=[out, back, None])
    run = await stage.start(script, pruning=None, auto_scale={})
    await until(run, lambda status: status.epoch == 2)
    script.say("await_scale", [again, None])
    await run.update("set_auto_scale", {"policy": {"dryRun": True}})
    await until(run, lambda status: any("dry run" in note for note in status.notes))
    await run.update("set_controller_urls", ControllerUrls(urls=("https://controller:8443",)))
    await run.update("set_auto_scale", {"policy": None})
    await run.update("delete", Deletion())
    return run


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "life": _life,
    "carried-on": _continued,
    "superseded": _superseded,
    "cancelled": _cancelled,
    "pruned": _pruned,
    "auto-scaled": _auto_scaled,
    "coordinated": _coordinated,
}

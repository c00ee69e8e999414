"""The main paths of the migration of many topics, as saved histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from models.lifecycle.status import WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.results import ClientsGone, TopicCheck
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.scalable_topic.activities import REMOVE, TOPICS, NamespaceScript

_STILL_THERE = ClientsGone(waiting="1 connections of clients that cannot follow: producer p")
_CHECK = TopicCheck(faults=("billing has no record",), segments=3, subscriptions=2, pruned=0)


async def _whole(stage: Harness) -> Run:
    """Through all phases, with the window and the cleanup."""
    return await stage.start(NamespaceScript(), **REMOVE, grace_window="PT5M")


async def _dry_run(stage: Harness) -> Run:
    """A dry run."""
    return await stage.start(NamespaceScript(), dry_run=True)


async def _steered(stage: Harness) -> Run:
    """Held before the first topic, with a gate, and failures that are accepted."""
    waves = {"canary": 1, "wave_size": 2, "parallelism": 1, "gate": "canary", "deadline": "PT48H"}
    topics = {TOPICS[1]: {"await_clients": _STILL_THERE}, TOPICS[3]: {"verify": _CHECK}}
    script = NamespaceScript(topics=topics)
    run = await stage.start(script, hold_before_cutover=True, waves=waves | {"error_budget": {"items": 1}})
    for kind in (WaitKind.HOLD, WaitKind.GATE, WaitKind.ERROR_BUDGET):
        await _waiting(run, kind)
        await run.signal(Verb.PROCEED)
    return run


async def _rolled_back(stage: Harness) -> Run:
    """Rolled back while a topic waited for its clients."""
    hang = Hang()
    run = await stage.start(NamespaceScript(names=TOPICS[:2], topics={TOPICS[1]: {"await_clients": hang}}))
    await hang.entered()
    await run.signal(Verb.ROLLBACK, "wrong day")
    return run


async def _hold_limit(stage: Harness) -> Run:
    """Stopped since policies had been held for long enough, when nobody had opened a gate."""
    waves = {"canary": 1, "wave_size": 1, "gate": "every wave", "deadline": "PT48H"}
    return await stage.start(NamespaceScript(), waves=waves, hold_limit="PT5H")


async def _waiting(run: Run, kind: WaitKind) -> None:
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is kind)


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "whole": _whole,
    "dry-run": _dry_run,
    "steered": _steered,
    "rolled-back": _rolled_back,
    "hold-limit": _hold_limit,
}
"""Each starts one migration, and takes it to where only time passes."""

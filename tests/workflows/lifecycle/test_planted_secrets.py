"""Errors, results and progress that repeat secrets leave none in histories, queries, notes and the log."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, Protocol, cast

import pytest
from google.protobuf.json_format import MessageToDict
from pydantic import BaseModel
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.progress import heartbeat
from activities.lifecycle.runner import report_to_workflow
from clients.errors import StoreDenied, StoreUnreachable
from clients.pulsar.admin.errors import AdminDenied
from models.lifecycle.status import WaitKind
from models.lifecycle.verbs import Verb
from models.redaction import HIDDEN
from models.topic_controller.input import SplitRequest, SubscriptionRequest
from process.logs import JsonLines, TextLines
from tests.support.lifecycle.marks import all_secrets, decoded, forms, marked, planted
from tests.workflows.blue_green import activities as blue_green
from tests.workflows.bookie_cluster import activities as bookie_cluster
from tests.workflows.lifecycle.doubles import Call, Script
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.metadata_store import activities as metadata_store
from tests.workflows.scalable_topic import activities as scalable_topic
from tests.workflows.scalable_topic import test_operation as scalable_operation
from tests.workflows.topic_controller import activities as topic_controller

MAKE: dict[str, Callable[[], Script]] = {
    "metadata-store": metadata_store.Script,
    "bookie-cluster": bookie_cluster.Script,
    "bookie-cluster with the plugin": bookie_cluster.AttributionScript,
    "blue-green": blue_green.Script,
    "scalable-topic": scalable_topic.Script,
    "scalable-namespace": scalable_topic.NamespaceScript,
    "scalable-operation": scalable_operation.Script,
}
STRANGE = " ".join(form for text in all_secrets()[::4] for form in forms(text))
"""What a server may repeat of a request."""
_OBSERVERS = {"observe", "await_prune", "await_scale"}
"""They have no runner: they run as long as a controller."""


class _Plays(Protocol):
    async def __call__(self, call: Call) -> Any: ...


class Leak:
    """Makes each activity of a script repeat secrets: in progress, in a first attempt that fails, and in its result.

    Args:
        script: of the activities.
        client: of Temporal, for the signals of activities.
        final: the activity that fails for good; empty for none.
    """

    def __init__(self, script: Script, client: Any, final: str = "") -> None:
        self._play: _Plays = script.play
        self._client = client
        self._final = final
        self._failed: set[str] = set()
        self._number = 0

    async def __call__(self, call: Call) -> Any:
        """Play a call."""
        context = ActivityContext()
        context.waiting_for(WaitKind.STORE, f"the store says: {STRANGE}", action=f"check {STRANGE}")
        heartbeat(context)
        # A rollback runs the same activity again, and must succeed.
        if call.step not in _OBSERVERS and (key := f"{call.step} {call.input}") not in self._failed:
            self._failed.add(key)
            self._number += 1
            async with report_to_workflow(self._client, context):
                fail(self._number, final=call.step == self._final)
        return leaking(await self._play(call))


def fail(number: int, *, final: bool) -> NoReturn:
    """Fail with one of the errors that libraries and clients raise, which repeat secrets in all of their parts."""
    cause = OSError(5, STRANGE, f"/{STRANGE}")
    cause.add_note(STRANGE)
    lasting = [
        StoreDenied(f"refused: {STRANGE}", server=STRANGE, path=STRANGE.encode()),
        AdminDenied(STRANGE, method="GET", url=f"https://b:8443/{STRANGE}"),
        ApplicationError(f"refused: {STRANGE}", {"reason": STRANGE}, STRANGE, type="Denied", non_retryable=True),
    ]
    passing = [
        StoreUnreachable(STRANGE, server=STRANGE),
        RuntimeError(STRANGE, {"token": STRANGE}),
        KeyError(STRANGE),
    ]
    errors: list[Exception] = [*lasting] if final else [*passing]
    raise errors[number % len(errors)] from cause


def leaking(result: Any) -> Any:
    """Return a result whose sentences repeat secrets."""
    if not isinstance(result, BaseModel):
        return result
    return type(result).model_validate(_leaking(result.model_dump()))


def _leaking(value: Any) -> Any:
    if isinstance(value, str) and " " in value:
        return f"{value}: {STRANGE}"
    if isinstance(value, dict):
        return {name: _leaking(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_leaking(item) for item in cast("list[Any]", value)]
    return value


@asynccontextmanager
async def log_lines() -> AsyncGenerator[list[io.StringIO]]:
    """Write the log as a worker does, in both forms; gives what was written."""
    texts = [io.StringIO(), io.StringIO()]
    handlers = [logging.StreamHandler(text) for text in texts]
    root = logging.getLogger()
    for handler, lines in zip(handlers, (TextLines(), JsonLines()), strict=True):
        handler.setFormatter(lines)
        root.addHandler(handler)
    try:
        yield texts
    finally:
        for handler in handlers:
            root.removeHandler(handler)


async def all_of(run: Run) -> list[str]:
    """Return all that Temporal, and the queries of a workflow, show of it and of its children."""
    return [text for handle in await family(run) for text in await visible_of(handle)]


async def family(run: Run) -> list[WorkflowHandle[Any, Any]]:
    """Return a workflow and its children."""
    members = [run.handle]
    async for event in run.handle.fetch_history_events():
        started = event.child_workflow_execution_started_event_attributes
        if started.workflow_execution.workflow_id:
            members.append(run.client.get_workflow_handle(started.workflow_execution.workflow_id))
    return members


async def visible_of(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Return all that Temporal, and the queries of a workflow, show of it."""
    history = json.loads((await handle.fetch_history()).to_json())
    described = MessageToDict((await handle.describe()).raw_description)
    queries = [await handle.query(name) for name in ("status", "__temporal_workflow_metadata")]
    return [*decoded(history), *decoded(described), *map(str, queries)]


async def to_its_end(run: Run) -> list[str]:
    """Take each decision that a migration waits for, until it ends; returns what it showed in between."""
    visible: list[str] = []
    ended = asyncio.create_task(run.handle.result())
    async with run.within():
        while not ended.done():
            await asyncio.wait([ended], timeout=0.2)
            status = await run.status()
            visible.append(status.model_dump_json())
            if status.waiting and status.waiting.kind in {WaitKind.DECISION, WaitKind.HOLD}:
                await run.signal(Verb.PROCEED)
    with suppress(WorkflowFailureError):
        visible.append(json.dumps(ended.result()))
    return visible


@pytest.mark.parametrize(
    "chosen", [slice(1, None, 5), pytest.param(slice(None), marks=pytest.mark.exhaustive)], ids=["some", "each"]
)
@pytest.mark.parametrize("kind", MAKE)
async def test_failures_of_steps(stage: Harness, kind: str, chosen: slice) -> None:
    """Whichever activity of a migration fails, for a moment or for good, no secret that it repeats is shown."""
    with planted():
        async with log_lines() as log:
            steps = await leak(stage, kind, "")
            for step in steps[chosen]:
                await leak(stage, kind, step)
        assert marked([text.getvalue() for text in log]) == []
    assert len(steps) >= 3


async def test_failures_of_a_controller(stage: Harness) -> None:
    """Updates, status and details of a topic's controller show no secret, also where an update fails."""
    visible: list[str] = []
    with planted():
        async with log_lines() as log:
            for final in ("", "prepare"):
                controller = await started(topic_controller.Script(), stage, final)
                await controller.update("create_subscription", SubscriptionRequest(name="bill"))
                try:
                    visible.append(str(await controller.update("split", SplitRequest(segment=0))))
                except WorkflowUpdateFailedError as error:
                    visible += [str(error), str(error.cause), repr(error.cause)]
                visible += await all_of(controller)
                await controller.handle.cancel()
                with suppress(WorkflowFailureError):
                    await controller.handle.result()
                visible += await all_of(controller)
    assert any(HIDDEN in text for text in visible)
    assert marked([*visible, *(text.getvalue() for text in log)])[:3] == []


async def leak(stage: Harness, kind: str, final: str) -> list[str]:
    """Run a migration whose activities repeat secrets; returns the activities that it ran, in their order."""
    run = await started(script := MAKE[kind](), stage, final)
    visible = [*await to_its_end(run), *await all_of(run)]
    assert (kind, final, marked(visible)[:3]) == (kind, final, [])
    assert any(HIDDEN in text for text in visible)
    return [*dict.fromkeys(call.step for call in script.calls)]


async def started(script: Script, stage: Harness, final: str) -> Run:
    """Start a migration whose activities repeat secrets."""
    setattr(script, "play", Leak(script, stage.client, final))  # noqa: B010 - pyright knows the method that it replaces
    return await stage.start(script)

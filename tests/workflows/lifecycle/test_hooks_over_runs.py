"""Hooks of migrations that continue as new, on Temporal's dev server.

The time-skipping one skips no time any more once a run has ended during an activity, as runs do during deliveries.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.hooks import Hook
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import Verb
from tests.support.lifecycle.hook_receiver import HookReceiver, Response
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.metadata_store.activities import Script


@pytest.fixture
def pager(server: Harness, tmp_path: Path) -> Iterator[HookReceiver]:
    """A receiver with TLS, which the workers know as `pager`, with a veto."""
    with HookReceiver(tmp_path) as running:
        server.hooks["pager"] = Hook.model_validate(running.settings(veto=True))
        yield running


async def test_nothing_is_lost_between_runs(server: Harness, pager: HookReceiver) -> None:
    """A migration in many runs delivers the same events as one in a single run, under one sequence."""
    plan: dict[str, Any] = {"hooks": ["pager"], "validation_window": "PT0S"}
    await (await server.start(Script(), **plan)).report()
    expected = _events(pager)
    pager.events.clear()
    many = await server.start(Script(), history_limit=3, **plan)
    await many.report()
    assert await many.runs() > 3
    assert _events(pager) == expected
    assert {event["data"]["run_id"] for event in pager.events} == {many.handle.first_execution_run_id}
    assert pager.faults == []


async def test_a_veto_spans_runs(server: Harness, pager: HookReceiver) -> None:
    """A veto holds over many runs, since the same time, until a later run gets another answer."""
    refused = Response(409, "freeze until Monday", {"Retry-After": "5"})
    pager.respond = lambda event: refused if event["type"].endswith("asked") else Response()
    run = await server.start(Script(), hooks=["pager"], validation_window="PT0S", history_limit=10)
    first = await run.until(_is_vetoed)
    await run.until_runs(3)
    later = await run.until(_is_vetoed)
    assert first.waiting is not None
    assert later.waiting is not None
    assert later.waiting.since == first.waiting.since
    assert "prepare" not in run.script.steps
    pager.respond = lambda _: Response()
    assert (await run.report()).outcome is Outcome.DONE


async def test_a_run_that_ends_during_a_question(server: Harness, pager: HookReceiver) -> None:
    """A verb that is accepted while hooks are asked counts, and the last event arrives, if the run must end then."""
    server.hooks["pager"] = Hook.model_validate(pager.settings(veto=True, timeout=60))
    asked, answers = threading.Event(), threading.Event()

    def respond(event: dict[str, Any]) -> Response:
        if not event["type"].endswith("asked"):
            return Response()
        if sum(each["type"] == event["type"] for each in pager.events) == 1:
            return Response(409, "freeze until Monday", {"Retry-After": "5"})
        asked.set()
        answers.wait(50)
        return Response()

    pager.respond = respond
    limit = 60
    run = await server.start(Script(), hooks=["pager"], validation_window="PT0S", history_limit=limit)
    assert await asyncio.to_thread(asked.wait, 120)
    # Each is an event, also where the worker takes several with one task.
    for number in range(limit):
        await run.handle.signal(f"unknown-{number}")
    await run.status()
    assert (await run.steer(Verb.PAUSE)).accepted
    answers.set()
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.PAUSE)
    assert status.paused
    assert await run.runs() > 1
    await run.steer(Verb.RESUME)
    assert (await run.report()).outcome is Outcome.DONE
    assert pager.texts("migration.ended") == ["the migration ends, done"]


def _events(receiver: HookReceiver) -> dict[int, tuple[str, str]]:
    """Return type and text of each event by its number; one that came twice, with the same id, counts once."""
    by_id = {event["id"]: event for event in receiver.events if not event["type"].endswith("cutover.asked")}
    numbers = [event["data"]["number"] for event in by_id.values()]
    assert sorted(numbers) == [*range(1, len(numbers) + 1)]
    return {event["data"]["number"]: (event["type"], event["data"]["text"]) for event in by_id.values()}


def _is_vetoed(status: Status) -> bool:
    return status.waiting is not None and status.waiting.kind is WaitKind.VETO

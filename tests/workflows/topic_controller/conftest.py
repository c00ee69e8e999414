"""Fixtures of tests of sessions: controllers of topics with an ordered subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest_asyncio
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError, RPCStatusCode

from models.topic_controller.input import SubscriptionRequest
from models.topic_controller.sessions import ConsumerAssignment, Registrations
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.topic_controller.activities import CREATED_MS, Script

BILL = "bill"

Start = Callable[..., Awaitable[Run]]


@pytest_asyncio.fixture(loop_scope="session")
async def start(stage: Harness) -> AsyncIterator[Start]:
    """Starts controllers of topics with an ordered subscription, and ends them: while one observes, no time passes."""
    started: list[Run] = []

    async def start(script: Script, *, history_limit: int = 0, **input: Any) -> Run:
        run = await stage.start(script, history_limit=history_limit, **input)
        started.append(run)
        await run.update("create_subscription", SubscriptionRequest(name=BILL))
        return run

    yield start
    for run in started:
        newest = stage.client.get_workflow_handle(run.handle.id)
        try:
            await newest.cancel()
        except RPCError as error:
            # It may have ended by itself.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        with suppress(WorkflowFailureError):
            await newest.result()


async def register(run: Run, *names: str) -> dict[str, tuple[int, ...]]:
    """Register consumers; the ids of segments that each reads."""
    answers = await run.update("register", Registrations(subscription=BILL, consumers=names))
    assignments = {name: ConsumerAssignment.model_validate(answer) for name, answer in answers.items()}
    assert {assignment.created_ms for assignment in assignments.values()} == {CREATED_MS}
    return {
        name: tuple(segment.segment_id for segment in assignment.segments) for name, assignment in assignments.items()
    }

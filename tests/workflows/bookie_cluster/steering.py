"""Waits and verbs of an operator of a bookie cluster migration."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio.client import WorkflowUpdateFailedError

from models.lifecycle.status import Status, WaitKind
from models.lifecycle.verbs import Verb
from tests.workflows.lifecycle.harness import Run


async def window_open(run: Run) -> Status:
    """Wait until the window is open and its first census done."""
    return await run.until(lambda status: "window" in status.deadlines and "target_only_ledgers" in status.facts)


async def waits_for_bookies(run: Run) -> Status:
    """Wait until a rollback waits for a cluster."""
    return await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.BOOKIES)


async def give_up(run: Run) -> None:
    """Repeat `proceed` until a gate accepts it."""
    async with asyncio.timeout(120):
        while True:
            with suppress(WorkflowUpdateFailedError):
                await run.steer(Verb.PROCEED)
                return
            await asyncio.sleep(0.2)

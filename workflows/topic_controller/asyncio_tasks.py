"""The end of what runs next to a workflow's updates."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended: what comes next begins behind the last step of these.

    Raises:
        CancelledError: whoever waits was cancelled meanwhile; also then the tasks have ended.
    """
    for task in tasks:
        task.cancel()
    await wait_for_end(*tasks)


async def wait_for_end(*tasks: asyncio.Task[Any]) -> None:
    """Wait until tasks have ended.

    Raises:
        CancelledError: whoever waits was cancelled meanwhile; also then the tasks have ended.
    """
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await workflow.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            # Looked at, or asyncio would report it as never retrieved: a cancelled activity fails, and a caller that
            # was cancelled itself does not look at it.
            task.exception()
    if cancelled is not None:
        raise cancelled


def is_cancelled() -> bool:
    """Whether the task that asks was cancelled.

    What continues in a loop must ask: a cancellation that comes together with the end of a step, or that makes a step
    fail, is taken for the end of that step, and is not raised again.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

"""Cancellation of tasks that run next to a workflow's updates."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended, so that what follows starts after their last step.

    Raises:
        CancelledError: the caller was cancelled while it waited; the tasks have ended nevertheless.
    """
    for task in tasks:
        task.cancel()
    await wait_for_end(*tasks)


async def wait_for_end(*tasks: asyncio.Task[Any]) -> None:
    """Wait until tasks have ended.

    Raises:
        CancelledError: the caller was cancelled while it waited; the tasks have ended nevertheless.
    """
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await workflow.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            # Retrieve the exception, or asyncio reports it as never retrieved: a cancelled activity fails, and a caller
            # that was cancelled itself does not retrieve it.
            task.exception()
    if cancelled is not None:
        raise cancelled


def is_cancelled() -> bool:
    """Return whether the current task was cancelled.

    Loops must check this. A cancellation that arrives together with the end of a step, or that makes a step fail, looks
    like the end of that step, and is not raised again.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

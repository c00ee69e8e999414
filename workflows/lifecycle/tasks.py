"""Tasks inside of a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow

ResultT = TypeVar("ResultT")

LONGEST_RETRY_PAUSE = timedelta(hours=1)
"""Limit of the growing pause of retries: a repaired cause is noticed within it, however long the failures lasted."""


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and wait until they have ended, so that what follows starts after their last step.

    Raises:
        CancelledError: the caller was cancelled while it waited; the tasks have ended nevertheless.
    """
    for task in tasks:
        task.cancel()
    await wait_for_end(*tasks)


async def wait_for_end(*tasks: asyncio.Future[Any]) -> None:
    """Wait until tasks have ended.

    Raises:
        CancelledError: the caller was cancelled while it waited; the tasks have ended nevertheless.
    """
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await workflow.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error  # mutant: shared/rollback-next-to-a-step
    for task in tasks:
        if not task.cancelled():
            # Retrieve the exception, or asyncio reports it as never retrieved: a cancelled activity fails, and a caller
            # that was cancelled itself does not retrieve it.
            task.exception()
    if cancelled is not None:
        raise cancelled


async def run_to_end(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run what must not be half-finished; return its result.

    Raises:
        CancelledError: the caller was cancelled during that; the work has ended nevertheless.
    """
    task = asyncio.create_task(work)
    await wait_for_end(task)
    return task.result()


def is_cancelled() -> bool:
    """Return whether the current task was cancelled.

    Loops must check this. A cancellation that arrives together with the end of a step, or that makes a step fail, looks
    like the end of that step, and is not raised again.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def wait_after_the_end(
    condition: Callable[[], bool], *, longest: timedelta | None = None, summary: str | None = None
) -> None:
    """Wait for a condition after the work has ended: a cancellation does not change how, nor how long this waits.

    Args:
        condition: that is waited for.
        longest: how long; None for no limit.
        summary: of the timer.
    """
    end = workflow.now() + longest if longest else None
    while True:
        with suppress(asyncio.CancelledError):
            with suppress(TimeoutError):
                remaining = max(end - workflow.now(), timedelta(0)) if end else None
                await workflow.wait_condition(condition, timeout=remaining, timeout_summary=summary)
            return


def growing_pause(shortest: timedelta, since: datetime, longest: timedelta = timedelta.max) -> timedelta:
    """Return a tenth of the time that has passed, within limits: each repetition stays in the history."""
    return max(shortest, min((workflow.now() - since) / 10, longest))

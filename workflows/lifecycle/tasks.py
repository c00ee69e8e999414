"""Tasks inside of a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.wait([task])
    # Retrieve the error, or it would be logged.
    _ = task.cancelled() or task.exception()


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

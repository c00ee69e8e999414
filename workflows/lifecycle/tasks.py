"""Tasks inside of a workflow."""

from __future__ import annotations

import asyncio
from typing import Any


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.wait([task])
    # Retrieve the error, or it would be logged.
    _ = task.cancelled() or task.exception()

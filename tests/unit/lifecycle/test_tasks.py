"""How a workflow ends its own tasks."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from workflows.lifecycle.tasks import cancel_and_wait


class _Step:
    """Fails when it is cancelled, as an activity does: not with asyncio's own error, and not at once."""

    def __init__(self) -> None:
        self.cancelled, self.may_end = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Wait for the cancellation."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await self.may_end.wait()
            raise RuntimeError("cancelled") from None

    async def begin_and_end(self) -> None:
        """Run it as a task, and end that."""
        task = asyncio.create_task(self.run())
        await asyncio.sleep(0)
        await cancel_and_wait(task)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_step_that_fails_at_its_end_is_not_reported(*, cancelled: bool) -> None:
    """No error is reported of a step that was ended, also where the task that ended it was itself cancelled."""
    # The loop is that of all tests: what earlier ones have left in it is reported now, and not below.
    gc.collect()
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        step = _Step()
        ending = asyncio.create_task(step.begin_and_end())
        await step.cancelled.wait()
        if cancelled:
            ending.cancel()
        step.may_end.set()
        await asyncio.wait([ending])
        assert ending.cancelled() == cancelled
        del ending, step
        # A task reports its error when it is collected.
        gc.collect()
    finally:
        loop.set_exception_handler(before)
    assert reported == []

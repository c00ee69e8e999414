"""Polling for something to be due, for years; the history does not grow while nothing is due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from workflows.lifecycle.failures import cause_of
from workflows.lifecycle.tasks import cancel_and_wait, is_cancelled
from workflows.topic_controller.controller_session import STEP_FAILURES, ControllerSession

DueT = TypeVar("DueT")

_FIRST_BACKOFF, _MAX_BACKOFF = timedelta(seconds=10), timedelta(hours=1)


class Poll(Generic[DueT]):
    """Runs an activity that ends when something is due, acts on that, and repeats.

    Args:
        controller: controller of the topic.
        ask: starts the activity; None if there is nothing to poll.
        act: does what is due.
    """

    def __init__(
        self,
        controller: ControllerSession,
        ask: Callable[[], Coroutine[Any, Any, DueT] | None],
        act: Callable[[DueT], Awaitable[object]],
    ) -> None:
        self._controller = controller
        self._ask = ask
        self._act = act
        self._restarting = False
        self._backoff = _FIRST_BACKOFF

    def restart(self) -> None:
        """Start the activity again, because its input has changed."""
        self._restarting = True

    async def run(self) -> None:
        """Poll until this is cancelled, or the controller is finished."""
        while not (self._controller.is_finished or is_cancelled()):
            self._restarting = False
            asking = self._ask()
            if asking is None:
                await workflow.wait_condition(lambda: self._restarting or self._controller.is_finished)
            else:
                await self._await_due(asyncio.create_task(asking))

    async def _await_due(self, polling: asyncio.Task[DueT]) -> None:
        try:
            await workflow.wait_condition(lambda: self._restarting or self._controller.is_finished or polling.done())
        except asyncio.CancelledError:
            await cancel_and_wait(polling)
            raise
        await cancel_and_wait(polling)
        if polling.cancelled():
            return
        error = polling.exception()
        if error is None:
            await self._do(polling.result())
        elif not isinstance(error, STEP_FAILURES):
            raise error
        elif not is_cancelled_exception(error):
            await self._back_off(cause_of(error))

    async def _do(self, due: DueT) -> None:
        try:
            await self._act(due)
        except ApplicationError as error:
            await self._back_off(error.message)
        else:
            self._backoff = _FIRST_BACKOFF

    async def _back_off(self, why: str) -> None:
        """Wait after a failure, each time longer."""
        if self._controller.is_finished or is_cancelled():
            return
        self._controller.note(why)
        with suppress(TimeoutError):
            # Other settings, or another layout, may resolve the failure.
            await workflow.wait_condition(
                lambda: self._restarting or self._controller.is_finished, timeout=self._backoff
            )
        self._backoff = min(self._backoff * 2, _MAX_BACKOFF)

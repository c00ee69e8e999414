"""What waits for something to be due, for years, with nothing in the history while nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from workflows.lifecycle.failures import cause_of
from workflows.topic_controller.asyncio_tasks import cancel_and_wait, is_cancelled
from workflows.topic_controller.controller_session import ControllerSession

DueT = TypeVar("DueT")

_FIRST_PATIENCE, _LONGEST_PATIENCE = timedelta(seconds=10), timedelta(hours=1)


class Poll(Generic[DueT]):
    """Asks an activity that answers when something is due, does that, and asks again.

    Args:
        controller: of the topic.
        ask: begins the activity; None where there is nothing to look at.
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
        self._patience = _FIRST_PATIENCE

    def restart(self) -> None:
        """What is looked at has changed."""
        self._restarting = True

    async def run(self) -> None:
        """Look until this is cancelled, or nothing is left to controller."""
        while not (self._controller.is_finished or is_cancelled()):
            self._restarting = False
            asking = self._ask()
            if asking is None:
                await workflow.wait_condition(lambda: self._restarting or self._controller.is_finished)
            else:
                await self._look(asyncio.create_task(asking))

    async def _look(self, looking: asyncio.Task[DueT]) -> None:
        try:
            await workflow.wait_condition(lambda: self._restarting or self._controller.is_finished or looking.done())
        except asyncio.CancelledError:
            await cancel_and_wait(looking)
            raise
        await cancel_and_wait(looking)
        if looking.cancelled():
            return
        error = looking.exception()
        if error is None:
            await self._do(looking.result())
        elif not isinstance(error, ActivityError):
            raise error
        elif not is_cancelled_exception(error):
            await self._rest(cause_of(error))

    async def _do(self, due: DueT) -> None:
        try:
            await self._act(due)
        except ApplicationError as error:
            await self._rest(error.message)
        else:
            self._patience = _FIRST_PATIENCE

    async def _rest(self, why: str) -> None:
        """What fails is tried again, less and less often."""
        if self._controller.is_finished or is_cancelled():
            return
        self._controller.note(why)
        with suppress(TimeoutError):
            # Other settings, or another layout, may be the cure.
            await workflow.wait_condition(
                lambda: self._restarting or self._controller.is_finished, timeout=self._patience
            )
        self._patience = min(self._patience * 2, _LONGEST_PATIENCE)

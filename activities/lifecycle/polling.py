"""PollResult now and then, for years, at nobody's cost: where nothing is due, Temporal starts the next attempt later.

Between two looks there is no thread, no heartbeat and no timer of a workflow, and failed attempts are not in its
history: it has one entry when something is due.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import as_failure, in_thread

AnswerT = TypeVar("AnswerT")

NOTHING_DUE = "NothingDue"
"""Type of the failure by which an attempt asks for the next one; operators see it at the pending activity."""


class PollResult(NamedTuple, Generic[AnswerT]):
    """What one look has shown.

    Attributes:
        answer: what is due; None for nothing.
        why: nothing is due.
        again: when the next look is.
        memory: JSON for the next look; a worker that dies loses it.
    """

    answer: AnswerT | None = None
    why: str = ""
    again: timedelta = timedelta(minutes=1)
    memory: Any = None


async def poll(look: Callable[[ActivityContext], PollResult[AnswerT]]) -> AnswerT:
    """PollResult once; answers what is due.

    Args:
        look: blocks; finds the memory of the last look in its context, None for none.

    Raises:
        ApplicationError: nothing is due, or the look failed.
    """
    details = activity.info().heartbeat_details
    memory = cast("Any", details[0] if details else None)
    context = ActivityContext(memory=memory)
    try:
        seen = await in_thread(context, lambda: look(context), lambda: activity.heartbeat(memory))
    except Exception as error:
        failure = as_failure(error)
        if failure is error:
            raise
        raise failure from None
    if seen.answer is not None:
        return seen.answer
    activity.heartbeat(seen.memory)
    raise ApplicationError(
        f"nothing to do: {seen.why}",
        type=NOTHING_DUE,
        next_retry_delay=seen.again,
        category=ApplicationErrorCategory.BENIGN,
    )

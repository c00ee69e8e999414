"""Infrequent polling: an attempt that finds nothing fails with `next_retry_delay`, and Temporal starts the next one.

Idle polls cost no thread, heartbeat or timer, and failed attempts are not in the workflow's history.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import as_failure, in_thread
from models.lifecycle.failures import NOTHING_DUE

AnswerT = TypeVar("AnswerT")


class PollResult(NamedTuple, Generic[AnswerT]):
    """Result of one poll.

    Attributes:
        answer: result of the activity; None where nothing is due.
        why: why nothing is due.
        again: delay of the next poll.
        memory: JSON for the next poll; lost if the worker dies.
    """

    answer: AnswerT | None = None
    why: str = ""
    again: timedelta = timedelta(minutes=1)
    memory: Any = None


async def poll(check: Callable[[ActivityContext], PollResult[AnswerT]]) -> AnswerT:
    """Poll once, and return what is due.

    Args:
        check: blocks; its context has the memory of the previous poll.

    Raises:
        ApplicationError: nothing is due, or the check failed.
    """
    details = activity.info().heartbeat_details
    memory = cast("Any", details[0] if details else None)
    context = ActivityContext(memory=memory)
    try:
        result = await in_thread(context, lambda: check(context), lambda: activity.heartbeat(memory))
    except Exception as error:
        failure = as_failure(error)
        if failure is error:
            raise
        raise failure from None
    if result.answer is not None:
        return result.answer
    activity.heartbeat(result.memory)
    raise ApplicationError(
        f"nothing to do: {result.why}",
        type=NOTHING_DUE,
        next_retry_delay=result.again,
        category=ApplicationErrorCategory.BENIGN,
    )

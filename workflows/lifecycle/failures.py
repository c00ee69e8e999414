"""Conversion of exceptions to the failure in the state, and back."""

from __future__ import annotations

import asyncio

from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, is_cancelled_exception

from models.lifecycle.failures import FailureKind
from models.lifecycle.state import Failure


class Interrupted(Exception):
    """A phase was interrupted by a rollback or a deadline."""

    def __init__(self, why: str, *, by_operator: bool) -> None:
        super().__init__(why)
        self.by_operator = by_operator


class Rehearsed(Exception):
    """A rehearsal has reached its last phase, and what it did is undone."""


FAILURES = (Interrupted, Rehearsed, ActivityError, ApplicationError, asyncio.CancelledError, CancelledError)
"""Exceptions that end a migration early."""


def failure_of(error: BaseException) -> Failure:
    """Return the failure that the state keeps of an exception of `FAILURES`."""
    if isinstance(error, Interrupted):
        return Failure(how="interrupted", why=str(error), by_operator=error.by_operator)
    if isinstance(error, Rehearsed):
        return Failure(how="rehearsed", why=str(error))
    if isinstance(error, asyncio.CancelledError) or (isinstance(error, Exception) and is_cancelled_exception(error)):
        return Failure(how="cancelled", why="cancelled from outside")
    cause = error
    while isinstance(cause, ActivityError) and cause.cause is not None:
        cause = cause.cause
    # An error without a type of ours is mostly a timeout of Temporal: no worker answered.
    kind = cause.type if isinstance(cause, ApplicationError) and cause.type else FailureKind.UNREACHABLE
    why = cause.message if isinstance(cause, ApplicationError) else cause_of(cause)
    return Failure(how="failed", why=why, type=kind)


def to_exception(failure: Failure) -> BaseException:
    """Return the exception that ends a workflow for this failure."""
    match failure.how:
        case "interrupted":
            return Interrupted(failure.why, by_operator=failure.by_operator)
        case "rehearsed":
            return Rehearsed(failure.why)
        case "cancelled":
            return CancelledError(failure.why)
        case "failed":
            return ApplicationError(failure.why, type=failure.type, non_retryable=True)


def cause_of(error: BaseException) -> str:
    """Return the message of the innermost cause."""
    while isinstance(error, ActivityError) and error.cause is not None:
        error = error.cause
    return str(error) or type(error).__name__

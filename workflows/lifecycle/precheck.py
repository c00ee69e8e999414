"""What becomes of the blockers that a precheck found."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import Blocker, FailureKind, count_blockers


def require_ready(blockers: Sequence[Blocker]) -> None:
    """Continue without blockers only.

    Raises:
        ApplicationError: there are some; the message lists each with its cure.
    """
    if blockers:
        listed = "\n".join(f"{number}. {blocker}" for number, blocker in enumerate(blockers, 1))
        raise ApplicationError(
            f"{count_blockers(blockers):,} blocker(s):\n{listed}", type=FailureKind.PRECHECK_FAILED, non_retryable=True
        )


def not_ready(blockers: Sequence[Blocker]) -> str:
    """The summary of a dry run that found blockers."""
    return f"not ready: {'; '.join(str(blocker) for blocker in blockers)}"

"""Failures and summaries from the blockers of a precheck."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import Blocker, FailureKind, count_blockers


def require_ready(blockers: Sequence[Blocker]) -> None:
    """Raise if there are blockers.

    Raises:
        ApplicationError: the message lists each blocker with its cure.
    """
    if blockers:
        listed = "\n".join(f"{number}. {blocker}" for number, blocker in enumerate(blockers, 1))
        raise ApplicationError(
            f"{count_blockers(blockers):,} blocker(s):\n{listed}", type=FailureKind.PRECHECK_FAILED, non_retryable=True
        )


def not_ready(blockers: Sequence[Blocker]) -> str:
    """Return the summary of a dry run that found blockers."""
    return f"not ready: {'; '.join(str(blocker) for blocker in blockers)}"

"""What a worker does with a workflow of a type that it does not know."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from worker.catalog import ALL


@workflow.defn(dynamic=True)
class UnknownWorkflow:
    """Ends at once; without it such a workflow would wait indefinitely for a worker that knows it."""

    @workflow.run
    async def run(self, given: Sequence[RawValue]) -> None:
        """Fail, and name the types that there are."""
        del given
        known = ", ".join(sorted(kind.workflow for kind in ALL.values()))
        why = f"there is no workflow type {workflow.info().workflow_type!r}. Cure: start one of these: {known}"
        raise ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)

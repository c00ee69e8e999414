"""The workflow that a worker runs for a type that it does not know."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from worker.catalog import ALL


@workflow.defn(dynamic=True)
class UnknownWorkflow:
    """Workflow that fails at once; without it such a workflow would wait indefinitely for a worker that knows it."""

    @workflow.run
    async def run(self, given: Sequence[RawValue]) -> None:
        """Fail, and name the known types."""
        del given
        registered = ", ".join(sorted(kind.workflow for kind in ALL.values()))
        why = f"there is no workflow type {workflow.info().workflow_type!r}. Cure: start one of these: {registered}"
        raise ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)

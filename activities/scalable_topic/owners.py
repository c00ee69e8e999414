"""Whether the migration that holds a cluster still runs, as Temporal knows it."""

from __future__ import annotations

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.lifecycle.runtime import Runtime
from clients.cas.claims import held_by
from clients.errors import ClaimHeld, StoreUnreachable
from models.lifecycle.claim import Claim
from models.scalable_topic.claims import is_ours
from models.store_url import StoreUrl

_PATIENCE = 10.0


class Owners:
    """Asks Temporal for the workflows that claims name; for threads.

    Args:
        runtime: of the worker.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def is_open(self, claim: Claim, url: StoreUrl) -> bool:
        """Whether the run that holds a claim still runs.

        One whose workflow Temporal does not know may run under another Temporal: nobody takes it over.

        Args:
            claim: of another migration.
            url: the store that has it, for the message.

        Raises:
            ClaimHeld: it is of another kind of migration, or Temporal does not know its workflow.
            StoreUnreachable: Temporal does not answer.
        """
        if is_ours(claim):
            try:
                answer = self._runtime.ask(self._ask(claim), _PATIENCE)
            except (RPCError, TimeoutError) as error:
                raise StoreUnreachable(f"Temporal does not say whether {claim.workflow_id} runs: {error}") from error
            if answer is not None:
                return answer
        raise ClaimHeld(held_by(claim, url), workflow_id=claim.workflow_id, run_id=claim.run_id, server=str(url))

    async def _ask(self, claim: Claim) -> bool | None:
        try:
            found = await self._runtime.client.get_workflow_handle(claim.workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        first = found.raw_description.workflow_execution_info.first_run_id
        return found.status is WorkflowExecutionStatus.RUNNING and first == claim.run_id

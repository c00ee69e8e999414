"""The steps of the blue-green cluster migration that concern both clusters as a whole (PIP-188)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from temporalio import activity

from activities.blue_green import cluster, grace, listing, undo
from activities.blue_green.access import lacking_credentials
from activities.blue_green.context import BlueGreenTask
from activities.blue_green.precheck import precheck
from activities.blue_green.provision import provision
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import require_open, run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from models.blue_green.input import KIND, BlueGreenInput
from models.blue_green.results import Census, CleanupStep, Completion, Precheck, Provision, Released, Undone
from models.lifecycle.execution import Execution
from models.lifecycle.failures import FailedItem
from models.lifecycle.waves import Page

ResultT = TypeVar("ResultT")


class BlueGreenActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="blue_green_precheck")
    async def precheck(self, execution: Execution[BlueGreenInput]) -> Precheck:
        """PRECHECK: what would move, all blockers with their cures, and what green lacks; writes nothing."""
        if blockers := lacking_credentials(self._runtime, execution.input):
            return Precheck(blockers=tuple(blockers))
        return await self._run(execution, precheck)

    @activity.defn(name="blue_green_register")
    async def register(self, execution: Execution[BlueGreenInput]) -> Released:
        """Take the claim on both clusters, and put back what an earlier run left."""
        await require_open(self._runtime.client)
        return await self._run(execution, cluster.register)

    @activity.defn(name="blue_green_provision")
    async def provision(self, execution: Execution[BlueGreenInput]) -> Provision:
        """PROVISION: create on green what it lacks, and compare both sides."""
        return await self._run(execution, provision)

    @activity.defn(name="blue_green_hold_load")
    async def hold_load(self, execution: Execution[BlueGreenInput]) -> None:
        """Have blue's brokers keep what they have loaded, and store where clients will be sent."""
        await self._run(execution, cluster.hold_load)

    @activity.defn(name="blue_green_list_namespaces")
    async def list_namespaces(self, execution: Execution[BlueGreenInput], cursor: str, limit: int) -> Page:
        """The namespaces behind a cursor, in their order."""
        return await self._run(execution, lambda task: listing.page(task, cursor, limit))

    @activity.defn(name="blue_green_record_failures")
    async def record_failures(
        self, execution: Execution[BlueGreenInput], failures: list[FailedItem], offset: int
    ) -> str:
        """Keep the namespaces that could not be moved; says where."""
        return await self._run(execution, lambda task: listing.record_failures(task, failures, offset))

    @activity.defn(name="blue_green_settle")
    async def settle(self, execution: Execution[BlueGreenInput], namespaces: list[str]) -> Undone:
        """ROLLBACK of a batch whose workflow was ended by somebody else: writes must not stay held back."""
        return await self._run(execution, lambda task: undo.settle(task, namespaces))

    @activity.defn(name="blue_green_complete")
    async def complete(self, execution: Execution[BlueGreenInput]) -> Completion:
        """COMPLETE: set the flag of the whole cluster if all have moved; put back what was changed for all."""
        return await self._run(execution, cluster.complete)

    @activity.defn(name="blue_green_census")
    async def take_census(self, execution: Execution[BlueGreenInput]) -> Census:
        """Who still asks blue, and what is not as the migration left it."""
        return await self._run(execution, grace.census)

    @activity.defn(name="blue_green_clean_up")
    async def clean_up(self, execution: Execution[BlueGreenInput]) -> CleanupStep:
        """CLEANUP: delete a bounded number of blue's topics that have moved and that nobody uses."""
        return await self._run(execution, grace.clean_up)

    @activity.defn(name="blue_green_finish")
    async def finish(self, execution: Execution[BlueGreenInput]) -> Released:
        """Give up both claims; the flags stay."""
        return await self._run(execution, cluster.finish)

    @activity.defn(name="blue_green_release")
    async def release(self, execution: Execution[BlueGreenInput]) -> Released:
        """ROLLBACK: put back what was changed for all, and give up both claims."""
        return await self._run(execution, cluster.release)

    async def _run(self, execution: Execution[BlueGreenInput], step: Callable[[BlueGreenTask], ResultT]) -> ResultT:
        attempt = this_attempt(execution)

        def work(context: ActivityContext) -> ResultT:
            with BlueGreenTask(self._runtime, execution.input, attempt, context) as task:
                return step(task)

        labels = {"kind": KIND, "cluster": execution.input.cluster}
        return await run_activity(self._runtime.client, work, labels=labels)

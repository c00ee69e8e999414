"""The steps of one batch of namespaces (PIP-188, "Broker changes" 3, 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from temporalio import activity

from activities.blue_green import backlogs, undo, verify
from activities.blue_green import drain as draining
from activities.blue_green import flip as flipping
from activities.blue_green import load as loading
from activities.blue_green import quiesce as quiescing
from activities.blue_green.context import BlueGreenTask, NamespaceGuard, is_held
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import attempt_number, run_activity
from activities.lifecycle.runtime import Runtime
from activities.pulsar.coverage import require_covered
from clients.cas.store import CasStore
from models.blue_green.batch import BatchInput, attempt_of
from models.blue_green.copies import Carried, CopyFigures
from models.blue_green.input import KIND
from models.blue_green.results import BatchCheck, Drained, Flipped, Loaded, Quiet, Undone
from models.lifecycle.execution import Execution

ResultT = TypeVar("ResultT")

Step = Callable[[BlueGreenTask, Sequence[NamespaceGuard], CasStore], ResultT]


class BlueGreenBatchActivities:
    """The steps of a batch, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="blue_green_load")
    async def load(self, execution: Execution[BatchInput]) -> Loaded:
        """LOAD: every topic of the batch is in memory on blue, and who uses it is written down."""
        batch = execution.input.batch

        def load(task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Loaded:
            require_covered(task.input, lambda census: task.survey(census, batch))
            return loading.load(task, guards, store)

        return await self._run(execution, load)

    @activity.defn(name="blue_green_seed")
    async def seed(self, execution: Execution[BatchInput]) -> CopyFigures:
        """SEED: copy the backlogs of idle subscriptions."""
        return await self._run(execution, backlogs.seed)

    @activity.defn(name="blue_green_catch_up")
    async def catch_up(self, execution: Execution[BatchInput]) -> None:
        """QUIESCE: bring green up to date once more, while writes go on."""
        await self._run(execution, quiescing.catch_up)

    @activity.defn(name="blue_green_quiesce")
    async def quiesce(self, execution: Execution[BatchInput]) -> Quiet:
        """QUIESCE: hold writes back, and wait until none arrive."""
        return await self._run(execution, quiescing.quiesce)

    @activity.defn(name="blue_green_carry")
    async def carry(self, execution: Execution[BatchInput]) -> Carried:
        """QUIESCE: the rest of the copy, with the places of the subscriptions."""
        return await self._run(execution, backlogs.carry)

    @activity.defn(name="blue_green_flip")
    async def flip(self, execution: Execution[BatchInput]) -> Flipped:
        """FLIP: set the flags, and wait until brokers have terminated all topics."""
        return await self._run(execution, flipping.flip)

    @activity.defn(name="blue_green_drain")
    async def drain(self, execution: Execution[BatchInput]) -> Drained:
        """DRAIN: watch until nothing is left on blue."""
        return await self._run(execution, draining.drain)

    @activity.defn(name="blue_green_verify")
    async def verify(self, execution: Execution[BatchInput]) -> BatchCheck:
        """VERIFY: compare the batch on both sides."""
        return await self._run(execution, verify.verify)

    @activity.defn(name="blue_green_undo")
    async def undo(self, execution: Execution[BatchInput]) -> Undone:
        """ROLLBACK: leave the batch's clients with blue, where that is possible without a loss."""
        # The batch of a run that is gone must end, since that of the next one has its id.
        nothing = Undone(undone=True, kept=("this run has ended, or a later one has taken these namespaces over",))
        return await self._run(execution, undo.undo, where_taken_over=nothing)

    async def _run(
        self, execution: Execution[BatchInput], step: Step[ResultT], *, where_taken_over: ResultT | None = None
    ) -> ResultT:
        attempt = attempt_of(execution, attempt_number())

        def work(context: ActivityContext) -> ResultT:
            input = execution.input
            with BlueGreenTask(self._runtime, input, attempt, context) as task, task.blue_store() as store:
                if where_taken_over is not None and not is_held(task, store):
                    return where_taken_over
                guards = [NamespaceGuard(store, attempt, namespace) for namespace in input.batch]
                for guard in guards:
                    guard.take()
                return step(task, guards, store)

        labels = {"kind": KIND, "cluster": execution.input.cluster}
        return await run_activity(self._runtime.client, work, labels=labels)

"""The steps of the bookie cluster switch (PIP-477); the workflow calls them in this order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from temporalio import activity

from activities.bookie_cluster import attribution, brokers, build, cleanup, registry, tail, way_back
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.precheck import SwitchPrecheckRun
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.pulsar.coverage import covered
from activities.pulsar.feature_census import FeatureCensus
from models.bookie_cluster.input import KIND, BookieClusterInput, Direction, Proof
from models.bookie_cluster.results import (
    BrokersOn,
    BrokersStopped,
    CleanupTargets,
    CopySummary,
    Directive,
    IdCheck,
    LedgersDeleted,
    Promotion,
    Registration,
    SwitchCensus,
    SwitchPrecheck,
    TailCopy,
    WayBack,
)
from models.bookie_cluster.updates import CleanupOrder, ClientClosing, Pace, ReadModeChange
from models.lifecycle.execution import Execution

ResultT = TypeVar("ResultT")


class BookieClusterActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="bookie_cluster_register")
    async def register(self, execution: Execution[BookieClusterInput]) -> Registration:
        """REGISTER: both clusters stand in the registry, the source ACTIVE; refuses an address that is in use."""
        return await self._run(execution, Direction.FORWARD, registry.register)

    @activity.defn(name="bookie_cluster_precheck")
    async def precheck(self, execution: Execution[BookieClusterInput]) -> SwitchPrecheck:
        """PRECHECK: all blockers, each with its cure; reads only."""

        def run(task: BookieClusterTask, context: ActivityContext) -> SwitchPrecheck:
            result = SwitchPrecheckRun(task, context).run()
            census, store = FeatureCensus(task.input.cluster), task.input.store
            return covered(result, task.input, census, task.survey, store=store, access=task.access)

        return await self._run(execution, Direction.FORWARD, run)

    @activity.defn(name="bookie_cluster_check_ids")
    async def check_ids(self, execution: Execution[BookieClusterInput], direction: Direction) -> IdCheck:
        """Whether the ids that the target hands out lie above all that are in use (I11); reads only."""
        return await self._run(execution, direction, build.check_ids)

    @activity.defn(name="bookie_cluster_advance_ids")
    async def advance_ids(self, execution: Execution[BookieClusterInput], direction: Direction) -> IdCheck:
        """Put the target's id generator above all ids in use (I11), and read it back."""
        return await self._run(execution, direction, build.advance_ids)

    @activity.defn(name="bookie_cluster_build")
    async def build(
        self, execution: Execution[BookieClusterInput], direction: Direction, seconds: float
    ) -> CopySummary:
        """BUILD: copy ledgers while brokers serve until little is left, and keep it so for these seconds."""
        return await self._run(execution, direction, lambda task, context: build.build(task, context, seconds))

    @activity.defn(name="bookie_cluster_stop_brokers")
    async def stop_brokers(
        self, execution: Execution[BookieClusterInput], direction: Direction, proof: Proof = Proof.FULL
    ) -> BrokersStopped:
        """Have brokers stopped (by command, webhook or hand), and wait until nothing of them is left."""
        return await self._run(execution, direction, lambda task, context: brokers.stop(task, context, proof))

    @activity.defn(name="bookie_cluster_copy_tail")
    async def copy_tail(self, execution: Execution[BookieClusterInput], direction: Direction) -> TailCopy:
        """SWITCH with routing `restart`: recover open ledgers, copy what is left, and compare; no broker may run."""
        return await self._run(execution, direction, tail.copy_tail)

    @activity.defn(name="bookie_cluster_set_target")
    async def set_target(
        self, execution: Execution[BookieClusterInput], direction: Direction, mark: int | None = None
    ) -> Directive:
        """Set `switch-target` to the cluster to which brokers write from now on; done once for a run and direction."""
        return await self._run(execution, direction, lambda task, context: registry.set_target(task, context, mark))

    @activity.defn(name="bookie_cluster_start_brokers")
    async def start_brokers(
        self, execution: Execution[BookieClusterInput], direction: Direction, proof: Proof = Proof.FULL
    ) -> BrokersOn:
        """Have brokers started on the target, and wait until it is proven that each of them writes there."""
        return await self._run(execution, direction, lambda task, context: brokers.start(task, context, proof))

    @activity.defn(name="bookie_cluster_check_way_back")
    async def check_way_back(self, execution: Execution[BookieClusterInput]) -> WayBack:
        """Whether brokers can be brought back to the source, before a rollback stops anybody; reads only."""
        return await self._run(execution, Direction.BACK, lambda task, _: way_back.check_way_back(task))

    @activity.defn(name="bookie_cluster_do_without_target")
    async def do_without_target(self, execution: Execution[BookieClusterInput]) -> TailCopy:
        """What stands in for lifting ids and for the tail on a way back from a target that is lost."""
        return await self._run(execution, Direction.BACK, way_back.do_without_target)

    @activity.defn(name="bookie_cluster_promote")
    async def promote(self, execution: Execution[BookieClusterInput], direction: Direction) -> Promotion:
        """PROMOTE with routing `attribution`: change the attribution of what was copied, and nothing else (I9, I10)."""
        return await self._run(execution, direction, attribution.promote)

    @activity.defn(name="bookie_cluster_census")
    async def take_census(self, execution: Execution[BookieClusterInput]) -> SwitchCensus:
        """Who uses which cluster, what a rollback would copy back, and what a cleanup would delete."""
        return await self._run(execution, Direction.FORWARD, cleanup.take_census)

    @activity.defn(name="bookie_cluster_list_targets")
    async def list_targets(self, execution: Execution[BookieClusterInput], order: CleanupOrder) -> CleanupTargets:
        """List the ledgers of the old cluster that a cleanup would delete; reads only."""
        return await self._run(execution, Direction.FORWARD, lambda task, _: cleanup.list_targets(task, order))

    @activity.defn(name="bookie_cluster_flip_statuses")
    async def flip_statuses(self, execution: Execution[BookieClusterInput]) -> None:
        """Make the target ACTIVE and the source DEPRECATED, by two compare-and-sets in one transaction (I12)."""
        await self._run(execution, Direction.FORWARD, registry.flip_statuses)

    @activity.defn(name="bookie_cluster_delete_ledgers")
    async def delete_ledgers(self, execution: Execution[BookieClusterInput], order: CleanupOrder) -> LedgersDeleted:
        """Delete a bounded part of what `list_targets` lists."""
        return await self._run(
            execution, Direction.FORWARD, lambda task, context: cleanup.delete_ledgers(task, context, order)
        )

    @activity.defn(name="bookie_cluster_remove_copies")
    async def remove_copies(self, execution: Execution[BookieClusterInput]) -> LedgersDeleted:
        """Delete a bounded part of the copies in the target, which nothing refers to after a rollback."""
        return await self._run(execution, Direction.FORWARD, cleanup.remove_copies)

    @activity.defn(name="bookie_cluster_release")
    async def release(self, execution: Execution[BookieClusterInput]) -> None:
        """Remove the switch's own nodes from the registry."""
        await self._run(execution, Direction.FORWARD, registry.release)

    @activity.defn(name="bookie_cluster_set_pace")
    async def set_pace(self, execution: Execution[BookieClusterInput], pace: Pace) -> None:
        """Change throttle and concurrency of the copy that runs."""
        await self._run(execution, Direction.FORWARD, lambda task, _: registry.set_pace(task, pace))

    @activity.defn(name="bookie_cluster_set_read_mode")
    async def set_read_mode(self, execution: Execution[BookieClusterInput], change: ReadModeChange) -> None:
        """Tell every broker from which clusters to read (PIP-477, "REST API")."""
        await self._run(execution, Direction.FORWARD, lambda task, _: attribution.set_read_mode(task, change))

    @activity.defn(name="bookie_cluster_close_client")
    async def close_client(self, execution: Execution[BookieClusterInput], closing: ClientClosing) -> None:
        """Have every broker close its client of the old cluster, once nothing refers to that (I5)."""
        await self._run(execution, Direction.FORWARD, lambda task, _: attribution.close_client(task, closing))

    async def _run(
        self,
        execution: Execution[BookieClusterInput],
        direction: Direction,
        step: Callable[[BookieClusterTask, ActivityContext], ResultT],
    ) -> ResultT:
        attempt = this_attempt(execution)
        task = BookieClusterTask(self._runtime, execution, attempt, direction)
        return await run_activity(
            self._runtime.client,
            lambda context: step(task, context),
            labels={"kind": KIND, "cluster": execution.input.cluster},
        )

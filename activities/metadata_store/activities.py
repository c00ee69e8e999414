"""The steps of the metadata store migration (PIP-454); the workflow calls them in this order."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from temporalio import activity

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.metadata_store import catch_up as catching_up
from activities.metadata_store import cutover, preparation, way_back
from activities.metadata_store import pre_copy as copying
from activities.metadata_store.background_tasks import Afterwork
from activities.metadata_store.census import census, require_left
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.precheck import PrecheckRun
from activities.pulsar.coverage import covered
from activities.pulsar.feature_census import FeatureCensus
from clients.errors import StoreContention
from models.lifecycle.execution import Execution
from models.lifecycle.verbs import Speed
from models.metadata_store.input import KIND, MetadataStoreInput, Mode
from models.metadata_store.results import (
    CatchUp,
    Census,
    ChangeCopy,
    CleanupStep,
    Completion,
    LateWrites,
    Precheck,
    PreCopy,
    Preparation,
    Restoration,
    Verification,
)
from spark.metadata_store import jobs

ResultT = TypeVar("ResultT")


class MetadataStoreActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._afterwork = Afterwork()

    @activity.defn(name="metadata_store_precheck")
    async def precheck(self, execution: Execution[MetadataStoreInput]) -> Precheck:
        """PRECHECK: all blockers, each with its cure; writes nothing in a dry run.

        What an earlier run left blocked is given back first.
        """

        def run(task: MetadataStoreTask, context: ActivityContext) -> Precheck:
            runtime, unblock = self._runtime, partial(way_back.release, task)
            check = PrecheckRun(task.input, task.workflow_id, runtime.access, runtime.admin, unblock)
            result = check.run(task.engine, task.pair, tag=task.tag(context))
            census, store = FeatureCensus(task.input.cluster), task.input.source_url
            return covered(result, task.input, census, task.survey, store=store, access=runtime.access)

        return await self._run(execution, run)

    @activity.defn(name="metadata_store_pre_copy")
    async def pre_copy(self, execution: Execution[MetadataStoreInput], records: int) -> PreCopy:
        """PRE_COPY: watch the source, copy it, compare both stores whole, and catch up; brokers go on writing."""
        return await self._run(execution, lambda task, context: copying.pre_copy(task, context, records))

    @activity.defn(name="metadata_store_catch_up")
    async def catch_up(self, execution: Execution[MetadataStoreInput], pre: PreCopy, seconds: float) -> CatchUp:
        """CATCH_UP: copy what changes, for some seconds; brokers go on writing."""
        return await self._run(execution, lambda task, context: catching_up.catch_up(task, context, pre, seconds))

    @activity.defn(name="metadata_store_copy_whole")
    async def copy_whole(self, execution: Execution[MetadataStoreInput], records: int) -> PreCopy:
        """COPYING, offline: copy everything; all services are stopped."""
        return await self._run(execution, lambda task, context: copying.copy_whole(task, context, records))

    @activity.defn(name="metadata_store_prepare")
    async def prepare(self, execution: Execution[MetadataStoreInput]) -> Preparation:
        """PREPARATION: set the flag, and wait until every participant stands in the target."""
        info, timeout = activity.info(), execution.input.preparation_timeout
        # From the first attempt on: retries must not prolong the time that participants get while writes are blocked.
        # Both times are Temporal's: this machine's clock may differ.
        left = (timeout - (info.started_time - info.scheduled_time)).total_seconds()
        return await self._run(execution, lambda task, context: preparation.prepare(task, context, left))

    @activity.defn(name="metadata_store_copy_changes")
    async def copy_changes(self, execution: Execution[MetadataStoreInput], pre: PreCopy) -> ChangeCopy:
        """COPYING: set the flag, and copy what changed since PRE_COPY."""
        return await self._run(execution, lambda task, context: cutover.copy_changes(task, context, pre.since_zxid))

    @activity.defn(name="metadata_store_verify")
    async def verify(self, execution: Execution[MetadataStoreInput], pre: PreCopy) -> Verification:
        """VERIFY: compare what was copied with writes blocked; everything where asked, and offline."""
        check = cutover.verify if execution.input.mode is Mode.LIVE else cutover.verify_offline
        return await self._run(execution, lambda task, context: check(task, context, pre))

    @activity.defn(name="metadata_store_complete")
    async def complete(self, execution: Execution[MetadataStoreInput], pre: PreCopy) -> Completion:
        """COMPLETED: the commit point, and what brokers still wrote to the source until they followed it."""
        if execution.input.mode is Mode.OFFLINE:
            return await self._run(execution, cutover.complete_offline)
        return await self._run(execution, lambda task, context: cutover.complete(task, context, pre))

    @activity.defn(name="metadata_store_follow")
    async def follow(self, execution: Execution[MetadataStoreInput], pre: PreCopy) -> LateWrites:
        """In the window: copy what was still written to the source, and set the flag once more."""
        return await self._run(execution, lambda task, context: cutover.follow(task, context, pre))

    @activity.defn(name="metadata_store_forget_watch")
    async def forget_watch(self, execution: Execution[MetadataStoreInput]) -> None:
        """End the watch of the source that this worker holds; harmless where it holds none."""
        await self._run(execution, lambda task, _: task.forget_watch())

    @activity.defn(name="metadata_store_give_back")
    async def give_back(self, execution: Execution[MetadataStoreInput]) -> bool:
        """Give back what an earlier run left blocked, with its claim; returns whether it had left anything."""
        return await self._run(execution, lambda task, _: way_back.give_back(task))

    @activity.defn(name="metadata_store_unblock_writes")
    async def unblock_writes(self, execution: Execution[MetadataStoreInput], cause: str) -> Restoration:
        """Set the flag to FAILED, so that brokers write to the source again; nothing where it is not ours."""
        activity.logger.info("giving metadata writes back: %s", cause)
        return await self._run(execution, lambda task, _: way_back.unblock_writes(task))

    @activity.defn(name="metadata_store_clear_target")
    async def clear_target(self, execution: Execution[MetadataStoreInput]) -> int:
        """Remove what this migration put into the target; returns the number of records."""
        return await self._run(execution, way_back.clear_target)

    @activity.defn(name="metadata_store_set_speed")
    async def set_speed(self, execution: Execution[MetadataStoreInput], speed: Speed) -> None:
        """Change the throttle of the copy that runs."""

        def run(task: MetadataStoreTask, _: ActivityContext) -> None:
            with task.target_claim() as claim:
                # Not renewed: the attempt that copies must stay the holder, and reads the new limit in its fence.
                if claim.change(throttle=speed.megabytes_per_second) is None:
                    # PRE_COPY has begun, and its copy has not; told now, it would begin with the old limit.
                    raise StoreContention("the copy has not begun yet; its throttle is set as soon as it has")

        await self._run(execution, run)

    @activity.defn(name="metadata_store_census")
    async def take_census(
        self, execution: Execution[MetadataStoreInput], sessions: dict[str, int] | None = None
    ) -> Census:
        """Say who still uses the source; `sessions` are those of services in the target at the commit."""
        runtime = self._runtime
        return await self._run(
            execution, lambda task, _: census(task.input, runtime.access, runtime.admin, sessions or {})
        )

    @activity.defn(name="metadata_store_count_source")
    async def count_source(self, execution: Execution[MetadataStoreInput]) -> int:
        """Count the records that the cleanup would remove from the source."""

        def run(task: MetadataStoreTask, context: ActivityContext) -> int:
            found = jobs.survey(task.engine, task.pair, tag=task.tag(context))
            return found.records - found.others

        return await self._run(execution, run)

    @activity.defn(name="metadata_store_clean_source")
    async def clean_source(
        self, execution: Execution[MetadataStoreInput], sessions: dict[str, int] | None = None
    ) -> CleanupStep:
        """Remove a bounded part of the migrated tree from the source; the flag stays for services that come late."""

        def run(task: MetadataStoreTask, context: ActivityContext) -> CleanupStep:
            # Asked before each part: a service that came back would lose the metadata that it uses.
            require_left(task.input, task.runtime.access, sessions or {})
            begun = time.monotonic()
            # The tasks that delete ask this claim, so that those of an earlier attempt stop.
            way_back.take_source(task)
            removed, remaining = jobs.clear(
                task.engine, task.fenced_pair, "source", limit=task.input.cleanup_limit, tag=task.tag(context)
            )
            activity.logger.info("removed %d records in %.1f s", removed, time.monotonic() - begun)
            # Live, the claim stays beside the flag COMPLETED and says whose migration that was.
            if not remaining and task.input.mode is Mode.OFFLINE:
                way_back.release(task)
            return CleanupStep(removed=removed, remaining=remaining)

        return await self._run(execution, run)

    async def _run(
        self, execution: Execution[MetadataStoreInput], step: Callable[[MetadataStoreTask, ActivityContext], ResultT]
    ) -> ResultT:
        attempt = this_attempt(execution)
        task = MetadataStoreTask(self._runtime, execution, attempt, self._afterwork)
        return await run_activity(
            self._runtime.client,
            lambda context: step(task, context),
            labels={"kind": KIND, "cluster": execution.input.cluster},
        )

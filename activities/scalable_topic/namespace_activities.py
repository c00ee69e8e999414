"""The steps of the migration of many regular topics that concern all of them (PIP-475)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from temporalio import activity

from activities.lifecycle.runner import require_open, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.scalable_topic import cleanup, cluster, many_topics
from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.many_topics import NamespaceTask
from activities.scalable_topic.steps import run_step
from models.lifecycle.execution import Execution
from models.lifecycle.failures import FailedItem
from models.lifecycle.waves import Page
from models.scalable_topic.namespace_input import KIND, NamespaceScalableInput
from models.scalable_topic.results import CleanedUp, Released, Survey

ResultT = TypeVar("ResultT")


class NamespaceScalableActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="scalable_topic_survey")
    async def survey(self, execution: Execution[NamespaceScalableInput]) -> Survey:
        """PRECHECK: what would become scalable, and what keeps it from that; writes nothing."""
        return await self._run(execution, many_topics.survey)

    @activity.defn(name="scalable_topic_recover_all")
    async def recover_all(self, execution: Execution[NamespaceScalableInput]) -> Released:
        """Bring to its end what a run has left that was terminated, or is lost."""
        await require_open(self._runtime.client)
        return await self._run(execution, cluster.recover)

    @activity.defn(name="scalable_topic_hold_all")
    async def hold_all(self, execution: Execution[NamespaceScalableInput]) -> Released:
        """GUARD: claim the cluster, complete what an earlier run left, hold the policies of all namespaces."""
        await require_open(self._runtime.client)
        return await self._run(execution, many_topics.hold)

    @activity.defn(name="scalable_topic_list_topics")
    async def list_topics(self, execution: Execution[NamespaceScalableInput], cursor: str, limit: int) -> Page:
        """The topics behind a cursor, in their order; writes nothing."""
        return await self._run(execution, lambda task: many_topics.page(task, cursor, limit))

    @activity.defn(name="scalable_topic_record_failures")
    async def record_failures(
        self, execution: Execution[NamespaceScalableInput], failures: list[FailedItem], offset: int
    ) -> str:
        """Keep the topics that stayed regular, or have faults; says where."""
        return await self._run(execution, lambda task: many_topics.record_failures(task, failures, offset))

    @activity.defn(name="scalable_topic_release_all")
    async def release_all(self, execution: Execution[NamespaceScalableInput]) -> Released:
        """COMPLETE and ROLLBACK: complete what was left by halves, put policies back, and give up the claim."""
        return await self._run(execution, many_topics.release)

    @activity.defn(name="scalable_topic_clean_up_all")
    async def clean_up_all(self, execution: Execution[NamespaceScalableInput]) -> CleanedUp:
        """CLEANUP: delete regular topics that nobody needs any more."""
        return await self._run(execution, cleanup.clean_up)

    @activity.defn(name="scalable_topic_forget_all")
    async def forget_all(self, execution: Execution[NamespaceScalableInput]) -> CleanedUp:
        """Forget all topics without a cleanup."""
        return await self._run(execution, cleanup.forget)

    async def _run(
        self, execution: Execution[NamespaceScalableInput], step: Callable[[NamespaceTask], ResultT]
    ) -> ResultT:
        task = ClusterTask[NamespaceScalableInput]
        return await run_step(self._runtime, execution, task, step, kind=KIND, attempt=this_attempt(execution))

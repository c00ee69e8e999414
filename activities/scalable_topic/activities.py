"""The steps of the migration of one regular topic to a scalable one (PIP-475)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from temporalio import activity

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import require_open, run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.scalable_topic import clients, cluster, drain, flip, precheck
from activities.scalable_topic.context import TopicTask
from models.lifecycle.execution import Execution
from models.scalable_topic.input import KIND, ScalableTopicInput
from models.scalable_topic.results import ClientsGone, DrainedTopic, FlipAnswer, Precheck, Released, TopicCheck

ResultT = TypeVar("ResultT")


class ScalableTopicActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="scalable_topic_precheck")
    async def precheck(self, execution: Execution[ScalableTopicInput]) -> Precheck:
        """PRECHECK: all blockers with their cures, and the layout that will come; writes nothing."""
        return await self._run(execution, precheck.precheck)

    @activity.defn(name="scalable_topic_register")
    async def register(self, execution: Execution[ScalableTopicInput]) -> Released:
        """Take the claim on the cluster, and put back what an earlier run left."""
        await require_open(self._runtime.client)
        return await self._run(execution, cluster.register)

    @activity.defn(name="scalable_topic_await_clients")
    async def await_clients(self, execution: Execution[ScalableTopicInput], until: datetime) -> ClientsGone:
        """CLIENTS: wait until nobody uses the topic who cannot follow."""
        return await self._run(execution, lambda task: clients.await_clients(task, until))

    @activity.defn(name="scalable_topic_guard")
    async def guard(self, execution: Execution[ScalableTopicInput]) -> None:
        """GUARD: hold the policies of the namespace."""
        await self._run(execution, cluster.guard)

    @activity.defn(name="scalable_topic_flip")
    async def flip(self, execution: Execution[ScalableTopicInput]) -> FlipAnswer:
        """FLIP: make the topic scalable, and complete what brokers leave out."""
        return await self._run(execution, flip.flip)

    @activity.defn(name="scalable_topic_drain")
    async def drain(self, execution: Execution[ScalableTopicInput], until: datetime) -> DrainedTopic:
        """DRAIN: watch until old messages are consumed."""
        return await self._run(execution, lambda task: drain.drain(task, until))

    @activity.defn(name="scalable_topic_verify")
    async def verify(self, execution: Execution[ScalableTopicInput]) -> TopicCheck:
        """VERIFY: compare the scalable topic with what the regular one had."""
        return await self._run(execution, drain.verify)

    @activity.defn(name="scalable_topic_release")
    async def release(self, execution: Execution[ScalableTopicInput]) -> Released:
        """COMPLETE and ROLLBACK: put the policies back, and give up the claim."""
        return await self._run(execution, cluster.release)

    async def _run(self, execution: Execution[ScalableTopicInput], step: Callable[[TopicTask], ResultT]) -> ResultT:
        attempt = this_attempt(execution)

        def work(context: ActivityContext) -> ResultT:
            with TopicTask(self._runtime, execution.input, attempt, context) as task:
                return step(task)

        labels = {"kind": KIND, "cluster": execution.input.cluster}
        return await run_activity(self._runtime.client, work, labels=labels)

"""The steps of the migration of one regular topic to a scalable one (PIP-475)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from temporalio import activity

from activities.lifecycle.runner import attempt_number, require_open, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.scalable_topic import cleanup, clients, drain, flip, one_topic, precheck
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.steps import run_step
from models.lifecycle.execution import Execution
from models.scalable_topic.input import KIND, ScalableTopicInput
from models.scalable_topic.results import (
    CleanedUp,
    ClientsGone,
    DrainedTopic,
    FlipAnswer,
    Precheck,
    Released,
    TopicCheck,
    Undone,
)

ResultT = TypeVar("ResultT")


class ScalableTopicActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="scalable_topic_precheck")
    async def precheck(self, execution: Execution[ScalableTopicInput]) -> Precheck:
        """PRECHECK: all blockers with their cures, and the layout that will come; writes nothing."""
        return await self._run(execution, precheck.precheck)

    @activity.defn(name="scalable_topic_recover")
    async def recover(self, execution: Execution[ScalableTopicInput]) -> Released:
        """Bring to its end what a run has left that was terminated, or is lost."""
        await require_open(self._runtime.client)
        return await self._run(execution, one_topic.recover)

    @activity.defn(name="scalable_topic_await_clients")
    async def await_clients(
        self, execution: Execution[ScalableTopicInput], until: datetime, ordered: dict[str, str] | None = None
    ) -> ClientsGone:
        """CLIENTS: wait until nobody uses the topic who cannot follow; writes nothing."""
        return await self._run(execution, lambda task: clients.await_clients(task, until, ordered or {}))

    @activity.defn(name="scalable_topic_guard")
    async def guard(self, execution: Execution[ScalableTopicInput], ordered: dict[str, str] | None = None) -> Released:
        """GUARD: claim the cluster, complete what an earlier run left, hold policies, lock the topic."""
        await require_open(self._runtime.client)
        return await self._run(execution, lambda task: one_topic.guard(task, ordered or {}))

    @activity.defn(name="scalable_topic_flip")
    async def flip(self, execution: Execution[ScalableTopicInput], ordered: dict[str, str] | None = None) -> FlipAnswer:
        """FLIP: make the topic scalable, and complete what brokers leave out."""
        return await self._run(execution, lambda task: flip.flip(task, ordered or {}))

    @activity.defn(name="scalable_topic_drain")
    async def drain(self, execution: Execution[ScalableTopicInput], until: datetime) -> DrainedTopic:
        """DRAIN: watch until old messages are consumed; writes nothing."""
        return await self._run(execution, lambda task: drain.drain(task, until))

    @activity.defn(name="scalable_topic_verify")
    async def verify(self, execution: Execution[ScalableTopicInput]) -> TopicCheck:
        """VERIFY: compare the scalable topic with what the regular one had; writes nothing."""
        return await self._run(execution, drain.verify)

    @activity.defn(name="scalable_topic_complete")
    async def complete(self, execution: Execution[ScalableTopicInput]) -> Released:
        """COMPLETE: set the topic's own policy, put those of the namespace back, and give up the claim."""
        return await self._run(execution, one_topic.complete)

    @activity.defn(name="scalable_topic_undo")
    async def undo(self, execution: Execution[ScalableTopicInput]) -> Undone:
        """ROLLBACK: give everything back, where the topic is regular still."""
        return await self._run(execution, one_topic.undo)

    @activity.defn(name="scalable_topic_clean_up")
    async def clean_up(self, execution: Execution[ScalableTopicInput]) -> CleanedUp:
        """CLEANUP: delete the regular topic, where nobody needs it any more."""
        return await self._run(execution, cleanup.clean_up)

    @activity.defn(name="scalable_topic_forget")
    async def forget(self, execution: Execution[ScalableTopicInput]) -> CleanedUp:
        """Forget the topic without a cleanup."""
        return await self._run(execution, cleanup.forget)

    async def _run(self, execution: Execution[ScalableTopicInput], step: Callable[[TopicTask], ResultT]) -> ResultT:
        parent = execution.input.parent
        attempt = parent.attempt(execution.epoch, attempt_number()) if parent else this_attempt(execution)
        return await run_step(self._runtime, execution, TopicTask, step, kind=KIND, attempt=attempt)

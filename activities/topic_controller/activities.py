"""The steps of the controller of one scalable topic (PIP-468)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import require_open, run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.topic_controller import change, sessions, topic
from activities.topic_controller.context import ControllerTask, Role
from activities.topic_controller.observe import observe
from clients.errors import ClaimHeld, Superseded
from models.lifecycle.execution import Execution
from models.lifecycle.failures import FailureKind
from models.topic_controller.input import KIND, ControllerInput, Deletion, SubscriptionRequest, Unsubscription
from models.topic_controller.record import ControlledLayout, Mutation
from models.topic_controller.sessions import AssignmentChanges, Observation, Watching
from models.topic_controller.state import Opened, Sealed, TopicReport

ResultT = TypeVar("ResultT")


class TopicControllerActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="topic_controller_open")
    async def open(self, execution: Execution[ControllerInput]) -> Opened:
        """Find the topic, or create it."""
        await require_open(self._runtime.client)
        return await self._run(execution, topic.open_topic)

    @activity.defn(name="topic_controller_prepare")
    async def prepare(self, execution: Execution[ControllerInput], mutation: Mutation) -> ControlledLayout:
        """Split or merge: note the change, make new segments with a place of each subscription."""
        return await self._run(execution, lambda task: change.prepare(task, mutation))

    @activity.defn(name="topic_controller_seal")
    async def seal(self, execution: Execution[ControllerInput], mutation: Mutation) -> Sealed:
        """Split or merge: end the old segments."""
        return await self._run(execution, lambda task: change.seal(task, mutation))

    @activity.defn(name="topic_controller_commit")
    async def commit(self, execution: Execution[ControllerInput], mutation: Mutation) -> ControlledLayout:
        """Split or merge: the new layout counts, and is published."""
        return await self._run(execution, lambda task: change.commit(task, mutation))

    @activity.defn(name="topic_controller_subscribe")
    async def subscribe(self, execution: Execution[ControllerInput], request: SubscriptionRequest) -> None:
        """Create a subscription at the begin of each active segment."""
        await self._run(execution, lambda task: topic.subscribe(task, request))

    @activity.defn(name="topic_controller_unsubscribe")
    async def unsubscribe(self, execution: Execution[ControllerInput], request: Unsubscription) -> None:
        """Delete a subscription with its places on all segments."""
        await self._run(execution, lambda task: topic.unsubscribe(task, request.name))

    @activity.defn(name="topic_controller_report")
    async def report(self, execution: Execution[ControllerInput]) -> TopicReport:
        """How the topic is, segment by segment."""
        return await self._run(execution, topic.report, Role.READER)

    @activity.defn(name="topic_controller_delete")
    async def delete(self, execution: Execution[ControllerInput], deletion: Deletion) -> None:
        """Delete the topic with all that it holds."""
        await self._run(execution, lambda task: topic.delete(task, deletion))

    @activity.defn(name="topic_controller_tell")
    async def tell(self, execution: Execution[ControllerInput], changes: AssignmentChanges) -> None:
        """Note sessions, and tell consumers what they read from now on."""
        await self._run(execution, lambda task: sessions.tell(task, changes), Role.COORDINATOR)

    @activity.defn(name="topic_controller_observe")
    async def observe(self, execution: Execution[ControllerInput], watching: Watching) -> Observation:
        """Watch connections and backlogs until something has changed."""
        if activity.info().attempt > 1:
            # What an attempt that died had in memory is lost: everybody has a fresh grace.
            watching = watching.afresh
        return await self._run(execution, lambda task: observe(task, watching), Role.READER)

    async def _run(
        self,
        execution: Execution[ControllerInput],
        step: Callable[[ControllerTask], ResultT],
        role: Role = Role.LEADER,
    ) -> ResultT:
        attempt = this_attempt(execution)

        def work(context: ActivityContext) -> ResultT:
            try:
                with ControllerTask(self._runtime, execution.input, attempt, context) as task:
                    task.take(role)
                    return step(task)
            except (Superseded, ClaimHeld) as error:
                # Whoever leads no more has nothing to try again, and is told apart from a change that does not fit.
                raise ApplicationError(str(error), type=FailureKind.NOT_LEADER, non_retryable=True) from error

        labels = {"kind": KIND, "cluster": execution.input.cluster}
        return await run_activity(self._runtime.client, work, labels=labels)

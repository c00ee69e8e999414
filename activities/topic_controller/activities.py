"""The steps of the controller of one scalable topic (PIP-468)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.polling import Look, poll
from activities.lifecycle.runner import require_open, run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.topic_controller import change, sessions, topic
from activities.topic_controller.context import ControllerTask, Role
from activities.topic_controller.observers import Observers
from activities.topic_controller.prune import await_prune, prune
from activities.topic_controller.scale import await_scale
from clients.errors import ClaimHeld, Superseded
from models.lifecycle.execution import Execution
from models.lifecycle.failures import FailureKind
from models.topic_controller.input import (
    KIND,
    ControllerInput,
    ControllerUrls,
    Deletion,
    SegmentRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.observation import Observation, Watching
from models.topic_controller.pruning import Pruned, PruneTask, PruneWatch
from models.topic_controller.record import Mutation
from models.topic_controller.scale_decision import Decision, ScaleWatch
from models.topic_controller.sessions import AssignmentChanges, Recalled
from models.topic_controller.state import Committed, Opened, Opening, Prepared, TopicReport

ResultT = TypeVar("ResultT")


class TopicControllerActivities:
    """The steps, each idempotent and safe to run twice at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._observers = Observers(runtime)

    @activity.defn(name="topic_controller_open")
    async def open(self, execution: Execution[ControllerInput], opening: Opening) -> Opened:
        """Find the topic, or create it."""
        await require_open(self._runtime.client)
        return await self._run(
            execution,
            lambda task: topic.open_topic(task, recall=opening.recalls),
            # A later run is of the same cluster.
            before=ControllerTask.require_cluster if opening.recalls else None,
        )

    @activity.defn(name="topic_controller_prepare")
    async def prepare(self, execution: Execution[ControllerInput], mutation: Mutation) -> Prepared:
        """Split or merge: note the change, make new segments with a place of each subscription."""
        return await self._run(execution, lambda task: change.prepare(task, mutation))

    @activity.defn(name="topic_controller_seal")
    async def seal(self, execution: Execution[ControllerInput], mutation: Mutation) -> None:
        """Split or merge: end the old segments."""
        await self._run(execution, lambda task: change.seal(task, mutation))

    @activity.defn(name="topic_controller_commit")
    async def commit(self, execution: Execution[ControllerInput], mutation: Mutation) -> Committed:
        """Split or merge: the new layout counts, and is published."""
        return await self._run(execution, lambda task: change.commit(task, mutation))

    @activity.defn(name="topic_controller_subscribe")
    async def subscribe(self, execution: Execution[ControllerInput], request: SubscriptionRequest) -> None:
        """Create a subscription, with a cursor on each segment."""
        await self._run(execution, lambda task: topic.subscribe(task, request))

    @activity.defn(name="topic_controller_unsubscribe")
    async def unsubscribe(self, execution: Execution[ControllerInput], request: Unsubscription) -> None:
        """Delete a subscription with its places on all segments."""
        await self._run(execution, lambda task: topic.unsubscribe(task, request.name))

    @activity.defn(name="topic_controller_ensure")
    async def ensure(self, execution: Execution[ControllerInput], request: SegmentRequest) -> None:
        """See that a segment has its topic, with places of subscriptions."""
        await self._run(execution, lambda task: topic.ensure_segment(task, request))

    @activity.defn(name="topic_controller_direct")
    async def direct(self, execution: Execution[ControllerInput], request: ControllerUrls, epoch: int) -> Prepared:
        """Tell clients other addresses of the controller; the layout with them is expected to have this epoch."""
        return await self._run(execution, lambda task: topic.direct(task, request.urls, epoch))

    @activity.defn(name="topic_controller_report")
    async def report(self, execution: Execution[ControllerInput]) -> TopicReport:
        """How the topic is, segment by segment."""
        return await self._run(execution, topic.report, Role.READER)

    @activity.defn(name="topic_controller_delete")
    async def delete(self, execution: Execution[ControllerInput], deletion: Deletion) -> None:
        """Delete the topic with all that it holds."""
        await self._run(execution, lambda task: topic.delete(task, deletion))

    @activity.defn(name="topic_controller_recall")
    async def recall(self, execution: Execution[ControllerInput], subscriptions: tuple[str, ...]) -> Recalled:
        """Ask brokers which sealed segments subscriptions have consumed."""
        return await self._run(execution, lambda task: sessions.recall(task, subscriptions), Role.READER)

    @activity.defn(name="topic_controller_tell")
    async def tell(self, execution: Execution[ControllerInput], changes: AssignmentChanges) -> Prepared:
        """Note sessions, and tell consumers what they read from now on."""
        return await self._run(execution, lambda task: sessions.tell(task, changes), Role.COORDINATOR)

    @activity.defn(name="topic_controller_observe")
    async def observe(self, execution: Execution[ControllerInput], watching: Watching) -> Observation:
        """Watch connections and backlogs until something has changed."""
        if activity.info().attempt > 1:
            # What an attempt that died had in memory is lost: everybody has a fresh grace.
            watching = watching.afresh
        return await self._observers.observe(execution, watching)

    @activity.defn(name="topic_controller_await_prune")
    async def await_prune(self, execution: Execution[ControllerInput], watch: PruneWatch) -> bool:
        """Look now and then until a sealed segment, or the topic of one that was removed, may go."""
        return await self._poll(execution, lambda cluster, _: await_prune(cluster, watch))

    @activity.defn(name="topic_controller_prune")
    async def prune(self, execution: Execution[ControllerInput], asked: PruneTask) -> Pruned:
        """Remove sealed segments that may go, and delete topics of those that went long ago."""
        return await self._run(execution, lambda task: prune(task, asked))

    @activity.defn(name="topic_controller_await_scale")
    async def await_scale(self, execution: Execution[ControllerInput], watch: ScaleWatch) -> Decision:
        """Look now and then until a split or a merge is due."""
        return await self._poll(execution, lambda cluster, memory: await_scale(cluster, watch, memory))

    async def _poll(
        self,
        execution: Execution[ControllerInput],
        look: Callable[[PulsarCluster[ControllerInput], Any], Look[ResultT]],
    ) -> ResultT:
        """Look at the cluster, without its metadata store."""
        attempt = this_attempt(execution)

        def work(context: ActivityContext) -> Look[ResultT]:
            with PulsarCluster(self._runtime, execution.input, attempt, context) as cluster:
                return look(cluster, context.memory)

        return await poll(work)

    async def _run(
        self,
        execution: Execution[ControllerInput],
        step: Callable[[ControllerTask], ResultT],
        role: Role = Role.LEADER,
        *,
        before: Callable[[ControllerTask], None] | None = None,
    ) -> ResultT:
        attempt = this_attempt(execution)

        def work(context: ActivityContext) -> ResultT:
            try:
                with ControllerTask(self._runtime, execution.input, attempt, context) as task:
                    if before is not None:
                        before(task)
                    task.take(role)
                    return step(task)
            except (Superseded, ClaimHeld) as error:
                # Whoever leads no more has nothing to try again, and is told apart from a change that does not fit.
                raise ApplicationError(str(error), type=FailureKind.NOT_LEADER, non_retryable=True) from error

        labels = {"kind": KIND, "cluster": execution.input.cluster}
        return await run_activity(self._runtime.client, work, labels=labels)

"""The controller of one scalable topic, for as long as there is the topic (PIP-468)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from zoneinfo import ZoneInfoNotFoundError

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from activities.topic_controller import topic
from models.lifecycle.input import Continued
from models.lifecycle.status import ProgressReport
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from models.topic_controller.auto_scale import AutoScaleChange
from models.topic_controller.input import (
    KIND,
    ControllerInput,
    ControllerUrls,
    Deletion,
    MergeRequest,
    SegmentRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.pruning import PruneRequest, PruneResult, PruningChange
from models.topic_controller.record import Change
from models.topic_controller.sessions import (
    ConsumerAssignment,
    Departures,
    GraceChange,
    Registrations,
    assignment_of,
)
from models.topic_controller.state import (
    ControllerState,
    ControllerStatus,
    LayoutChange,
    Scaling,
    TopicReport,
)
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.continuation import HistoryLimit
from workflows.lifecycle.failures import failure_of, raised_again
from workflows.lifecycle.migration import KIND_KEY, TARGET_KEY, refused
from workflows.lifecycle.phases import upsert
from workflows.lifecycle.start import OneInput, read_start
from workflows.topic_controller.asyncio_tasks import cancel_and_wait
from workflows.topic_controller.auto_scale import Scaler
from workflows.topic_controller.changes import DELETE, Changes
from workflows.topic_controller.controller_session import ControllerSession
from workflows.topic_controller.details import status_of
from workflows.topic_controller.pruning import Pruner
from workflows.topic_controller.sessions import Sessions


@workflow.defn
class ScalableTopicController(OneInput):
    """Lead one scalable topic (PIP-468): its segments, their splits and merges, and its subscriptions."""

    @workflow.init
    def __init__(self, input: ControllerInput | Continued) -> None:
        input, state = read_start(ControllerInput, ControllerState, input)
        self._input: ControllerInput = input
        self._state: ControllerState = state or _initial(input)
        self._controller = ControllerSession(self._input, self._state)
        self._changes = Changes(self._controller)
        self._sessions = Sessions(self._controller)
        self._controller.on_layout_change.append(self._sessions.layout_changed)
        self._pruner = Pruner(self._controller)
        self._scaler = Scaler(self._controller, self._changes)
        self._history = HistoryLimit()
        # Temporal gives a workflow that is reset another seed.
        workflow.register_random_seed_callback(self._reset)

    @workflow.run
    async def run(self, input: ControllerInput | Continued) -> str:
        """Lead the topic until it is deleted; says so then."""
        del input
        upsert(KIND_KEY.value_set(KIND), TARGET_KEY.value_set(self._input.target_name))
        try:
            await self._changes.open()
        except ApplicationError:
            # A step from before a reset finds newer ones of its own run.
            if not self._controller.is_reset:
                raise
        telling = asyncio.create_task(self._sessions.coordinate())
        watching = [asyncio.create_task(part()) for part in (self._sessions.watch, self._pruner.run, self._scaler.run)]
        cancelled: asyncio.CancelledError | None = None
        try:
            await workflow.wait_condition(lambda: self._ends or any(one.done() for one in (telling, *watching)))
        except asyncio.CancelledError as error:
            cancelled = error
        await self._drain_updates(telling, watching)
        if cancelled is not None:
            raise cancelled
        if self._sessions.lost is not None:
            self._controller.lost = raised_again(failure_of(self._sessions.lost))
        if self._controller.lost is not None and not self._controller.is_reset:
            raise self._controller.lost
        if not self._controller.deleted:
            state = self._state.reset_for_next_run() if self._controller.is_reset else self._state
            workflow.continue_as_new(Continued(input=self._input, state=state))
        return f"{self._input.target_name} is deleted"

    # What is asked of it ----------------------------------------------------------------------------------------------

    @workflow.query(description="How the topic stands, what is done now, and what that waits for.")
    def status(self) -> ControllerStatus:
        """Answer the query `status`."""
        return status_of(self._input, self._state)

    @workflow.query(description="The layout: all segments, active and sealed.")
    def layout(self) -> SegmentLayout | None:
        """Answer the query `layout`; None before the first look at the topic."""
        return self._state.record.plain if self._state.record else None

    @workflow.update(description="Statistics of the topic, segment by segment, as its brokers tell them now.")
    async def stats(self) -> TopicReport:
        """Ask the brokers."""
        await workflow.wait_condition(lambda: self._state.record is not None)
        return await self._controller.run_step(
            self._controller.calls.ask(topic.report, Call("Ask the brokers for statistics"))
        )

    @workflow.update(description="Divide an active segment in the middle of its hashes; answers what has changed.")
    async def split(self, request: SplitRequest) -> LayoutChange:
        """Split a segment (PIP-468, "Split Protocol")."""
        return await self._changes.make(Change.SPLIT, (request.segment,))

    @split.validator
    def check_split(self, request: SplitRequest) -> None:
        """Refuse what cannot be split now."""
        self._changes.check(Change.SPLIT, (request.segment,))

    @workflow.update(description="Make one segment of two active neighbours; answers what has changed.")
    async def merge(self, request: MergeRequest) -> LayoutChange:
        """Merge two segments (PIP-468, "Merge Protocol")."""
        return await self._changes.make(Change.MERGE, request.segments)

    @merge.validator
    def check_merge(self, request: MergeRequest) -> None:
        """Refuse what cannot be merged now."""
        self._changes.check(Change.MERGE, request.segments)

    @workflow.update(description="Create a subscription, at the start of every segment, or at its end.")
    async def create_subscription(self, request: SubscriptionRequest) -> None:
        """Give a subscription its places, and note it; harmless when done twice."""
        async with self._controller.exclusive(f"create subscription {request.name}"):
            await self._controller.run_step(
                self._controller.calls.ask(topic.subscribe, Call(f"Create subscription {request.name}"), request)
            )
            self._state.subscriptions[request.name] = request.kind

    @create_subscription.validator
    def check_create_subscription(self, request: SubscriptionRequest) -> None:
        """Refuse one that is consumed in another way."""
        known = self._state.subscriptions.get(request.name, request.kind)
        if known is not request.kind:
            raise refused(f"subscription {request.name} is {known}, and not {request.kind}")

    @workflow.update(description="Delete a subscription with its places on all segments.")
    async def delete_subscription(self, request: Unsubscription) -> None:
        """Forget a subscription; harmless when done twice."""
        async with self._controller.exclusive(f"delete subscription {request.name}"):
            await self._controller.wait_for_reset_signal()
            call = Call(f"Delete subscription {request.name}")
            # Nobody registers from now on.
            kind = self._state.subscriptions.pop(request.name, None)
            try:
                await self._sessions.end_all(request.name)
                self._controller.require_current()
                await self._controller.run_step(self._controller.calls.ask(topic.unsubscribe, call, request))
            except ApplicationError:
                if kind is not None:
                    self._state.subscriptions[request.name] = kind
                raise
            self._sessions.forget(request.name)

    @workflow.update(description="See that a segment has its topic, with places of subscriptions.")
    async def ensure_segment(self, request: SegmentRequest) -> None:
        """Make of a segment's topic what is missing (PIP-468, "Create segment topic"); harmless when done twice."""
        async with self._controller.exclusive(f"look after segment {request.segment}"):
            self.check_ensure_segment(request)
            call = Call(f"See that segment {request.segment} is there")
            await self._controller.run_step(self._controller.calls.ask(topic.ensure_segment, call, request))

    @ensure_segment.validator
    def check_ensure_segment(self, request: SegmentRequest) -> None:
        """Refuse one that the layout does not name."""
        record = self._state.record
        if record is not None and request.segment not in record.segments:
            raise refused(f"there is no segment {request.segment}")

    @workflow.update(description="Register consumers of an ordered subscription; answers what each reads.")
    async def register(self, request: Registrations) -> dict[str, ConsumerAssignment]:
        """Begin sessions, or take consumers back into theirs (PIP-468, "Consumer Session Lifecycle")."""
        await workflow.wait_condition(lambda: self._state.record is not None)
        await self._controller.wait_for_reset_signal()
        self.check_register(request)
        told = await self._sessions.join(request.subscription, request.consumers, request.instances)
        generation = self._state.generation
        return {
            name: assignment_of(self._input.topic, self._controller.record, generation, ids)
            for name, ids in told.items()
        }

    @register.validator
    def check_register(self, request: Registrations) -> None:
        """Refuse consumers of a subscription that is not there, or is no ordered one."""
        if self._state.record is None:
            return
        kind = self._state.subscriptions.get(request.subscription)
        if kind is None:
            raise refused(f"there is no subscription {request.subscription}; create it first")
        if kind is not SubscriptionKind.STREAM:
            raise refused(f"subscription {request.subscription} is {kind}: its consumers need no session")

    @workflow.update(description="End sessions of consumers; others get what they read.")
    async def unregister(self, request: Departures) -> None:
        """End sessions; harmless where there are none, or where another instance has registered since."""
        await self._controller.wait_for_reset_signal()
        self._sessions.leave(request.subscription, request.consumers, request.instances)

    @workflow.update(description="How long sessions of consumers outlive their connections.")
    async def set_grace(self, change: GraceChange) -> None:
        """Change the grace, also of those that are missed now."""
        self._sessions.set_grace(change.grace)

    @workflow.update(description="Where consumers reach the controller's REST interface.")
    async def set_controller_urls(self, request: ControllerUrls) -> None:
        """Tell clients other addresses; harmless when done twice."""
        async with self._controller.exclusive("tell the addresses of the controller"):
            call = Call("Publish the addresses of the controller")
            directed = self._controller.record.with_controller_urls(request.urls)
            step = self._controller.calls.ask(topic.publish_controller_urls, call, request, directed.epoch)
            self._controller.set_layout((await self._controller.run_step(step)).record or directed)

    @workflow.update(description="Remove sealed segments that may go, at once; answers which, and why others stay.")
    async def prune(self, request: PruneRequest) -> PruneResult:
        """Prune what is consumed."""
        await self._controller.wait_for_reset_signal()
        return await self._pruner.prune(request)

    @workflow.update(description="When sealed segments go; null for never.")
    async def set_pruning(self, change: PruningChange) -> None:
        """Change the settings."""
        self._pruner.set(change.pruning)

    @workflow.update(description="When segments split and merge by themselves; null for never.")
    async def set_auto_scale(self, change: AutoScaleChange) -> None:
        """Change the policy."""
        self._scaler.set(change.policy)

    @set_auto_scale.validator
    def check_set_auto_scale(self, change: AutoScaleChange) -> None:
        """Refuse a time zone that this worker does not know; it is not asked again in a replay."""
        for window in change.policy.windows if change.policy else ():
            try:
                window.contains(workflow.now())
            except ZoneInfoNotFoundError:
                raise refused(f"there is no time zone {window.time_zone} here") from None

    @workflow.query(description="How the topic scales by itself, and what was decided last.")
    def auto_scale(self) -> Scaling:
        """Answer the query `auto_scale`."""
        return self._state.scaling

    @workflow.query(description="What the consumers of a subscription read: ids of segments, by consumer.")
    def assignments(self, subscription: str) -> dict[str, tuple[int, ...]]:
        """Answer the query `assignments`."""
        coordinator = self._state.coordinators.get(subscription)
        return {name: one.segments or () for name, one in coordinator.consumers.items()} if coordinator else {}

    @workflow.update(description="Delete the topic with all that it holds, and end its controller.")
    async def delete(self, request: Deletion) -> None:
        """Delete the topic; without `force` not while clients are connected."""
        async with self._controller.exclusive("delete the topic"):
            await self._controller.wait_for_reset_signal()
            await self._controller.run_step(self._controller.calls.ask(topic.delete, DELETE, request))
            self._sessions.forget(*self._state.coordinators)
            self._state.subscriptions.clear()
            self._controller.deleted = True

    @workflow.signal(dynamic=True, description="Any signal is refused, with a note.")
    def refuse_signal(self, name: str, given: Sequence[RawValue]) -> None:
        """Note a signal that there is not; it would be kept indefinitely without a word."""
        del given
        self._controller.note(f"{name} refused: there is no such signal. Cure: send an update")

    @workflow.signal(name="report_progress", description="Sent by the controller's own steps: reasons to wait.")
    def report_progress(self, report: ProgressReport) -> None:
        """Show what a running step waits for."""
        self._controller.set_waiting(report.waiting.why if report.waiting else "")

    # Inside -----------------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> None:
        """Sessions and subscriptions that came since are forgotten: the next run asks the metadata store for all."""
        del seed
        self._controller.is_reset = True

    @property
    def _ends(self) -> bool:
        return self._controller.is_finished or (
            (self._history.due or self._controller.is_reset) and not self._controller.is_changing
        )

    async def _drain_updates(self, telling: asyncio.Task[None], watching: list[asyncio.Task[None]]) -> None:
        """End what continues beside updates, at a moment when none is under way.

        Also where the workflow was cancelled: a change that is under way comes to its end first, and updates have their
        answers; those that come later are the next run's.
        """
        await workflow.wait_condition(lambda: not self._controller.is_changing)
        await _ended(*watching)
        while True:
            await workflow.wait_condition(self._is_quiet)
            await _ended(telling)
            if self._is_quiet():
                return
            # An update came meanwhile, and may wait for what it tells.
            telling = asyncio.create_task(self._sessions.coordinate())

    def _is_quiet(self) -> bool:
        return workflow.all_handlers_finished() and not self._controller.is_changing


def _initial(input: ControllerInput) -> ControllerState:
    return ControllerState(pruning=input.pruning, scaling=Scaling(policy=input.auto_scale))


async def _ended(*tasks: asyncio.Task[None]) -> None:
    await cancel_and_wait(*tasks)
    for task in tasks:
        if not task.cancelled():
            # Raises what nobody foresaw.
            task.result()

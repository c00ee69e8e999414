"""The controller of one scalable topic, which runs as long as the topic exists (PIP-468)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError

from activities.topic_controller import topic
from models.lifecycle.input import Continued
from models.lifecycle.names import keyword
from models.lifecycle.status import ProgressReport
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from models.text import shown
from models.topic_controller.admission import (
    MAX_SUBSCRIPTIONS_OF_TOPIC,
    departure_objection,
    registration_objection,
)
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
    ChangePreview,
    ControllerState,
    ControllerStatus,
    LayoutChange,
    Scaling,
    TopicReport,
)
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.caller import by
from workflows.lifecycle.continuation import HistoryLimit
from workflows.lifecycle.failures import failure_of, to_exception
from workflows.lifecycle.migration import refused
from workflows.lifecycle.search_attributes import KIND_KEY, TARGET_KEY
from workflows.lifecycle.start import OneInput, read_start
from workflows.lifecycle.tasks import cancel_and_wait, run_to_end
from workflows.topic_controller.auto_scale import Scaler
from workflows.topic_controller.changes import DELETE, Changes
from workflows.topic_controller.controller_session import ControllerSession
from workflows.topic_controller.details import status_of
from workflows.topic_controller.pruning import Pruner
from workflows.topic_controller.sessions import Sessions


@workflow.defn
class TopicController(OneInput):
    """Control one scalable topic (PIP-468): its segments, their splits and merges, and its subscriptions."""

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
        #: Accepted registrations whose consumers have no session yet.
        self._joining: list[Registrations] = []
        #: Accepted creations of subscriptions that have not ended yet.
        self._subscribing: list[SubscriptionRequest] = []
        self._loop = asyncio.get_running_loop()
        # Temporal gives a workflow that is reset a new random seed.
        workflow.register_random_seed_callback(self._reset)

    @workflow.run
    async def run(self, input: ControllerInput | Continued) -> str:
        """Run the controller until the topic is deleted."""
        del input
        self._controller.attributes.set(
            KIND_KEY.value_set(KIND), TARGET_KEY.value_set(keyword(self._input.target_name))
        )
        await self._control()
        if self._sessions.lost is not None:
            self._controller.lost = to_exception(failure_of(self._sessions.lost))
        if self._controller.lost is not None and not self._controller.is_reset:
            raise self._controller.lost
        if not self._controller.deleted:
            state = self._state.reset_for_next_run() if self._controller.is_reset else self._state
            # The next run waits for nothing yet.
            state.waiting = ""
            workflow.continue_as_new(Continued(input=self._input, state=state))
        return f"{self._input.target_name} is deleted"

    # Queries and updates ----------------------------------------------------------------------------------------------

    @workflow.query(description="Status of the topic, the current operation, and what it waits for.")
    def status(self) -> ControllerStatus:
        """Answer the query `status`."""
        return status_of(self._input, self._state)

    @workflow.query(description="Layout of the topic: all segments, active and sealed.")
    def layout(self) -> SegmentLayout | None:
        """Answer the query `layout`; None before the topic is open."""
        return self._state.record.plain if self._state.record else None

    @workflow.query(description="What a split would do now; nothing is done.")
    def preview_split(self, request: SplitRequest) -> ChangePreview:
        """Answer the query `preview_split`."""
        return self._changes.preview(Change.SPLIT, (request.segment,))

    @workflow.query(description="What a merge would do now; nothing is done.")
    def preview_merge(self, request: MergeRequest) -> ChangePreview:
        """Answer the query `preview_merge`."""
        return self._changes.preview(Change.MERGE, request.segments)

    @workflow.update(description="Current statistics of the topic from its brokers, by segment.")
    async def stats(self) -> TopicReport:
        """Ask the brokers."""
        await workflow.wait_condition(lambda: self._state.record is not None)
        return await self._controller.run_step(
            self._controller.calls.ask(topic.report, Call("Ask the brokers for statistics"))
        )

    @workflow.update(
        description="Split an active segment in the middle of its hash range; returns the new layout's changes."
    )
    async def split(self, request: SplitRequest) -> LayoutChange:
        """Split a segment (PIP-468, "Split Protocol")."""
        return await self._changes.make(Change.SPLIT, (request.segment,))

    @split.validator
    def check_split(self, request: SplitRequest) -> None:
        """Refuse a segment that cannot be split now."""
        self._changes.check(Change.SPLIT, (request.segment,))

    @workflow.update(description="Merge two active neighbours into one segment; returns the new layout's changes.")
    async def merge(self, request: MergeRequest) -> LayoutChange:
        """Merge two segments (PIP-468, "Merge Protocol")."""
        return await self._changes.make(Change.MERGE, request.segments)

    @merge.validator
    def check_merge(self, request: MergeRequest) -> None:
        """Refuse segments that cannot be merged now."""
        self._changes.check(Change.MERGE, request.segments)

    @workflow.update(description="Create a subscription, at the start of every segment, or at its end.")
    async def create_subscription(self, request: SubscriptionRequest) -> None:
        """Create the cursors of a subscription, and register it; idempotent."""
        # Counted from now on: other updates are checked before it is registered.
        self._subscribing.append(request)
        try:
            async with self._controller.exclusive(f"create subscription {request.name}"):
                await self._controller.run_step(
                    self._controller.calls.ask(topic.subscribe, Call(f"Create subscription {request.name}"), request)
                )
                if request.name not in self._state.subscriptions:
                    self._controller.note(f"subscription {request.name} created{by()}")
                self._state.subscriptions[request.name] = request.kind
        finally:
            self._subscribing.remove(request)

    @create_subscription.validator
    def check_create_subscription(self, request: SubscriptionRequest) -> None:
        """Refuse a subscription that exists with another kind, or exceeds the limit; those under way count too."""
        # As in `check_register`, the handler does not repeat the limit.
        subscriptions = {other.name: other.kind for other in self._subscribing} | self._state.subscriptions
        kind = subscriptions.get(request.name, request.kind)
        if kind is not request.kind:
            raise refused(f"subscription {request.name} is {kind}, and not {request.kind}")
        if request.name not in subscriptions and len(subscriptions) >= MAX_SUBSCRIPTIONS_OF_TOPIC:
            raise refused(
                f"the topic has {len(subscriptions):,} subscriptions, and at most {MAX_SUBSCRIPTIONS_OF_TOPIC:,} are "
                "allowed; delete subscriptions that are not needed"
            )

    @workflow.update(description="Delete a subscription with its cursors on all segments.")
    async def delete_subscription(self, request: Unsubscription) -> None:
        """Delete a subscription; idempotent."""
        async with self._controller.exclusive(f"delete subscription {request.name}"):
            call = Call(f"Delete subscription {request.name}")
            # No consumer can register from now on.
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
            if kind is not None:
                self._controller.note(f"subscription {request.name} deleted{by()}")

    @workflow.update(description="Create the topic of a segment if it is missing, with cursors of subscriptions.")
    async def ensure_segment(self, request: SegmentRequest) -> None:
        """Create what the topic of a segment lacks (PIP-468, "Create segment topic"); idempotent."""
        async with self._controller.exclusive(f"ensure segment {request.segment}"):
            self.check_ensure_segment(request)
            call = Call(f"Ensure segment {request.segment}")
            await self._controller.run_step(self._controller.calls.ask(topic.ensure_segment, call, request))

    @ensure_segment.validator
    def check_ensure_segment(self, request: SegmentRequest) -> None:
        """Refuse a segment that is not in the layout."""
        record = self._state.record
        if record is not None and request.segment not in record.segments:
            raise refused(f"there is no segment {request.segment}")

    @workflow.update(description="Register consumers of an ordered subscription; returns what each reads.")
    async def register(self, request: Registrations) -> dict[str, ConsumerAssignment]:
        """Start sessions of consumers, or resume them (PIP-468, "Consumer Session Lifecycle")."""
        # Counted from now on: other updates are checked before these consumers have a session.
        self._joining.append(request)
        try:
            await workflow.wait_condition(lambda: self._state.record is not None)
            await self._controller.detect_reset()
            self._check_subscription(request)
        finally:
            self._joining.remove(request)
        assigned = await self._sessions.join(request)
        generation = self._state.generation
        return {
            name: assignment_of(self._input.topic, self._controller.record, generation, ids)
            for name, ids in assigned.items()
        }

    @register.validator
    def check_register(self, request: Registrations) -> None:
        """Refuse consumers of a subscription that does not exist or is not ordered, too many, and those of others."""
        # The handler does not repeat the limits: a replay with other limits must do the same as the first run.
        objection = registration_objection(self._state.coordinators, self._joining, request)
        if objection is not None:
            raise refused(objection.reason, consumers=objection.consumers)
        if self._state.record is not None:
            self._check_subscription(request)

    def _check_subscription(self, request: Registrations) -> None:
        kind = self._state.subscriptions.get(request.subscription)
        if kind is None:
            raise refused(f"there is no subscription {request.subscription}; create it first")
        if kind is not SubscriptionKind.STREAM:
            raise refused(f"subscription {request.subscription} is {kind}: its consumers need no session")

    @workflow.update(description="End sessions of consumers; their segments go to other consumers.")
    async def unregister(self, request: Departures) -> None:
        """End sessions; does nothing where there are none, or where another instance has registered since then."""
        await self._controller.detect_reset()
        self._sessions.leave(request.subscription, request.consumers, request.instances)

    @unregister.validator
    def check_unregister(self, request: Departures) -> None:
        """Refuse to end sessions of other clients."""
        objection = departure_objection(self._state.coordinators, self._joining, request)
        if objection is not None:
            raise refused(objection.reason, consumers=objection.consumers)

    @workflow.update(description="How long sessions of consumers outlive their connections.")
    async def set_grace(self, change: GraceChange) -> None:
        """Change the grace, also for consumers that are disconnected now."""
        self._sessions.set_grace(change.grace)
        self._controller.note(f"grace of sessions set to {change.grace}{by()}")

    @workflow.update(description="Where consumers reach the controller's REST interface.")
    async def set_controller_urls(self, request: ControllerUrls) -> None:
        """Publish new addresses to clients; idempotent."""
        async with self._controller.exclusive("publish the addresses of the controller"):
            call = Call("Publish the addresses of the controller")
            expected = self._controller.record.with_controller_urls(request.urls)
            step = self._controller.calls.ask(topic.publish_controller_urls, call, request, expected.epoch)
            self._controller.set_layout((await self._controller.run_step(step)).record or expected)

    @workflow.update(description="Remove consumed sealed segments now; returns which, and why others stay.")
    async def prune(self, request: PruneRequest) -> PruneResult:
        """Remove consumed segments."""
        return await self._pruner.prune(request)

    @workflow.update(description="When sealed segments are removed; null for never.")
    async def set_pruning(self, change: PruningChange) -> None:
        """Change the settings."""
        self._pruner.set(change.pruning)
        self._controller.note(f"pruning {'changed' if change.pruning else 'switched off'}{by()}")

    @workflow.update(description="When segments split and merge automatically; null for never.")
    async def set_auto_scale(self, change: AutoScaleChange) -> None:
        """Change the policy."""
        self._scaler.set(change.policy)
        self._controller.note(f"auto scaling {'changed' if change.policy else 'switched off'}{by()}")

    @workflow.query(description="How the topic scales automatically, and the last decision.")
    def auto_scale(self) -> Scaling:
        """Answer the query `auto_scale`."""
        return self._state.scaling

    @workflow.query(description="Assignments of the consumers of a subscription: ids of segments, by consumer.")
    def assignments(self, subscription: str) -> dict[str, tuple[int, ...]]:
        """Answer the query `assignments`."""
        coordinator = self._state.coordinators.get(subscription)
        return {name: session.segments or () for name, session in coordinator.consumers.items()} if coordinator else {}

    @workflow.update(description="Delete the topic with all its messages, and end its controller.")
    async def delete(self, request: Deletion) -> None:
        """Delete the topic; refused while clients are connected, unless `force` is set."""
        async with self._controller.exclusive("delete the topic"):
            await self._controller.run_step(self._controller.calls.ask(topic.delete, DELETE, request))
            self._forget_consumers()
            self._controller.deleted = True

    @workflow.signal(dynamic=True, description="Other signals are refused with a note.")
    def refuse_signal(self, name: str, given: Sequence[RawValue]) -> None:
        """Refuse an unknown signal with a note; without this handler, Temporal would buffer it silently."""
        del given
        self._controller.note(f"unknown signal {shown(name)!r}{by()} was ignored; send an update instead")

    @workflow.signal(name="report_progress", description="Sent by the controller's own steps: why they wait.")
    def report_progress(self, report: ProgressReport) -> None:
        """Show what a running step waits for."""
        self._controller.set_waiting(shown(report.waiting.why) if report.waiting else "")

    # Internals --------------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> None:
        """Note that Temporal has reset this run: its state is old, and the next run reads the metadata store."""
        del seed
        self._controller.is_reset = True
        # The SDK checks conditions only after a task has run, and an idle run has none.
        self._loop.call_soon(lambda: None)

    async def _control(self) -> None:
        """Open the topic, and control it until this run ends; no update is in progress then.

        Raises:
            ApplicationError: the topic is not ours, or another run holds the lease.
            CancelledError: the workflow was cancelled.
        """
        publishing: asyncio.Task[None] | None = None
        watching: list[asyncio.Task[None]] = []
        cancelled: BaseException | None = None
        try:
            await self._open()
            publishing = asyncio.create_task(self._sessions.coordinate())
            runs = (self._sessions.watch, self._pruner.run, self._scaler.run)
            watching += [asyncio.create_task(run()) for run in runs]
            tasks = [publishing, *watching]
            await workflow.wait_condition(lambda: self._ends or any(task.done() for task in tasks))
        except (asyncio.CancelledError, CancelledError) as error:
            if self._state.record is None:
                # Updates wait until the topic is open, so none is in progress.
                raise
            cancelled = error
        # Temporal delivers a cancellation only once, but it may come during this.
        await run_to_end(self._drain_updates(publishing, watching))
        if cancelled is not None:
            raise cancelled

    async def _open(self) -> None:
        """Open the topic; a run that continues another one knows the topic, and controls it even if that fails.

        Raises:
            ApplicationError: the topic is not ours, or another run holds the lease.
        """
        try:
            await self._changes.open()
            if self._controller.deleted:
                # Some may have registered while an earlier run's deletion was finished.
                self._forget_consumers()
        except ApplicationError as error:
            # After a reset, a replayed step is refused, because later steps of the same run hold the lease.
            if self._controller.is_reset:
                return
            if self._state.record is None or self._controller.lost is not None:
                raise
            self._controller.note(f"could not open the topic again, and continues: {error.message}")

    def _forget_consumers(self) -> None:
        """Forget the consumers of a deleted topic, so that their registrations end."""
        self._sessions.forget(*self._state.coordinators)
        self._state.subscriptions.clear()

    @property
    def _ends(self) -> bool:
        return self._controller.is_finished or (
            (self._history.due or self._controller.is_reset) and not self._controller.is_changing
        )

    async def _drain_updates(
        self, publishing: asyncio.Task[None] | None, watching: Sequence[asyncio.Task[None]]
    ) -> None:
        """End all tasks at a moment when no update is in progress.

        This also applies when the workflow was cancelled: a change in progress is completed, and updates are answered.
        Later updates go to the next run.

        Args:
            publishing: publishes what updates wait for; None if the topic was not opened.
            watching: the others, which no update waits for.
        """
        await workflow.wait_condition(lambda: not self._controller.is_changing)
        await _cancel(*watching)
        publishing = publishing or asyncio.create_task(self._sessions.coordinate())
        while True:
            await workflow.wait_condition(self._is_quiet)
            await _cancel(publishing)
            if self._is_quiet():
                return
            # An update has come in between, and may wait for a publication.
            publishing = asyncio.create_task(self._sessions.coordinate())

    def _is_quiet(self) -> bool:
        return workflow.all_handlers_finished() and not self._controller.is_changing


def _initial(input: ControllerInput) -> ControllerState:
    return ControllerState(pruning=input.pruning, scaling=Scaling(policy=input.auto_scale))


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    await cancel_and_wait(*tasks)
    for task in tasks:
        if not task.cancelled():
            # Raises unexpected errors.
            task.result()

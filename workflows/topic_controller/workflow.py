"""The controller of one scalable topic, for as long as there is the topic (PIP-468)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.topic_controller.activities import TopicControllerActivities as Activities
    from models.lifecycle.failures import FailureKind
    from models.segment import LayoutError, SubscriptionKind
    from models.segment_layout import SegmentLayout
    from models.topic_controller.input import (
        KIND,
        ControllerInput,
        Deletion,
        MergeRequest,
        SplitRequest,
        SubscriptionRequest,
        Unsubscription,
    )
    from models.topic_controller.record import Change, ControlledLayout, Mutation
    from models.topic_controller.sessions import (
        ConsumerAssignment,
        Departures,
        GraceChange,
        Registrations,
        assignment_of,
    )
    from models.topic_controller.state import ControllerStart, ControllerState, ControllerStatus, TopicReport
    from workflows.lifecycle.continuation import HistoryLimit
    from workflows.lifecycle.failures import failure_of, raised_again
    from workflows.lifecycle.fenced import Call, FencedCalls
    from workflows.lifecycle.migration import KIND_KEY, TARGET_KEY, refused
    from workflows.lifecycle.phases import PHASE_KEY, upsert
    from workflows.lifecycle.start import read_start
    from workflows.topic_controller.details import render
    from workflows.topic_controller.sessions import Sessions

_NOTES = 20
_SHOWN = 20
_FIRST_PATIENCE, _LONGEST_PATIENCE = timedelta(seconds=1), timedelta(minutes=1)
_IDLE = "IDLE"
_DELETE = Call("Delete the topic")

ResultT = TypeVar("ResultT")


@workflow.defn
class ScalableTopicController:
    """Lead one scalable topic (PIP-468): its segments, their splits and merges, and its subscriptions."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        start = read_start(ControllerStart, given)
        self._input: ControllerInput = start.input
        self._state: ControllerState = start.state or ControllerState()
        self._calls = FencedCalls(self._input, self._state)
        self._history = HistoryLimit()
        self._turn = asyncio.Lock()
        self._deleted = False
        self._lost: BaseException | None = None
        self._sessions = Sessions(self._state, self._calls, self._tell)

    @workflow.run
    async def run(self, *given: Any) -> str:
        """Lead the topic until it is deleted; says so then."""
        del given
        upsert(KIND_KEY.value_set(KIND), TARGET_KEY.value_set(self._input.target_name))
        await self._open()
        sessions = asyncio.create_task(self._sessions.run())
        cancelled: asyncio.CancelledError | None = None
        try:
            await workflow.wait_condition(lambda: self._ends or self._must_continue or sessions.done())
        except asyncio.CancelledError as error:
            cancelled = error
        # Also where it was cancelled: a change that is under way comes to its end first, and updates that are under way
        # have their answers; those that come later are the next run's.
        await workflow.wait_condition(workflow.all_handlers_finished)
        sessions.cancel()
        await workflow.wait([sessions])
        if cancelled is not None:
            raise cancelled
        if self._sessions.lost is not None:
            self._lost = raised_again(failure_of(self._sessions.lost))
        if self._lost is not None:
            raise self._lost
        if not self._deleted:
            workflow.continue_as_new(ControllerStart(input=self._input, state=self._state))
        return f"{self._input.target_name} is deleted"

    # What is asked of it ----------------------------------------------------------------------------------------------

    @workflow.query(description="How the topic stands, what is done now, and what that waits for.")
    def status(self) -> ControllerStatus:
        """Answer the query `status`."""
        state, record = self._state, self._state.record
        return ControllerStatus(
            topic=self._input.target_name,
            epoch=record.epoch if record else -1,
            active=tuple(one.descriptor for one in record.active) if record else (),
            sealed=sum(1 for one in record.segments.values() if not one.active) if record else 0,
            subscriptions=state.subscriptions,
            consumers={name: len(one.consumers) for name, one in state.coordinators.items() if one.consumers},
            away=dict(self._away()[:_SHOWN]),
            changes=state.changes,
            pending=record.pending if record else None,
            doing=state.doing,
            waiting=state.waiting,
            notes=tuple(state.notes),
        )

    @workflow.query(description="The layout: all segments, active and sealed.")
    def layout(self) -> SegmentLayout | None:
        """Answer the query `layout`; None before the first look at the topic."""
        return self._state.record.plain if self._state.record else None

    @workflow.update(description="Statistics of the topic, segment by segment, as its brokers tell them now.")
    async def stats(self) -> TopicReport:
        """Ask the brokers."""
        await workflow.wait_condition(lambda: self._state.record is not None)
        return await self._ask(self._calls.ask(Activities.report, Call("Ask the brokers for statistics")))

    @workflow.update(description="Divide an active segment in the middle of its hashes; answers the new layout.")
    async def split(self, request: SplitRequest) -> SegmentLayout:
        """Split a segment (PIP-468, "Split Protocol")."""
        return await self._change(Change.SPLIT, (request.segment,))

    @split.validator
    def check_split(self, request: SplitRequest) -> None:
        """Refuse what cannot be split now."""
        self._check(Change.SPLIT, (request.segment,))

    @workflow.update(description="Make one segment of two active neighbours; answers the new layout.")
    async def merge(self, request: MergeRequest) -> SegmentLayout:
        """Merge two segments (PIP-468, "Merge Protocol")."""
        return await self._change(Change.MERGE, request.segments)

    @merge.validator
    def check_merge(self, request: MergeRequest) -> None:
        """Refuse what cannot be merged now."""
        self._check(Change.MERGE, request.segments)

    @workflow.update(description="Create a subscription, at the begin of each active segment.")
    async def create_subscription(self, request: SubscriptionRequest) -> None:
        """Give a subscription its places, and note it; harmless when done twice."""
        async with self._alone(f"create subscription {request.name}"):
            await self._ask(self._calls.ask(Activities.subscribe, Call(f"Create subscription {request.name}"), request))
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
        async with self._alone(f"delete subscription {request.name}"):
            call = Call(f"Delete subscription {request.name}")
            await self._ask(self._calls.ask(Activities.unsubscribe, call, request))
            self._state.subscriptions.pop(request.name, None)
            self._sessions.forget(request.name)

    @workflow.update(description="Register consumers of an ordered subscription; answers what each reads.")
    async def register(self, request: Registrations) -> dict[str, ConsumerAssignment]:
        """Begin sessions, or take consumers back into theirs (PIP-468, "Consumer Session Lifecycle")."""
        await workflow.wait_condition(lambda: self._state.record is not None)
        self.check_register(request)
        told = await self._sessions.join(request.subscription, request.consumers)
        generation = self._state.generation
        return {name: assignment_of(self._input.topic, self._record, generation, ids) for name, ids in told.items()}

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
        """End sessions; harmless where there are none."""
        self._sessions.leave(request.subscription, request.consumers)

    @workflow.update(description="How long sessions of consumers outlive their connections.")
    async def set_grace(self, change: GraceChange) -> None:
        """Change the grace, also of those that are missed now."""
        self._sessions.set_grace(change.grace)

    @workflow.query(description="What the consumers of a subscription read: ids of segments, by consumer.")
    def assignments(self, subscription: str) -> dict[str, tuple[int, ...]]:
        """Answer the query `assignments`."""
        coordinator = self._state.coordinators.get(subscription)
        return {name: one.segments or () for name, one in coordinator.consumers.items()} if coordinator else {}

    @workflow.update(description="Delete the topic with all that it holds, and end its controller.")
    async def delete(self, request: Deletion) -> None:
        """Delete the topic; without `force` not while clients are connected."""
        async with self._alone("delete the topic"):
            await self._ask(self._calls.ask(Activities.delete, _DELETE, request))
            self._sessions.forget(*self._state.coordinators)
            self._deleted = True

    @workflow.signal(dynamic=True, description="Any signal is refused, with a note.")
    def refuse_signal(self, name: str, given: Sequence[RawValue]) -> None:
        """Note a signal that there is not; it would be kept for ever without a word."""
        del given
        self._note(f"{name} refused: there is no such signal. Cure: send an update")

    # Inside -----------------------------------------------------------------------------------------------------------

    @property
    def _ends(self) -> bool:
        return self._deleted or self._lost is not None

    @property
    def _must_continue(self) -> bool:
        return self._history.due and not self._turn.locked()

    async def _open(self) -> None:
        """Find the topic or create it, and go on with what another run left under way."""
        async with self._turn:
            self._doing("open the topic")
            call = Call(f"Open {self._input.target_name}, or create it")
            opened = await self._ask(self._calls.ask(Activities.open, call))
            self._state.record, self._state.subscriptions = opened.record, opened.subscriptions
            if opened.record.deleting:
                self._note("goes on with the deletion that an earlier run began")
                await self._insist(lambda: self._calls.ask(Activities.delete, _DELETE, Deletion(force=True)))
                self._deleted = True
            elif pending := opened.record.pending:
                self._note(f"goes on with the {pending} that an earlier run began")
                await self._insist(lambda: self._calls.ask(Activities.prepare, _prepare(pending), pending))
                await self._seal_and_commit(pending)
            self._doing("")

    async def _change(self, change: Change, segments: tuple[int, ...]) -> SegmentLayout:
        async with self._alone(f"{change} of {' and '.join(map(str, segments))}"):
            # Another change may have come first.
            self._check(change, segments)
            mutation = Mutation(change=change, segments=segments, epoch=self._record.epoch)
            self._state.record = await self._ask(self._calls.ask(Activities.prepare, _prepare(mutation), mutation))
            return await self._seal_and_commit(mutation)

    async def _seal_and_commit(self, mutation: Mutation) -> SegmentLayout:
        """From the end of the first old segment on nothing leads back: its hashes take no messages until the commit."""
        seal, commit = Call(f"{mutation}: end the old segments"), Call(f"{mutation}: publish the new layout")
        await self._insist(lambda: self._calls.ask(Activities.seal, seal, mutation))
        record = self._state.record = await self._insist(lambda: self._calls.ask(Activities.commit, commit, mutation))
        self._state.changes += 1
        self._sessions.layout_changed()
        self._note(f"{mutation}: epoch {record.epoch}, {len(record.active)} active segments")
        return record.plain

    @asynccontextmanager
    async def _alone(self, what: str) -> AsyncGenerator[None]:
        """One change at a time, and none before the topic is known."""
        await workflow.wait_condition(lambda: self._state.record is not None)
        async with self._turn:
            if self._deleted or self._lost is not None:
                raise refused(f"{self._input.target_name} is deleted, or led by another run")
            self._doing(what)
            try:
                yield
            finally:
                self._doing("")

    def _check(self, change: Change, segments: tuple[int, ...]) -> None:
        """Refuse a change that does not fit the layout."""
        record = self._state.record
        if record is None:
            return
        try:
            Mutation(change=change, segments=segments, epoch=record.epoch).applied(record, 0)
        except LayoutError as error:
            raise refused(str(error)) from None

    async def _ask(self, step: Awaitable[ResultT]) -> ResultT:
        """Run a step; what it fails with is told as it is."""
        try:
            return await step
        except ActivityError as error:
            failure = failure_of(error)
            if failure.type == FailureKind.NOT_LEADER:
                self._lost = raised_again(failure)
            raise raised_again(failure) from error

    async def _insist(self, step: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Run a step until it succeeds, or somebody else leads; status says why it waits."""
        patience = _FIRST_PATIENCE
        while True:
            try:
                result = await self._ask(step())
            except ApplicationError as error:
                if self._lost is not None:
                    raise
                self._state.waiting = f"the next try, since the last failed: {error.message}"
                self._tell()
                await workflow.sleep(patience)
                patience = min(patience * 2, _LONGEST_PATIENCE)
            else:
                self._state.waiting = ""
                return result

    @property
    def _record(self) -> ControlledLayout:
        record = self._state.record
        assert record is not None, "the topic is open"
        return record

    def _away(self) -> list[tuple[str, datetime]]:
        return sorted(
            (f"{name}/{consumer}", session.gone_since)
            for name, one in self._state.coordinators.items()
            for consumer, session in one.consumers.items()
            if session.gone_since is not None
        )

    def _doing(self, what: str) -> None:
        self._state.doing = what
        upsert(PHASE_KEY.value_set(what.partition(" ")[0].upper() or _IDLE))
        self._tell()

    def _note(self, text: str) -> None:
        self._state.notes = [*self._state.notes, f"{workflow.now():%Y-%m-%d %H:%M:%S}Z {text}"][-_NOTES:]
        self._tell()

    def _tell(self) -> None:
        workflow.set_current_details(render(self.status()))


def _prepare(mutation: Mutation) -> Call:
    return Call(f"{mutation}: make the new segments, with a place of each subscription")

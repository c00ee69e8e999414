"""A topic in memory, which the doubled steps of its controller change as the real ones change the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, TypeVar

from pydantic import TypeAdapter
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.failures import NOTHING_DUE, FailureKind
from models.segments.layout import SegmentLayout
from models.segments.segment import LayoutError, SubscriptionKind
from models.topic_controller.input import (
    KIND,
    ControllerUrls,
    Deletion,
    SegmentRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.pruning import PruneResult, PruneTask, removable_segments
from models.topic_controller.record import ControlledLayout, Mutation
from models.topic_controller.sessions import AssignmentChanges, DrainedSegments, StoredSessions
from models.topic_controller.state import (
    CommittedChange,
    ControllerStatus,
    OpenedTopic,
    OpenRequest,
    PreparedChange,
    TopicReport,
)
from tests.workflows.lifecycle import doubles
from tests.workflows.lifecycle.harness import Run

ResultT = TypeVar("ResultT")

PLAN: dict[str, Any] = {
    "metadata_url": "zk:zk:2181/pulsar",
    "admin_urls": ["http://broker:8080"],
    "topic": "persistent://acme/shop/orders",
    "segments": 2,
}
CREATED_MS = 1_700_000_000_000

# It only ends a test that hangs.
_LIMIT = 120.0


class Script(doubles.Script):
    """A topic, and what the steps of its controller do with it.

    Attributes:
        record: as the metadata store has it.
        subscriptions: that are registered.
        sessions: that another run has left.
        drained: segments that subscriptions have consumed while no observer ran.
        published: assignments that were published to consumers.

    Args:
        answers: of steps that must fail or hang; see `doubles.Script`. None lets a step do what it always does.
    """

    kind: ClassVar[str] = KIND
    input: ClassVar[dict[str, Any]] = PLAN
    usual: ClassVar[dict[str, Any]] = dict.fromkeys(
        (
            *("open", "prepare", "seal", "commit", "subscribe", "unsubscribe"),
            *(
                "ensure",
                "publish_controller_urls",
                "report",
                "delete",
                "prune",
                "await_prune",
                "await_scale",
                "publish_assignments",
                "find_drained",
                "observe",
            ),
        )
    )
    unlisted: ClassVar[frozenset[str]] = frozenset(
        ("publish_assignments", "find_drained", "observe", "await_prune", "await_scale")
    )

    def __init__(self, **answers: Any) -> None:
        super().__init__(**answers)
        self.record = ControlledLayout.created(PLAN["segments"], {}, CREATED_MS)
        self.subscriptions: dict[str, SubscriptionKind] = {}
        self.sessions: dict[str, StoredSessions] = {}
        self.drained: dict[str, tuple[int, ...]] = {}
        self.published: list[AssignmentChanges] = []
        #: Why brokers make no new segments.
        self.limit = ""
        #: What is known of the brokers' releases.
        self.warnings: tuple[str, ...] = ()

    async def play(self, call: doubles.Call) -> Any:
        """Fail or hang as the script says, and do what the real step does."""
        seen = await super().play(call)
        if call.step == "observe":
            # Nothing ever changes, unless the script says what.
            return seen or await doubles.Hang().run()
        if call.step in ("await_prune", "await_scale"):
            return seen or later()
        return getattr(self, f"_{call.step}")(*call.args) if seen is None else seen

    def _open(self, opening: OpenRequest) -> OpenedTopic:
        if self.record.epoch < opening.epoch:
            raise ApplicationError(self.record.too_old(opening.epoch), type=FailureKind.CONFLICT, non_retryable=True)
        sessions = self.sessions if opening.recover_sessions else {}
        return OpenedTopic(
            record=self.record, subscriptions=self.subscriptions, sessions=sessions, warnings=self.warnings
        )

    def _prepare(self, mutation: Mutation) -> PreparedChange:
        if self.limit:
            self.record = self.record.without_pending(mutation, CREATED_MS)
            return PreparedChange(refused=self.limit, record=self.record)
        if mutation in (self.record.pending, self.record.last):
            return PreparedChange(first_segment=mutation.first_segment(self.record))
        if self.record.pending or self.record.epoch != mutation.epoch:
            return PreparedChange(record=self.record)
        try:
            self.record = self.record.with_pending(mutation)
        except LayoutError as error:
            return PreparedChange(refused=str(error), fault=error.fault)
        return PreparedChange(first_segment=mutation.first_segment(self.record))

    def _seal(self, mutation: Mutation) -> None:
        assert mutation in (self.record.pending, self.record.last)

    def _commit(self, mutation: Mutation) -> CommittedChange:
        if self.record.last != mutation:
            assert mutation == self.record.pending
            self.record = self.record.with_commit(CREATED_MS + mutation.epoch + 1)
        return CommittedChange(at_ms=self.record.changed_at_ms)

    def _subscribe(self, request: SubscriptionRequest) -> None:
        self.subscriptions[request.name] = request.kind

    def _ensure(self, request: SegmentRequest) -> None:
        assert request.segment in self.record.segments

    def _unsubscribe(self, request: Unsubscription) -> None:
        self.subscriptions.pop(request.name, None)

    def _publish_controller_urls(self, request: ControllerUrls, epoch: int) -> PreparedChange:
        self.record = self.record.with_controller_urls(request.urls)
        return PreparedChange(record=None if self.record.epoch == epoch else self.record)

    def _prune(self, asked: PruneTask) -> PruneResult:
        goes = [segment.segment_id for segment in removable_segments(self.record, asked.request)]
        self.record = self.record.without_segments(goes, CREATED_MS)
        return PruneResult(removed=tuple(goes), at_ms=CREATED_MS)

    def _publish_assignments(self, changes: AssignmentChanges) -> PreparedChange:
        if changes.epoch != self.record.epoch:
            return PreparedChange(record=self.record)
        self.published.append(changes)
        return PreparedChange()

    def _find_drained(self, subscriptions: tuple[str, ...]) -> DrainedSegments:
        return DrainedSegments(drained={name: self.drained.get(name, ()) for name in subscriptions})

    def _report(self) -> TopicReport:
        return TopicReport(epoch=self.record.epoch, segments=(), subscriptions=dict.fromkeys(self.subscriptions, 0))

    def _delete(self, deletion: Deletion) -> None:
        del deletion
        self.record = self.record.model_copy(update={"deleting": True})


def later() -> NoReturn:
    """Raise the answer of a step that finds nothing due, and is asked again."""
    raise ApplicationError("nothing to do", type=NOTHING_DUE, next_retry_delay=timedelta(hours=1))


async def status_of(run: Run) -> ControllerStatus:
    """Return the answer of the query `status`."""
    return await _asked(run.handle, "status", ControllerStatus)


async def layout_of(run: Run) -> SegmentLayout:
    """Return the answer of the query `layout`."""
    return await _asked(run.handle, "layout", SegmentLayout)


async def until(run: Run, condition: Callable[[ControllerStatus], bool]) -> ControllerStatus:
    """Wait, without letting time pass, until the status fulfils a condition; the status."""
    async with asyncio.timeout(_LIMIT):
        while True:
            status = await status_of(run)
            if condition(status):
                return status
            await asyncio.sleep(0.05)


async def until_taken(send: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Send an update again that came as a run was continued as the next."""
    async with asyncio.timeout(_LIMIT):
        while True:
            try:
                return await send()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise


def long_timers(events: Iterable[HistoryEvent]) -> dict[int, timedelta]:
    """Return durations of timers, by the events that start them; not of those that wait for the next workflow task."""
    started = {event.event_id: event.timer_started_event_attributes for event in events}
    durations = {number: event.start_to_fire_timeout.ToTimedelta() for number, event in started.items()}
    return {number: duration for number, duration in durations.items() if duration > timedelta(seconds=0.1)}


async def _asked(handle: WorkflowHandle[Any, Any], query: str, answer: type[ResultT]) -> ResultT:
    return TypeAdapter(answer).validate_python(await handle.query(query))

"""A topic in memory, which the doubled steps of its controller change as the real ones change the real one."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from pydantic import TypeAdapter
from temporalio.client import WorkflowHandle

from models.segment import SubscriptionKind
from models.segment_layout import SegmentLayout
from models.topic_controller.input import KIND, Deletion, SubscriptionRequest, Unsubscription
from models.topic_controller.record import ControlledLayout, Mutation
from models.topic_controller.sessions import AssignmentChanges
from models.topic_controller.state import ControllerStatus, Opened, Sealed, TopicReport
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


class Script(doubles.Script):
    """A topic, and what the steps of its controller do with it.

    Attributes:
        record: as the metadata store has it.
        subscriptions: that are registered.
        told: what consumers were told.

    Args:
        answers: of steps that shall fail or hang; see `doubles.Script`. None lets a step do what it always does.
    """

    kind: ClassVar[str] = KIND
    input: ClassVar[dict[str, Any]] = PLAN
    usual: ClassVar[dict[str, Any]] = dict.fromkeys(
        ("open", "prepare", "seal", "commit", "subscribe", "unsubscribe", "report", "delete", "tell", "observe")
    )
    beside: ClassVar[frozenset[str]] = frozenset(("tell", "observe"))

    def __init__(self, **answers: Any) -> None:
        super().__init__(**answers)
        self.record = ControlledLayout.created(PLAN["segments"], {}, CREATED_MS)
        self.subscriptions: dict[str, SubscriptionKind] = {}
        self.told: list[AssignmentChanges] = []

    async def play(self, call: doubles.Call) -> Any:
        """Fail or hang as the script says, and do what the real step does."""
        seen = await super().play(call)
        if call.step == "observe":
            # Nothing ever changes, unless the script says what.
            return seen or await doubles.Hang().run()
        return getattr(self, f"_{call.step}")(*call.args)

    def _open(self) -> Opened:
        return Opened(record=self.record, subscriptions=self.subscriptions)

    def _prepare(self, mutation: Mutation) -> ControlledLayout:
        if mutation not in (self.record.pending, self.record.last):
            self.record = self.record.begun(mutation)
        return self.record

    def _seal(self, mutation: Mutation) -> Sealed:
        assert mutation in (self.record.pending, self.record.last)
        return Sealed(subscriptions=tuple(self.subscriptions))

    def _commit(self, mutation: Mutation) -> ControlledLayout:
        if self.record.last != mutation:
            assert mutation == self.record.pending
            self.record = self.record.done(CREATED_MS)
        return self.record

    def _subscribe(self, request: SubscriptionRequest) -> None:
        self.subscriptions[request.name] = request.kind

    def _unsubscribe(self, request: Unsubscription) -> None:
        self.subscriptions.pop(request.name, None)

    def _tell(self, changes: AssignmentChanges) -> None:
        self.told.append(changes)

    def _report(self) -> TopicReport:
        return TopicReport(epoch=self.record.epoch, segments=(), subscriptions=dict.fromkeys(self.subscriptions, 0))

    def _delete(self, deletion: Deletion) -> None:
        del deletion
        self.record = self.record.model_copy(update={"deleting": True})


async def status_of(run: Run) -> ControllerStatus:
    """The answer of the query `status`."""
    return await _asked(run.handle, "status", ControllerStatus)


async def layout_of(run: Run) -> SegmentLayout:
    """The answer of the query `layout`."""
    return await _asked(run.handle, "layout", SegmentLayout)


async def _asked(handle: WorkflowHandle[Any, Any], query: str, answer: type[ResultT]) -> ResultT:
    return TypeAdapter(answer).validate_python(await handle.query(query))

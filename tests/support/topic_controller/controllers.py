"""A controller under a workflow of a real Temporal server, as operators use it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, TypeAdapter
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, TemporalError

from clients.pulsar.names import TopicName
from models.lifecycle.names import TASK_QUEUE
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from models.topic_controller.auto_scale import AutoScaleChange
from models.topic_controller.input import (
    ControllerInput,
    ControllerUrls,
    Deletion,
    InitialPosition,
    MergeRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.pruning import PruneRequest, PruneResult, Pruning, PruningChange
from models.topic_controller.sessions import ConsumerAssignment, Departures, GraceChange, Registrations
from models.topic_controller.state import ControllerStatus, LayoutChange, TopicReport
from pulsar_devstack.servers.stack import Stack
from tests.support.lifecycle.operator import Operator
from tests.support.waiting import wait_for

ResultT = TypeVar("ResultT")

LIMIT = 120.0
"""Seconds that a test waits for the answer of an update; a deletion waits a minute where an attempt was given up."""

_ANSWER_LIMIT = 30.0


class Controller:
    """The controller of one topic.

    Args:
        operator: starts and asks it.
        input: of the workflow.
        queue: of the workers that it runs on.
    """

    def __init__(self, operator: Operator, input: ControllerInput, *, queue: str = TASK_QUEUE) -> None:
        self.input = input
        self._queue = queue
        self.name = TopicName.parse(input.topic)
        self._operator = operator
        # The SDK's annotations of updates are partly untyped.
        self.handle: Any = self._start()

    @classmethod
    def of(cls, operator: Operator, stack: Stack, topic: str, **more: object) -> Controller:
        """Start the controller of a topic of a stack, on the usual queue unless `queue` names another."""
        queue = str(more.pop("queue", TASK_QUEUE))
        given = {
            "cluster": stack.state.spec.cluster,
            "metadata_url": stack.metadata_url,
            "admin_urls": stack.admin_urls,
            "topic": topic,
        }
        return cls(operator, ControllerInput.model_validate({**given, **more}), queue=queue)

    def _start(self) -> WorkflowHandle[Any, str]:
        client = self._operator.client
        start = client.start_workflow(
            "TopicController",
            self.input,
            id=self.input.workflow_id,
            task_queue=self._queue,
            result_type=str,
        )
        return self._operator.wait(start, LIMIT)

    def split(self, segment: int) -> SegmentLayout:
        """Split a segment; return the layout after it."""
        self._update("split", SplitRequest(segment=segment), LayoutChange)
        return self.layout()

    def merge(self, first: int, second: int) -> SegmentLayout:
        """Merge two segments; return the layout after it."""
        self._update("merge", MergeRequest(segments=(first, second)), LayoutChange)
        return self.layout()

    def subscribe(
        self,
        name: str,
        kind: SubscriptionKind = SubscriptionKind.STREAM,
        initial_position: InitialPosition = InitialPosition.EARLIEST,
    ) -> None:
        """Create a subscription."""
        request = SubscriptionRequest(name=name, kind=kind, initial_position=initial_position)
        self._update("create_subscription", request, type(None))

    def unsubscribe(self, name: str) -> None:
        """Delete a subscription."""
        self._update("delete_subscription", Unsubscription(name=name), type(None))

    def direct(self, *urls: str) -> None:
        """Set the addresses of the controller that clients get."""
        self._update("set_controller_urls", ControllerUrls(urls=urls), type(None))

    def register(self, subscription: str, consumer: str, instance: str = "only") -> ConsumerAssignment:
        """Register a consumer; what it reads."""
        request = Registrations(subscription=subscription, consumers=(consumer,), instances={consumer: instance})
        return self._update("register", request, dict[str, ConsumerAssignment])[consumer]

    def unregister(self, subscription: str, consumer: str, instance: str = "only") -> None:
        """End the session of a consumer."""
        request = Departures(subscription=subscription, consumers=(consumer,), instances={consumer: instance})
        self._update("unregister", request, type(None))

    def set_grace(self, grace: timedelta) -> None:
        """Change how long sessions outlive connections."""
        self._update("set_grace", GraceChange(grace=grace), type(None))

    def retry_until_done(self, name: str, request: BaseModel, limit: float) -> None:
        """Send an update until it is answered, while Temporal may go away and come back; it is taken once."""
        number = str(uuid.uuid4())

        def answered() -> bool:
            try:
                self._operator.wait(self.handle.execute_update(name, request, id=number), _ANSWER_LIMIT)
            except WorkflowUpdateFailedError:
                raise
            except (TemporalError, TimeoutError):
                return False
            return True

        wait_for(f"the answer of {name}", answered, limit)

    def reset(self, activity: str, *, updates: bool, incomplete: bool = False) -> None:
        """Reset its workflow to before it first began an activity, or during it; updates since come again, or not.

        Returns when the run that follows the reset leads.
        """
        reset = self._operator.reset(self.handle, activity, updates=updates, incomplete=incomplete)
        self.handle = self._operator.client.get_workflow_handle(self.handle.id, result_type=str)

        def follows() -> bool:
            return self._operator.wait(self.handle.describe(), _ANSWER_LIMIT).run_id != reset

        wait_for("the run after a reset", follows, LIMIT)
        self.until(lambda status: status.epoch >= 0 and not status.doing)

    def terminate(self) -> None:
        """End its workflow at once, if it runs and Temporal is there."""
        with suppress(TemporalError, TimeoutError):
            self._operator.wait(self.handle.terminate(), _ANSWER_LIMIT)

    def is_idle(self) -> bool:
        """Return whether the topic is open and no change is under way; False also where no worker answers."""
        with suppress(TemporalError, TimeoutError):
            status = self.status()
            return status.epoch >= 0 and not status.doing
        return False

    def stats(self) -> TopicReport:
        """Return statistics of the topic."""
        return self._update("stats", None, TopicReport)

    def delete(self, *, force: bool = False) -> str:
        """Delete the topic; how the workflow ended."""
        self._update("delete", Deletion(force=force), type(None))
        return self.end()

    def end(self) -> str:
        """Wait until the workflow has ended; how."""
        return self._operator.wait(self.handle.result(), LIMIT)

    def prune(self, *segments: int, force: bool = False) -> PruneResult:
        """Remove sealed segments that may go."""
        return self._update("prune", PruneRequest(segments=segments, force=force), PruneResult)

    def set_pruning(self, **settings: object) -> None:
        """Change when sealed segments go."""
        change = PruningChange(pruning=Pruning.model_validate(settings))
        self._update("set_pruning", change, type(None))

    def scale(self, policy: Mapping[str, object] | None) -> None:
        """Change when segments split and merge by themselves."""
        self._update("set_auto_scale", AutoScaleChange.model_validate({"policy": policy}), type(None))

    def until(self, holds: Callable[[ControllerStatus], bool], limit: float = LIMIT) -> ControllerStatus:
        """Wait until the status fulfils a condition; the status."""
        end = time.monotonic() + limit
        while not holds(status := self.status()):
            assert time.monotonic() < end, status
            time.sleep(0.2)
        return status

    def status(self) -> ControllerStatus:
        """Return the answer of the query `status`."""
        answer = self._operator.wait(self.handle.query("status"), LIMIT)
        return ControllerStatus.model_validate(answer)

    def layout(self) -> SegmentLayout:
        """Return the answer of the query `layout`."""
        return SegmentLayout.model_validate(self._operator.wait(self.handle.query("layout"), LIMIT))

    def assignments(self, subscription: str) -> dict[str, tuple[int, ...]]:
        """Return the answer of the query `assignments`."""
        answer = self._operator.wait(self.handle.query("assignments", subscription), LIMIT)
        return TypeAdapter(dict[str, tuple[int, ...]]).validate_python(answer)

    def failure(self) -> ApplicationError:
        """Return the error with which the workflow failed, as it must."""
        with pytest.raises(WorkflowFailureError) as failed:
            self._operator.wait(self.handle.result(), LIMIT)
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError)
        return cause

    def refusal(self, update: str, request: BaseModel) -> ApplicationError:
        """Send an update that must fail, and return why."""
        with pytest.raises(WorkflowUpdateFailedError) as failed:
            self._update(update, request, object)
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError)
        return cause

    def _update(self, name: str, request: BaseModel | None, answer: type[ResultT]) -> ResultT:
        args = [] if request is None else [request]
        result = self._operator.wait(self.handle.execute_update(name, args=args), LIMIT)
        return TypeAdapter(answer).validate_python(result)

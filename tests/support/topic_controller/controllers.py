"""A controller under a workflow of a real Temporal server, as operators use it."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, TypeAdapter
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from clients.pulsar.names import TopicName
from deploy.devstack.stack import Stack
from models.lifecycle.names import TASK_QUEUE
from models.segment import SubscriptionKind
from models.segment_layout import SegmentLayout
from models.topic_controller.input import (
    ControllerInput,
    Deletion,
    MergeRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.state import ControllerStatus, TopicReport
from tests.support.lifecycle.operator import Operator

ResultT = TypeVar("ResultT")

LIMIT = 60.0
"""Seconds that a test waits for the answer of an update."""


class Controller:
    """The controller of one topic.

    Args:
        operator: starts and asks it.
        input: of the workflow.
    """

    def __init__(self, operator: Operator, input: ControllerInput) -> None:
        self.input = input
        self.name = TopicName.parse(input.topic)
        self._operator = operator
        # The SDK's annotations of updates are partly untyped.
        self.handle: Any = self._start()

    @classmethod
    def of(cls, operator: Operator, stack: Stack, topic: str, **more: object) -> Controller:
        """Start the controller of a topic of a stack."""
        given = {
            "cluster": stack.state.spec.cluster,
            "metadata_url": stack.metadata_url,
            "admin_urls": stack.admin_urls,
            "topic": topic,
        }
        return cls(operator, ControllerInput.model_validate({**given, **more}))

    def _start(self) -> WorkflowHandle[Any, str]:
        client = self._operator.client
        start = client.start_workflow(
            "ScalableTopicController",
            self.input,
            id=self.input.workflow_id,
            task_queue=TASK_QUEUE,
            result_type=str,
        )
        return self._operator.wait(start, LIMIT)

    def split(self, segment: int) -> SegmentLayout:
        """Split a segment."""
        return self._update("split", SplitRequest(segment=segment), SegmentLayout)

    def merge(self, one: int, other: int) -> SegmentLayout:
        """Merge two segments."""
        return self._update("merge", MergeRequest(segments=(one, other)), SegmentLayout)

    def subscribe(self, name: str, kind: SubscriptionKind = SubscriptionKind.STREAM) -> None:
        """Create a subscription."""
        self._update("create_subscription", SubscriptionRequest(name=name, kind=kind), type(None))

    def unsubscribe(self, name: str) -> None:
        """Delete a subscription."""
        self._update("delete_subscription", Unsubscription(name=name), type(None))

    def stats(self) -> TopicReport:
        """Statistics."""
        return self._update("stats", None, TopicReport)

    def delete(self, *, force: bool = False) -> str:
        """Delete the topic; how the workflow ended."""
        self._update("delete", Deletion(force=force), type(None))
        return self._operator.wait(self.handle.result(), LIMIT)

    def status(self) -> ControllerStatus:
        """The answer of the query `status`."""
        found = self._operator.wait(self.handle.query("status"), LIMIT)
        return ControllerStatus.model_validate(found)

    def layout(self) -> SegmentLayout:
        """The answer of the query `layout`."""
        return SegmentLayout.model_validate(self._operator.wait(self.handle.query("layout"), LIMIT))

    def failure(self) -> ApplicationError:
        """Why the workflow failed, as it has to."""
        with pytest.raises(WorkflowFailureError) as failed:
            self._operator.wait(self.handle.result(), LIMIT)
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError)
        return cause

    def refusal(self, update: str, request: BaseModel) -> ApplicationError:
        """Send an update that has to fail, and return why."""
        with pytest.raises(WorkflowUpdateFailedError) as failed:
            self._update(update, request, object)
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError)
        return cause

    def _update(self, name: str, request: BaseModel | None, answer: type[ResultT]) -> ResultT:
        args = [] if request is None else [request]
        found = self._operator.wait(self.handle.execute_update(name, args=args), LIMIT)
        return TypeAdapter(answer).validate_python(found)

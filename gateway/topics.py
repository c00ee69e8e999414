"""Operations on controlled topics for the REST interface of the proposal (PIP-468, "REST API")."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel, ValidationError
from temporalio.client import WorkflowHandle

from gateway.answers import TopicFigures
from gateway.controllers import ControllerNotFound, Controllers, UpdateRejected
from gateway.errors import HTTPProblem, unavailable
from gateway.settings import GatewaySettings
from models.base import faults
from models.lifecycle.failures import FailureKind
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo
from models.topic_controller.input import (
    ControllerInput,
    Deletion,
    MergeRequest,
    SegmentRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.pruning import PruneRequest, PruneResult
from models.topic_controller.state import ControllerStatus, LayoutChange, TopicReport

AnswerT = TypeVar("AnswerT")

_POLL_INTERVAL = 0.1
# Concurrent queries: a list with properties queries each topic.
_AT_ONCE = 16


class Topics:
    """The topics of one cluster.

    Args:
        controllers: client of the workflows.
        settings: of this process.
    """

    def __init__(self, controllers: Controllers, settings: GatewaySettings) -> None:
        self._controllers = controllers
        self._settings = settings
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reports: dict[str, asyncio.Task[TopicFigures]] = {}

    @property
    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.change_deadline.total_seconds()

    # Topics -----------------------------------------------------------------------------------------------------------

    async def names(self, tenant: str, namespace: str, properties: Mapping[str, str]) -> list[str]:
        """Return the controlled topics of a namespace that have these properties, with their full names, sorted."""
        deadline = self._deadline
        names = [f"persistent://{name}" for name in await self._controllers.names(tenant, namespace, deadline)]
        if not properties:
            return names
        slots = asyncio.Semaphore(_AT_ONCE)

        async def has(topic: str) -> bool:
            async with slots:
                try:
                    layout = await self.layout(topic)
                except HTTPProblem as refusal:
                    if refusal.status is HTTPStatus.NOT_FOUND:
                        return False
                    raise
            return properties.items() <= layout.properties.items()

        fits = await asyncio.gather(*map(has, names))
        return [topic for topic, does in zip(names, fits, strict=True) if does]

    async def create(self, topic: str, segments: int, properties: Mapping[str, str]) -> None:
        """Start the controller of a new topic, and wait until the topic is open.

        Raises:
            HTTPProblem: the topic exists, a value is invalid, or it is not open in time.
        """
        given = self._settings
        try:
            input = ControllerInput(
                cluster=given.cluster,
                metadata_url=given.metadata_url,
                admin_urls=given.admin_urls,
                credentials=given.credentials,
                topic=topic,
                segments=segments,
                properties=dict(properties),
                controller_urls=given.controller_urls,
            )
        except ValidationError as error:
            raise HTTPProblem(HTTPStatus.PRECONDITION_FAILED, faults(error)) from error
        handle = await self._controllers.start(input, given.task_queue)
        await self._until_open(topic, handle)

    async def _until_open(self, topic: str, handle: WorkflowHandle[Any, str]) -> None:
        deadline = self._deadline
        failing = asyncio.create_task(self._controllers.failure(handle))
        opening = asyncio.create_task(self._opened(topic, deadline))
        try:
            await asyncio.wait((failing, opening), return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                raise failing.result().refusal
            opening.result()
        finally:
            failing.cancel()
            opening.cancel()

    async def _opened(self, topic: str, deadline: float) -> None:
        """Wait until a topic has a layout; a failure of its controller ends the wait elsewhere."""
        status: ControllerStatus | None = None
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    status = await self._status_if_any(topic, deadline)
                    if status and status.epoch >= 0 and not status.doing:
                        return
                    await asyncio.sleep(_POLL_INTERVAL)
        except TimeoutError as error:
            why = status.waiting or status.doing if status else ""
            raise unavailable(
                f"{topic} is not open yet: {why or 'no worker is polling'}; check its stats later"
            ) from error

    async def _status_if_any(self, topic: str, deadline: float) -> ControllerStatus | None:
        try:
            return await self._status(topic, deadline)
        except HTTPProblem as refusal:
            if refusal.status is not HTTPStatus.NOT_FOUND:
                raise
            return None

    async def layout(self, topic: str) -> SegmentLayout:
        """Return all segments of a topic.

        Raises:
            HTTPProblem: there is no controller, or no answer in time.
        """
        layout = await self._controllers.query(topic, "layout", SegmentLayout, self._deadline)
        if layout is None:
            raise unavailable(f"{topic} is not open yet")
        return layout

    async def delete(self, topic: str, *, force: bool) -> None:
        """Delete a topic with all its messages; one of the same name can be created afterwards.

        Raises:
            HTTPProblem: there is no controller, it refuses, or it ended without a confirmation.
        """
        deadline = self._deadline
        run = await self._controllers.run_of(topic, deadline)
        confirmed = True
        try:
            await self._change(topic, "delete", Deletion(force=force), type(None))
        except ControllerNotFound as error:
            if not error.unsure:
                raise
            confirmed = False
        confirmed |= await self._controllers.await_end(run, deadline)
        if not confirmed:  # mutant: topic-controller/a-lost-deletion-is-confirmed
            raise unavailable(
                f"the controller of {topic} ended before it confirmed the deletion, so the topic may still be there; "
                "start its controller again, and delete the topic"
            )

    async def figures(self, topic: str) -> TopicFigures:
        """Return statistics of a topic; requests at the same time share them."""
        task = self._reports.get(topic)
        if task is None:
            task = self._reports[topic] = asyncio.create_task(self._report(topic))
            task.add_done_callback(lambda _: self._reports.pop(topic, None))
        return await asyncio.shield(task)

    async def _report(self, topic: str) -> TopicFigures:
        deadline = self._deadline
        report = await self._controllers.update(topic, "stats", None, TopicReport, deadline)
        status = await self._status(topic, deadline)
        return TopicFigures.of(topic, report, status)

    # Subscriptions ----------------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, request: SubscriptionRequest) -> None:
        """Create a subscription; harmless when done twice."""
        await self._change(topic, "create_subscription", request, type(None))

    async def unsubscribe(self, topic: str, name: str) -> None:
        """Delete a subscription with its cursors; harmless if it does not exist."""
        await self._change(topic, "delete_subscription", Unsubscription(name=name), type(None))

    async def status(self, topic: str) -> ControllerStatus:
        """Return the status of a topic's controller."""
        return await self._status(topic, self._deadline)

    # Segments ---------------------------------------------------------------------------------------------------------

    async def split(self, topic: str, segment: int) -> None:
        """Divide an active segment."""
        await self._reshape(topic, "split", SplitRequest(segment=segment), (segment,), 2)

    async def merge(self, topic: str, first: int, second: int) -> None:
        """Make one segment of two active neighbours."""
        await self._reshape(topic, "merge", MergeRequest(segments=(first, second)), (first, second), 1)

    async def ensure_segment(self, topic: str, descriptor: str, subscriptions: tuple[str, ...]) -> None:
        """Create the topic of a segment, with cursors of subscriptions."""
        segment = await self.segment(topic, descriptor)
        request = SegmentRequest(segment=segment.segment_id, subscriptions=subscriptions)
        await self._change(topic, "ensure_segment", request, type(None))

    async def delete_segment(self, topic: str, descriptor: str, *, force: bool) -> None:
        """Remove a consumed sealed segment; harmless if it does not exist.

        Args:
            topic: topic of the segment.
            descriptor: descriptor of the segment.
            force: also remove a segment that only retention keeps.

        Raises:
            HTTPProblem: the segment is active, or must be retained.
        """
        segment = await self._find(topic, descriptor)
        if segment is None:
            return
        if segment.active:
            raise HTTPProblem(
                HTTPStatus.CONFLICT, f"{descriptor} is active; split it, or merge it with a neighbour first"
            )
        request = PruneRequest(segments=(segment.segment_id,), force=force)
        pruned = await self._change(topic, "prune", request, PruneResult)
        if why := pruned.retained.get(segment.segment_id):
            raise HTTPProblem(HTTPStatus.CONFLICT, f"{descriptor} is retained: {why}")

    async def segment(self, topic: str, descriptor: str) -> SegmentInfo:
        """Return a segment that the layout names.

        Raises:
            HTTPProblem: the layout has no such segment.
        """
        segment = await self._find(topic, descriptor)
        if segment is None:
            raise HTTPProblem(HTTPStatus.NOT_FOUND, f"{topic} has no segment {descriptor}")
        return segment

    async def _find(self, topic: str, descriptor: str) -> SegmentInfo | None:
        segments = (await self.layout(topic)).segments.values()
        return next((segment for segment in segments if segment.descriptor == descriptor), None)

    async def _reshape(
        self, topic: str, update: str, request: BaseModel, segments: tuple[int, ...], children: int
    ) -> None:
        try:
            await self._change(topic, update, request, LayoutChange)
        except UpdateRejected as error:
            # A new run of the workflow does not know the updates of the previous run.
            may_be_done = error.unsure and error.kind == FailureKind.REFUSED
            if not (may_be_done and _is_done(await self.layout(topic), segments, children)):
                raise

    # Helpers ----------------------------------------------------------------------------------------------------------

    async def _status(self, topic: str, deadline: float) -> ControllerStatus:
        status = await self._controllers.query(topic, "status", ControllerStatus, deadline)
        assert status is not None, "a controller always has a status"
        return status

    async def _change(self, topic: str, update: str, request: BaseModel, answer: type[AnswerT]) -> AnswerT:
        """Change a topic, one change at a time: the controller would queue more, and few updates may be in flight."""
        deadline = self._deadline
        lock = self._locks.setdefault(topic, asyncio.Lock())
        return await _within(
            lock, deadline, topic, lambda: self._controllers.update(topic, update, request, answer, deadline)
        )


async def _within(lock: asyncio.Lock, deadline: float, topic: str, change: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    try:
        async with asyncio.timeout_at(deadline):
            await lock.acquire()
    except TimeoutError as error:
        raise unavailable(f"an earlier change of {topic} is still under way; this one was not started") from error
    try:
        return await change()
    finally:
        lock.release()


def _is_done(layout: SegmentLayout, segments: tuple[int, ...], children: int) -> bool:
    """Return whether the layout has the result of a split or a merge of these segments."""
    made = [segment for segment in layout.segments.values() if {*segment.parent_ids} == {*segments}]
    return len(made) == children

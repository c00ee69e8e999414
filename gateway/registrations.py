"""Batches of registrations, as Temporal allows ten updates in flight for a workflow, and not a thousand.

Requests of the consumers of one topic are combined into few updates, each for many consumers of one subscription. The
requests of one consumer keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from gateway.controllers import ControllerNotFound, UpdateRejected
from gateway.errors import HTTPProblem, unavailable
from models.topic_controller.sessions import MAX_CONSUMERS_PER_UPDATE, ConsumerAssignment, Departures, Registrations
from temporal.caller import act_for, acting_for

AnswerT = TypeVar("AnswerT")

MAX_UPDATES_IN_FLIGHT = 3
"""Concurrent updates of one topic; the rest of Temporal's limit is left to other clients."""

BATCH_WINDOW_SECONDS = 0.02
"""Seconds in which requests are collected for one update."""


class Updates(Protocol):
    """Sends updates to the controllers of topics; see `Controllers.update`."""

    async def update(
        self, topic: str, name: str, argument: BaseModel | None, answer: type[AnswerT], deadline: float
    ) -> AnswerT:
        """Send an update."""
        ...


class ConsumerKey(NamedTuple):
    """A consumer of a subscription."""

    subscription: str
    name: str


@dataclass(eq=False)
class _Asked:
    """One request of a consumer.

    Attributes:
        consumer: the consumer that sent it.
        joins: whether the consumer registers, or leaves.
        instance: instance of the consumer; empty if it sent none.
        owner: the client that sent it; empty for one that may use sessions of others.
        deadline: when to give up, by the loop's clock.
        caller: who sent it, for the header of the update.
        answer: the assignment of a consumer that registered; None for one that left.
    """

    consumer: ConsumerKey
    joins: bool
    instance: str
    owner: str
    deadline: float
    caller: str
    answer: asyncio.Future[ConsumerAssignment | None]

    @property
    def kind(self) -> tuple[str, bool]:
        """Return the subscription and direction, which all requests of one update share."""
        return self.consumer.subscription, self.joins

    @property
    def sender(self) -> tuple[str, str]:
        """Return the instance and the client that sent it: one update has one of each for a consumer."""
        return self.instance, self.owner


@dataclass(eq=False)
class _TopicQueue:
    """Requests of the consumers of one topic.

    Attributes:
        waiting: requests that are not sent yet, in the order of their arrival.
        busy: consumers with a request in an update that is under way.
        tasks: updates that are under way.
        gathering: whether the batch window is open.
    """

    waiting: list[_Asked] = field(default_factory=list[_Asked])
    busy: set[ConsumerKey] = field(default_factory=set[ConsumerKey])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    gathering: bool = False

    def take(self) -> list[_Asked]:
        """Remove and return the requests of the next update: one kind, one sender per name, each name in order."""
        taken: list[_Asked] = []
        remaining: list[_Asked] = []
        senders: dict[ConsumerKey, tuple[str, str]] = {}
        blocked = {*self.busy}
        for request in self.waiting:
            fits = not taken or request.kind == taken[0].kind
            is_full = len(senders) == MAX_CONSUMERS_PER_UPDATE and request.consumer not in senders
            is_other = senders.get(request.consumer, request.sender) != request.sender
            if request.consumer in blocked or not fits or is_full or is_other:
                blocked.add(request.consumer)
                remaining.append(request)
            else:
                senders[request.consumer] = request.sender
                taken.append(request)
        self.waiting = remaining
        return taken


class Registrar:
    """Registers consumers of all topics.

    Args:
        updates: sends updates.
    """

    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self._queues: dict[str, _TopicQueue] = {}

    async def join(
        self, topic: str, consumer: ConsumerKey, deadline: float, instance: str = "", owner: str = ""
    ) -> ConsumerAssignment:
        """Register a consumer, or resume its session; return its assignment.

        Args:
            topic: topic of the subscription.
            consumer: the consumer.
            deadline: when to give up, by the loop's clock.
            instance: random id of the consumer's process.
            owner: the client that sent the request; empty for one that may use sessions of others.

        Raises:
            UpdateRejected, ControllerNotFound: the controller refused it, or there is none.
            HTTPProblem: the consumer left during the request, or there is no answer in time.
        """
        answer = await self._ask(topic, consumer, deadline, (instance, owner), joins=True)
        if answer is None:
            raise HTTPProblem(
                HTTPStatus.CONFLICT, f"{consumer.name} left {consumer.subscription} while it was registered"
            )
        return answer

    async def leave(
        self, topic: str, consumer: ConsumerKey, deadline: float, instance: str = "", owner: str = ""
    ) -> None:
        """End a consumer's session; harmless if there is none, or another instance has it. Arguments: see `join`."""
        await self._ask(topic, consumer, deadline, (instance, owner), joins=False)

    async def drain(self) -> None:
        """Wait for the updates that are under way."""
        while tasks := [task for queue in self._queues.values() for task in queue.tasks]:
            await asyncio.wait(tasks)

    async def _ask(
        self, topic: str, consumer: ConsumerKey, deadline: float, sender: tuple[str, str], *, joins: bool
    ) -> ConsumerAssignment | None:
        loop = asyncio.get_running_loop()
        asked = _Asked(consumer, joins, *sender, deadline, acting_for(), loop.create_future())
        # The client may have disconnected.
        asked.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        queue = self._queues.setdefault(topic, _TopicQueue())
        queue.waiting.append(asked)
        if not queue.gathering:
            queue.gathering = True
            loop.call_later(BATCH_WINDOW_SECONDS, self._gathered, topic, queue)
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(asked.answer)
        except TimeoutError as error:
            action = "registration" if joins else "departure"
            raise unavailable(
                f"timed out waiting for the {action} of {consumer.name}; it may still be applied"
            ) from error

    def _gathered(self, topic: str, queue: _TopicQueue) -> None:
        queue.gathering = False
        self._go(topic, queue)

    def _go(self, topic: str, queue: _TopicQueue) -> None:
        while len(queue.tasks) < MAX_UPDATES_IN_FLIGHT and (together := queue.take()):
            queue.busy |= {request.consumer for request in together}
            task = asyncio.create_task(self._send(topic, queue, together))
            queue.tasks.add(task)
            task.add_done_callback(lambda task: self._done(topic, queue, task))
        # The window of a queue that was empty, and was replaced, may end later.
        if not queue.tasks and not queue.waiting and self._queues.get(topic) is queue:
            del self._queues[topic]

    def _done(self, topic: str, queue: _TopicQueue, task: asyncio.Task[None]) -> None:
        queue.tasks.discard(task)
        self._go(topic, queue)

    async def _send(self, topic: str, queue: _TopicQueue, together: Sequence[_Asked]) -> None:
        unanswered = together
        try:
            while unanswered:
                try:
                    answers = await self._update(topic, unanswered)
                except (UpdateRejected, ControllerNotFound, HTTPProblem) as error:
                    refused = {*error.consumers} if isinstance(error, UpdateRejected) else set[str]()
                    concerned = [asked for asked in unanswered if asked.consumer.name in refused] or unanswered
                    _tell(concerned, error)
                    unanswered = [asked for asked in unanswered if asked not in concerned]
                else:
                    for asked in unanswered:
                        if not asked.answer.done():
                            asked.answer.set_result(answers.get(asked.consumer.name))
                    unanswered = []
        except BaseException as error:
            _tell(unanswered, unavailable(f"the gateway cancelled the request: {type(error).__name__}"))
            raise
        finally:
            queue.busy -= {asked.consumer for asked in together}

    async def _update(self, topic: str, together: Sequence[_Asked]) -> dict[str, ConsumerAssignment]:
        """Send one update; return the assignments, by name of the consumer."""
        subscription, joins = together[0].kind
        names = tuple(sorted({asked.consumer.name for asked in together}))
        instances = {asked.consumer.name: asked.instance for asked in together if asked.instance}
        owners = {asked.consumer.name: asked.owner for asked in together if asked.owner}
        deadline = max(asked.deadline for asked in together)
        with act_for(", ".join(sorted({asked.caller for asked in together}))):
            if joins:
                request = Registrations(subscription=subscription, consumers=names, instances=instances, owners=owners)
                return await self._updates.update(topic, "register", request, dict[str, ConsumerAssignment], deadline)
            leaving = Departures(subscription=subscription, consumers=names, instances=instances, owners=owners)
            await self._updates.update(topic, "unregister", leaving, type(None), deadline)
        return {}


def _tell(together: Sequence[_Asked], error: Exception) -> None:
    for request in together:
        if not request.answer.done():
            request.answer.set_exception(error)

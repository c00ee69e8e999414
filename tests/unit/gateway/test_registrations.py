"""Consumers that come and go: few updates, each name in its order, and an answer for every request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from gateway import registrations
from gateway.controllers import UpdateRejected
from gateway.errors import HTTPProblem
from gateway.registrations import MAX_UPDATES_IN_FLIGHT, ConsumerKey, Registrar
from models.lifecycle.failures import FailureKind
from models.topic_controller.sessions import MAX_CONSUMERS_PER_UPDATE, ConsumerAssignment, Departures, Registrations

TOPIC = "persistent://acme/shop/orders"


@dataclass
class Workflow:
    """Plays the controllers of topics, for what only concerns which updates they get.

    Attributes:
        sent: subscription, whether they join, and names of each update.
        sessions: who is registered.
        fails: raises what an update fails with.
        pause: seconds that an update takes.
        released: set unless updates wait for it.
        most: updates that were under way at once.
        instances: of consumers, of each update.
        deadlines: of each update.
    """

    sent: list[tuple[str, bool, tuple[str, ...]]] = field(default_factory=list[tuple[str, bool, tuple[str, ...]]])
    sessions: set[ConsumerKey] = field(default_factory=set[ConsumerKey])
    fails: Callable[[], None] = lambda: None
    pause: float = 0.0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    most: int = 0
    busy: int = 0
    instances: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    deadlines: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.released.set()

    async def update(
        self, topic: str, name: str, argument: BaseModel | None, answer: type[Any], deadline: float
    ) -> Any:
        """Take one."""
        assert topic == TOPIC
        assert isinstance(argument, Registrations | Departures)
        assert len({*argument.consumers}) == len(argument.consumers)
        self.sent.append((argument.subscription, name == "register", argument.consumers))
        self.instances.append(argument.instances)
        self.deadlines.append(deadline)
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.pause)
        await self.released.wait()
        self.busy -= 1
        self.fails()
        consumers = {ConsumerKey(argument.subscription, consumer) for consumer in argument.consumers}
        if name == "unregister":
            self.sessions -= consumers
            return None
        self.sessions |= consumers
        assignment = {"createdMs": 1, "layoutEpoch": 0, "generation": len(self.sent)}
        return TypeAdapter(answer).validate_python(dict.fromkeys(argument.consumers, assignment))


def deadline_in(seconds: float = 30.0) -> float:
    """Return a deadline."""
    return asyncio.get_running_loop().time() + seconds


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is fulfilled."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the registrar announces nothing
            await asyncio.sleep(0.005)


async def test_a_thousand_at_once() -> None:
    """Consumers that come together go in few updates of at most 500, and all are answered."""
    workflow = Workflow()
    registrar = Registrar(workflow)
    consumers = [ConsumerKey("bill", f"consumer-{number}") for number in range(1000)]
    answers = await asyncio.gather(*(registrar.join(TOPIC, consumer, deadline_in()) for consumer in consumers))
    assert [len(names) for _, _, names in workflow.sent] == [MAX_CONSUMERS_PER_UPDATE, MAX_CONSUMERS_PER_UPDATE]
    assert all(isinstance(answer, ConsumerAssignment) for answer in answers)
    await asyncio.gather(*(registrar.leave(TOPIC, consumer, deadline_in()) for consumer in consumers))
    assert (len(workflow.sent), workflow.sessions) == (4, set())


async def test_few_are_in_flight() -> None:
    """A consumer that comes while updates are under way waits for the next update; at most three run at once."""
    workflow = Workflow()
    workflow.released.clear()
    registrar = Registrar(workflow)
    tasks: list[asyncio.Task[Any]] = []

    def join(count: int) -> None:
        for _ in range(count):
            consumer = ConsumerKey("bill", f"consumer-{len(tasks)}")
            tasks.append(asyncio.create_task(registrar.join(TOPIC, consumer, deadline_in())))

    for number in range(MAX_UPDATES_IN_FLIGHT):
        join(1)
        await until(lambda number=number: len(workflow.sent) > number)
    join(200)
    await asyncio.sleep(2 * registrations.BATCH_WINDOW_SECONDS)
    assert len(workflow.sent) == MAX_UPDATES_IN_FLIGHT
    workflow.released.set()
    await asyncio.gather(*tasks)
    assert workflow.most == MAX_UPDATES_IN_FLIGHT
    assert len(workflow.sent) == MAX_UPDATES_IN_FLIGHT + 1


@given(
    asked=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from("xyz"), st.booleans()), max_size=40),
    pauses=st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
def test_the_order_of_each_name(asked: list[tuple[str, str, bool]], pauses: list[int]) -> None:
    """However requests come, what was asked last for a name counts, and each is answered."""

    async def run() -> set[ConsumerKey]:
        workflow = Workflow(pause=0.001)
        registrar = Registrar(workflow)
        tasks: list[asyncio.Task[Any]] = []
        for (subscription, name, joins), pause in zip(asked, pauses, strict=False):
            ask = registrar.join if joins else registrar.leave
            tasks.append(asyncio.create_task(ask(TOPIC, ConsumerKey(subscription, name), deadline_in())))
            await asyncio.sleep(pause / 1000)
        await asyncio.gather(*tasks)
        await registrar.drain()
        return workflow.sessions

    last = {ConsumerKey(subscription, name): joins for subscription, name, joins in asked}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registrations, "BATCH_WINDOW_SECONDS", 0.001)
        assert asyncio.run(run()) == {consumer for consumer, joins in last.items() if joins}


async def test_a_batch_window_that_ends_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window whose requests went with an earlier update has no effect: requests of a consumer keep their order."""
    workflow = Workflow()
    registrar = Registrar(workflow)

    def ask(name: str, window: float, *, joins: bool = True) -> asyncio.Task[Any]:
        send = registrar.join if joins else registrar.leave
        monkeypatch.setattr(registrations, "BATCH_WINDOW_SECONDS", window)
        return asyncio.create_task(send(TOPIC, ConsumerKey("bill", name), deadline_in(60)))

    workflow.released.clear()
    first = ask("a", 0.01)
    await until(lambda: len(workflow.sent) == 1)
    with_it = ask("b", 0.3)
    await asyncio.sleep(0)
    workflow.released.set()
    # The end of the first update sends the second one.
    await asyncio.gather(first, with_it)
    workflow.released.clear()
    joining = ask("c", 0.01)
    await until(lambda: len(workflow.sent) == 3)
    # Now the window of the second one ends.
    await asyncio.sleep(0.4)
    leaving = ask("c", 0.01, joins=False)
    await asyncio.sleep(0.2)
    assert len(workflow.sent) == 3
    workflow.released.set()
    await asyncio.gather(joining, leaving)
    assert workflow.sessions == {ConsumerKey("bill", "a"), ConsumerKey("bill", "b")}


async def test_instances_of_one_name() -> None:
    """An update has one instance of each name, and those of one name go in the order in which they came.

    It may take as long as the last of its requests.
    """
    workflow = Workflow()
    registrar = Registrar(workflow)
    first, second = ConsumerKey("bill", "a"), ConsumerKey("bill", "b")
    last = deadline_in(60)
    await asyncio.gather(
        registrar.join(TOPIC, first, deadline_in(), "old"),
        registrar.join(TOPIC, second, last, "only"),
        registrar.join(TOPIC, first, deadline_in(), "new"),
        registrar.leave(TOPIC, first, deadline_in(), "old"),
        registrar.leave(TOPIC, second, deadline_in()),
    )
    assert (workflow.instances[0], workflow.deadlines[0]) == ({"a": "old", "b": "only"}, last)
    assert [said for said in workflow.instances[1:] if said] == [{"a": "new"}, {"a": "old"}]
    assert workflow.sent.count(("bill", False, ("b",))) == 1


async def test_refused_updates() -> None:
    """Every request of a refused update gets the reason, and the next updates are sent."""
    workflow = Workflow()
    registrar = Registrar(workflow)

    def refuse() -> None:
        raise UpdateRejected("there is no subscription bill", FailureKind.REFUSED, unsure=False)

    workflow.fails = refuse
    asked = [registrar.join(TOPIC, ConsumerKey("bill", name), deadline_in()) for name in "abc"]
    assert [str(error) for error in await asyncio.gather(*asked, return_exceptions=True)] == [
        "there is no subscription bill"
    ] * 3
    workflow.fails = lambda: None
    assert (await registrar.join(TOPIC, ConsumerKey("bill", "a"), deadline_in())).generation == 2


async def test_an_answer_that_is_late() -> None:
    """A request that waits too long fails with that reason, and its update is still completed."""
    workflow = Workflow()
    workflow.released.clear()
    registrar = Registrar(workflow)
    with pytest.raises(HTTPProblem, match="may still be applied") as late:
        await registrar.join(TOPIC, ConsumerKey("bill", "a"), deadline_in(0.1))
    assert (late.value.status, late.value.headers) == (HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "2"})
    await until(lambda: bool(workflow.sent))
    workflow.released.set()
    await registrar.drain()
    assert workflow.sessions == {ConsumerKey("bill", "a")}


async def test_a_cancelled_request() -> None:
    """A cancelled request does not stop the update that it asked for."""
    workflow = Workflow()
    workflow.released.clear()
    registrar = Registrar(workflow)
    task = asyncio.create_task(registrar.join(TOPIC, ConsumerKey("bill", "a"), deadline_in()))
    await until(lambda: bool(workflow.sent))
    task.cancel()
    workflow.released.set()
    await registrar.drain()
    assert workflow.sessions == {ConsumerKey("bill", "a")}


async def test_a_consumer_that_left_during_the_update() -> None:
    """A consumer that the answer leaves out gets an error; the others of the same update get their segments."""

    class Incomplete(Workflow):
        async def update(self, topic: str, name: str, argument: Any, answer: Any, deadline: float) -> Any:
            assignments = await super().update(topic, name, argument, answer, deadline)
            return {name: assignment for name, assignment in assignments.items() if name != "b"}

    registrar = Registrar(Incomplete())
    asked = [registrar.join(TOPIC, ConsumerKey("bill", name), deadline_in()) for name in "abc"]
    first, second, third = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(first, ConsumerAssignment)
    assert isinstance(third, ConsumerAssignment)
    assert isinstance(second, HTTPProblem)
    assert (second.status, second.reason) == (HTTPStatus.CONFLICT, "b left bill while it was registered")


async def test_refused_consumers_of_an_update() -> None:
    """Consumers that an update is refused for get the reason; the others of the same update get their segments."""

    class Full(Workflow):
        async def update(self, topic: str, name: str, argument: Any, answer: Any, deadline: float) -> Any:
            if new := [consumer for consumer in argument.consumers if consumer.startswith("new")]:
                raise UpdateRejected("bill is full", FailureKind.REFUSED, unsure=False, consumers=new)
            return await super().update(topic, name, argument, answer, deadline)

    workflow = Full()
    registrar = Registrar(workflow)
    asked = [registrar.join(TOPIC, ConsumerKey("bill", name), deadline_in()) for name in ("a", "new-1", "b", "new-2")]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(answer, ConsumerAssignment) for answer in answers] == [True, False, True, False]
    assert [str(answers[1]), str(answers[3])] == ["bill is full"] * 2
    assert workflow.sent == [("bill", True, ("a", "b"))]


async def test_clients_of_one_name() -> None:
    """Requests of two clients for one consumer are two updates, each with its own client."""
    sent: list[dict[str, str]] = []

    class Noting(Workflow):
        async def update(self, topic: str, name: str, argument: Any, answer: Any, deadline: float) -> Any:
            sent.append(argument.owners)
            return await super().update(topic, name, argument, answer, deadline)

    registrar = Registrar(Noting())
    owners = ("token:one", "token:two", "")
    asked = [registrar.join(TOPIC, ConsumerKey("bill", "a"), deadline_in(), "i", owner) for owner in owners]
    await asyncio.gather(*asked)
    assert sent == [{"a": "token:one"}, {"a": "token:two"}, {}]

"""Brokers that are killed, restart, and transfer topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest
from scalable_client.tests.support.interoperation import Kind, Together
from scalable_client.tests.support.topics import SUBSCRIPTION, make_scalable, scalable, take_all

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import Language
from pulsar_scalable import ScalableClient
from pulsar_scalable.errors import ScalableError
from pulsar_scalable.layout import Layout
from pulsar_scalable.native import Assignment, ConsumerKind, MessageId, NativeClient
from pulsar_scalable.options import ProducerOptions
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

pytestmark = pytest.mark.exhaustive

_LIMIT = 90.0


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two brokers, which are killed."""
    return make_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Admin interface of the brokers."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        yield admin


class Stream:
    """Sends numbers one after the other until it is stopped.

    Attributes:
        outcomes: of each number, in the order of the callbacks.
    """

    def __init__(self, send: Callable[[bytes, Callable[[ScalableError | None, MessageId | None], None]], None]) -> None:
        self.outcomes: list[tuple[int, ScalableError | MessageId | None]] = []
        self._send = send
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop, and return the number of sent messages."""
        self._stop.set()
        self._thread.join()
        return self._count

    def _noting(self, number: int) -> Callable[[ScalableError | None, MessageId | None], None]:
        return lambda error, place: self.outcomes.append((number, error or place))

    def _run(self) -> None:
        self._count = 0
        while not self._stop.wait(0.005):
            number = self._count
            self._send(b"%d" % number, self._noting(number))
            self._count += 1


def broker_of(stack: Stack, url: str | None) -> str:
    """Return the name of the broker with an address."""
    (broker,) = [server.name for server in stack if server.kind == "broker" and url and server.address in url]
    return broker


def test_a_broker_that_is_killed_and_restarted(stack: Stack, admin: PulsarAdmin, client: NativeClient) -> None:
    """The producer loses nothing and keeps the order, and the consumer continues, with the other broker or the same."""
    name = make_scalable(admin, 1)
    layout = client.look_up(scalable(name))
    topic = layout.topic_of(layout.active[0])
    consumer = client.subscribe(topic, SUBSCRIPTION)
    producer = client.create_producer(
        topic, ProducerOptions(max_pending_messages=100_000, send_timeout_millis=int(_LIMIT * 1000))
    )
    stream = Stream(producer.send_async)
    wait_for("messages", lambda: len(stream.outcomes) > 100, _LIMIT)
    owner = broker_of(stack, dict(client.look_up(scalable(name)).brokers).get(0))
    killed = time.monotonic()
    stack[owner].kill()
    before = len(stream.outcomes)
    stack[owner].start()
    wait_for("messages again", lambda: len(stream.outcomes) > before + 100, _LIMIT)
    back = time.monotonic() - killed
    count = stream.stop()
    producer.flush()
    assert [number for number, _ in stream.outcomes] == list(range(count))
    assert all(isinstance(message_id, MessageId) for _, message_id in stream.outcomes)
    numbers = [int(message.data()) for message in take_all(consumer, count, silence_ms=5000)]
    # Each at least once; the first time each in order.
    assert list(dict.fromkeys(numbers)) == list(range(count))
    print(f"{count} messages, {len(numbers) - count} twice, back after {back:.1f} s")


def test_a_leader_that_dies(stack: Stack, admin: PulsarAdmin, client: NativeClient) -> None:
    """Consumers register with the next leader by their names, and watches continue with the other broker."""
    name, layouts = make_scalable(admin, 2), list[Layout]()
    assignments: dict[str, list[Assignment]] = {"one": [], "two": []}
    watch = client.watch(scalable(name), layouts.append)
    registrations = [
        client.register(scalable(name), SUBSCRIPTION, consumer, ConsumerKind.STREAM, history.append)
        for consumer, history in assignments.items()
    ]
    wait_for(
        "the balance", lambda: all(len(registration.assignment.segments) == 1 for registration in registrations), _LIMIT
    )
    leader = broker_of(stack, client.look_up(scalable(name)).controller)
    stack[leader].kill()
    try:
        wait_for("the loss", lambda: not any(registration.is_registered for registration in registrations), _LIMIT)
        begun = time.monotonic()
        wait_for("another leader", lambda: all(registration.is_registered for registration in registrations), _LIMIT)
        print(f"registered again after {time.monotonic() - begun:.1f} s")
        admin.scalable_topics.split(name, 0)
        wait_until_equal("the split", lambda: watch.layout.epoch, 1, _LIMIT)

        def ids() -> set[int]:
            return {segment.id for registration in registrations for segment in registration.assignment.segments}

        wait_for("the children", lambda: {2, 3} <= ids(), _LIMIT)
        assert all(history[-1].epoch == 1 for history in assignments.values())
    finally:
        stack[leader].start()


def test_a_leader_that_dies_under_traffic(
    stack: Stack, admin: PulsarAdmin, client: NativeClient, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Java and Python consumers of a stream lose nothing, keep the order of each key, and all work again.

    The leader of the topic's controller is killed after a split, and again after a merge.
    """
    name = make_scalable(admin, 1)
    tools = with_scalable_clients(toolchain)
    with (
        closing(ClientProgram.of(Language.JAVA_V5, stack.broker_url, tmp_path, tools, shared=True)) as java,
        ScalableClient(stack.broker_url) as python,
    ):
        together = Together(java, python, scalable(name), Kind.STREAM)
        together.join("another")
        everybody = ("java", "python", "another")
        together.await_work("at first", *everybody)
        for change in (
            lambda: admin.scalable_topics.split(name, 0),
            lambda: admin.scalable_topics.merge(name, 1, 2),
        ):
            change()
            together.await_work("after a change", *everybody)
            leader = broker_of(stack, client.look_up(scalable(name)).controller)
            stack[leader].kill()
            stack[leader].start()
            together.await_work("after the leader's death", *everybody, limit=_LIMIT)
        together.finish()


def test_a_topic_that_moves(stack: Stack, admin: PulsarAdmin, client: NativeClient) -> None:
    """An unloaded bundle costs no message, and no message comes out of order."""
    name = make_scalable(admin, 1)
    layout = client.look_up(scalable(name))
    topic = layout.topic_of(layout.active[0])
    consumer = client.subscribe(topic, SUBSCRIPTION)
    producer = client.create_producer(topic, ProducerOptions(max_pending_messages=100_000))
    stream = Stream(producer.send_async)
    for _ in range(3):
        before = len(stream.outcomes)
        admin.namespaces.unload("public/default")
        wait_for("messages", lambda before=before: len(stream.outcomes) > before + 50, _LIMIT)
    count = stream.stop()
    producer.flush()
    assert [number for number, _ in stream.outcomes] == list(range(count))
    assert all(isinstance(message_id, MessageId) for _, message_id in stream.outcomes)
    numbers = [int(message.data()) for message in take_all(consumer, count, silence_ms=3000)]
    assert list(dict.fromkeys(numbers)) == list(range(count))

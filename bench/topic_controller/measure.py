"""One side: splits and merges under traffic, and consumers that die."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from bench.topic_controller.results import Change, ControllerRun
from bench.topic_controller.topics import ORDERED, SHARED, Topic
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import ConsumerPlan, ProducerPlan, Subscribed, TopicPlan, TrafficPlan
from pulsar_devstack.traffic.pulsar_client import await_that
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord, Received
from pulsar_devstack.traffic.runner import Traffic

READERS = ("billing-a", "billing-b")
_KEYS = 100
_UNDISTURBED = 0.5
_WARM_UP = 6
_FLOW_SECONDS = 60.0
_DELIVERY_SECONDS = 60.0
_SEND_SECONDS = 60.0


class Clients(Traffic):
    """A producer with a consumer of all segments in one program, and ordered consumers in one each.

    Args:
        topic: of all of them.
        service_url: of the brokers.
        folder: an empty folder for logs.
        tools: Java and the jars, with those of V5.
        rate: messages per second.
    """

    def __init__(self, topic: Topic, service_url: str, folder: Path, tools: Toolchain, rate: int) -> None:
        self._topic = topic
        self._service_url = service_url
        self._folder = folder
        self._tools = tools
        self._programs = ExitStack()
        self._readers: dict[str, ClientProgram] = {}
        self._common = self._program("common")
        producer = ProducerPlan("sender", topic.url, topic.language, interval=1 / rate, keys=_KEYS)
        consumer = self._consumer("audit-1", SHARED, Subscribed.SHARED)
        plan = TrafficPlan((TopicPlan(topic.url, 0, (producer,), (consumer,)),))
        super().__init__(plan, {topic.language: self._common}, sent_within=_SEND_SECONDS)

    @property
    def shared(self) -> list[Received]:
        """Messages of the consumer of all segments."""
        return self._common.collect()[1][0].received

    def ordered(self, *names: str) -> list[Received]:
        """Return the messages of ordered consumers, by default of all."""
        return [message for name in names or READERS for message in self._readers[name].collect()[1][0].received]

    def kill(self, name: str) -> float:
        """End an ordered consumer without a word; returns when."""
        now = time.time()
        self._readers[name].kill()
        return now

    def restart(self, name: str) -> None:
        """Start it again."""
        self._readers[name] = self._reader(name)

    def records(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        """Return what all clients did so far, ordered consumers included."""
        producers, consumers = super().records()
        return producers, [*consumers, *(program.collect()[1][0] for program in self._readers.values())]

    def _open(self) -> None:
        self._readers.update({name: self._reader(name) for name in READERS})
        super()._open()

    def _close(self) -> None:
        self._programs.close()

    def _reader(self, name: str) -> ClientProgram:
        program = self._program(f"{name}-{time.monotonic_ns()}")
        program.subscribe([self._consumer(name, ORDERED, Subscribed.EXCLUSIVE)])
        return program

    def _consumer(self, name: str, subscription: str, type: Subscribed) -> ConsumerPlan:  # noqa: A002 - the plan's word
        return ConsumerPlan(name, self._topic.url, self._topic.language, type, named=subscription)

    def _program(self, name: str) -> ClientProgram:
        folder = self._folder / name
        folder.mkdir()
        program = ClientProgram.of(self._topic.language, self._service_url, folder, self._tools, shared=True)
        self._programs.callback(program.close)
        return program


def changes(topic: Topic, clients: Clients, run: ControllerRun, count: int, dice: random.Random) -> None:
    """Split and merge at random under traffic, and audit the delivery of all messages."""
    _flows(clients, topic)
    # Brokers that are up for days have compiled all of it; whichever side came second would have the faster ones.
    for number in range(_WARM_UP):
        _change(topic, clients, number, dice)
    for number in range(count):
        run.changes.append(_change(topic, clients, number, dice))
    audit = clients.stop(_DELIVERY_SECONDS)
    run.acknowledged, run.lost, run.order_violations = audit.acknowledged, audit.lost, audit.reordered
    duplicates = audit.duplicates
    run.duplicates = duplicates.other + duplicates.resent + duplicates.unconfirmed
    run.longest_send = max(producer.longest_send for producer in audit.producers)
    run.faults += audit.faults()


def deaths(topic: Topic, clients: Clients, run: ControllerRun, count: int, grace: float) -> None:
    """Kill ordered consumers in turn, and see when the other one has what they read."""
    for number in range(count):
        _flows(clients, topic)
        victim, other = READERS[number % 2], READERS[1 - number % 2]
        came = _death(clients, victim, other, grace + _FLOW_SECONDS)
        run.reassigned.append(came and came - grace)
        clients.restart(victim)


def _death(clients: Clients, victim: str, other: str, limit: float) -> float | None:
    """Return the seconds from a consumer's death to its segments' first message at another one; None for never."""

    def lately() -> tuple[set[int], set[int]]:
        since = time.time() - 1
        return _segments(clients.ordered(victim), since), _segments(clients.ordered(other), since)

    def apart() -> bool:
        first, another = lately()
        return bool(first and another) and not first & another

    # Segments that move when a consumer has come back have moved.
    await_that(apart, _FLOW_SECONDS)
    orphans, _ = lately()
    killed = clients.kill(victim)
    came = _first(lambda: clients.ordered(other), killed, orphans, limit)
    return came and came - killed


def _change(topic: Topic, clients: Clients, number: int, dice: random.Random) -> Change:
    before = {segment.segment_id for segment in topic.active}
    name, ask = topic.plan(number, dice)
    begin = time.time()
    ask()
    answered = time.time()
    new = {segment.segment_id for segment in topic.active} - before
    shared = _first(lambda: clients.shared, begin, new, _FLOW_SECONDS)
    ordered = _first(clients.ordered, begin, new, _FLOW_SECONDS)
    return Change(name, answered - begin, shared and shared - begin, ordered and ordered - begin)


def _flows(clients: Clients, topic: Topic) -> None:
    """Wait until messages of all active segments come, everywhere, and each ordered consumer has some."""
    begin, wanted = time.time(), {segment.segment_id for segment in topic.active}

    def flow() -> bool:
        places = [clients.shared, clients.ordered()]
        return all(wanted <= _segments(place, begin) for place in places) and all(
            _segments(clients.ordered(name), begin) for name in READERS
        )

    await_that(flow, _FLOW_SECONDS)


def _first(
    read_received: Callable[[], Iterable[Received]], begin: float, segments: set[int], limit: float
) -> float | None:
    """Return the time of the first message of some segments after a time; None for never."""
    times: list[float] = []
    # Clients note times by themselves, and each look takes processor time from them.
    time.sleep(_UNDISTURBED)

    def came() -> bool:
        times[:] = [message.at for message in read_received() if message.at > begin and _segment(message) in segments]
        return bool(times)

    return min(times) if await_that(came, limit) else None


def _segments(received: Iterable[Received], begin: float) -> set[int]:
    return {_segment(message) for message in received if message.at > begin}


def _segment(message: Received) -> int:
    return int(message.place.partition(":")[0])

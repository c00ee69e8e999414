"""The Java client 5.0.1 and this one, together on one scalable topic and one subscription."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from deploy.devstack.moving.client_program import ClientProgram
from deploy.devstack.moving.plan import ConsumerPlan, Language, ProducerPlan, Subscribed
from deploy.devstack.on_demand import with_scalable_clients
from deploy.devstack.stack import Stack
from deploy.devstack.toolchain import Toolchain
from models.segment import SubscriptionKind
from pulsar_scalable import ScalableClient
from tests.support.scalable_client.interoperation import (
    Arrival,
    Reading,
    Sending,
    first_arrivals,
    in_order,
    working,
)
from tests.support.scalable_client.topics import SUBSCRIPTION, make_scalable, scalable
from tests.support.waiting import wait_for

_LIMIT = 60.0


@pytest.fixture
def java(stack: Stack, toolchain: Toolchain, tmp_path: Path) -> Generator[ClientProgram]:
    """Clients of the Java library for scalable topics."""
    tools = with_scalable_clients(toolchain)
    with closing(ClientProgram.of(Language.JAVA_V5, stack.broker_url, tmp_path, tools, shared=True)) as clients:
        yield clients


@pytest.fixture
def python(stack: Stack) -> Generator[ScalableClient]:
    """This client."""
    with ScalableClient(stack.broker_url) as client:
        yield client


class Together:
    """Producers and stream or queue consumers of both languages on one topic."""

    def __init__(self, java: ClientProgram, python: ScalableClient, name: TopicName, *, stream: bool) -> None:
        self.topic = scalable(name)
        self._java, self._client, self._stream = java, python, stream
        self.readings: list[Reading] = []
        type_ = Subscribed.FAILOVER if stream else Subscribed.SHARED
        plan = ConsumerPlan("java", self.topic, Language.JAVA_V5, type_, named=SUBSCRIPTION)
        java.subscribe([plan])
        self.join("python")
        java.open_producers([ProducerPlan("from-java", self.topic, Language.JAVA_V5, interval=0.004, keys=16)])
        self._sending = Sending(python, self.topic, "from-python", 16, 0.05)
        java.start()

    def join(self, name: str) -> Reading:
        """Let another consumer of this client join the subscription."""
        reading = Reading(self._client, self.topic, SUBSCRIPTION, name, stream=self._stream, work=0.001)
        self.readings.append(reading)
        return reading

    def arrivals(self) -> list[Arrival]:
        """Return what all consumers received."""
        (record,) = self._java.collect()[1]
        found = [Arrival(one.at, one.key, one.number, "java") for one in record.received]
        return found + [arrival for reading in self.readings for arrival in list(reading.arrivals)]

    def await_work(self, what: str, *names: str) -> None:
        """Wait until each of the consumers receives something that comes from now on."""
        since = time.time()
        wait_for(f"work for {names} {what}", lambda: {*names} <= working(self.arrivals, since), _LIMIT)

    def finish(self) -> list[Arrival]:
        """Stop sending, and check that nothing is lost, and for a stream that the order of each key is kept."""
        counts = dict(self._sending.stop())
        self._java.stop_sending(30)
        (record,) = self._java.collect()[0]
        counts |= Counter(one.key for one in record.sent)
        assert (record.errors, self._sending.failures) == ([], [])
        expected = in_order(counts)

        def received() -> dict[str, list[int]]:
            return {key: sorted(numbers) for key, numbers in first_arrivals(self.arrivals()).items()}

        try:
            wait_for("all messages", lambda: received() == expected, _LIMIT)
        finally:
            total, arrivals = sum(counts.values()), self.arrivals()
            print(f"{total} messages, {len(arrivals) - total} twice; by {Counter(one.consumer for one in arrivals)}")
        if self._stream:
            assert first_arrivals(self.arrivals()) == expected
        assert [reading.error for reading in self.readings] == [None] * len(self.readings)
        return self.arrivals()


def test_streams_of_both_languages(admin: PulsarAdmin, java: ClientProgram, python: ScalableClient) -> None:
    """Nothing is lost, the order of each key is kept, and all consumers work, through a split, a merge, a rebucket.

    The topic begins with one segment, which all consumers share by its entry buckets.
    """
    name = make_scalable(admin, 1)
    together = Together(java, python, name, stream=True)
    together.await_work("on one segment", "java", "python")
    third = together.join("another")
    together.await_work("as three on one segment", "java", "python", "another")
    admin.scalable_topics.split(name, 0)
    together.await_work("after the split", "java", "python", "another")
    third.close()
    together.await_work("after one has left", "java", "python")
    admin.scalable_topics.merge(name, 1, 2)
    together.await_work("after the merge", "java", "python")
    admin.scalable_topics.rebucket(name, 3, 2)
    together.await_work("after the rebucket", "java", "python")
    together.finish()


def test_queues_of_both_languages(admin: PulsarAdmin, java: ClientProgram, python: ScalableClient) -> None:
    """Nothing is lost, and both consumers work, through a split, a merge and a rebucket."""
    name = make_scalable(admin, 1, SubscriptionKind.QUEUE)
    together = Together(java, python, name, stream=False)
    together.await_work("on one segment", "java", "python")
    admin.scalable_topics.split(name, 0)
    together.await_work("after the split", "java", "python")
    admin.scalable_topics.merge(name, 1, 2)
    together.await_work("after the merge", "java", "python")
    admin.scalable_topics.rebucket(name, 3, 2)
    together.await_work("after the rebucket", "java", "python")
    together.finish()

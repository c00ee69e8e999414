"""Python clients that use topics before these are scalable: they make subscriptions and a backlog, and drain some."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

from pulsar_devstack.traffic.client_access import ANONYMOUS, ClientAccess
from pulsar_devstack.traffic.plan import ConsumerPlan
from pulsar_devstack.traffic.pulsar_client import TrafficFault, pulsar, quiet_client
from pulsar_devstack.traffic.python_clients import NUMBER, TYPES
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord, Received, Sent
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan

_PARALLEL = 8
_KEYS = 5
_RECEIVE_LIMIT_MS = 30_000

PlanT = TypeVar("PlanT")
ResultT = TypeVar("ResultT")


class RegularClients:
    """Each is gone when its work is done.

    Args:
        service_url: of the brokers.
        access: credentials.

    Attributes:
        producers: what was sent.
        consumers: what was received.
    """

    def __init__(self, service_url: str, access: ClientAccess = ANONYMOUS) -> None:
        self._service_url, self._access = service_url, access
        self.producers: list[ProducerRecord] = []
        self.consumers: list[ConsumerRecord] = []

    def fill(self, topics: Sequence[ScalableTopicPlan], messages: int) -> None:
        """Make all subscriptions of topics, and then a backlog of each."""
        with closing(self._client()) as client:
            _each(
                lambda plan: _subscribe(client, plan).close(),
                (regular_consumer for plan in topics for regular_consumer in plan.regular_consumers),
            )
            self.producers += _each(lambda plan: _produce(client, plan, messages), topics)

    def drain(self, topics: Sequence[ScalableTopicPlan], expected: Mapping[str, int]) -> None:
        """Consume ordered subscriptions to the end.

        Args:
            topics: whose producers are silent.
            expected: how many messages each has by its name.

        Raises:
            TrafficFault: one of them does not arrive.
        """
        ordered = [
            regular_consumer
            for plan in topics
            for regular_consumer in plan.regular_consumers
            if regular_consumer.type.streams
        ]
        with closing(self._client()) as client:
            self.consumers += _each(lambda plan: _consume(client, plan, expected[plan.topic]), ordered)

    def _client(self) -> Any:
        return quiet_client(self._service_url, **self._access.options())


def _each(work: Callable[[PlanT], ResultT], plans: Iterable[PlanT]) -> list[ResultT]:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(work, plans))


def _subscribe(client: Any, plan: ConsumerPlan) -> Any:
    return client.subscribe(
        plan.topic,
        plan.subscription,
        consumer_type=TYPES[plan.type],
        consumer_name=plan.name,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def _produce(client: Any, plan: ScalableTopicPlan, messages: int) -> ProducerRecord:
    record = ProducerRecord(plan.regular_producer)
    name = record.plan.name
    producer = client.create_producer(plan.topic, producer_name=name, batching_enabled=False)
    for count in range(messages):
        key, number, at = f"{name}/{count % _KEYS}", count // _KEYS, time.time()
        producer.send(f"{key}:{number}".encode(), partition_key=key, properties={NUMBER: str(number)})
        record.sent.append(Sent(key, number, at, time.time()))
    producer.close()
    return record


def _consume(client: Any, plan: ConsumerPlan, expected: int) -> ConsumerRecord:
    record = ConsumerRecord(plan, has_left=True)
    consumer = _subscribe(client, plan)
    seen: set[tuple[str, int]] = set()
    while len(seen) < expected:
        try:
            message = consumer.receive(timeout_millis=_RECEIVE_LIMIT_MS)
        except pulsar.Timeout as error:
            raise TrafficFault(f"{plan.name} has got {len(seen)} of {expected} messages, and no more") from error
        key, number = message.partition_key(), int(message.properties()[NUMBER])
        seen.add((key, number))
        record.received.append(Received(key, number, time.time(), str(message.message_id())))
        record.corrupt += message.data() != f"{key}:{number}".encode()
        consumer.acknowledge(message)
    consumer.close()
    return record

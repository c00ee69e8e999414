"""The traffic of a round, and the people who look after its clients."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from activities.blue_green.topics import check_topic
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.admin.topics import TopicStats
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.traffic.audit import DeliveryAudit, Tolerated, audit_delivery
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed, TopicPlan, TrafficPlan
from pulsar_devstack.traffic.pulsar_client import pulsar
from pulsar_devstack.traffic.python_clients import NUMBER, PythonClients
from pulsar_devstack.traffic.records import ConsumerRecord, Received
from pulsar_devstack.traffic.runner import Traffic
from pulsar_devstack.traffic.two_clusters import pieces
from tests.support.blue_green.environment import Clusters

_INTERVAL = 0.04
# Time for several restarts by people, one after the other, each after `GONE_FOR` and half a minute at most.
_DELIVERY_LIMIT = 150.0
_LOOK_EVERY = 1.0
# A broker that is busy may give what it has slowly.
_DUE_MS, _SILENT_MS = 30_000, 3_000

GONE_FOR = 20.0
"""Seconds without a place on either cluster, or with messages left on blue, after which a consumer is restarted.

Longer than the ten seconds in which brokers notice that one of them is dead, and other brokers serve its topics.
"""


def topic(name: str, kind: Subscribed, *, partitions: int = 0, cumulative: bool = False) -> TopicPlan:
    """Return a topic with one producer and one consumer, whose library is that of C++."""
    label = name.removeprefix("persistent://").replace("/", "-")
    return TopicPlan(
        name,
        partitions,
        (ProducerPlan(f"{label}-producer", name, Language.PYTHON, interval=_INTERVAL),),
        (ConsumerPlan(f"{label}-consumer", name, Language.PYTHON, kind, cumulative=cumulative),),
    )


class Flow(Traffic):
    """Producers and consumers on some topics, from the entry of the context to its end.

    Consumers of the C++ library that subscribe again to a topic that is not loaded while the flag is set give up for
    good (3.13, seen), as all do whose broker is killed during the flip. People restart them, which is counted here.

    Args:
        clusters: blue, where all start, and green.
        plans: the topics, which must be there.
        folder: of the library's log.
    """

    def __init__(self, clusters: Clusters, plans: Sequence[TopicPlan], folder: Path) -> None:
        clients = PythonClients(clusters.blue.broker_url, folder / "python-clients.log", shared=False)
        super().__init__(TrafficPlan(tuple(plans)), {Language.PYTHON: clients}, sent_within=_DELIVERY_LIMIT)
        self._care = _Care(clusters, plans, clients)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._care.__exit__(kind, error, trace)
        finally:
            super().__exit__(kind, error, trace)

    @property
    def restarted(self) -> list[str]:
        """Consumers that were restarted, and why."""
        return list(self._care.restarted)

    def stop(self, limit: float = _DELIVERY_LIMIT) -> DeliveryAudit:
        """Stop sending, and wait longer than others do, because people restart consumers."""
        return super().stop(limit)

    def faults(self) -> list[str]:
        """Return what is wrong with messages and producers once the traffic was stopped.

        A duplicate is not a fault: acknowledgements that a broker did not get before it was killed are delivered again.
        """
        faults = faults_of(self.audit())
        cared = f"restarted: {self.restarted}; care ended with {self._care.failure!r}"
        return [*faults, *self._missing(), cared] if faults else []

    def _open(self) -> None:
        super()._open()
        self._care.__enter__()

    def _missing(self) -> Iterator[str]:
        """Yield a text for each consumer without all acknowledged messages: when they were sent, and its last one."""
        producers, consumers = self.records()
        for consumer in consumers:
            seen = {(got.key, got.number) for got in consumer.received}
            sent = [sent for of in producers if of.plan.topic == consumer.plan.topic for sent in of.sent]
            missing = [what for what in sent if what.acknowledged and (what.key, what.number) not in seen]
            if missing:
                last = f"{consumer.received[-1].at - self._began:.1f}" if consumer.received else "never"
                spans = f"{missing[0].at - self._began:.1f} to {missing[-1].at - self._began:.1f}"
                yield (
                    f"{consumer.plan.name}: {len(missing)} of {len(sent)} missing, sent at {spans} s; the last came at "
                    f"{last} s; sending ended at {self._ended - self._began:.1f} s; errors: {consumer.errors[-3:]}"
                )

    def left_for(self, plan: ConsumerPlan, service_url: str) -> DeliveryAudit:
        """Return the audit of a subscription that had no consumers: all messages that it gets from one cluster."""
        producers = [record for record in self.records()[0] if record.plan.topic == plan.topic]
        due = {(sent.key, sent.number) for record in producers for sent in record.sent if sent.acknowledged is not None}
        client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        received: list[Received] = []
        try:
            consumer = client.subscribe(plan.topic, plan.subscription)
            while True:
                message = consumer.receive(_DUE_MS if due else _SILENT_MS)
                message_id = message.message_id()
                position = f"{message_id.ledger_id()}:{message_id.entry_id()}"
                arrival = Received(message.partition_key(), int(message.properties()[NUMBER]), time.time(), position)
                received.append(arrival)
                due.discard((arrival.key, arrival.number))
        except pulsar.Timeout:
            return audit_delivery(producers, [ConsumerRecord(plan, received)], began=self._began, ended=self._ended)
        finally:
            client.close()


def faults_of(audit: DeliveryAudit) -> list[str]:
    """Return what is wrong with messages and producers; brokers are killed, and people restart consumers."""
    return audit.faults(Tolerated.DUPLICATES, Tolerated.DEAD_CONSUMERS)


class _Place(NamedTuple):
    """One partition of a consumer's topic."""

    consumer: str
    partition: str


class _Care(BackgroundThread):
    """Restarts consumers that have no place on either cluster, or whose messages stay on blue without them.

    Both show in the status of the migration; here brokers are asked, so that its word is not taken for it.
    """

    def __init__(self, clusters: Clusters, plans: Sequence[TopicPlan], clients: PythonClients) -> None:
        super().__init__("care", _LOOK_EVERY)
        self.restarted: list[str] = []
        self._clusters, self._plans, self._clients = clusters, plans, clients
        self._since: dict[_Place, float] = {}

    def work(self) -> None:
        """Look after all consumers."""
        for _ in self.ticks():
            for name, reason in dict(self._overdue()).items():
                # One that cannot be restarted now is still missing at the next look.
                with suppress(pulsar.PulsarException):
                    self.restarted.append(f"{name}: {reason}")
                    self._clients.reopen(name)
                self._since = {place: at for place, at in self._since.items() if place.consumer != name}

    def _overdue(self) -> Iterator[tuple[str, str]]:
        for plan in self._plans:
            for partition in pieces(plan):
                try:
                    blue = check_topic(self._clusters.blue_admin, partition).stats
                    green = check_topic(self._clusters.green_admin, partition).stats
                except AdminError:
                    # The positions of clients are unknown while a broker is down.
                    continue
                for consumer in plan.consumers:
                    place = _Place(consumer.name, str(partition))
                    reason = _reason(consumer, blue, green)
                    if not reason:
                        self._since.pop(place, None)
                    elif time.monotonic() > self._since.setdefault(place, time.monotonic()) + GONE_FOR:
                        yield consumer.name, reason


def _reason(consumer: ConsumerPlan, blue: TopicStats | None, green: TopicStats | None) -> str:
    """Return why a consumer must be restarted, unless it comes soon."""
    here, there = (Counter(_consumers(stats, consumer.subscription)) for stats in (blue, green))
    if not here and not there:
        return "on neither cluster"
    waiting = blue.subscriptions.get(consumer.subscription) if blue else None
    return "messages left on blue" if waiting and waiting.msg_backlog and not here else ""


def _consumers(stats: TopicStats | None, subscription: str) -> Iterator[str]:
    subscription_stats = stats.subscriptions.get(subscription) if stats else None
    return (consumer.consumer_name for consumer in subscription_stats.consumers) if subscription_stats else iter(())

"""Run the producers and consumers of a plan, and audit the delivery of their messages.

with Traffic.in_programs(stack.broker_url, mixed_topics("acme/orders"), folder, tools) as traffic:
    traffic.wait_for_more(10)
    ...
    assert not traffic.stop().faults()
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.audit import DeliveryAudit, Tolerated, audit_delivery, in_flight
from pulsar_devstack.traffic.client_access import ANONYMOUS, ClientAccess
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import (
    SEND_LIMIT_MS,
    ConsumerPlan,
    Language,
    ProducerPlan,
    Subscribed,
    TopicPlan,
    TrafficPlan,
)
from pulsar_devstack.traffic.pulsar_client import TrafficFault
from pulsar_devstack.traffic.python_clients import PythonClients
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord

_POLL_PROGRAMS = 0.5
"""Seconds between two questions to programs, which take processor time from their clients."""
_POLL_HERE = 0.05
# What was sent is acknowledged or refused by then.
_SENT_WITHIN = SEND_LIMIT_MS / 1000 + 10


class TrafficClients(Protocol):
    """Producers and consumers of one language: in this process (`PythonClients`) or in another (`ClientProgram`)."""

    def subscribe(self, plans: Sequence[ConsumerPlan]) -> None:
        """Open consumers, and start to receive."""
        ...

    def open_producers(self, plans: Sequence[ProducerPlan]) -> None:
        """Open producers, which do not send yet."""
        ...

    def start(self) -> None:
        """Start to send."""
        ...

    def stop_sending(self, limit: float) -> None:
        """Stop sending, and wait, `limit` seconds at most, until every message was acknowledged or refused."""
        ...

    def collect(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        """Return what all of them did so far."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


class Traffic:
    """Producers and consumers, from the entry of the context to its end.

    Consumers subscribe before the first message is sent.

    Args:
        plan: topics with their clients; the topics must exist, or brokers must create them.
        clients: of each language of the plan.
        poll: seconds between two questions to them.
        sent_within: seconds that `stop` waits for acknowledgements at least.

    Attributes:
        plan: the topics with their clients.
    """

    def __init__(
        self,
        plan: TrafficPlan,
        clients: Mapping[Language, TrafficClients],
        *,
        poll: float = _POLL_PROGRAMS,
        sent_within: float = 0.0,
    ) -> None:
        self.plan = plan
        self._clients = clients
        self._poll, self._sent_within = poll, sent_within
        self._began = self._ended = 0.0

    @classmethod
    def in_programs(
        cls,
        service_url: str,
        topics: Sequence[TopicPlan],
        folder: Path,
        tools: Toolchain,
        *,
        shared: bool = False,
        access: ClientAccess = ANONYMOUS,
    ) -> Self:
        """Return traffic whose clients run in one program for each language.

        Args:
            service_url: `pulsar://host:port[,host:port...]` of the cluster that all begin with.
            topics: with partitions and clients.
            folder: where the libraries' logs go.
            tools: Java and the jars.
            shared: one client for all producers and consumers of a language, instead of one for each.
            access: credentials.
        """
        plan = TrafficPlan(tuple(topics))
        return cls(
            plan,
            {
                language: ClientProgram.of(language, service_url, folder, tools, shared=shared, access=access)
                for language in plan.languages
            },
        )

    @classmethod
    def here(
        cls,
        service_url: str,
        topics: Iterable[str],
        *,
        interval: float = 0.02,
        log: Path | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return traffic in this process: one Python producer and one exclusive consumer for each topic.

        Args:
            service_url: `pulsar://host:port[,host:port...]`.
            topics: full or short names.
            interval: seconds between two messages of one topic.
            log: of the client library; by default errors go to the console.
            options: further arguments of the library's client, credentials and TLS for example.
        """
        plan = TrafficPlan(tuple(_plain(topic_url(topic), interval) for topic in topics))
        clients = PythonClients(service_url, log, shared=True, options=options)
        return cls(plan, {Language.PYTHON: clients}, poll=_POLL_HERE, sent_within=_SENT_WITHIN)

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def acknowledged(self) -> int:
        """Messages that brokers have acknowledged so far."""
        return sum(self.acknowledged_since(0.0).values())

    def audit(self) -> DeliveryAudit:
        """Return the delivery audit up to now."""
        return audit_delivery(*self.records(), began=self._began, ended=self._ended or time.time())

    def in_flight(self, at: float) -> int:
        """Return how many messages were sent and not acknowledged at a time, in seconds since the epoch."""
        return in_flight(self.records()[0], at)

    def acknowledged_since(self, at: float) -> dict[str, int]:
        """Return by producer of the plan how many messages were acknowledged after a time (seconds since the epoch)."""
        names = {plan.name for plan in self.plan.producers}
        return {
            record.plan.name: sum(
                message.acknowledged is not None and message.acknowledged > at for message in record.sent
            )
            for record in self.records()[0]
            if record.plan.name in names
        }

    def flows(self, messages: int, limit: float = 240) -> bool:
        """Wait, `limit` seconds at most, until each producer has this many acknowledged messages more than now."""
        begin = time.time()
        while not all(count >= messages for count in self.acknowledged_since(begin).values()):
            if time.time() > begin + limit:
                return False
            time.sleep(self._poll)
        return True

    def wait_for_more(self, messages: int, limit: float = 240) -> None:
        """Wait until each producer has this many acknowledged messages more than now.

        Raises:
            TrafficFault: a producer has not after `limit` seconds.
        """
        if not self.flows(messages, limit):
            audit = self.audit()
            lines = [
                f"{producer.name}: {producer.acknowledged} of {producer.sent} acknowledged, {producer.dead}"
                for producer in audit.producers
            ]
            raise TrafficFault(
                "\n".join([f"after {limit:g} s a producer still lacks messages:", *lines, *audit.errors])
            )

    def stop(self, limit: float = 240) -> DeliveryAudit:
        """Stop sending, wait, `limit` seconds at most, until all that was acknowledged has arrived, and audit it."""
        self._ended = time.time()
        for clients in self._clients.values():
            clients.stop_sending(max(0.0, self._ended + max(limit / 2, self._sent_within) - time.time()))
        deadline = max(self._ended + limit, time.time() + limit / 2)
        while (audit := self.audit()).lost and time.time() < deadline:
            time.sleep(self._poll)
        return audit

    def faults(self) -> list[str]:
        """Return what is wrong with messages of clients whose brokers may die: a message may come again."""
        return self.audit().faults(Tolerated.DUPLICATES)

    def verify(self, limit: float = 240) -> int:
        """Stop, and require that no message suffered and no client met an error; returns the number of messages.

        Raises:
            TrafficFault: a message is lost, out of order or corrupt, nothing was sent, or a client met an error.
        """
        audit = self.stop(limit)
        if wrong := [*audit.faults(Tolerated.DUPLICATES), *audit.errors]:
            raise TrafficFault("\n".join(wrong))
        return audit.acknowledged

    def records(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        """Return what all clients did so far."""
        parts = [clients.collect() for clients in self._clients.values()]
        return [message for sent, _ in parts for message in sent], [
            message for _, received in parts for message in received
        ]

    def _open(self) -> None:
        for language, clients in self._clients.items():
            clients.subscribe([plan for plan in self.plan.consumers if plan.language is language])
        for language, clients in self._clients.items():
            clients.open_producers([plan for plan in self.plan.producers if plan.language is language])
        self._began = time.time()
        for clients in self._clients.values():
            clients.start()

    def _close(self) -> None:
        for clients in self._clients.values():
            clients.close()


def _plain(topic: str, interval: float) -> TopicPlan:
    # Its own keys: what earlier traffic on this topic left unacknowledged must not be taken for its messages.
    label = f"{topic.partition('://')[2].replace('/', '-')}-{secrets.token_hex(2)}"
    producer = ProducerPlan(f"{label}-producer", topic, Language.PYTHON, interval=interval, keys=5)
    consumer = ConsumerPlan(f"{label}-consumer", topic, Language.PYTHON, Subscribed.EXCLUSIVE, named="traffic")
    return TopicPlan(topic, 0, (producer,), (consumer,))

"""Python and Java clients on the topics of a plan, and the account of what came of their messages.

with MovingTraffic(stack.broker_url, mixed_topics("acme/orders"), folder, tools) as traffic:
    traffic.wait_for_more(10)
    ...
    assert not traffic.stop().faults()
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.audit import Account, settle, under_way
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import Language, TopicPlan
from pulsar_devstack.traffic.pulsar_client import TrafficFault
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord

_LOOK_EVERY = 0.5


class MovingTraffic:
    """Producers and consumers, from the entry of the context to its end.

    Consumers stand before the first message is sent.

    Args:
        service_url: `pulsar://host:port[,host:port...]` of the cluster that all begin with.
        topics: with partitions and clients; the topics have to be there.
        folder: where the libraries' logs go.
        tools: Java and the jars.
        shared: one client for all producers and consumers of a language, instead of one for each.
    """

    def __init__(
        self, service_url: str, topics: Sequence[TopicPlan], folder: Path, tools: Toolchain, *, shared: bool = False
    ) -> None:
        self._topics = topics
        self._clients = {
            language: ClientProgram.of(language, service_url, folder, tools, shared=shared)
            for language in Language
            if any(one.language is language for plan in topics for one in (*plan.producers, *plan.consumers))
        }
        self._began = self._ended = 0.0

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

    def account(self) -> Account:
        """How all fared so far."""
        return settle(*self._collect(), began=self._began, ended=self._ended or time.time())

    def under_way(self, at: float) -> int:
        """How many messages were sent and not acknowledged at a time, in seconds since the epoch."""
        return under_way(self._collect()[0], at)

    def acknowledged_since(self, at: float) -> dict[str, int]:
        """By producer, how many messages were acknowledged after a time, in seconds since the epoch."""
        return {
            record.plan.name: sum(one.acknowledged is not None and one.acknowledged > at for one in record.sent)
            for record in self._collect()[0]
        }

    def flows(self, messages: int, limit: float = 60) -> bool:
        """Wait, `limit` seconds at most, until each producer has this many acknowledged messages more than now."""
        begin = time.time()
        while not all(count >= messages for count in self.acknowledged_since(begin).values()):
            if time.time() > begin + limit:
                return False
            time.sleep(_LOOK_EVERY)
        return True

    def wait_for_more(self, messages: int, limit: float = 60) -> None:
        """The same as `flows`.

        Raises:
            TrafficFault: a producer has not, after `limit` seconds.
        """
        if not self.flows(messages, limit):
            raise TrafficFault(f"after {limit:g} s a producer still lacks messages:\n" + "\n".join(self._complaints()))

    def stop(self, limit: float = 60) -> Account:
        """End the sending, wait, `limit` seconds at most, until all that was acknowledged has arrived, and settle."""
        self._ended = time.time()
        for clients in self._clients.values():
            clients.stop_sending(max(0.0, self._ended + limit / 2 - time.time()))
        while (account := self.account()).lost and time.time() < self._ended + limit:
            time.sleep(_LOOK_EVERY)
        return account

    def _complaints(self) -> list[str]:
        account = self.account()
        return [f"{one.name}: {one.acknowledged} of {one.sent} acknowledged, {one.dead}" for one in account.producers]

    def _open(self) -> None:
        consumers = [plan for topic in self._topics for plan in topic.consumers]
        producers = [plan for topic in self._topics for plan in topic.producers]
        for language, clients in self._clients.items():
            clients.subscribe([plan for plan in consumers if plan.language is language])
        for language, clients in self._clients.items():
            clients.open_producers([plan for plan in producers if plan.language is language])
        self._began = time.time()
        for clients in self._clients.values():
            clients.start()

    def _collect(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        parts = [clients.collect() for clients in self._clients.values()]
        return [one for sent, _ in parts for one in sent], [one for _, received in parts for one in received]

    def _close(self) -> None:
        for clients in self._clients.values():
            clients.close()

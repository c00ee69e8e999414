"""Clients of topics that become scalable under them, and the audit of their messages.

with ScalableTraffic(stack.broker_url, admin, topics, folder, tools) as traffic:
    traffic.wait_for_more(10)
    traffic.step_aside()
    ...
    traffic.wait_until_all_are_back()
    assert not traffic.stop().faults()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.names import TopicName
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.audit import DeliveryAudit, audit_delivery
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import ConsumerPlan, Language
from pulsar_devstack.traffic.pulsar_client import TrafficFault
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord
from pulsar_devstack.traffic.regular_clients import RegularClients
from pulsar_devstack.traffic.scalable_plan import RETURNS, STAYS, WAITS, ScalableTopicPlan, ordered_of

_LOOK_EVERY = 0.5
_RETRY_AFTER = 5.0
# Looks of the thread.
_COLLECT_EVERY = 10
_PAUSE_LIMIT = 60.0
_TERMINATED = "Terminated"


@dataclass(frozen=True)
class Absence:
    """For how long, in seconds after a topic became scalable, subscriptions have no consumer.

    Attributes:
        returns: the consumer that was there before.
        waits: the one of a subscription that only has a backlog; longer than brokers take to look for old segments.
    """

    returns: float = 5.0
    waits: float = 75.0


@dataclass
class _Expected:
    """A consumer that shall come."""

    plan: ConsumerPlan
    due: float
    refused: str = "not tried yet"


@dataclass
class _Guests:
    """Who is to come, and since when topics are scalable."""

    scalable_since: dict[str, float] = field(default_factory=dict[str, float])
    expected: list[_Expected] = field(default_factory=list[_Expected])


class ScalableTraffic(BackgroundThread):
    """Producers and consumers, from the entry of the context to its end.

    At the entry regular clients make subscriptions and a backlog, and go. Then V5 clients begin.

    Args:
        service_url: `pulsar://host:port[,host:port...]`.
        admin: of the brokers, which is asked which topics are scalable.
        topics: with their clients; they have to be there, without subscriptions.
        folder: where the library's log goes.
        tools: Java and the jars, with those of V5 (`with_scalable_clients`).
        backlog: messages of each topic that regular clients have sent.
        absence: how long consumers stay away.
    """

    def __init__(
        self,
        service_url: str,
        admin: PulsarAdminReader,
        topics: Sequence[ScalableTopicPlan],
        folder: Path,
        tools: Toolchain,
        *,
        backlog: int = 20,
        absence: Absence = Absence(),
    ) -> None:
        super().__init__("scalable-traffic", _LOOK_EVERY)
        self._topics = topics
        self._admin = admin
        self._backlog = backlog
        self._absence = absence
        self._regular = RegularClients(service_url)
        self._clients = ClientProgram.of(Language.JAVA_V5, service_url, folder, tools, shared=True)
        # The program answers one question after the other.
        self._asking = threading.Lock()
        self._aside = threading.Event()
        self._guests = _Guests()
        self._began = self._ended = 0.0

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._clients.close()
            raise
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._clients.close()

    @property
    def scalable_since(self) -> dict[str, float]:
        """When topics were first seen to be scalable, in seconds since the epoch, by their regular names."""
        return dict(self._guests.scalable_since)

    def step_aside(self) -> None:
        """Leave topics as a migration wants them: consumers go that come again, ordered subscriptions are drained.

        Raises:
            TrafficFault: a message of an ordered subscription does not arrive, or is not acknowledged to its producer.
        """
        ordered = ordered_of(self._topics)
        with self._asking:
            quiet = self._clients.pause([plan.producer.name for plan in ordered], _PAUSE_LIMIT)
            self._clients.leave([plan.queue(RETURNS).name for plan in self._topics])
        if not quiet:
            raise TrafficFault(f"messages were not acknowledged within {_PAUSE_LIMIT:g} s")
        self._regular.drain(ordered, self._acknowledged())
        self._aside.set()

    def work(self) -> None:
        """Let clients come when it is their time, and take over what the program has noted before it is too much."""
        for tick, _ in enumerate(self.ticks()):
            if tick % _COLLECT_EVERY == 0:
                self._collect()
            if self._aside.is_set():
                self._look()
                self._bring()

    def flows(self, messages: int, limit: float = 60) -> bool:
        """Wait, `limit` seconds at most, until each topic has this many acknowledged messages more than now."""
        before = self._acknowledged()
        return _await(lambda: not self._lacking(before, messages), limit)

    def wait_for_more(self, messages: int, limit: float = 60) -> None:
        """The same as `flows`.

        Raises:
            TrafficFault: a topic has not, after `limit` seconds.
        """
        before = self._acknowledged()
        if not _await(lambda: not self._lacking(before, messages), limit):
            told = self._lacking(before, messages)
            raise TrafficFault(f"after {limit:g} s these have not {messages} messages more, but only: {told}")

    def wait_until_all_are_back(self, limit: float = 120) -> dict[str, str]:
        """Wait, `limit` seconds at most, until topics are scalable and every consumer is there.

        Returns:
            Those that are not, and why; `scalable` for a topic that is not.
        """
        _await(lambda: self.failure is not None or not self._missing(), limit)
        if self.failure is not None:
            raise self.failure
        return self._missing()

    def audit(self) -> DeliveryAudit:
        """How all fared so far."""
        return audit_delivery(*self._collect(), began=self._began, ended=self._ended or time.time())

    def stop(self, limit: float = 60) -> DeliveryAudit:
        """End the sending, wait, `limit` seconds at most, until all that was acknowledged has arrived, and settle."""
        self._ended = time.time()
        with self._asking:
            self._clients.stop_sending(limit / 2)
        _await(lambda: not self.audit().lost, limit)
        return self.audit()

    def _open(self) -> None:
        self._regular.fill(self._topics, self._backlog)
        self._clients.subscribe([plan.queue(name) for plan in self._topics for name in (STAYS, RETURNS)])
        self._clients.open_producers([plan.producer for plan in self._topics])
        self._began = time.time()
        self._clients.start()

    def _look(self) -> None:
        """Note topics that have become scalable, and who shall come for that."""
        since = self._guests.scalable_since
        try:
            fresh = [plan for plan in self._listed() if self._is_through(plan)]
        except AdminError:
            # A broker that is away for a moment is asked again.
            return
        now = time.time()
        if not fresh:
            return
        with self._asking:
            self._clients.resume([plan.producer.name for plan in fresh])
        for plan in fresh:
            since[plan.topic] = now
            self._guests.expected += [
                *(_Expected(stream, now) for stream in plan.streams),
                _Expected(plan.queue(RETURNS, 2), now + self._absence.returns),
                _Expected(plan.queue(WAITS), now + self._absence.waits),
            ]

    def _listed(self) -> list[ScalableTopicPlan]:
        """Those of which brokers know that they are scalable, or are about to be, and which are not noted."""
        waiting = [plan for plan in self._topics if plan.topic not in self._guests.scalable_since]
        spaces = {TopicName.parse(plan.topic).namespace_path for plan in waiting}
        names = {name for space in spaces for name in self._admin.scalable_topics.names(space)}
        return [plan for plan in waiting if plan.scalable_topic in names]

    def _is_through(self, plan: ScalableTopicPlan) -> bool:
        """Whether the regular topic takes no messages any more: until then producers may still send there."""
        return all(self._admin.topics.internal_stats(part).state == _TERMINATED for part in plan.parts)

    def _bring(self) -> None:
        now = time.time()
        due = [one for one in self._guests.expected if one.refused and one.due <= now]
        if not due:
            return
        with self._asking:
            refused = self._clients.attach([one.plan for one in due])
        for one in due:
            one.refused = refused.get(one.plan.name, "")
            one.due = time.time() + _RETRY_AFTER

    def _missing(self) -> dict[str, str]:
        regular = {plan.topic: "scalable" for plan in self._topics if plan.topic not in self._guests.scalable_since}
        return regular | {one.plan.name: one.refused for one in self._guests.expected if one.refused}

    def _lacking(self, before: Mapping[str, int], messages: int) -> dict[str, int]:
        """Topics that have not this many messages more, and how many they have."""
        now = self._acknowledged()
        return {name: now[name] - count for name, count in before.items() if now[name] < count + messages}

    def _acknowledged(self) -> dict[str, int]:
        found = dict.fromkeys((plan.topic for plan in self._topics), 0)
        for record in self._collect()[0]:
            found[record.plan.topic] += sum(one.acknowledged is not None for one in record.sent)
        return found

    def _collect(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        with self._asking:
            producers, consumers = self._clients.collect()
        return [*self._regular.producers, *producers], [*self._regular.consumers, *consumers]


def _await(holds: Callable[[], bool], limit: float) -> bool:
    """Ask less often than others do: each answer takes a look at every message."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True

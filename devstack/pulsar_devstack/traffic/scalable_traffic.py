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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.names import TopicName
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_access import ANONYMOUS, ClientAccess
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, TrafficPlan
from pulsar_devstack.traffic.pulsar_client import TrafficFault
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord
from pulsar_devstack.traffic.regular_clients import RegularClients
from pulsar_devstack.traffic.runner import Traffic
from pulsar_devstack.traffic.scalable_plan import RETURNS, WAITS, ScalableTopicPlan, ordered_of

_LOOK_EVERY = 0.5
_RETRY_AFTER = 5.0
# Looks of the thread.
_COLLECT_EVERY = 10
_PAUSE_LIMIT = 240.0
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
    """A consumer that must come."""

    plan: ConsumerPlan
    due: float
    refused: str = "not tried yet"


class ScalableTraffic(Traffic):
    """Traffic of V5 clients on topics that become scalable under them.

    At the entry regular clients make subscriptions and a backlog, and go. Then V5 clients start.

    Args:
        service_url: `pulsar://host:port[,host:port...]`.
        admin: of the brokers, which is asked which topics are scalable.
        topics: with their clients; they must be there, without subscriptions.
        folder: of the library's log.
        tools: Java and the jars, with those of V5 (`with_scalable_clients`).
        backlog: messages of each topic that regular clients have sent.
        absence: how long consumers stay away.
        access: credentials of all clients.
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
        access: ClientAccess = ANONYMOUS,
    ) -> None:
        self._program = ClientProgram.of(Language.JAVA_V5, service_url, folder, tools, shared=True, access=access)
        super().__init__(TrafficPlan(tuple(plan.clients for plan in topics)), {Language.JAVA_V5: self._program})
        self._topics = topics
        self._backlog = backlog
        self._regular = RegularClients(service_url, access)
        self._returns = _Returns(self, admin, topics, self._program, absence)

    @property
    def scalable_since(self) -> dict[str, float]:
        """When topics were first seen to be scalable, in seconds since the epoch, by their regular names."""
        return dict(self._returns.scalable_since)

    def step_aside(self) -> None:
        """Leave topics as a migration wants them: consumers go that come again, ordered subscriptions are drained.

        Raises:
            TrafficFault: a message of an ordered subscription does not arrive, or is not acknowledged to its producer.
        """
        ordered = ordered_of(self._topics)
        quiet = self._program.pause([plan.producer.name for plan in ordered], _PAUSE_LIMIT)
        self._program.leave([plan.queue(RETURNS).name for plan in self._topics])
        if not quiet:
            raise TrafficFault(f"messages were not acknowledged within {_PAUSE_LIMIT:g} s")
        sent = {plan.topic: 0 for plan in ordered}
        for record in self.records()[0]:
            if record.plan.topic in sent:
                sent[record.plan.topic] += sum(message.acknowledged is not None for message in record.sent)
        self._regular.drain(ordered, sent)
        self._returns.begin()

    def wait_until_all_are_back(self, limit: float = 480) -> dict[str, str]:
        """Wait, `limit` seconds at most, until topics are scalable and every consumer is there.

        Returns:
            Those that are not, and why; `scalable` for a topic that is not.
        """
        deadline = time.monotonic() + limit
        while self._returns.failure is None and self._returns.missing() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        if self._returns.failure is not None:
            raise self._returns.failure
        return self._returns.missing()

    def records(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        """Return what all clients did so far, regular ones included."""
        producers, consumers = super().records()
        return [*self._regular.producers, *producers], [*self._regular.consumers, *consumers]

    def _open(self) -> None:
        self._regular.fill(self._topics, self._backlog)
        super()._open()
        self._returns.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._returns.__exit__(kind, error, trace)
        finally:
            super().__exit__(kind, error, trace)


class _Returns(BackgroundThread):
    """Lets consumers come when it is their time, and takes over what the program noted before it is too much.

    Attributes:
        scalable_since: when topics were first seen to be scalable.
    """

    def __init__(
        self,
        traffic: Traffic,
        admin: PulsarAdminReader,
        topics: Sequence[ScalableTopicPlan],
        program: ClientProgram,
        absence: Absence,
    ) -> None:
        super().__init__("scalable-traffic", _LOOK_EVERY)
        self._traffic, self._admin, self._topics = traffic, admin, topics
        self._program, self._absence = program, absence
        self._aside = threading.Event()
        self.scalable_since: dict[str, float] = {}
        self._expected: list[_Expected] = []

    def begin(self) -> None:
        """Look for topics that have become scalable from now on."""
        self._aside.set()

    def work(self) -> None:
        """Look, and let consumers come, until the traffic ends."""
        for tick, _ in enumerate(self.ticks()):
            if tick % _COLLECT_EVERY == 0:
                self._traffic.records()
            if self._aside.is_set():
                self._scan()
                self._bring()

    def missing(self) -> dict[str, str]:
        """Return the clients that are not connected yet, with the reason; `scalable` for a regular topic."""
        regular = {plan.topic: "scalable" for plan in self._topics if plan.topic not in self.scalable_since}
        return regular | {expected.plan.name: expected.refused for expected in self._expected if expected.refused}

    def _scan(self) -> None:
        """Note topics that have become scalable, and the clients that must connect then."""
        try:
            fresh = [plan for plan in self._listed() if self._is_through(plan)]
        except AdminError:
            # A broker that is away for a moment is asked again.
            return
        now = time.time()
        if not fresh:
            return
        self._program.resume([plan.producer.name for plan in fresh])
        for plan in fresh:
            # Expected topics first: a recorded topic without missing clients is complete.
            self._expected += [
                *(_Expected(stream, now) for stream in plan.streams),
                _Expected(plan.queue(RETURNS, 2), now + self._absence.returns),
                _Expected(plan.queue(WAITS), now + self._absence.waits),
            ]
            self.scalable_since[plan.topic] = now

    def _listed(self) -> list[ScalableTopicPlan]:
        """Return the topics that brokers know as scalable, or about to be, and that are not recorded yet."""
        waiting = [plan for plan in self._topics if plan.topic not in self.scalable_since]
        spaces = {TopicName.parse(plan.topic).namespace_path for plan in waiting}
        names = {name for space in spaces for name in self._admin.scalable_topics.names(space)}
        return [plan for plan in waiting if plan.scalable_topic in names]

    def _is_through(self, plan: ScalableTopicPlan) -> bool:
        """Return whether the regular topic no longer accepts messages: until then producers may still send there."""
        return all(self._admin.topics.internal_stats(partition).state == _TERMINATED for partition in plan.parts)

    def _bring(self) -> None:
        now = time.time()
        due = [expected for expected in self._expected if expected.refused and expected.due <= now]
        if not due:
            return
        refused = self._program.attach([expected.plan for expected in due])
        for expected in due:
            expected.refused = refused.get(expected.plan.name, "")
            expected.due = time.time() + _RETRY_AFTER

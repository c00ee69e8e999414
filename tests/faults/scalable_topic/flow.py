"""The traffic of a round, and the restarts of its clients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.audit import DeliveryAudit, Tolerated
from pulsar_devstack.traffic.pulsar_client import await_that
from pulsar_devstack.traffic.records import ConsumerRecord
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan
from pulsar_devstack.traffic.scalable_traffic import Absence, ScalableTraffic
from tests.faults.scalable_topic.environment import ScalableCluster

INTERVAL = 0.1
_BACKLOG = 10
_ABSENCE = Absence(returns=1.0, waits=3.0)
_ARRIVAL_TIMEOUT = 25.0
_RESTART_TIMEOUT = 100.0


class Flow(ScalableTraffic):
    """The traffic of a round.

    V5 consumers that lose a broker may get no more messages. They are restarted, and the restarts are counted.

    Args:
        cluster: where the topics are.
        topics: with their clients.
        folder: for the log of the client library.
        tools: Java and the jars, with those of V5.

    Attributes:
        restarted: consumers that were restarted.
    """

    def __init__(
        self, cluster: ScalableCluster, topics: Sequence[ScalableTopicPlan], folder: Path, tools: Toolchain
    ) -> None:
        super().__init__(
            cluster.stack.broker_url, cluster.admin, topics, folder, tools, backlog=_BACKLOG, absence=_ABSENCE
        )
        self.restarted: list[str] = []

    def stop(self, limit: float = _RESTART_TIMEOUT) -> DeliveryAudit:
        """Stop the producers, and wait for all acknowledged messages; restart consumers that lack some."""
        audit = super().stop(_ARRIVAL_TIMEOUT)
        if audit.lost:
            self._restart()
            await_that(lambda: not self.audit().lost, limit)
        return self.audit()

    def faults(self, *, again: bool = True) -> list[str]:
        """Return the faults of the delivery after the traffic was stopped.

        Args:
            again: a message may come twice, if its acknowledgement did not reach a broker before it was killed.
        """
        audit = self.audit()
        faults = audit.faults(Tolerated.DEAD_CONSUMERS, *([Tolerated.DUPLICATES] if again else []))
        return [*faults, *audit.errors, f"restarted: {self.restarted}"] if faults else []

    def _restart(self) -> None:
        """Restart the consumers of all subscriptions that lack messages."""
        lacking = {
            (subscription.topic, subscription.name) for subscription in self.audit().subscriptions if subscription.lost
        }
        _, consumers = self.records()
        stuck = [
            consumer.plan for consumer in consumers if not consumer.has_left and _subscription(consumer) in lacking
        ]
        names = [plan.name for plan in stuck]
        self._program.leave(names)
        refused = self._program.attach([replace(plan, name=f"{plan.name}-again") for plan in stuck])
        self.restarted += [f"{name} at {time.time() - self._ended:.0f} s {refused.get(name, '')}" for name in names]


def _subscription(record: ConsumerRecord) -> tuple[str, str]:
    return record.plan.stored_topic, record.plan.subscription

"""The traffic of a round, and the people who look after its clients."""

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
_PATIENCE = 25.0
_SETTLE_LIMIT = 100.0


class Flow(ScalableTraffic):
    """The traffic of a round.

    V5 consumers that lose a broker may get nothing any more. People start them again, which is counted.

    Args:
        cluster: where the topics are.
        topics: with their clients.
        folder: where the library's log goes.
        tools: Java and the jars, with those of V5.

    Attributes:
        restarted: consumers that were started again.
    """

    def __init__(
        self, cluster: ScalableCluster, topics: Sequence[ScalableTopicPlan], folder: Path, tools: Toolchain
    ) -> None:
        super().__init__(
            cluster.stack.broker_url, cluster.admin, topics, folder, tools, backlog=_BACKLOG, absence=_ABSENCE
        )
        self.restarted: list[str] = []

    def stop(self, limit: float = _SETTLE_LIMIT) -> DeliveryAudit:
        """End the sending, wait until all that was acknowledged has arrived, and settle."""
        audit = super().stop(_PATIENCE)
        if audit.lost:
            self._restart()
            await_that(lambda: not self.audit().lost, limit)
        return self.audit()

    def faults(self, *, again: bool = True) -> list[str]:
        """Return what is wrong with messages once the traffic was stopped.

        Args:
            again: a message may come twice: what a broker was not told before it was killed is delivered again.
        """
        audit = self.audit()
        found = audit.faults(Tolerated.DEAD_CONSUMERS, *([Tolerated.DUPLICATES] if again else []))
        return [*found, *audit.errors, f"restarted: {self.restarted}"] if found else []

    def _restart(self) -> None:
        """Start consumers again of all subscriptions that lack messages."""
        lacking = {
            (subscription.topic, subscription.name) for subscription in self.audit().subscriptions if subscription.lost
        }
        _, consumers = self.records()
        stuck = [consumer.plan for consumer in consumers if not consumer.has_left and _place(consumer) in lacking]
        names = [plan.name for plan in stuck]
        self._program.leave(names)
        refused = self._program.attach([replace(plan, name=f"{plan.name}-again") for plan in stuck])
        self.restarted += [f"{name} at {time.time() - self._ended:.0f} s {refused.get(name, '')}" for name in names]


def _place(record: ConsumerRecord) -> tuple[str, str]:
    return record.plan.stored_topic, record.plan.subscription

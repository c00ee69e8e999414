"""Regular topics that become scalable under traffic, with their clients before, during and after the change.

Two ways of life take turns. Topics with ordered subscriptions are drained by regular clients, and their producers are
silent, until the topic is scalable: the migration waits for that. All other
topics have traffic throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clients.pulsar.names import TopicName
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed, TopicPlan

STAYS = "stays"
"""A shared subscription, whose consumer is there throughout."""
RETURNS = "returns"
"""A shared subscription, whose consumer leaves before the topic is scalable, and reconnects soon after."""
WAITS = "waits"
"""A key-shared subscription without a consumer until the topic has been scalable for a while."""
_QUEUES = {STAYS: Subscribed.SHARED, RETURNS: Subscribed.SHARED, WAITS: Subscribed.KEY_SHARED}
_STREAMS = {kind.value: kind for kind in (Subscribed.EXCLUSIVE, Subscribed.FAILOVER)}
_PARTITIONS = 3


@dataclass(frozen=True)
class ScalableTopicPlan:
    """A topic with its clients.

    Attributes:
        topic: full name, as regular clients call it.
        partitions: 0 for a topic without.
        ordered: whether it has ordered subscriptions.
        interval: seconds between two messages.
    """

    topic: str
    partitions: int
    ordered: bool
    interval: float

    @property
    def scalable_topic(self) -> str:
        """As stream consumers call it: by another name they are refused."""
        return f"topic://{self.topic.partition('://')[2]}"

    @property
    def parts(self) -> list[TopicName]:
        """The partitions of the regular topic, or itself."""
        name = TopicName.parse(self.topic)
        return [name.of_partition(number) for number in range(self.partitions)] or [name]

    @property
    def segments(self) -> int:
        """How many take new messages once it is scalable."""
        return max(self.partitions, 1)

    @property
    def producer(self) -> ProducerPlan:
        """The V5 producer."""
        return ProducerPlan(f"{self._label}-producer", self.topic, Language.JAVA_V5, interval=self.interval)

    @property
    def clients(self) -> TopicPlan:
        """The V5 clients that are there before the topic is scalable."""
        return TopicPlan(self.topic, self.partitions, (self.producer,), (self.queue(STAYS), self.queue(RETURNS)))

    @property
    def regular_producer(self) -> ProducerPlan:
        """Producer of the backlog."""
        return ProducerPlan(f"{self._label}-regular", self.topic, Language.PYTHON)

    @property
    def regular_consumers(self) -> list[ConsumerPlan]:
        """The clients that created the subscriptions."""
        kinds = {**_QUEUES, **(_STREAMS if self.ordered else {})}
        return [
            ConsumerPlan(f"{self._label}-{name}-regular", self.topic, Language.PYTHON, kind, named=name)
            for name, kind in kinds.items()
        ]

    @property
    def streams(self) -> list[ConsumerPlan]:
        """V5 consumers of ordered subscriptions, which come when the topic is scalable."""
        return [
            ConsumerPlan(f"{self._label}-{name}", self.scalable_topic, Language.JAVA_V5, kind, named=name, latest=True)
            for name, kind in (_STREAMS.items() if self.ordered else ())
        ]

    def queue(self, name: str, number: int = 1) -> ConsumerPlan:
        """Return a V5 consumer of another subscription, the first or a later one.

        A new subscription starts after all messages, which is V5's default, and shares them with
        others in no order, whatever regular clients did.
        """
        label = f"{self._label}-{name}-{number}"
        return ConsumerPlan(label, self.topic, Language.JAVA_V5, Subscribed.SHARED, named=name, latest=True)

    @property
    def _label(self) -> str:
        return self.topic.partition("://")[2].replace("/", "-")


def scalable_topics(namespace: str, count: int, rate: float = 20) -> list[ScalableTopicPlan]:
    """Return topics alternately without and with partitions, half of each with ordered subscriptions.

    Args:
        namespace: `tenant/namespace`.
        count: how many topics.
        rate: messages per second of each.
    """
    return [
        ScalableTopicPlan(
            f"persistent://{namespace}/t{number}", _PARTITIONS * (number % 2), number % 4 > 1, interval=1 / rate
        )
        for number in range(count)
    ]


def ordered_of(topics: Sequence[ScalableTopicPlan]) -> list[ScalableTopicPlan]:
    """Return the topics with ordered subscriptions."""
    return [plan for plan in topics if plan.ordered]

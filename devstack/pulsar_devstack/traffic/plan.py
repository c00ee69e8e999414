"""The traffic plan: topics, and for each its producers and consumers with their languages and keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

SEND_LIMIT_MS = 300_000
"""Longer than writes are held back, or all brokers are stopped: that time is measured, and no fault."""
QUEUE = 20_000
"""Messages that a producer holds while it waits; more than most send in that time."""
_KEYS = 10
_PARTITIONS = 2


class Language(StrEnum):
    """Client library: Python's (C++), Java's, and those of both languages for scalable topics."""

    PYTHON = "python"
    PYTHON_SCALABLE = "python-scalable"
    JAVA = "java"
    JAVA_V5 = "java-v5"


MOVABLE = (Language.PYTHON, Language.JAVA)
"""Those whose clients follow to another cluster."""


class Encoding(StrEnum):
    """How a message's body is written; the names are those of Pulsar's schema types."""

    BYTES = "BYTES"
    JSON = "JSON"
    AVRO = "AVRO"


class Subscribed(StrEnum):
    """The type of a subscription, by Pulsar's name, which is also how the subscription is called by default."""

    EXCLUSIVE = "Exclusive"
    FAILOVER = "Failover"
    SHARED = "Shared"
    KEY_SHARED = "Key_Shared"

    @property
    def ordered(self) -> bool:
        """True if the messages of a key arrive in order."""
        return self is not Subscribed.SHARED

    @property
    def streams(self) -> bool:
        """True if one consumer gets all messages, or all of a partition; V5 calls it a stream."""
        return self in {Subscribed.EXCLUSIVE, Subscribed.FAILOVER}


def as_stored(topic: str) -> str:
    """Return `persistent://…` of a topic that some clients call `topic://…`."""
    return f"persistent://{topic.partition('://')[2]}"


@dataclass(frozen=True)
class ProducerPlan:
    """A producer.

    Attributes:
        name: its own, also at the broker; its keys are `name/0`, `name/1`, …
        topic: full name.
        language: of its client.
        interval: seconds between two messages.
        keys: how many keys it sends to in turn.
        batching: several messages in one entry; then those of one key alone.
        encoding: of the bodies; other than bytes only in Java.
    """

    name: str
    topic: str
    language: Language
    interval: float = 0.02
    keys: int = _KEYS
    batching: bool = False
    encoding: Encoding = Encoding.BYTES

    @property
    def stored_topic(self) -> str:
        """Name of its topic for regular clients."""
        return as_stored(self.topic)


@dataclass(frozen=True)
class ConsumerPlan:
    """A consumer.

    Attributes:
        name: its own, also at the broker.
        topic: full name.
        language: of its client.
        type: of the subscription.
        cumulative: it acknowledges everything up to a message, instead of each one.
        encoding: of the topic's bodies.
        named: the subscription's name, where it is not its type.
        latest: a new subscription starts after all messages, not before them.
        checkpoint: it has no subscription and begins at a checkpoint; Java's V5 library alone.
    """

    name: str
    topic: str
    language: Language
    type: Subscribed
    cumulative: bool = False
    encoding: Encoding = Encoding.BYTES
    named: str = ""
    latest: bool = False
    checkpoint: bool = False

    @property
    def subscription(self) -> str:
        """The name of its subscription."""
        return self.named or self.type.value

    @property
    def stored_topic(self) -> str:
        """Name of its topic for regular clients."""
        return as_stored(self.topic)


@dataclass(frozen=True)
class TopicPlan:
    """A topic with its clients.

    Attributes:
        topic: full name.
        partitions: 0 for a topic without.
        producers: clients that send to it.
        consumers: clients that receive, with their subscriptions.
    """

    topic: str
    partitions: int
    producers: tuple[ProducerPlan, ...]
    consumers: tuple[ConsumerPlan, ...]

    @property
    def subscriptions(self) -> list[str]:
        """Names of all subscriptions."""
        return sorted({consumer.subscription for consumer in self.consumers})


@dataclass(frozen=True)
class TrafficPlan:
    """Topics with traffic, and their clients."""

    topics: tuple[TopicPlan, ...]

    @property
    def producers(self) -> list[ProducerPlan]:
        """Producers of all topics."""
        return [producer for topic in self.topics for producer in topic.producers]

    @property
    def consumers(self) -> list[ConsumerPlan]:
        """Consumers of all topics."""
        return [consumer for topic in self.topics for consumer in topic.consumers]

    @property
    def languages(self) -> list[Language]:
        """Languages of the clients."""
        used = {client.language for client in (*self.producers, *self.consumers)}
        return [language for language in Language if language in used]


# Of ten topics: both languages in turn, with batches, with schemas, with partitions.
_MIX: tuple[tuple[Language, bool, Encoding, int], ...] = (
    (Language.PYTHON, False, Encoding.BYTES, 0),
    (Language.JAVA, False, Encoding.BYTES, 0),
    (Language.PYTHON, True, Encoding.BYTES, 0),
    (Language.JAVA, False, Encoding.JSON, 0),
    (Language.PYTHON, False, Encoding.BYTES, _PARTITIONS),
    (Language.JAVA, False, Encoding.BYTES, _PARTITIONS),
    (Language.PYTHON, False, Encoding.BYTES, 0),
    (Language.JAVA, False, Encoding.AVRO, 0),
    (Language.PYTHON, False, Encoding.BYTES, 0),
    (Language.JAVA, True, Encoding.BYTES, 0),
)


def mixed_topics(namespace: str, count: int = 10, rate: float = 50) -> list[TopicPlan]:
    """Return topics of every kind, each with one producer and the four types of subscriptions.

    An exclusive consumer is of the other language than the producer; the other subscriptions have one of each.

    Args:
        namespace: `tenant/namespace`.
        count: how many topics.
        rate: messages per second of each.
    """
    return [_mixed(f"persistent://{namespace}/t{number}", number, 1 / rate) for number in range(count)]


def _mixed(topic: str, number: int, interval: float) -> TopicPlan:
    language, batching, encoding, partitions = _MIX[number % len(_MIX)]
    label = topic.removeprefix("persistent://").replace("/", "-")
    producer = ProducerPlan(
        f"{label}-producer", topic, language, interval=interval, batching=batching, encoding=encoding
    )
    consumers = [
        ConsumerPlan(
            f"{label}-{kind.value.lower()}-{reader.value}",
            topic,
            reader,
            kind,
            # Half of the topics: what is acknowledged so is kept as one position, which has another meaning elsewhere.
            cumulative=number % 4 < 2 and kind in {Subscribed.EXCLUSIVE, Subscribed.FAILOVER},
            encoding=encoding,
        )
        for kind, reader in _readers(language)
    ]
    return TopicPlan(topic, partitions, (producer,), tuple(consumers))


def _readers(producing: Language) -> Iterator[tuple[Subscribed, Language]]:
    for kind in Subscribed:
        for language in MOVABLE:
            if kind is not Subscribed.EXCLUSIVE or language is not producing:
                yield kind, language

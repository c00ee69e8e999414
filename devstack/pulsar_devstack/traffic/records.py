"""Records of clients about numbered messages; the audit (`audit.py`) compares them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from pulsar_devstack.traffic.plan import ConsumerPlan, ProducerPlan


class Sent(NamedTuple):
    """One message of a producer; times are seconds since the epoch.

    Attributes:
        key: of the message.
        number: within its key.
        at: when it was handed to the client.
        acknowledged: when the broker's acknowledgement was seen; None if it was not.
    """

    key: str
    number: int
    at: float
    acknowledged: float | None


class Received(NamedTuple):
    """One arrival of a message at a consumer, which acknowledges it at once.

    Attributes:
        key: of the message.
        number: within its key.
        at: when, in seconds since the epoch.
        place: where the message is: ledger, entry, partition and index in its batch; of a scalable topic the segment,
            and the place in it.
        consumer: name of the consumer, where several share a record.
    """

    key: str
    number: int
    at: float
    place: str
    consumer: str = ""

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return f"{self.key}:{self.number} ({self.place}, {at}{self.consumer and f', {self.consumer}'})"

    @property
    def segment(self) -> int:
        """The id of the segment of a scalable topic."""
        return int(self.place.partition(":")[0])


@dataclass
class ProducerRecord:
    """Record of a producer.

    Attributes:
        plan: the producer.
        sent: its messages in the order of sending.
        errors: failed sends, when and why.
        misreported: outcomes that the library reported again for a message.
    """

    plan: ProducerPlan
    sent: list[Sent] = field(default_factory=list[Sent])
    errors: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    misreported: int = 0


@dataclass
class ConsumerRecord:
    """Record of a consumer.

    Attributes:
        plan: the consumer.
        received: what arrived, in order.
        breaks: when it saw that it had no connection.
        corrupt: messages whose body is not what was sent.
        errors: what receiving and acknowledging met, when and why.
        has_left: whether it was ended on purpose.
    """

    plan: ConsumerPlan
    received: list[Received] = field(default_factory=list[Received])
    breaks: list[float] = field(default_factory=list[float])
    corrupt: int = 0
    errors: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    has_left: bool = False

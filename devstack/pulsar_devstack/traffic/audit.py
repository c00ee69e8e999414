"""The delivery audit of numbered messages: lost, duplicated, reordered and corrupt messages, and dead clients.

A message is known by its key, which belongs to one producer, and its number within the key: 0, 1, 2, … All tests,
benchmarks and demos use this audit. `DeliveryAudit.faults` checks:

| check | tolerated where |
|---|---|
| a message that was acknowledged to its producer did not arrive | never |
| a message first arrived after a later one of its key (ordered subscriptions) | never |
| a body is not what was sent | never |
| the outcome of a send was reported more than once | never |
| a producer sent nothing, or can send no more | never |
| a consumer receives nothing any more | `Tolerated.DEAD_CONSUMERS`: the test restarts consumers |
| a message arrived again, and nothing explains it (`Duplicates`) | `Tolerated.DUPLICATES`: brokers or consumers die |

`DeliveryAudit.errors` lists what clients met. It is a fault only where no client may notice anything
(`Traffic.verify`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate, pairwise

from pulsar_devstack.traffic.plan import Subscribed
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord, Received

# Clients collect acknowledgements for 0.1 s before they send them; on a busy machine their threads wait for seconds.
_ACKNOWLEDGEMENT_SECONDS = 5.0
_SHOWN = 5


class Tolerated(Enum):
    """Faults that a test may expect, because it kills brokers or clients."""

    DUPLICATES = auto()
    DEAD_CONSUMERS = auto()


@dataclass(frozen=True)
class ProducerAudit:
    """How a producer fared.

    Attributes:
        name: the producer.
        topic: where it sends.
        sent: messages handed to its client.
        acknowledged: by a broker.
        longest_send: seconds from sending to the acknowledgement.
        longest_gap: seconds without an acknowledgement, up to the end of the sending.
        dead: the reason if it cannot send any more; else None.
        misreported: outcomes of sends that were reported again.
        errors: what failed sends met, and how often.
    """

    name: str
    topic: str
    sent: int
    acknowledged: int
    longest_send: float
    longest_gap: float
    dead: str | None
    misreported: int
    errors: dict[str, int]


@dataclass(frozen=True)
class Duplicates:
    """Messages that arrived more than once, each arrival beyond the first counted.

    Attributes:
        resent: written twice: the client sent it again, as no broker had acknowledged it.
        unconfirmed: within seconds of its acknowledgement its consumer lost the connection, or another consumer of a
            failover subscription took over.
        other: neither.
    """

    resent: int = 0
    unconfirmed: int = 0
    other: int = 0


@dataclass(frozen=True)
class SubscriptionAudit:
    """How a subscription fared.

    Attributes:
        topic: whose.
        name: of the subscription.
        type: of it.
        received: messages that arrived, each counted once.
        lost: messages that were acknowledged to their producer and did not arrive.
        duplicates: messages that arrived more than once.
        late: messages that first arrived after a later one of their key, and which one that was, in order of time;
            none of a shared subscription.
        corrupt: messages whose body is not what was sent.
        dead: consumers that no longer get messages although some are missing, or others of a shared subscription do.
        errors: what its consumers met, and how often.
    """

    topic: str
    name: str
    type: Subscribed
    received: int
    lost: int
    duplicates: Duplicates
    late: tuple[str, ...]
    corrupt: int
    dead: tuple[str, ...]
    errors: dict[str, int]

    @property
    def reordered(self) -> int:
        """Messages that first arrived after a later one of their key."""
        return len(self.late)


@dataclass(frozen=True)
class DeliveryAudit:
    """How all of them fared."""

    producers: tuple[ProducerAudit, ...]
    subscriptions: tuple[SubscriptionAudit, ...]

    @property
    def acknowledged(self) -> int:
        """Messages that brokers acknowledged."""
        return sum(producer.acknowledged for producer in self.producers)

    @property
    def lost(self) -> int:
        """Lost messages, summed over subscriptions."""
        return sum(subscription.lost for subscription in self.subscriptions)

    @property
    def reordered(self) -> int:
        """Messages out of order, summed over subscriptions."""
        return sum(subscription.reordered for subscription in self.subscriptions)

    @property
    def duplicates(self) -> Duplicates:
        """Messages that arrived more than once, summed over subscriptions."""
        parts = [subscription.duplicates for subscription in self.subscriptions]
        return Duplicates(
            sum(side.resent for side in parts),
            sum(side.unconfirmed for side in parts),
            sum(side.other for side in parts),
        )

    @property
    def corrupt(self) -> int:
        """Messages whose body is not what was sent."""
        return sum(subscription.corrupt for subscription in self.subscriptions)

    @property
    def dead_producers(self) -> dict[str, str]:
        """Producers that can send no more, and why."""
        return {producer.name: producer.dead for producer in self.producers if producer.dead is not None}

    @property
    def dead_consumers(self) -> tuple[str, ...]:
        """Consumers that get nothing."""
        return tuple(name for subscription in self.subscriptions for name in subscription.dead)

    @property
    def longest_send(self) -> float:
        """The longest time from sending to an acknowledgement, in seconds."""
        return max((producer.longest_send for producer in self.producers), default=0.0)

    @property
    def longest_gap(self) -> float:
        """The longest time that a producer was without an acknowledgement, in seconds."""
        return max((producer.longest_gap for producer in self.producers), default=0.0)

    @property
    def errors(self) -> list[str]:
        """Errors of clients, even if no message was affected."""
        errors = [
            f"{producer.name}: {count} x {reason}"
            for producer in self.producers
            for reason, count in producer.errors.items()
        ]
        return errors + [
            f"{subscription.topic}, {subscription.name}: {count} x {reason}"
            for subscription in self.subscriptions
            for reason, count in subscription.errors.items()
        ]

    def faults(self, *tolerated: Tolerated) -> list[str]:
        """Return what is wrong, one line each; see the table of this module."""
        faults = [f"{name} can send no more: {reason}" for name, reason in self.dead_producers.items()]
        faults += [f"{producer.name} has sent nothing" for producer in self.producers if not producer.sent]
        faults += [
            f"{producer.name}: {producer.misreported} outcomes reported again"
            for producer in self.producers
            if producer.misreported
        ]
        if Tolerated.DEAD_CONSUMERS not in tolerated:
            faults += [f"{name} receives nothing any more" for name in self.dead_consumers]
        for subscription in self.subscriptions:
            counts = {
                "lost": subscription.lost,
                "received again": 0 if Tolerated.DUPLICATES in tolerated else subscription.duplicates.other,
                "out of order": subscription.reordered,
                "corrupt": subscription.corrupt,
            }
            wrong = [f"{count} {what}" for what, count in counts.items() if count]
            wrong += subscription.late[:_SHOWN]
            faults += [f"{subscription.topic}, {subscription.name}: {', '.join(wrong)}"] if wrong else []
        return faults


def audit_delivery(
    producers: Iterable[ProducerRecord], consumers: Iterable[ConsumerRecord], *, began: float, ended: float
) -> DeliveryAudit:
    """Compare what was sent with what arrived.

    Args:
        producers: what was sent.
        consumers: what arrived.
        began: when sending began, in seconds since the epoch.
        ended: when it ended.
    """
    sent = list(producers)
    by_topic: dict[str, list[ProducerRecord]] = defaultdict(list)
    for record in sent:
        by_topic[record.plan.stored_topic].append(record)
    by_subscription: dict[tuple[str, str], list[ConsumerRecord]] = defaultdict(list)
    for record in consumers:
        by_subscription[record.plan.stored_topic, record.plan.subscription].append(record)
    return DeliveryAudit(
        tuple(_producer(record, began, ended) for record in sent),
        tuple(
            _subscription(topic, name, records, by_topic[topic]) for (topic, name), records in by_subscription.items()
        ),
    )


def in_flight(producers: Iterable[ProducerRecord], at: float) -> int:
    """Return how many messages had been sent and were not acknowledged at a time."""
    return sum(
        message.at <= at and (message.acknowledged is None or message.acknowledged > at)
        for record in producers
        for message in record.sent
    )


def out_of_order(numbers: Sequence[int]) -> list[int]:
    """Return numbers that first come after a higher one; a repetition is not out of order."""
    first = list(dict.fromkeys(numbers))
    return [number for number, highest in zip(first, accumulate(first, max), strict=True) if number < highest]


def _producer(record: ProducerRecord, began: float, ended: float) -> ProducerAudit:
    seen = sorted(message.acknowledged for message in record.sent if message.acknowledged is not None)
    waits = [message.acknowledged - message.at for message in record.sent if message.acknowledged is not None]
    times = sorted([began, *seen, ended])
    return ProducerAudit(
        record.plan.name,
        record.plan.topic,
        len(record.sent),
        len(seen),
        max(waits, default=0.0),
        max((later - earlier for earlier, later in pairwise(times)), default=0.0),
        _death(record, seen),
        record.misreported,
        dict(Counter(reason for _, reason in record.errors)),
    )


def _death(record: ProducerRecord, seen: Sequence[float]) -> str | None:
    """Return why a producer can send no more: no acknowledgement after its last error, or for its last message."""
    if record.errors and (not seen or record.errors[-1][0] >= seen[-1]):
        return record.errors[-1][1]
    if record.sent and record.sent[-1].acknowledged is None:
        return "its last message was never acknowledged"
    return None


def _subscription(
    topic: str, name: str, records: Sequence[ConsumerRecord], sent: Sequence[ProducerRecord]
) -> SubscriptionAudit:
    kind = records[0].plan.type
    arrivals = sorted(
        ((message, record) for record in records for message in record.received), key=lambda arrival: arrival[0].at
    )
    seen = {(message.key, message.number) for message, _ in arrivals}
    wanted = {
        (message.key, message.number): message.acknowledged
        for record in sent
        for message in record.sent
        if message.acknowledged is not None
    }
    lost = wanted.keys() - seen
    return SubscriptionAudit(
        topic,
        name,
        kind,
        len(seen),
        len(lost),
        _duplicates(kind, arrivals),
        tuple(_late(message for message, _ in arrivals)) if kind.ordered else (),
        sum(record.corrupt for record in records),
        tuple(_dead(kind, records, list(wanted.values()), lost=bool(lost))),
        dict(Counter(reason for record in records for _, reason in record.errors)),
    )


def _duplicates(kind: Subscribed, arrivals: Iterable[tuple[Received, ConsumerRecord]]) -> Duplicates:
    first: dict[tuple[str, int], tuple[Received, ConsumerRecord]] = {}
    again = acknowledging = other = 0
    for message, record in arrivals:
        before = first.setdefault((message.key, message.number), (message, record))
        if before[0] is message:
            continue
        if before[0].place != message.place:
            again += 1
        elif _was_cut_off(before[0].at, before[1].breaks):
            acknowledging += 1
        elif kind is Subscribed.FAILOVER and record is not before[1] and _is_close(before[0].at, message.at):
            # Brokers read again from the last acknowledged message for the consumer that takes over.
            acknowledging += 1
        else:
            other += 1
    return Duplicates(again, acknowledging, other)


def _was_cut_off(at: float, breaks: Iterable[float]) -> bool:
    # A message that waits in the client is received after its connection has ended.
    return any(_is_close(at, broken) for broken in breaks)


def _is_close(at: float, event: float) -> bool:
    """Return whether an event may have kept the acknowledgement of a message from the broker."""
    return abs(event - at) <= _ACKNOWLEDGEMENT_SECONDS


def _late(arrivals: Iterable[Received]) -> list[str]:
    by_key: dict[str, dict[int, Received]] = defaultdict(dict)
    for arrival in arrivals:
        by_key[arrival.key].setdefault(arrival.number, arrival)
    late = [
        (arrival, next(before for before in first.values() if before.number > arrival.number))
        for first in by_key.values()
        for arrival in map(first.__getitem__, out_of_order([*first]))
    ]
    return [f"{arrival} after {before}" for arrival, before in sorted(late, key=lambda pair: pair[0].at)]


def _dead(
    kind: Subscribed, records: Sequence[ConsumerRecord], acknowledged: Sequence[float], *, lost: bool
) -> list[str]:
    """Return the consumers without a message in the last tenth; with a shared subscription each must get some."""
    if not acknowledged:
        return []
    begin = sorted(acknowledged)[-(len(acknowledged) // 10 or 1)]
    silent = [
        record.plan.name
        for record in records
        if not record.has_left and (not record.received or record.received[-1].at < begin)
    ]
    if kind is Subscribed.SHARED:
        return silent
    # A consumer may have no key, or be a standby, as long as nothing is missing.
    is_standby = kind is Subscribed.FAILOVER and len(silent) < len(records)
    return silent if lost and not is_standby else []

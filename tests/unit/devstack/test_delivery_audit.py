"""The delivery audit: what counts as lost, duplicated, out of order and dead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_devstack.traffic.audit import DeliveryAudit, Duplicates, Tolerated, audit_delivery, in_flight, out_of_order
from pulsar_devstack.traffic.client_log import ClientLog, V5Log
from pulsar_devstack.traffic.plan import (
    MOVABLE,
    ConsumerPlan,
    Encoding,
    Language,
    ProducerPlan,
    Subscribed,
    mixed_topics,
)
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord, Received, Sent

_TOPIC = "persistent://acme/orders/t0"
_COUNT = 20


def _sent(count: int = _COUNT, **more: object) -> ProducerRecord:
    messages = [Sent("p/0", number, float(number), number + 0.1) for number in range(count)]
    return ProducerRecord(ProducerPlan("p", _TOPIC, Language.PYTHON), messages, **more)  # type: ignore[arg-type]


def _received(
    numbers: Sequence[int], kind: Subscribed = Subscribed.EXCLUSIVE, name: str = "c", breaks: Sequence[float] = ()
) -> ConsumerRecord:
    arrivals = [Received("p/0", number, place + 0.5, f"1:{number}") for place, number in enumerate(numbers)]
    return ConsumerRecord(ConsumerPlan(name, _TOPIC, Language.JAVA, kind), arrivals, list(breaks))


def _audit(producer: ProducerRecord, *consumers: ConsumerRecord) -> DeliveryAudit:
    return audit_delivery([producer], consumers, began=0.0, ended=float(_COUNT))


def test_each_message_arrives_once() -> None:
    """Traffic without losses has an audit without a fault."""
    audit = _audit(_sent(), _received(range(_COUNT)))
    assert audit.faults() == []
    assert audit.acknowledged == _COUNT
    assert audit.longest_send == pytest.approx(0.1)
    assert audit.longest_gap == pytest.approx(1.0)


def test_only_acknowledged_messages_can_be_lost() -> None:
    """A message that its producer never saw acknowledged may be missing; another may not."""
    producer = _sent()
    producer.sent[-1] = producer.sent[-1]._replace(acknowledged=None)
    audit = _audit(producer, _received(range(_COUNT - 2)))
    assert audit.lost == 1
    assert audit.dead_producers == {"p": "its last message was never acknowledged"}


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (Received("p/0", 3, 30.0, "9:0"), Duplicates(resent=1)),
        (Received("p/0", 3, 30.0, "1:3"), Duplicates(unconfirmed=1)),
        (Received("p/0", 1, 30.0, "1:1"), Duplicates(other=1)),
    ],
    ids=["written-twice", "cut-off-at-once", "cut-off-later"],
)
def test_kinds_of_duplicates(again: Received, expected: Duplicates) -> None:
    """A second arrival is excused in another place, or if the first one's consumer was cut off within seconds of it."""
    consumer = _received(range(_COUNT), breaks=[8.0])
    consumer.received.append(again)
    assert _audit(_sent(), consumer).duplicates == expected


@pytest.mark.parametrize(
    ("kind", "at", "expected"),
    [
        (Subscribed.FAILOVER, 6.0, Duplicates(unconfirmed=1)),
        (Subscribed.FAILOVER, 16.0, Duplicates(other=1)),
        (Subscribed.KEY_SHARED, 6.0, Duplicates(other=1)),
    ],
)
def test_a_consumer_that_takes_over_gets_the_last_messages_again(
    kind: Subscribed, at: float, expected: Duplicates
) -> None:
    """A failover subscription's acknowledgements may not have arrived, though no connection was lost."""
    first, second = _received(range(5), kind, "a"), _received([4], kind, "b")
    second.received = [second.received[0]._replace(at=at)]
    assert _audit(_sent(5), first, second).duplicates == expected


def test_repetitions_are_not_out_of_order() -> None:
    """A message that comes again after a later one is a duplicate; one that first comes there is out of order."""
    assert out_of_order([0, 1, 2, 0, 1]) == []
    assert out_of_order([0, 2, 1, 3, 3]) == [1]


@given(st.permutations(range(8)))
def test_order_is_violated_unless_sorted(numbers: list[int]) -> None:
    """Each number after a higher one counts, in any order."""
    assert len(out_of_order(numbers)) == sum(
        any(before > number for before in numbers[:at]) for at, number in enumerate(numbers)
    )


@pytest.mark.parametrize("kind", Subscribed)
def test_order_counts_over_all_consumers(kind: Subscribed) -> None:
    """Arrivals of all consumers are put in order of time, and only a shared subscription may have them in any."""
    early, late = _received([0, 2], kind, "a"), _received([1], kind, "b")
    late.received = [late.received[0]._replace(at=5.0)]
    audit = _audit(_sent(3), early, late)
    assert audit.reordered == (0 if kind is Subscribed.SHARED else 1)


def test_a_late_message_is_described() -> None:
    """Key, number, place, time and consumer of a message out of order are known, and of the one that came before it."""
    consumer = _received([0, 3, 1, 2, 3, 1])
    consumer.received[2] = consumer.received[2]._replace(consumer="c7")
    [line] = _audit(_sent(4), consumer).faults(Tolerated.DUPLICATES)
    first = "p/0:3 (1:3, 1970-01-01T00:00:01.500+00:00)"
    assert line == (
        f"{_TOPIC}, Exclusive: 2 out of order, p/0:1 (1:1, 1970-01-01T00:00:02.500+00:00, c7) after {first},"
        f" p/0:2 (1:2, 1970-01-01T00:00:03.500+00:00) after {first}"
    )


def test_a_producer_is_dead_after_an_error_that_was_the_last() -> None:
    """A failed send is survived by a later acknowledgement, and not otherwise."""
    assert _audit(_sent(errors=[(5.0, "Timeout")]), _received(range(_COUNT))).dead_producers == {}
    dead = _audit(_sent(errors=[(30.0, "AlreadyClosed")]), _received(range(_COUNT))).dead_producers
    assert dead == {"p": "AlreadyClosed"}


def test_a_gap_lasts_until_the_end() -> None:
    """A producer that never reappears had no acknowledgement until the sending ended."""
    assert _audit(_sent(5), _received(range(5))).longest_gap == pytest.approx(_COUNT - 4.1)


@pytest.mark.parametrize(
    ("kind", "arrived", "dead"),
    [
        (Subscribed.SHARED, (range(_COUNT), range(1)), ("b",)),
        (Subscribed.KEY_SHARED, (range(_COUNT), range(1)), ()),
        (Subscribed.KEY_SHARED, (range(0, _COUNT, 2), range(1, 2)), ("a", "b")),
        (Subscribed.FAILOVER, (range(_COUNT), range(0)), ()),
        (Subscribed.FAILOVER, (range(3), range(0)), ("a", "b")),
    ],
)
def test_silent_consumers_are_dead_where_they_should_not_be(
    kind: Subscribed, arrived: tuple[range, range], dead: tuple[str, ...]
) -> None:
    """A shared consumer must get messages as others do; elsewhere silence counts once messages are missing."""
    audit = _audit(_sent(), _received(arrived[0], kind, "a"), _received(arrived[1], kind, "b"))
    assert audit.dead_consumers == dead


def test_sends_under_way_are_those_not_yet_acknowledged() -> None:
    """Of messages at one a second, acknowledged after a tenth, one is under way just after it was sent."""
    assert in_flight([_sent()], 5.05) == 1
    assert in_flight([_sent()], 5.5) == 0


def test_one_topic_may_have_two_names_and_consumers_that_left() -> None:
    """A stream consumer calls the topic by its scalable name, and nothing more is expected of one that was ended."""
    gone = _received(range(5), Subscribed.SHARED, "a")
    gone.has_left = True
    plan = ConsumerPlan("b", _TOPIC.replace("persistent", "topic"), Language.JAVA_V5, Subscribed.SHARED)
    stayed = ConsumerRecord(plan, _received(range(_COUNT)).received[5:])
    audit = _audit(_sent(), gone, stayed)
    assert audit.faults() == []
    [audited] = audit.subscriptions
    assert (audited.topic, audited.name, audited.received) == (_TOPIC, "Shared", _COUNT)


def test_subscriptions_of_one_type_differ_by_name() -> None:
    """Each of them must get every message."""
    first, other = (
        ConsumerRecord(ConsumerPlan(name, _TOPIC, Language.JAVA_V5, Subscribed.SHARED, named=name), arrivals)
        for name, arrivals in (("first", _received(range(_COUNT)).received), ("other", _received([0]).received))
    )
    audit = _audit(_sent(), first, other)
    assert {subscription.name: subscription.lost for subscription in audit.subscriptions} == {
        "first": 0,
        "other": _COUNT - 1,
    }


def test_faults_name_what_is_wrong() -> None:
    """Each fault is one line with the topic, the subscription and the counts."""
    [line] = _audit(_sent(), _received(range(_COUNT - 1), Subscribed.KEY_SHARED)).faults()
    assert re.fullmatch(f"{_TOPIC}, Key_Shared: 1 lost", line)


def test_the_plan_has_every_kind_of_client() -> None:
    """Ten topics have both languages as producers and in each type of subscription, batches, schemas, partitions."""
    topics = mixed_topics("acme/orders")
    producers = [producer for topic in topics for producer in topic.producers]
    consumers = [consumer for topic in topics for consumer in topic.consumers]
    assert {producer.language for producer in producers if producer.batching} == set(MOVABLE)
    assert {producer.encoding for producer in producers} == set(Encoding)
    assert {(consumer.type, consumer.language, consumer.cumulative) for consumer in consumers} >= {
        (kind, language, cumulative)
        for kind in (Subscribed.EXCLUSIVE, Subscribed.FAILOVER)
        for language in MOVABLE
        for cumulative in (False, True)
    }
    assert {(topic.partitions > 0, topic.producers[0].language) for topic in topics} >= {
        (True, language) for language in MOVABLE
    }
    assert len({producer.name for producer in [*producers, *consumers]}) == len(producers) + len(consumers)


def test_lost_connections_are_read_from_the_log(tmp_path: Path) -> None:
    """Each lost connection of a topic's subscription counts, partitions included; a line that is not whole waits."""
    path = tmp_path / "client.log"
    log = ClientLog(path)
    assert log.breaks(_TOPIC, "Failover") == []
    begin = "2026-11-23 02:03:06.209 INFO  [140401742673600] HandlerBase:186 | "
    path.write_text(f"{begin}[{_TOPIC}, Failover, 0] Schedule reconnection in 0.1 s\n{begin}[{_TOPIC}-partition-1, Fai")
    assert len(log.breaks(_TOPIC, "Failover")) == 1
    with path.open("a") as more:
        more.write(f"lover, 0] Schedule reconnection in 0.2 s\n{begin}[{_TOPIC}, Failover, 0] Closed consumer 0\n")
    first, second = log.breaks(_TOPIC, "Failover")
    assert first == second
    assert log.breaks(_TOPIC, "Shared") == []


def test_lost_connections_of_v5_are_read_once(tmp_path: Path) -> None:
    """The library says when, and not of whom; how often it says so at one time does not matter."""
    path = tmp_path / "java.log"
    log = V5Log(path)
    assert log.news() == []
    lost = (
        "2026-11-24T21:45:03,125 [pulsar-client-io-1-1] INFO  ConnectionHandler - Closed connection - Will try again\n"
    )
    path.write_text(f"{lost}{lost}2026-11-24T21:45:04,125 [main] INFO  ConsumerImpl - Subscribing to topic\n")
    assert len(log.news()) == 1
    assert log.news() == []

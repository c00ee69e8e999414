"""Producers on topics that drop what they hold already."""

from __future__ import annotations

import time

import pytest
from scalable_client.tests.support.topics import take_all

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from pulsar_scalable.native import InitialPosition, MessageId, NativeClient
from pulsar_scalable.native.consumer import SegmentConsumerOptions
from pulsar_scalable.options import ProducerOptions
from tests.support.blue_green.namespaces import create_namespace
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exhaustive

_NAMESPACE = "public/native-client-once"


def test_each_message_is_stored_once(admin: PulsarAdmin, client: NativeClient) -> None:
    """A message that is sent again with its number is not stored again; the next producer of the name continues."""
    create_namespace(admin, _NAMESPACE)
    admin.namespaces.set_deduplication(_NAMESPACE, enabled=True)
    name = TopicName.parse(f"{_NAMESPACE}/topic")
    admin.scalable_topics.create(name, 1)
    layout = client.look_up(f"topic://{name.local_path}")
    topic = layout.topic_of(layout.active[0])

    def is_on() -> bool:
        """Return whether the policy applies to the topic: then a sequence id that is not higher is a duplicate."""
        with_number = client.create_producer(
            topic, ProducerOptions(producer_name=f"probe-{time.monotonic_ns()}", initial_sequence_id=9)
        )
        with_number.send(b"probe")
        with_number.close()
        again = client.create_producer(
            topic, ProducerOptions(producer_name=with_number.producer_name, initial_sequence_id=9)
        )
        dropped = again.send(b"probe again") == MessageId(-1, -1)
        again.close()
        return dropped

    wait_for("deduplication", is_on, 60)
    producer = client.create_producer(topic, ProducerOptions(producer_name="once"))
    assert producer.last_sequence_id() == -1
    for number in range(5):
        producer.send(b"%d" % number)
    # The first try may have timed out, and be stored nevertheless.
    assert producer.send(b"4", sequence_id=4) == MessageId(-1, -1)
    assert producer.last_sequence_id() == 4
    producer.close()
    following = client.create_producer(topic, ProducerOptions(producer_name="once"))
    assert following.last_sequence_id() == 4
    following.send(b"5")
    following.close()
    late = client.create_producer(topic, ProducerOptions(producer_name="once", initial_sequence_id=2))
    assert [late.send(b"late").ledger_id() for _ in range(3)] == [-1, -1, -1]
    messages = take_all(
        client.subscribe(topic, "all", SegmentConsumerOptions(initial_position=InitialPosition.Earliest))
    )
    assert [message.data() for message in messages if not message.data().startswith(b"probe")] == [
        b"%d" % number for number in range(6)
    ]

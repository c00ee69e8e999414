"""Topics with transactions, and with messages in chunks, of real clients."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from activities.scalable_topic import flip, hold_release
from activities.scalable_topic.regular_topic import waits_for
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from pulsar_devstack.servers.child_programs import Refused
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.clients.java_messages import JavaMessages
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import pulsar
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

# The client gives its transaction, and what it waits for, 60 s.
_ENDED = 90.0

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """One broker with transactions, and with small messages."""
    settings = {"transactionCoordinatorEnabled": "true", "maxMessageSize": "1000000"}
    return make_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, broker_settings=settings))


def test_open_transactions_are_waited_for(
    stack: Stack, admin: PulsarAdmin, toolchain: Toolchain, tmp_path: Path
) -> None:
    """The flip leaves a topic with an open transaction regular; once it was aborted, later messages are delivered."""
    name = TopicName.parse("persistent://public/default/transactions")
    admin.topics.create(name)
    steps = TopicSteps(stack, name, force=True)
    steps.run(hold_release.guard)

    def transact() -> None:
        # It waits for a message that is never sent, and lets its transaction expire.
        with suppress(Refused):
            java.transact(
                stack.broker_url, str(name), [b"within"], subscription="s", acknowledge=[b"never"], commit=True
            )

    with JavaMessages(toolchain, tmp_path) as java:
        client = threading.Thread(target=transact)
        client.start()
        wait_until_equal("the transaction", lambda: admin.topics.stats(name).ongoing_txn_count, 1, _ENDED)
        assert steps.run(flip.flip).refused == f"open transactions: {name} (1)"
        client.join()
        wait_for("the end of the transaction", lambda: not admin.topics.stats(name).ongoing_txn_count, _ENDED)
    with closing(quiet_client(stack.broker_url)) as python:
        producer = python.create_producer(str(name))
        producer.send(b"after")
        producer.close()
        flipped = steps.run(flip.flip).flipped
        assert flipped
        assert flipped.faults == ()
        consumer = python.subscribe(str(name), "s", pulsar.ConsumerType.Shared)
        assert consumer.receive(30_000).data() == b"after"
    steps.run(hold_release.complete)


def test_messages_in_chunks(stack: Stack, admin: PulsarAdmin) -> None:
    """Brokers say whether a topic got messages in chunks; the flip waits for its producers, also with `force`."""
    name = TopicName.parse("persistent://public/default/chunks")
    admin.topics.create(name)
    steps = TopicSteps(stack, name, force=True)
    with closing(quiet_client(stack.broker_url)) as client, steps.task() as task:
        producer = client.create_producer(str(name), batching_enabled=False, chunking_enabled=True)
        producer.send(b"small")
        assert waits_for(task.read_topic(name), force=True) == ""
        producer.send(bytes(3_000_000))
        # Brokers notice it when they count rates.
        reason = "producers of chunked messages"
        wait_for("the broker to notice", lambda: reason in waits_for(task.read_topic(name), force=True), _ENDED)
        producer.close()
        assert waits_for(task.read_topic(name), force=True) == ""

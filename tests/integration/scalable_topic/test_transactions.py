"""Topics with transactions, and with messages in chunks, of real clients."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from activities.scalable_topic import flip, hold_release
from activities.scalable_topic.regular_topic import waits_for
from clients.cas.store import CasReader
from clients.errors import StoreConflict, StoreContention
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.segment_transactions import has_open_transactions
from pulsar_devstack.servers.child_programs import Refused
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.clients.java_messages import JavaMessages
from tests.support.clients.segment_transactions import SegmentTransactions
from tests.support.scalable_topic.copies import APP, make_space, open_copier, stored_in, topic
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


def test_a_copy_with_transactions(
    stack: Stack, admin: PulsarAdmin, store: CasReader, toolchain: Toolchain, tmp_path: Path
) -> None:
    """A copy fails while transactions are open, and while brokers name an earlier message as the last one.

    With transactions, brokers keep their first answer until they load the segment again (5.0.1).
    """
    make_space(admin)
    source, target = topic("transactional"), topic("transactional-copy")
    admin.scalable_topics.create(source, 1)
    admin.scalable_topics.set_auto_scale_policy(source, AutoScalePolicy(enabled=False))
    tools = with_scalable_clients(toolchain)
    with SegmentTransactions(tools, tmp_path, stack.broker_url, source) as java, open_copier(stack) as copier:

        def copied() -> list[bytes]:
            copier.copy(source, target, subscriptions=(APP,))
            return [message.payload for message in stored_in(stack, target)]

        java.send("a0")
        java.send("a1", "committed")
        java.send("a2")
        for _ in range(2):
            with pytest.raises(StoreContention, match=r"transactions that have written to .*/0000-ffff-0 are open"):
                copied()
            assert [message.payload for message in stored_in(stack, target)] == [b"a0"]
            if admin.scalable_topics.layout(source).epoch == 0:
                admin.scalable_topics.split(source, 0)
        java.send("b3")
        java.commit("committed")
        with pytest.raises(StoreConflict, match=r"/0000-ffff-0 names \d+:0 as its last message, .* up to \d+:2"):
            copied()
        admin.namespaces.unload(source.namespace_path)
        assert copied() == [b"a0", b"a1", b"a2", b"b3"]
        java.send("b4")
        with pytest.raises(StoreConflict, match=r"names \d+:0 as its last message, .* up to \d+:0"):
            copied()
        java.send("b5", "aborted")
        java.abort("aborted")
        java.send("b6")
        active = SegmentName(source, admin.scalable_topics.layout(source).route("key").descriptor)
        wait_for("the end of the transaction", lambda: not has_open_transactions(store, active), _ENDED)
        admin.namespaces.unload(source.namespace_path)
        assert copied()[4:] == [b"b4", b"b6"]


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

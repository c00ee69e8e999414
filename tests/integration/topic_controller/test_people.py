"""Actions of people on a controller, its topic and its records."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.publish import LAYOUT
from activities.topic_controller.records import read_record, record_path
from clients.cas.store import CasStore, remove_tree
from clients.pulsar.admin.client import PulsarAdmin
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import Deletion, SplitRequest, SubscriptionRequest
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from pulsar_scalable import ClientOptions, ConsumerOptions, ScalableClient, ScalableProducer, StreamConsumer
from pulsar_scalable.errors import TimedOut
from tests.integration.topic_controller.conftest import Control
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.layouts import widest
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.waiting import wait_for, wait_until_equal

SPACE = "persistent://public/default"


@contextmanager
def clients(stack: Stack, controller: Controller) -> Generator[tuple[ScalableProducer, StreamConsumer]]:
    """Open a producer, and the consumer `one` of the ordered subscription `bill`."""
    topic = controller.input.topic
    with (
        Registrar(lambda: controller) as registrar,
        ScalableClient(stack.broker_url, ClientOptions(controller_url=registrar.base_url)) as client,
        client.create_producer(topic) as producer,
        client.subscribe_stream(topic, "bill", ConsumerOptions(consumer_name="one")) as consumer,
    ):
        yield producer, consumer


def _limit(stack: Stack, admin: PulsarAdmin, policy: str, limit: int) -> None:
    """Set a limit of a namespace, and wait until each broker has it."""
    admin.namespaces.set_policy("public/limited", (policy,), limit)
    for url in stack.admin_urls:
        with StackAdmin(url) as broker:
            policies = broker.namespaces.policies
            wait_until_equal(policy, lambda policies=policies: policies("public/limited").raw.get(policy), limit, 30)


def test_limits_of_a_namespace(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A change that a limit forbids is refused and leaves nothing; other changes continue."""
    admin.namespaces.create("public/limited", {"bundles": {"numBundles": 4}})
    controller = control("persistent://public/limited/orders", segments=2)
    controller.subscribe("bill")
    layout = controller.layout()
    segments = {str(segment_topic(controller.name, segment.descriptor)) for segment in layout.active}
    wait_for("the segments to be listed", lambda: segments <= {*admin.topics.names("public/limited")}, 30)
    names = {*admin.topics.names("public/limited")}
    _limit(stack, admin, "max_topics_per_namespace", 1)
    refusal = controller.refusal("split", SplitRequest(segment=0)).message
    assert "maximum number of topics" in refusal
    assert {*admin.topics.names("public/limited")} == names
    assert (controller.layout().segments, controller.layout().epoch) == (layout.segments, layout.epoch)
    _limit(stack, admin, "max_topics_per_namespace", 100)
    # Ids of a change that was given up come no more.
    assert [segment.descriptor for segment in controller.merge(0, 1).active] == ["0000-ffff-4"]
    # A consumer has created its cursor on one segment by itself.
    layout = controller.split(4)
    mine, other = (segment_topic(controller.name, segment.descriptor) for segment in layout.active)
    admin.subscriptions.create(mine, "audit")
    _limit(stack, admin, "max_subscriptions_per_topic", 1)
    request = SubscriptionRequest(name="audit", kind=SubscriptionKind.QUEUE)
    assert "maximum number of subscriptions" in controller.refusal("create_subscription", request).message
    assert {*controller.status().subscriptions} == {"bill"}
    assert {*admin.topics.stats(mine).subscriptions} == {"bill", "audit"}
    assert {*admin.topics.stats(other).subscriptions} == {"bill"}
    admin.subscriptions.delete(mine, "audit")
    assert Oracle(stack, controller.name, ["bill"]).faults_at_rest(admin) == []
    controller.delete()


def test_a_workflow_that_is_reset(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """It has forgotten a split, and finds it again: consumers read all, and segments that it forgot can be split."""
    controller = control(f"{SPACE}/reset", segments=1)
    controller.subscribe("bill")
    with clients(stack, controller) as (producer, consumer):
        producer.send(b"before", partition_key="k")
        controller.split(0)
        controller.reset("topic_controller_prepare", updates=False)
        producer.send(b"after", partition_key="k")
        received: list[bytes] = []
        while b"after" not in received:
            message = consumer.receive(60_000)
            consumer.acknowledge(message)
            received.append(message.data())
        # The first one may come again as its segment ends.
        assert list(dict.fromkeys(received)) == [b"before", b"after"]
        assert [segment.segment_id for segment in controller.layout().active] == [1, 2]
        controller.split(2)
    assert Oracle(stack, controller.name, ["bill"]).faults_at_rest(admin) == []
    controller.terminate()


def test_a_reset_to_before_a_session_began(control: Control, stack: Stack) -> None:
    """The consumer, and its subscription, are found again: it gets what comes of a split."""
    controller = control(f"{SPACE}/reset-session", segments=1)
    controller.subscribe("bill")
    with clients(stack, controller) as (producer, consumer):
        controller.reset("topic_controller_subscribe", updates=False)
        controller.until(lambda status: status.consumers == {"bill": 1})
        controller.split(0)
        sent = {str(number).encode() for number in range(20)}
        for data in sent:
            producer.send(data, partition_key=data.decode())
        received: set[bytes] = set()
        while received < sent:
            consumer.acknowledge(message := consumer.receive(60_000))
            received.add(message.data())
    controller.terminate()


def test_a_reset_that_sends_updates_again(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A change that was done or refused long ago is not done now: it would undo later changes."""
    controller = control(f"{SPACE}/reset-again", segments=1)
    controller.subscribe("audit", SubscriptionKind.QUEUE)
    controller.unsubscribe("audit")
    controller.subscribe("audit", SubscriptionKind.QUEUE)
    with ScalableClient(stack.broker_url) as client, client.create_producer(controller.input.topic) as producer:
        producer.send(b"kept")
        assert "stop them, or use force" in controller.refusal("delete", Deletion()).message
    controller.reset("topic_controller_unsubscribe", updates=True)
    controller.until(lambda status: "audit" in status.subscriptions and not status.doing)
    (segment,) = controller.layout().active
    place = admin.topics.stats(segment_topic(controller.name, segment.descriptor)).subscriptions["audit"]
    assert place.msg_backlog == 1
    controller.terminate()


def test_a_reset_after_a_pruning(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A split that Temporal sends again, and whose old segment is gone by now, is refused, and holds up nothing."""
    controller = control(f"{SPACE}/reset-pruned", segments=1)
    controller.subscribe("bill")
    controller.split(0)
    assert controller.prune().removed == (0,)
    controller.reset("topic_controller_prepare", updates=True)
    controller.until(lambda status: status.epoch == 2 and not status.doing)
    assert [segment.segment_id for segment in controller.split(1).active] == [3, 4, 2]
    assert Oracle(stack, controller.name, ["bill"]).faults_at_rest(admin) == []
    controller.terminate()


def test_a_layout_that_is_published_again(control: Control, admin: PulsarAdmin) -> None:
    """Its topic is not compacted again soon: a broker that is killed may forget the second of two compactions."""
    controller = control(f"{SPACE}/compacted", segments=1)
    controller.until(lambda status: status.epoch == 0)
    for _ in range(16):
        controller.split(widest(controller.layout()).segment_id)
    topic = layout_topic(controller.name)

    def compacted() -> int:
        return admin.topics.stats(topic).compaction.last_compaction_succeed_timestamp

    first = wait_for("the compaction", compacted, 90)
    controller.terminate()
    again = control(controller.input.topic, segments=1)
    again.until(lambda status: status.epoch == 16 and not status.doing)
    assert (admin.topics.compaction(topic).status, compacted()) == ("SUCCESS", first)
    again.terminate()


def test_a_record_that_is_lost(control: Control, store: CasStore, admin: PulsarAdmin) -> None:
    """Another run makes no new layout over the segments that are there; it says what to do."""
    controller = control(f"{SPACE}/lost-record", segments=2)
    controller.split(0)
    controller.terminate()
    remove_tree(store, record_path(controller.name), store.delete)
    cause = control(controller.input.topic, segments=2).failure().message
    assert f"restore {record_path(controller.name)}" in cause
    assert read_record(store, controller.name) is None


@pytest.mark.parametrize("compacted", [False, True])
def test_an_older_record_that_is_restored(
    control: Control, stack: Stack, store: CasStore, admin: PulsarAdmin, *, compacted: bool
) -> None:
    """Another run does not lead by it, since clients never go back; with the newest record it does."""
    controller = control(f"{SPACE}/old-record-{compacted}", segments=1)
    controller.subscribe("bill")
    path, records = record_path(controller.name), list[bytes]()
    for number in range(2):
        records.append(_value(store, path))
        controller.split(number)
    newest = _value(store, path)
    if compacted:
        layout = layout_topic(controller.name)
        admin.topics.compact(layout)

        def is_compacted() -> bool:
            ledger = admin.topics.internal_stats(layout).compacted_ledger
            return ledger is not None and ledger.entries > 0

        wait_for("the compacted ledger", is_compacted, 60)
    with closing(quiet_client(stack.broker_url)) as client:
        producer: Any = client.create_producer(str(layout_topic(controller.name)))
        for garbage in (b"{}", b""):
            producer.send(garbage, partition_key=LAYOUT)
    controller.terminate()
    _put(store, path, records[-1])
    cause = control(controller.input.topic, segments=1).failure().message
    assert "has epoch 1, but clients have epoch 2" in cause
    assert _value(store, path) == records[-1]
    _put(store, path, newest)
    again = control(controller.input.topic, segments=1)
    active = again.until(lambda status: status.epoch == 2).active
    assert {*active} == {"8000-ffff-2", "0000-3fff-3", "4000-7fff-4"}
    again.terminate()


def _value(store: CasStore, path: str) -> bytes:
    node = store.get(path)
    assert node is not None
    return node.value


def _put(store: CasStore, path: str, value: bytes) -> None:
    node = store.get(path)
    assert node is not None
    store.set(path, value, node.version)


def test_a_subscription_that_is_deleted_while_it_is_consumed(
    control: Control, stack: Stack, admin: PulsarAdmin
) -> None:
    """Its consumer releases its segments and does not create the cursors again; it continues once they exist again."""
    controller = control(f"{SPACE}/unsubscribed", segments=1)
    controller.subscribe("bill")
    controller.set_grace(timedelta(minutes=5))
    segment = segment_topic(controller.name, "0000-ffff-0")
    with clients(stack, controller) as (producer, consumer):
        producer.send(b"before", partition_key="k")
        consumer.acknowledge(consumer.receive(30_000))
        controller.unsubscribe("bill")
        with suppress(TimedOut):
            # Long enough for its connections to come back.
            pytest.fail(f"{consumer.receive(3_000).data()!r} came again")
        assert "bill" not in admin.topics.stats(segment).subscriptions
        producer.send(b"between", partition_key="k")
        controller.subscribe("bill")
        producer.send(b"after", partition_key="k")
        wait_until_equal("its session", lambda: controller.assignments("bill"), {"one": (0,)}, 60)
        received = [consumer.receive(30_000)]
        while received[-1].data() != b"after":
            received.append(consumer.receive(30_000))
    controller.delete(force=True)

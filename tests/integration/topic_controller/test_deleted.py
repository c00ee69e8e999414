"""Parts of a scalable topic that another client deletes are made again, as far as that is possible."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.records import record_path
from clients.pulsar.admin.client import PulsarAdmin
from clients.stores import Access, open_cas
from models.store_url import parse_store_url
from models.topic_controller.input import Deletion
from pulsar_devstack.servers.stack import Stack
from pulsar_scalable import ClientOptions, Message, ScalableClient
from pulsar_scalable.errors import TopicNotFound
from tests.integration.topic_controller.conftest import Control
from tests.support.topic_controller.listed_topics import listed_topics, wait_until_none_is_listed
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.waiting import wait_for

SPACE = "persistent://public/default"
_AGAIN = 8.0


def test_a_deleted_segment(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A segment that an operator deleted can be split, and merged with its neighbour; new segments have all cursors."""
    controller = control(f"{SPACE}/lost-segments", segments=2)
    controller.subscribe("bill")
    admin.topics.delete(segment_topic(controller.name, "0000-7fff-0"), force=True)
    controller.split(0)
    admin.topics.delete(segment_topic(controller.name, "4000-7fff-3"), force=True)
    controller.merge(3, 1)
    assert Oracle(stack, controller.name, ["bill"]).faults_at_rest(admin) == []
    controller.delete()


def test_the_layout_topic(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """With the next change it is there again, with the layout and what keeps it."""
    controller = control(f"{SPACE}/lost-layout", segments=2)
    controller.subscribe("bill")
    name = layout_topic(controller.name)
    policies = {policy: admin.topic_policies.get(name, policy) for policy in ("retention", "inactiveTopicPolicies")}
    admin.topics.delete(name, force=True)
    controller.split(0)
    assert {policy: admin.topic_policies.get(name, policy) for policy in policies} == policies
    assert all(policies.values())
    assert Oracle(stack, controller.name, ["bill"]).faults_at_rest(admin) == []
    controller.delete()


def test_a_deletion_that_is_refused(control: Control, stack: Stack) -> None:
    """With clients it changes nothing, neither for this run nor for the next one."""
    controller = control(f"{SPACE}/in-use", segments=1)
    controller.until(lambda status: status.epoch == 0)
    with ScalableClient(stack.broker_url) as client, client.create_producer(controller.input.topic) as producer:
        producer.send(b"one", partition_key="k")
        assert "1 producers" in controller.refusal("delete", Deletion(force=False)).message
        assert len(controller.split(0).active) == 2
        producer.send(b"two", partition_key="k")
        controller.terminate()
        again = control(controller.input.topic, segments=1)
        notes = again.until(lambda status: status.epoch == 1).notes
        assert [note for note in notes if "known defect" not in note] == []
        producer.send(b"three", partition_key="k")
        with client.create_checkpoint_consumer(controller.input.topic) as reader:
            assert [reader.receive(60_000).data() for _ in range(3)] == [b"one", b"two", b"three"]
    again.terminate()


def test_a_record_that_was_removed(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """The deletion says so, and how to get it back, where it would leave all that the topic has."""
    controller = control(f"{SPACE}/lost-record", segments=2)
    controller.until(lambda status: status.epoch == 0)
    path = record_path(controller.name)
    with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
        node = store.get(path)
        assert node is not None
        store.set(path, b"", node.version)
        refusal = controller.refusal("delete", Deletion(force=True))
        assert f"restore {path}" in refusal.message
        store.set(path, node.value, node.version + 1)
    controller.delete(force=True)
    wait_until_none_is_listed(admin, controller.name)


def test_clients_recreate_nothing(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """Connected clients create nothing again, and all report that the topic is deleted."""
    controller = control(f"{SPACE}/deleted-under-clients", segments=2)
    controller.subscribe("bill")
    topic = controller.input.topic
    with (
        Registrar(lambda: controller) as registrar,
        ScalableClient(stack.broker_url, ClientOptions(controller_url=registrar.base_url)) as client,
        client.create_producer(topic) as producer,
        client.subscribe_stream(topic, "bill") as stream,
        client.create_checkpoint_consumer(topic) as checkpoint,
    ):
        for number in range(10):
            producer.send(b"one", partition_key=str(number))
        for consumer in (stream, checkpoint):
            consumer.receive(30_000)
        controller.delete(force=True)
        for receive in (stream.receive, checkpoint.receive):
            with pytest.raises(TopicNotFound):
                _receive_all(receive)
        wait_until_none_is_listed(admin, controller.name)
        # Longer than pulsar-client waits before it connects again.
        until = time.monotonic() + _AGAIN
        wait_for("clients to look again", lambda: time.monotonic() > until or listed_topics(admin, controller.name), 60)
        assert listed_topics(admin, controller.name) == []


def _receive_all(receive: Callable[[int], Message]) -> None:
    while True:
        receive(30_000)

"""Reads of a namespace: their content, the number of calls, and topics that vanish or cannot be loaded."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator

import httpx
import pytest

from activities.blue_green.checks.quotas import broker_differences, green_clusters, green_quotas, green_room
from activities.blue_green.provisioning.inventory import read_namespace
from activities.pulsar.stored_topics import stored
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.names import TopicName
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from tests.support.blue_green.environment import BLUE, NAMES, Clusters
from tests.support.blue_green.namespaces import create_namespace, create_topic, set_topic_policies
from tests.support.waiting import wait_for

MOST_CALLS = 5
TOPICS = 30


class Counting(httpx.HTTPTransport):
    """Counts the calls that were answered; a redirect to the other broker is none."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        answer = super().handle_request(request)
        if answer.status_code != 307:
            self.calls[request.url.path] += 1
        return answer


@pytest.fixture
def counted(clusters: Clusters) -> Generator[tuple[PulsarAdminReader, Counting]]:
    """A reader of blue, and what it asked."""
    transport = Counting()
    session = HttpSession(AdminAccess(timeout=30), transport=transport)
    with PulsarAdminReader(session, clusters.blue.admin_urls) as reader:
        yield reader, transport


def test_calls(clusters: Clusters, counted: tuple[PulsarAdminReader, Counting]) -> None:
    """A namespace of thirty topics is read with five calls for each, and six for all; a partition costs none."""
    name = "many/space"
    create_namespace(clusters.blue_admin, name)
    for number in range(TOPICS):
        topic = create_topic(clusters.blue_admin, f"{name}/t{number}", partitions=4 if number % 2 else 0)
        clusters.blue_admin.subscriptions.create(topic, "s")
    reader, transport = counted
    inventory = read_namespace(reader, name)
    assert inventory
    assert len(inventory.topics) == TOPICS
    assert all(topic.subscriptions.keys() == {"s"} for topic in inventory.topics.values())
    assert transport.calls.total() <= TOPICS * MOST_CALLS + 6


def test_content_of_a_namespace(clusters: Clusters) -> None:
    """Clients and backlogs of all partitions are reported; system topics are left out, retry topics are not."""
    name, admin = "seen/space", clusters.blue_admin
    create_namespace(admin, name)
    parts = create_topic(admin, f"{name}/parts", 2)
    set_topic_policies(admin, parts, {"maxProducers": 100})
    retry, dead = (create_topic(admin, f"{name}/{topic}") for topic in ("parts-s-RETRY", "parts-s-DLQ"))
    admin.subscriptions.create(parts, "idle")
    assert "__change_events" in {TopicName.parse(topic).topic for topic in admin.topics.names(name, system=True)}
    passing = TopicName.parse(f"non-persistent://{name}/passing")
    client = quiet_client(clusters.blue.broker_url)
    try:
        client.subscribe(str(parts), "s")
        client.subscribe(str(passing), "s")
        producer = client.create_producer(str(parts))
        for number in range(10):
            producer.send(b"%d" % number)
        inventory = read_namespace(admin, name)
    finally:
        client.close()
    assert inventory
    assert inventory.topics.keys() == {parts, retry, dead, passing}
    topic = inventory.topics[parts]
    assert (topic.partitions, len(topic.parts), topic.has_messages) == (2, 2, True)
    assert topic.policies == {"maxProducers": 100}
    assert (topic.subscriptions["s"].backlog, topic.subscriptions["idle"].backlog) == (10, 10)
    assert len(topic.subscriptions["s"].consumers) == 2
    assert len(topic.producers) == 2
    assert all(
        client.address and client.client_version for client in (*topic.producers, *topic.subscriptions["s"].consumers)
    )
    assert not inventory.topics[passing].lasting
    assert len(inventory.topics[passing].subscriptions["s"].consumers) == 1
    assert read_namespace(admin, "seen/absent") is None
    assert read_namespace(admin, "absent/absent") is None


def test_topics_that_vanish(clusters: Clusters) -> None:
    """A topic that was deleted after it was listed is left out."""
    name, admin = "gone/space", clusters.blue_admin
    create_namespace(admin, name)
    topics = [create_topic(admin, f"{name}/{number:02}") for number in range(12)]
    parts = create_topic(admin, f"{name}/00-parts", 2)
    gone, once = threading.Event(), threading.Lock()

    def check() -> None:
        with once:
            if not gone.is_set():
                admin.topics.delete(topics[-1], force=True)
                admin.topics.delete_partitioned(parts, force=True)
                gone.set()

    inventory = read_namespace(admin, name, check)
    assert inventory
    assert inventory.topics.keys() == {*topics[:-1]}


def test_topics_that_cannot_be_loaded(clusters: Clusters) -> None:
    """A topic that blue gave up and does not load again is there, with the broker's reason."""
    name, admin = "flipped/space", clusters.blue_admin
    create_namespace(admin, name)
    topics = create_topic(admin, f"{name}/plain"), create_topic(admin, f"{name}/parts", 2)
    for topic in topics:
        admin.subscriptions.create(topic, "s")
    send_to(clusters.blue.broker_url, map(str, topics))
    admin.clusters.set_migration(BLUE, clusters.green_urls, migrated=False)
    admin.namespaces.set_migrated(name, migrated=True)
    try:
        names = [topics[0], *map(topics[1].of_partition, range(2))]
        wait_for(
            "the end of all topics", lambda: all((info := stored(admin, name)) and info.migrated for name in names), 30
        )
        admin.namespaces.unload(name)
        inventory = read_namespace(admin, name)
    finally:
        admin.namespaces.set_migrated(name, migrated=False)
    assert inventory
    assert inventory.policies.migrated
    assert [len(inventory.topics[topic].unloadable) for topic in topics] == [1, 2]
    for topic in topics:
        for partition in inventory.topics[topic].unloadable:
            assert partition.migrated
            assert "migrated" in partition.load_error


def test_limits_of_green(clusters: Clusters) -> None:
    """Things that green would not accept are reported before anything is created there."""
    name, blue, green = "limits/space", clusters.blue_admin, clusters.green_admin
    create_namespace(blue, name)
    topics = [create_topic(blue, f"{name}/t{number}", partitions=3) for number in range(2)]
    for number in range(3):
        blue.subscriptions.create(topics[0], f"s{number}")
    inventory = read_namespace(blue, name)
    assert inventory
    assert green_quotas(green, inventory, None) == []
    create_namespace(green, name, max_topics_per_namespace=5, max_subscriptions_per_topic=2)
    there = read_namespace(green, name)
    causes = [blocker.cause for blocker in green_quotas(green, inventory, there)]
    assert causes == [
        f"green would have 6 topics and partitions in namespace {name}; its limit maxTopicsPerNamespace is 5.",
        f"green would have 3 subscriptions of {topics[0]}; its limit maxSubscriptionsPerTopic is 2.",
    ]
    inventory.policies.raw["resource_group_name"] = "absent"
    assert green_quotas(green, inventory, there)[-1].code == "GREEN_LACKS_RESOURCE_GROUP"
    assert green_room(green, [name, "another/one"]) == []
    tenant = blue.tenants.get("limits")
    assert green_clusters(green, inventory, tenant, names=NAMES) == []
    lacking = green_clusters(green, inventory, tenant, names={})
    assert [blocker.cause for blocker in lacking] == [
        f"{what} uses {BLUE}, which green does not know." for what in ("tenant limits", f"namespace {name}")
    ]
    assert broker_differences(blue.brokers.runtime_configuration(), green.brokers.runtime_configuration()) == []

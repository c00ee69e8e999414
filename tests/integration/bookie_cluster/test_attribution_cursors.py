"""Attributions of cursors in a switch of bookie clusters, changed by the owners of topics; a double replaces them.

A cursor has a closed ledger that is still referred to after a crash: the broker that takes the topic over closes it.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Generator
from typing import Any

import pytest

from activities.bookie_cluster.attribution import close_client, set_read_mode
from activities.bookie_cluster.plugin_admin import PluginAdmin
from activities.pulsar.registrations import Service, brokers
from clients.errors import StoreConflict, StoreUnreachable, StoreUnsupported
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.fields import bytes_field
from clients.pulsar.formats_pb2 import KeyValue
from clients.pulsar.names import TopicName, cursor_name
from models.bookie_cluster.input import Direction
from models.bookie_cluster.updates import ClientClosing, ReadModeChange
from models.bookie_registry import ReadMode
from pulsar_devstack.servers.admin import StackAdmin, topic_url
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from spark.engine import SparkEngine
from tests.support.bookie_cluster import cursor_node
from tests.support.bookie_cluster.attributed import NEW, OLD, Place
from tests.support.bookie_cluster.plugin_double import announce_doubles
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

MESSAGES, ACKNOWLEDGED = 10, 4
ODD, ODD_CURSOR = "odd näme+1%*~.-_", "süb +%*~/a"
CURSORS = {ODD: ODD_CURSOR, "plain": "sub", "rolls": "sub", "open": "sub"}
_ENCODED = {ODD: "odd+n%C3%A4me%2B1%25*%7E.-_", ODD_CURSOR: "s%C3%BCb+%2B%25*%7E%2Fa"}
_PROPERTIES = 8


# Brokers are started, killed and started again before the first test.
pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def place(make_stack: MakeStack, engine: SparkEngine) -> Generator[Place]:
    """Two brokers that were killed while each topic's cursor had an open ledger; no test may violate the proposal.

    The cursor with the odd name has a property of its own, and names the old cluster; the others have none.
    """
    stack = make_stack(
        StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=2, cluster="owned"), announce_doubles
    )
    with Place(stack, engine) as place:
        # A broker says that it is ready before it can write: at first it may know of no bookie.
        for url in stack.admin_urls:
            wait_for(f"{url} writes and reads a message", lambda url=url: writes(url), 60)
        client = quiet_client(stack.broker_url)
        for topic in CURSORS:
            consumer = subscribe(client, topic)
            producer = client.create_producer(topic_url(topic))
            for number in range(MESSAGES):
                producer.send(str(number).encode())
            for _ in range(ACKNOWLEDGED):
                consumer.acknowledge(consumer.receive(30_000))
            wait_for("a cursor's ledger", lambda topic=topic: ledger(place, topic) >= 0, 30)
        client.close()
        place.crash_brokers(lambda: name_the_old(place))
        place.direct()
        positions(place, *CURSORS)
        yield place
        assert place.double.violations == []


def name_the_old(place: Place) -> None:
    """Give the odd cursor a property, and an attribution."""
    value = node(place, ODD)
    value += bytes_field(_PROPERTIES, KeyValue(key="colour", value="blue").SerializeToString()).raw
    place.set_node(path_of(ODD), cursor_node.attributed(value, OLD))


def writes(url: str) -> bool:
    """Return whether a broker's health check writes a message and reads it."""
    with StackAdmin(url) as admin:
        try:
            admin.brokers.check_health()
        except AdminError:
            return False
    return True


def subscribe(client: Any, topic: str) -> Any:
    """Subscribe to a topic with its cursor."""
    return client.subscribe(topic_url(topic), CURSORS[topic], pulsar.ConsumerType.Shared)


def acknowledge_next(place: Place, client: Any, topic: str) -> None:
    """Acknowledge one more message, for which the owner begins another ledger."""
    earlier = ledger(place, topic)
    consumer = subscribe(client, topic)
    consumer.acknowledge(consumer.receive(30_000))
    wait_for("another ledger", lambda: ledger(place, topic) not in (earlier, -1), 30)


def path_of(topic: str) -> str:
    """Return the path of the node of a topic's cursor."""
    cursor = CURSORS[topic]
    return f"/managed-ledgers/public/default/persistent/{_ENCODED.get(topic, topic)}/{_ENCODED.get(cursor, cursor)}"


def node(place: Place, topic: str) -> bytes:
    """Return the content of the node of a topic's cursor."""
    return place.zookeeper.get(path_of(topic))[0]


def ledger(place: Place, topic: str) -> int:
    """Return the ledger of a topic's cursor, -1 for none."""
    return cursor_node.ledger_of(node(place, topic))


def stamp(place: Place, topic: str) -> str | None:
    """Return the attribution of a topic's cursor."""
    return cursor_node.properties(node(place, topic)).get(cursor_node.ATTRIBUTION)


def positions(place: Place, *topics: str) -> dict[str, tuple[str, str]]:
    """Return the positions of the cursors of topics, as reported by their owners, which load the topics for that."""
    positions_by_topic: dict[str, tuple[str, str]] = {}
    for topic in topics:
        (cursor,) = place.admin.topics.internal_stats(TopicName.parse(topic)).cursors.values()
        positions_by_topic[topic] = (cursor.mark_delete_position, cursor.individually_deleted_messages)
    return positions_by_topic


def test_names_are_those_of_clients() -> None:
    """Names of nodes are decoded as brokers encode them, and nodes that are not cursors of topics have no name."""
    name = cursor_name(path_of(ODD))
    assert name is not None
    assert (str(name.topic), name.cursor) == (topic_url(ODD), ODD_CURSOR)
    assert cursor_name("/managed-ledgers/public/default/persistent/topic") is None


def test_owners_promote_closed_cursors_and_set_them_back(place: Place) -> None:
    """Only the attribution changes (I9), open cursors wait, a rolled-over one counts as that, and no cursor rewinds."""
    closed = (ODD, "plain")
    initial = positions(place, *closed)
    client = quiet_client(place.stack.broker_url)
    acknowledge_next(place, client, "open")
    before = {topic: node(place, topic) for topic in CURSORS}

    place.build()
    place.double.before_promote = lambda body: (
        acknowledge_next(place, client, "rolls") if body["topic"] == topic_url("rolls") else None
    )
    there = place.promote()
    place.double.before_promote = None
    client.close()

    assert (there.cursors, there.rollovers, there.deferred_count, there.failed.count) == (2, 1, 1, 0)
    assert there.deferred == (f"cursor sub of {topic_url('open')}: ledger {ledger(place, 'open')} is open",)
    asked = sorted((body["topic"], body["cursorName"]) for body in place.double.promotions)
    assert asked == sorted((topic_url(topic), CURSORS[topic]) for topic in CURSORS if topic != "open")
    for topic in closed:
        after = node(place, topic)
        assert cursor_node.without_properties(after) == cursor_node.without_properties(before[topic])
        assert cursor_node.properties(after) == {**cursor_node.properties(before[topic]), cursor_node.ATTRIBUTION: NEW}
    assert node(place, "open") == before["open"]

    place.crash_brokers()
    assert positions(place, *closed) == initial
    positions(place, "rolls", "open")
    place.build()
    rest = place.promote()
    assert (rest.cursors, rest.rollovers, rest.deferred, rest.failed.count) == (2, 0, (), 0)

    place.direct(Direction.BACK)
    back = place.promote(Direction.BACK)
    place.direct()

    assert (back.cursors, back.failed.count) == (4, 0)
    assert node(place, ODD) == before[ODD]
    assert {stamp(place, topic) for topic in CURSORS} == {OLD}
    assert cursor_node.without_properties(node(place, "open")) == cursor_node.without_properties(before["open"])
    place.crash_brokers()
    assert positions(place, *closed) == initial


def test_the_node_counts_and_not_the_answer(place: Place) -> None:
    """A busy owner is asked again; one that says yes and does nothing, or refuses, is named with its answer."""
    place.build()
    place.promote()
    count = sum(stamp(place, topic) == NEW for topic in CURSORS)
    assert count > 1
    place.double.promotions.clear()

    place.double.troubles = deque((503, 503))
    assert place.promote(Direction.BACK).cursors == count
    assert len(place.double.promotions) == count + 2

    place.double.troubles = deque((200,))
    idle = place.promote()
    assert (idle.cursors, idle.failed.count) == (count - 1, 1)
    assert "answered 200" in str(idle.failed.items[0])
    assert f"its node does not name {NEW}" in str(idle.failed.items[0])

    place.double.troubles = deque((404,))
    refused = place.promote()
    assert (refused.cursors, refused.failed.count) == (0, 1)
    assert "answered 404" in str(refused.failed.items[0])
    assert place.promote().cursors == 1
    assert sum(stamp(place, topic) == NEW for topic in CURSORS) == count


def test_every_broker_gets_the_read_mode(place: Place) -> None:
    """The registry keeps the mode; a broker that cannot be reached fails the step, and the others get the mode."""
    task = place.steps.task(place.input)
    set_read_mode(task, ReadModeChange(mode=ReadMode.OLD_CLUSTER_ONLY))
    assert place.double.read_modes == {"broker-1": "OLD_CLUSTER_ONLY", "broker-2": "OLD_CLUSTER_ONLY"}

    place.double.deaf.add("broker-1")
    with pytest.raises(StoreUnreachable, match="answered 500"):
        set_read_mode(task, ReadModeChange(mode=ReadMode.DUAL_READ))
    place.double.deaf.clear()

    assert place.double.read_modes == {"broker-1": "OLD_CLUSTER_ONLY", "broker-2": "DUAL_READ"}
    with task.registry() as registry:
        assert registry.read_mode() is ReadMode.DUAL_READ


def test_the_client_of_a_cluster_that_nothing_needs_is_closed(place: Place) -> None:
    """While cursors name the new cluster its client stays open; after they were set back all brokers close it (I5)."""
    task = place.steps.task(place.input)
    place.build()
    place.promote()
    place.direct(Direction.BACK)
    with pytest.raises(StoreConflict, match=f"references still need {NEW}, the first of them"):
        close_client(task, ClientClosing(cluster=NEW))
    assert place.double.closed == []

    assert place.promote(Direction.BACK).failed.count == 0
    close_client(task, ClientClosing(cluster=NEW))
    place.direct()

    assert sorted(place.double.closed) == [("broker-1", NEW), ("broker-2", NEW)]


def test_brokers_without_the_plugin_are_distinguished(place: Place) -> None:
    """The error of a real broker, which lacks the requests, names the cure; without brokers the error says so."""
    access = place.steps.runtime.admin_of("")
    real = Service("broker today", 1, f'{{"webServiceUrl": "{place.stack.admin_urls[0]}"}}'.encode())
    with (
        PluginAdmin(access, [real]) as admin,
        pytest.raises(StoreUnsupported, match="install the plugin of PIP-477 on it, or use routing `restart`"),
    ):
        admin.set_read_mode(ReadMode.DUAL_READ)
    with pytest.raises(StoreUnreachable, match="no broker is registered"):
        PluginAdmin(access, [])
    with place.steps.task(place.input).broker_store() as store:
        assert len(brokers(store)) == 2

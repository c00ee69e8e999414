"""Policies of brokers and namespaces: what they do to segments, and what they must not do to the layout."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

import httpx
import pytest

from activities.topic_controller.names import layout_topic, segment_topic
from clients.cas.store import CasStore
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.provision import with_release
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import quiet_client
from pulsar_scalable import ScalableClient
from tests.integration.topic_controller.conftest import Control
from tests.support.releases import CHOSEN, with_sample
from tests.support.scalable_topic.topics import pulsar
from tests.support.stacks import MakeStack
from tests.support.topic_controller.layouts import widest
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.topic_controller.traffic import ORDERED, SHARED, Traffic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exhaustive

_SETTINGS = {
    # Brokers delete unused topics within seconds, and create none by themselves.
    "brokerDeleteInactiveTopicsFrequencySeconds": "1",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "3",
    "allowAutoTopicCreation": "false",
    "allowAutoSubscriptionCreation": "false",
    "backlogQuotaCheckIntervalInSeconds": "1",
}
CLUSTER = "strict"
SPEC = StackSpec(zookeepers=1, bookies=1, brokers=2, cluster=CLUSTER, broker_settings=_SETTINGS)
_DISPATCH = {
    # Brokers read topics' policies themselves at this rate.
    "dispatchThrottlingRateInMsg": 50,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
STRICT: dict[str, Any] = {
    "bundles": {"numBundles": 4},
    "retention_policies": {"retentionTimeInMinutes": 7, "retentionSizeInMB": 70},
    "message_ttl_in_seconds": 3600,
    "backlog_quota_map": {
        "message_age": {"limit": -1, "limitSize": -1, "limitTime": 1, "policy": "producer_exception"},
    },
    "max_consumers_per_topic": 1,
    "max_subscriptions_per_topic": 2,
    "subscription_types_enabled": ["Shared"],
    "topicDispatchRate": {CLUSTER: _DISPATCH},
    "subscriptionDispatchRate": {CLUSTER: _DISPATCH},
    "publishMaxMessageRate": {CLUSTER: {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": -1}},
    "clusterSubscribeRate": {CLUSTER: {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 1}},
}


@pytest.fixture(scope="module", params=with_sample("4.0"))
def stack(request: pytest.FixtureRequest, make_stack: MakeStack, toolchain: Toolchain) -> Stack:
    """Two brokers that delete unused topics, and create none by themselves."""
    return make_stack(SPEC, tools=None if request.param == CHOSEN else with_release(toolchain, request.param))


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Their admin interface."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        yield admin


def applied(stack: Stack, name: TopicName, policy: str) -> Any:
    """Return the policy that brokers apply to a topic, from whichever level."""
    url = f"{stack.admin_urls[0]}/admin/v2/{name.rest_path}/{policy}"
    answer = httpx.get(url, params={"applied": "true"}, follow_redirects=True, timeout=30)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def takes_messages(stack: Stack, topic: TopicName) -> bool:
    """Return whether brokers store a message in an ordinary topic."""
    with closing(quiet_client(stack.broker_url)) as client:
        try:
            producer: Any = client.create_producer(str(topic), send_timeout_millis=5000)
            producer.send(b"")
        except pulsar.PulsarException:
            return False
    return True


def test_idle_topics_stay(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """Segments without subscriptions and the layout outlive what brokers delete, also those that a split makes."""
    admin.namespaces.create("public/idle", {"bundles": {"numBundles": 4}})
    controller = control("persistent://public/idle/orders", segments=2)
    # Its answer says that the topic is there.
    controller.stats()
    for segment in (0, 1):
        idle = TopicName.parse(f"persistent://public/idle/ordinary-{segment}")
        admin.topics.create(idle)
        wait_for("an ordinary topic to go", lambda name=str(idle): name not in admin.topics.names("public/idle"), 90)
        assert Oracle(stack, controller.name, []).faults_at_rest(admin) == []
        names = {*admin.topics.names("public/idle")}
        segments = [
            segment_topic(controller.name, segment.descriptor) for segment in controller.layout().segments.values()
        ]
        assert {*map(str, segments), str(layout_topic(controller.name))} <= names
        controller.split(segment)
    controller.delete()


def test_without_automatic_topic_creation(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """Without automatic creation messages flow through a split and a merge."""
    admin.namespaces.create("public/nothing", {"bundles": {"numBundles": 4}})
    controller = control("persistent://public/nothing/orders", segments=2)
    controller.subscribe(SHARED, SubscriptionKind.QUEUE)
    controller.subscribe(ORDERED)
    with (
        Registrar(lambda: controller) as registrar,
        Oracle(stack, controller.name, (SHARED, ORDERED)) as oracle,
        Traffic(stack.broker_url, controller.input.topic, registrar.base_url) as traffic,
    ):
        controller.split(0)
        controller.merge(3, 1)
        traffic.wait_for_more(10)
        traffic.stop()
    assert traffic.faults() == []
    assert oracle.faults_at_rest(admin) == []
    controller.delete(force=True)


def test_policies_of_a_namespace(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """Each segment has its namespace's policies, and the layout is published and read with any policies."""
    admin.namespaces.create("public/strict", STRICT)
    controller = control("persistent://public/strict/orders", segments=1)
    controller.subscribe("bill")
    layout = controller.layout()
    while len(layout.active) < 17:
        # The sixteenth change compacts the layout topic, which has its own cursor from then on.
        layout = controller.split(widest(layout).segment_id)
    for info in layout.segments.values():
        name = segment_topic(controller.name, info.descriptor)
        retention: Mapping[str, int] = applied(stack, name, "retention")
        assert dict(retention) == STRICT["retention_policies"]
        assert applied(stack, name, "messageTTL") == STRICT["message_ttl_in_seconds"]
        assert applied(stack, name, "backlogQuotaMap")["message_age"]["limitTime"] == 1
        assert applied(stack, name, "dispatchRate")["dispatchThrottlingRateInMsg"] == 50
    published = layout_topic(controller.name)
    assert applied(stack, published, "publishRate")["publishThrottlingRateInMsg"] > 1_000_000
    for rate in ("dispatchRate", "subscriptionDispatchRate"):
        assert applied(stack, published, rate)["dispatchThrottlingRateInMsg"] > 1_000_000, rate
    wait_for("the compaction", lambda: admin.topics.stats(published).compaction.last_compaction_succeed_timestamp, 60)
    layout = controller.split(widest(layout).segment_id)
    # Reloaded topics start another ledger, and brokers check the age of the backlog in the previous ones.
    ordinary = TopicName.parse("persistent://public/strict/ordinary")
    admin.topics.create(ordinary)
    admin.subscriptions.create(ordinary, "unused")
    assert takes_messages(stack, ordinary)
    for topic in (ordinary, published):
        admin.topics.unload(topic)
        wait_for("it to be loaded", lambda topic=topic: admin.topics.stats(topic).storage_size, 60)
    wait_for("an ordinary topic to take no more", lambda: not takes_messages(stack, ordinary), 60)
    layout = controller.split(widest(layout).segment_id)
    layout = controller.merge(*(segment.segment_id for segment in layout.active[:2]))
    with ScalableClient(stack.broker_url) as client:
        watchers = [client.create_producer(controller.input.topic) for _ in range(3)]
        assert [watcher.is_closed for watcher in watchers] == [False] * 3
    assert Oracle(stack, controller.name, ["bill"]).faults_at_rest(admin) == []
    controller.delete(force=True)


def test_namespaces_that_are_refused(control: Control, admin: PulsarAdmin, store: CasStore) -> None:
    """A topic is refused, with the cure, where the layout or ends of segments would not reach all.

    It also fails where the census knows nothing of a path, unless the operator accepts it.
    """
    urls = admin.clusters.get(CLUSTER)
    admin.clusters.create("elsewhere", urls)
    admin.tenants.create("both", Tenant(allowed_clusters=(CLUSTER, "elsewhere")))
    wanted = {
        "both/secret": ({"encryption_required": True}, "[ENCRYPTION]"),
        "both/expiring": ({"subscription_expiration_time_minutes": 5}, "-expiration-time -t 0 both/expiring"),
        "both/replicated": ({"replication_clusters": [CLUSTER, "elsewhere"]}, "[GEO_REPLICATION]"),
    }
    store.create("/from-the-future", b"")
    for namespace, (policies, why) in wanted.items():
        admin.namespaces.create(namespace, {"bundles": {"numBundles": 4}, **policies})
        refused = control(f"persistent://{namespace}/orders").failure().message
        assert why in refused
        assert namespace in refused
        assert "[UNKNOWN_FEATURE] unknown path /from-the-future" in refused
        assert admin.topics.names(namespace) == []
    topic = "persistent://public/default/with-unknown-path"
    accepting = control(topic, accept=["path:/from-the-future"], segments=1)
    # Its answer says that the topic is there.
    accepting.stats()
    accepting.delete()
    store.delete("/from-the-future", 0)

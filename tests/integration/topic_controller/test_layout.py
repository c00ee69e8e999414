"""A topic that scales, with nothing but its controller: created, split, merged and deleted on real brokers."""

from __future__ import annotations

from contextlib import closing

import pytest

from activities.topic_controller.names import segment_topic
from activities.topic_controller.records import record_path
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from models.lifecycle.failures import FailureKind
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import MergeRequest, SplitRequest, SubscriptionRequest
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.integration.topic_controller.conftest import Control
from tests.support.releases import native_topics
from tests.support.scalable_topic.topics import pulsar
from tests.support.topic_controller.listed_topics import listed_topics, wait_until_none_is_listed
from tests.support.topic_controller.oracle import published
from tests.support.waiting import wait_until_equal

LIVES = "public/lives"
SPACE = "persistent://public/default"


def segments_of(name: TopicName, layout: SegmentLayout) -> list[TopicName]:
    """Return the topics of active segments."""
    return [segment_topic(name, segment.descriptor) for segment in layout.active]


def test_the_lifecycle_of_a_layout(control: Control, stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """Each change is in the layout, its subscriptions are on each new segment, and clients see each epoch in order."""
    admin.namespaces.create(LIVES, {"bundles": {"numBundles": 4}})
    controller = control(f"persistent://{LIVES}/life", segments=2, properties={"owner": "team-a"})
    name = controller.name
    controller.subscribe("audit", SubscriptionKind.QUEUE)
    controller.subscribe("bill")
    split = controller.split(1)
    assert [segment.descriptor for segment in split.active] == ["0000-7fff-0", "8000-bfff-2", "c000-ffff-3"]
    assert layout_faults(split) == []
    for topic in segments_of(name, split):
        assert {*admin.subscriptions.names(topic)} == {"audit", "bill"}
    assert admin.topics.internal_stats(segment_topic(name, "8000-ffff-1")).state == "Terminated"
    merged = controller.merge(2, 0)
    assert [segment.descriptor for segment in merged.active] == ["0000-bfff-4", "c000-ffff-3"]
    assert (controller.layout(), controller.status().epoch, controller.status().changes) == (merged, 2, 2)
    layouts = published(stack, name)
    assert [layout.epoch for layout in layouts] == sorted(layout.epoch for layout in layouts)
    assert (layouts[-1].epoch, layouts[-1].segments) == (2, merged.segments)
    controller.direct("https://controller:8443")
    assert (published(stack, name)[-1].controller_urls, controller.status().epoch) == (("https://controller:8443",), 3)
    stats = controller.stats()
    assert (stats.epoch, len(stats.segments), stats.subscriptions) == (3, 5, {"audit": 0, "bill": 0})
    assert not [segment.unavailable_reason for segment in stats.segments if segment.unavailable_reason]
    controller.unsubscribe("bill")
    assert [admin.subscriptions.names(topic) for topic in segments_of(name, merged)] == [["audit"]] * 2
    assert controller.delete() == f"{LIVES}/life is deleted"
    # A broker that has not deleted a topic lists it a moment longer.
    wait_until_equal("the topics of the namespace", lambda: admin.topics.names(LIVES), [], 30)
    # Other topics of these servers have records beneath the tenant.
    assert store.get(record_path(name).rpartition("/")[0]) is None


def test_readers_leave_no_subscription(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A reader without a subscription of a segment that is split has no subscription on the new segments."""
    controller = control(f"{SPACE}/readers", segments=1)
    name = controller.name
    controller.subscribe("bill")
    (segment,) = segments_of(name, controller.layout())
    with closing(quiet_client(stack.broker_url)) as client:
        client.create_reader(str(segment), pulsar.MessageId.earliest)
        for topic in segments_of(name, controller.split(0)):
            assert admin.subscriptions.names(topic) == ["bill"]
    controller.delete(force=True)


def test_an_invalid_change_is_refused(control: Control, admin: PulsarAdmin) -> None:
    """An invalid change is refused with its reason, and changes nothing."""
    controller = control(f"{SPACE}/refusals", segments=3)
    controller.subscribe("work", SubscriptionKind.QUEUE)
    before = controller.layout()
    for update, request, why in (
        ("split", SplitRequest(segment=7), "there is no segment 7; there are 0, 1, 2"),
        ("merge", MergeRequest(segments=(0, 2)), "segments 0000-5554-0 and aaaa-ffff-2 are not neighbours"),
        ("create_subscription", SubscriptionRequest(name="work"), "subscription work is QUEUE, and not STREAM"),
    ):
        refusal = controller.refusal(update, request)
        assert (refusal.type, refusal.message) == (FailureKind.REFUSED, why)
    assert controller.layout() == before
    controller.delete()
    wait_until_none_is_listed(admin, controller.name)


@pytest.mark.parametrize("kind", ["ordinary", "partitioned", pytest.param("of Pulsar 5", marks=native_topics)])
def test_a_name_that_is_taken(control: Control, admin: PulsarAdmin, kind: str) -> None:
    """A topic of this name that another system controls is not changed."""
    name = TopicName.parse(f"{SPACE}/taken-{kind.split(maxsplit=1)[0].lower()}")
    if kind == "ordinary":
        admin.topics.create(name)
    elif kind == "partitioned":
        admin.topics.create_partitioned(name, 2)
    else:
        admin.scalable_topics.create(name, 2)
    failure = control(str(name)).failure()
    assert failure.type == FailureKind.CONFLICT
    assert ("ScalableOperation" if kind == "of Pulsar 5" else "is an ordinary topic") in failure.message
    assert listed_topics(admin, name) == []

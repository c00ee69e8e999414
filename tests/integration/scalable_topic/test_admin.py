"""The admin interface of scalable topics."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound, AdminPreconditionFailed, AdminServerError
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from clients.stores import Access, open_cas_reader
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client, send_to
from tests.support.scalable_topic.topics import delete_scalable, make_scalable
from tests.support.stacks import SharedStack

SPACE = "public/default"
_BUDGET = 4
"""Entry buckets of a new topic, unless brokers are configured otherwise."""


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """One broker."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=1))


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Its admin interface."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        yield admin


def _stored(stack: Stack, topic: TopicName) -> bytes:
    with open_cas_reader(parse_store_url(stack.metadata_url), Access()) as store:
        node = store.get(f"/topics/{topic.local_path}")
    assert node
    return node.value


def test_a_topic_with_segments(stack: Stack, admin: PulsarAdmin) -> None:
    """Created, split, merged and rebucketed by the broker, the layout is what we expect, byte for byte in its store."""
    topic, scalable = TopicName.parse(f"{SPACE}/native"), admin.scalable_topics
    scalable.create(topic, 3, {"owner": "sales"})
    with pytest.raises(AdminConflict):
        scalable.create(topic, 3)
    assert f"topic://{SPACE}/native" in scalable.names(SPACE)
    expected = scalable.layout(topic)
    made = expected.segments[0].created_at_ms
    assert (
        expected.encode()
        == SegmentLayout.initial(3, made, _BUDGET).model_copy(update={"properties": {"owner": "sales"}}).encode()
    )
    scalable.split(topic, 1)
    split = scalable.layout(topic)
    expected = expected.split(1, split.segments[1].sealed_at_ms)
    assert split == expected
    scalable.merge(topic, 4, 3)
    merged = scalable.layout(topic)
    expected = expected.merge(4, 3, merged.segments[4].sealed_at_ms)
    assert merged == expected
    scalable.rebucket(topic, 2, 3)
    rebucketed = scalable.layout(topic)
    expected = expected.rebucket(2, 3, rebucketed.segments[2].sealed_at_ms)
    assert rebucketed == expected
    for buckets in (0, 3, 2000):
        with pytest.raises(AdminPreconditionFailed):
            scalable.rebucket(topic, expected.active[-1].segment_id, buckets)
    assert _stored(stack, topic) == expected.encode()
    for refused in (
        lambda: scalable.split(topic, 1),
        lambda: scalable.split(topic, 99),
        lambda: scalable.merge(topic, 0, 2),
    ):
        with pytest.raises(AdminServerError):
            refused()
    assert scalable.layout(topic) == expected
    delete_scalable(admin, topic)
    # Of an empty node that a late report of load makes again there is no layout either.
    with pytest.raises((AdminNotFound, AdminServerError)):
        scalable.layout(topic)


@pytest.mark.parametrize("partitions", [0, 3])
def test_migrated_topics(stack: Stack, admin: PulsarAdmin, partitions: int) -> None:
    """The layout after a migration is the one that we compute before; a recorded subscription is on all segments."""
    topic, scalable = TopicName.parse(f"{SPACE}/regular-{partitions}"), admin.scalable_topics
    if partitions:
        admin.topics.create_partitioned(topic, partitions)
    else:
        admin.topics.create(topic)
    parts = [topic.of_partition(number) for number in range(partitions)] or [topic]
    admin.subscriptions.create(topic, "all")
    send_to(stack.broker_url, [str(partition) for partition in parts])
    with pytest.raises(AdminNotFound):
        scalable.layout(topic)
    make_scalable(stack, admin, topic)
    with pytest.raises(AdminConflict):
        scalable.migrate(topic)
    layout = scalable.layout(topic)
    assert layout == SegmentLayout.migrated(
        [str(partition) for partition in parts], layout.segments[0].created_at_ms, _BUDGET
    )
    assert layout_faults(layout) == []
    assert _stored(stack, topic) == layout.encode()
    newest = layout.active[0].descriptor
    with pytest.raises(AdminNotFound):
        scalable.backlog(topic, newest, "all")
    scalable.register(topic, "all", SubscriptionKind.QUEUE)
    scalable.register(topic, "all", SubscriptionKind.QUEUE)
    assert [scalable.backlog(topic, segment.descriptor, "all") for segment in layout.active] == [0] * len(parts)
    assert admin.topics.stats(parts[0]).subscriptions["all"].msg_backlog == 1
    scalable.create_segment(topic, newest, ["all"])


def test_clients_that_cannot_follow_are_counted(stack: Stack, admin: PulsarAdmin) -> None:
    """A topic that is not there cannot be migrated, nor one with clients of version 4."""
    topic, scalable = TopicName.parse(f"{SPACE}/attached"), admin.scalable_topics
    with pytest.raises(AdminNotFound):
        scalable.migrate(topic)
    with closing(quiet_client(stack.broker_url)) as client:
        client.create_producer(str(topic))
        with pytest.raises(AdminConflict, match="1 legacy v4 client connection"):
            scalable.migrate(topic)
    with pytest.raises(AdminNotFound):
        scalable.layout(topic)


def test_auto_scale_policy(admin: PulsarAdmin) -> None:
    """Set, read and taken away; what contradicts itself is refused."""
    topic, scalable = TopicName.parse(f"{SPACE}/scaled"), admin.scalable_topics
    scalable.create(topic, 2)
    assert scalable.auto_scale_policy(topic) is None
    policy = AutoScalePolicy(enabled=False, min_segments=2)
    scalable.set_auto_scale_policy(topic, policy)
    assert scalable.auto_scale_policy(topic) == policy
    with pytest.raises(AdminPreconditionFailed):
        scalable.set_auto_scale_policy(topic, AutoScalePolicy(min_segments=5, max_segments=2))
    # What brokers store of it stays in a layout that is changed by us.
    assert b'"autoScalePolicy":{"enabled":false' in scalable.layout(topic).encode()
    scalable.remove_auto_scale_policy(topic)
    assert scalable.auto_scale_policy(topic) is None

"""Records of scalable topics in a broker's metadata store."""

from __future__ import annotations

from contextlib import suppress

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.names import SegmentName, TopicName, recordable
from clients.pulsar.records.scalable_topics import (
    RecordState,
    controller_of,
    cursors_on,
    read_scalable,
    recorded_subscriptions,
    subscription_path,
)
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack

ODD = "a b+c~d*e%fé"
"""Letters that are encoded in the names of other nodes."""


def test_records_of_a_topic(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The record is found, with the topic's subscriptions and the broker that leads."""
    topic = TopicName("public", "default", "record")
    assert read_scalable(store, topic).state is RecordState.ABSENT
    admin.scalable_topics.create(topic, 2)
    admin.scalable_topics.register(topic, ODD, SubscriptionKind.QUEUE)
    admin.scalable_topics.register(topic, "plain", SubscriptionKind.STREAM)
    record = read_scalable(store, topic)
    assert (record.state, record.layout) == (RecordState.GOOD, admin.scalable_topics.layout(topic))
    assert recorded_subscriptions(store, topic) == {ODD: SubscriptionKind.QUEUE, "plain": SubscriptionKind.STREAM}
    assert store.get(subscription_path(topic, ODD)) is not None
    assert f"http://{controller_of(store, topic)}" in stack.admin_urls


def test_subscription_with_a_slash_has_no_endpoint(admin: PulsarAdmin, store: CasStore) -> None:
    """Old topics may have one; here the broker fails, and leaves a record of another name."""
    topic = TopicName("public", "default", "record-slash")
    admin.scalable_topics.create(topic, 1)
    with pytest.raises(AdminNotFound):
        admin.scalable_topics.register(topic, "a/b", SubscriptionKind.QUEUE)
    assert recorded_subscriptions(store, topic) == {"a": None}


@pytest.mark.parametrize(
    ("name", "becomes"),
    [("a;b", ["a"]), ("a%2Fb", ["a/b"]), ("per%63ent", ["percent"]), ("{app}", []), ("a%b", ["a%b"])],
)
def test_names_that_brokers_change(admin: PulsarAdmin, store: CasStore, name: str, becomes: list[str]) -> None:
    """A subscription may get cursors of another name, or none, where its name is not taken as it is."""
    topic = TopicName("public", "default", f"names-{name.encode().hex()}")
    admin.scalable_topics.create(topic, 1)
    with suppress(AdminServerError):
        admin.scalable_topics.register(topic, name, SubscriptionKind.QUEUE)
    (segment,) = admin.scalable_topics.layout(topic).active
    assert cursors_on(store, SegmentName(topic, segment.descriptor)) == becomes
    assert recordable(name) == (becomes == [name])


def test_name_that_needs_encoding_is_not_found_again(admin: PulsarAdmin, store: CasStore) -> None:
    """Creation and migration decode a name; whatever is asked of the topic later looks for another one (5.0.1)."""
    topic = TopicName("public", "default", "r b+c")
    admin.scalable_topics.create(topic, 1)
    assert read_scalable(store, topic).state is RecordState.GOOD
    with pytest.raises(AdminNotFound):
        admin.scalable_topics.layout(topic)


def test_empty_and_broken_records(admin: PulsarAdmin, store: CasStore) -> None:
    """A node without a value, as reports of load leave it, and one that holds something else: brokers fail."""
    for name, value, state in (("empty", b"", RecordState.EMPTY), ("broken", b"no JSON", RecordState.BROKEN)):
        topic = TopicName("public", "default", f"record-{name}")
        store.create(topic.scalable_path, value)
        assert read_scalable(store, topic).state is state
        assert controller_of(store, topic) is None
        assert recorded_subscriptions(store, topic) == {}
        with pytest.raises(AdminServerError):
            admin.scalable_topics.layout(topic)

"""Topics of segments' names that are there before the segments."""

from __future__ import annotations

from activities.topic_controller.lease import LeaderClaim
from activities.topic_controller.names import segment_topic
from activities.topic_controller.records import controller_path, record_path
from clients.cas.claims import read_claim
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import pulsar
from pulsar_scalable import ScalableClient
from tests.integration.topic_controller.conftest import Control

SPACE = "public/leftovers"
SPLIT = f"persistent://{SPACE}/taken-by-a-split"
OLD = "persistent://public/default/of-an-earlier-release"
NEW = "persistent://public/default/taken-at-first"
# By default, brokers delete what no client has used for a minute.
_KEEP_UNUSED = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}


def _send(stack: Stack, topic: TopicName, count: int) -> None:
    client = pulsar.Client(stack.broker_url)
    producer = client.create_producer(str(topic))
    for _ in range(count):
        producer.send(b"old")
    client.close()


def test_a_split_skips_names_of_existing_topics(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """Existing topics that have ended or hold messages become no segments, and stay; an empty one becomes a segment."""
    admin.namespaces.create(SPACE, {"bundles": {"numBundles": 4}, "inactive_topic_policies": _KEEP_UNUSED})
    name = TopicName.parse(SPLIT)
    ended, filled, empty = (
        segment_topic(name, descriptor) for descriptor in ("0000-7fff-1", "8000-ffff-4", "0000-7fff-5")
    )
    admin.topics.create(ended)
    admin.topics.terminate(ended)
    _send(stack, filled, 10)
    admin.topics.create(empty)
    controller = control(SPLIT, segments=1, pruning={"after": "0s", "delete_after": "0s"})
    controller.subscribe("work", SubscriptionKind.QUEUE)
    layout = controller.split(0)
    assert [segment.descriptor for segment in layout.active] == ["0000-7fff-5", "8000-ffff-6"]
    with (
        ScalableClient(stack.broker_url) as client,
        client.subscribe(SPLIT, "work") as consumer,
        client.create_producer(SPLIT) as producer,
    ):
        for number in range(20):
            producer.send(b"new", partition_key=str(number))
        assert {consumer.receive(30_000).data() for _ in range(20)} == {b"new"}
    controller.prune()
    controller.delete(force=True)
    assert admin.topics.internal_stats(filled).number_of_entries == 10
    assert admin.topics.internal_stats(ended).terminated


def test_a_topic_whose_first_segments_are_there(
    control: Control, stack: Stack, admin: PulsarAdmin, store: CasStore
) -> None:
    """It is not created over messages of an earlier topic of its name; the refusal names them, and leaves nothing."""
    first = segment_topic(TopicName.parse(NEW), "8000-ffff-1")
    _send(stack, first, 1)
    controller = control(NEW, segments=2)
    assert f"{first}. They belong to an earlier topic" in controller.failure().message
    # So a deletion does not wait for what a lost attempt may have asked for.
    assert store.get(record_path(controller.name)) is None
    admin.topics.delete(first)
    controller = control(NEW, segments=2)
    controller.subscribe("work")
    assert len(controller.layout().active) == 2
    controller.delete(force=True)


def test_a_topic_of_an_earlier_release(control: Control, store: CasStore) -> None:
    """A controller takes over from one whose workflow id had no cluster, whether that one still runs or not."""
    controller = control(OLD, segments=1)
    controller.subscribe("work")
    controller.terminate()
    path = controller_path(controller.name)
    held = read_claim(store, LeaderClaim, path)
    assert held is not None
    assert held.claim.workflow_id == "scalable-topic/public/default/of-an-earlier-release"
    controller = control(OLD)
    assert [*controller.until(lambda status: bool(status.subscriptions)).subscriptions] == ["work"]
    controller.terminate()

"""Properties of subscriptions that brokers forget when they load a topic again, step by step on a real broker."""

from __future__ import annotations

from datetime import UTC, datetime

from activities.scalable_topic import clients, drain, flip, hold_release
from activities.scalable_topic.precheck import precheck
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions
from models.scalable_topic.claims import TopicClaim, topic_record
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import MESSAGES, QUEUE, STREAM, make_topic, pulsar
from tests.support.scalable_topic.topics import drain as consume_all
from tests.support.waiting import wait_for

_KINDS = {QUEUE: SubscriptionKind.QUEUE, STREAM: SubscriptionKind.STREAM}


def _forget(admin: PulsarAdmin, name: TopicName) -> None:
    """Make a broker load the topic again, without its consumers."""
    admin.topics.unload(name)
    assert admin.topics.stats(name).subscriptions[STREAM].type in (None, "None")


def _consume_and_forget(stack: Stack, admin: PulsarAdmin, name: TopicName) -> bool:
    """Return whether acknowledgements survived the loading; brokers once failed to store them without an error."""
    consume_all(stack, admin, name, STREAM, pulsar.ConsumerType.Failover)
    _forget(admin, name)
    return not admin.topics.stats(name).subscriptions[STREAM].msg_backlog


def test_an_ordered_subscription_is_waited_for_all_the_same(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A subscription that was seen to be ordered stays so in CLIENTS, in FLIP, in its record, and for the next run."""
    name = make_topic(stack, admin, "forgotten/backlog", drained=False)
    steps = TopicSteps(stack, name)
    seen = steps.run(precheck).ordered
    assert seen == {STREAM: "Failover"}
    _forget(admin, name)
    waiting = steps.run(lambda task: clients.await_clients(task, datetime.now(UTC), seen))
    assert f"ordered subscriptions with a backlog: {STREAM} ({MESSAGES} messages)" in waiting.waiting
    assert waiting.ordered == seen
    steps.run(lambda task: hold_release.guard(task, seen))
    assert f"{STREAM} ({MESSAGES} messages)" in steps.run(flip.flip).refused
    assert read_scalable(store, name).state is RecordState.ABSENT
    wait_for("nothing to be left", lambda: _consume_and_forget(stack, admin, name), 60)
    assert steps.run(flip.flip).flipped
    assert recorded_subscriptions(store, name) == _KINDS
    steps.run(drain.verify)
    steps.run(hold_release.complete)


def test_a_type_that_is_seen_while_clients_are_waited_for(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A consumer that came for a moment in CLIENTS says for the whole migration how its subscription is consumed.

    That holds although the attempt that saw it is lost.
    """
    name = make_topic(stack, admin, "forgotten/seen")
    steps = TopicSteps(stack, name)
    with steps.task() as task:
        clients.await_clients(task, datetime.now(UTC), {})
        noted = task.context.noted
    _forget(admin, name)
    if admin.topics.stats(name).subscriptions[STREAM].msg_backlog:
        wait_for("acknowledgements that survive", lambda: _consume_and_forget(stack, admin, name), 60)
    with steps.task() as task:
        task.context.noted = noted
        seen = clients.await_clients(task, datetime.now(UTC), {}).ordered
    assert seen == {STREAM: "Failover"}
    assert steps.run(precheck).ordered == {}
    steps.run(lambda task: hold_release.guard(task, seen))
    assert steps.run(flip.flip).flipped
    assert recorded_subscriptions(store, name) == _KINDS
    steps.run(hold_release.complete)


def test_a_name_that_the_metadata_store_refuses_is_a_blocker(stack: Stack, admin: PulsarAdmin) -> None:
    """Brokers take such a subscription on a regular topic, and answer 500 for its record indefinitely."""
    name = make_topic(stack, admin, "forgotten/emoji")
    admin.subscriptions.create(name, "\N{GRINNING FACE}")
    (blocker,) = TopicSteps(stack, name).run(precheck).blockers
    assert blocker.code == "SUBSCRIPTION_NAME"


def test_a_topic_in_the_window_of_another_migration_is_scalable(
    stack: Stack, admin: PulsarAdmin, store: CasStore
) -> None:
    """PRECHECK says so, and does not offer to continue what another run holds."""
    name = make_topic(stack, admin, "forgotten/window")
    steps = TopicSteps(stack, name, cleanup="remove")
    steps.run(hold_release.guard)
    assert steps.run(flip.flip).flipped
    steps.run(hold_release.complete)
    assert steps.run(precheck).blockers == ()
    path = topic_record(f"{name.namespace_path}/{name.topic}")
    record = store.get(path)
    assert record
    of_many = TopicClaim.model_validate_json(record.value).changed(workflow_id="scalable-namespace/dev")
    store.set(path, of_many, record.version)
    (blocker,) = steps.run(precheck).blockers
    assert blocker.code == "ALREADY_SCALABLE"

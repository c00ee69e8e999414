"""FLIP of one topic on a real broker: records, cursors, terminated topics, and attempts that died on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from activities.scalable_topic.conversion.topic import TopicConversion
from clients.cas.store import CasStore
from clients.errors import StoreConflict, Superseded
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions
from models.scalable_topic.claims import Stage
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, ProducerPlan, Subscribed
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.scalable_topic.flips import UnclaimedTopic, flip_of
from tests.support.scalable_topic.topics import MESSAGES, fill, make_scalable, pulsar
from tests.support.waiting import wait_for, wait_until_equal

# Clients send acknowledgements some time after the message was received.
_ACKNOWLEDGED = 30.0


class _Late(UnclaimedTopic):
    """A topic of which another run is in charge."""

    def require(self) -> None:
        raise Superseded("a newer attempt has begun")


def _backlogs(flip: TopicConversion) -> dict[str, int]:
    return {subscription.name: subscription.backlog for subscription in flip.read().subscriptions.values()}


@pytest.mark.parametrize("partitions", [0, 2])
def test_all_that_a_migration_leaves_out_is_there(
    stack: Stack, admin: PulsarAdmin, store: CasStore, partitions: int
) -> None:
    """The layout is the plan's, every subscription has its places, old topics are ended, and no message is gone."""
    name = TopicName.parse(f"persistent://public/default/flip-{partitions}")
    fill(stack, admin, name, partitions)
    flip = flip_of(admin, store, name, partitions)
    done = flip.run()
    assert (done.segments, done.registered, done.faults) == (max(partitions, 1), 2, ())
    record = read_scalable(store, name)
    assert record.layout
    assert layout_faults(record.layout) == []
    assert recorded_subscriptions(store, name) == {"queue": SubscriptionKind.QUEUE, "stream": SubscriptionKind.STREAM}
    for segment in record.layout.active:
        for subscription in ("queue", "stream"):
            assert admin.scalable_topics.backlog(name, segment.descriptor, subscription) == 0
    parts = [name.of_partition(number) for number in range(partitions)] or [name]
    assert [admin.topics.internal_stats(partition).state for partition in parts] == ["Terminated"] * len(parts)
    assert _backlogs(flip) == {"queue": MESSAGES, "stream": MESSAGES}
    again = flip.run()
    assert (again.segments, again.registered, again.terminated, again.faults) == (done.segments, 2, 0, ())
    assert read_scalable(store, name).version == record.version


def test_an_attempt_that_died_after_the_call_is_completed(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The next one finds the topic scalable, and does the rest."""
    name = TopicName.parse("persistent://public/default/died")
    fill(stack, admin, name, 2)
    make_scalable(stack, admin, name)
    assert recorded_subscriptions(store, name) == {}
    done = flip_of(admin, store, name, 2).run()
    assert (done.registered, done.faults) == (2, ())
    assert set(recorded_subscriptions(store, name)) == {"queue", "stream"}


def test_clients_that_cannot_follow_refuse_it(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """Nothing changes while an old client is connected, unless it is forced."""
    name = TopicName.parse("persistent://public/default/flip-attached")
    fill(stack, admin, name, 0)
    flip = flip_of(admin, store, name, 0)
    with closing(quiet_client(stack.broker_url)) as client:
        consumer = client.subscribe(str(name), "queue", pulsar.ConsumerType.Shared)
        with pytest.raises(AdminConflict):
            flip.run()
        assert read_scalable(store, name).state is RecordState.ABSENT
        assert flip.run(force=True).faults == ()
        consumer.close()


def test_an_attempt_that_is_not_in_charge_changes_nothing(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The claim is asked before the first change."""
    name = TopicName.parse("persistent://public/default/superseded")
    fill(stack, admin, name, 0)
    with pytest.raises(StoreConflict):
        flip_of(admin, store, name, 0, _Late()).run()
    assert read_scalable(store, name).state is RecordState.ABSENT
    assert recorded_subscriptions(store, name) == {}


def test_an_empty_record_is_cleared_by_the_next_flip(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A load report that a broker wrote before the record does not prevent a topic from becoming scalable."""
    name = TopicName.parse("persistent://public/default/empty-record")
    fill(stack, admin, name, 2)
    store.create(f"{name.scalable_path}/segments/2/load", b"{}")
    assert read_scalable(store, name).state is RecordState.EMPTY
    flip = flip_of(admin, store, name, 2)
    assert flip.run().faults == ()
    assert _backlogs(flip) == {"queue": MESSAGES, "stream": MESSAGES}


def test_empty_record_that_appears_during_the_request(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """A broker that refuses because a report of load has made the record is asked again without it."""
    name = TopicName.parse("persistent://public/default/late-report")
    fill(stack, admin, name, 2)
    flip, report = flip_of(admin, store, name, 2), f"{name.scalable_path}/segments/2/load"
    states: list[RecordState] = []

    def change(
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], object],
    ) -> None:
        if change.__name__ != "migrate" or states:
            flip.change(connect=connect, fence=fence, change=change)
            return
        fence()
        store.create(report, b"{}")
        states.append(read_scalable(store, name).state)
        # What a broker answers when the record comes between its look and its own write: seen 5 times in 8.
        reason = f"Topic is already scalable: topic://{name.local_path}"
        raise AdminConflict(reason, method="POST", url=f"{name.local_path}/migrate", status=409)

    assert replace(flip, change=change).run().faults == ()
    assert states == [RecordState.EMPTY]
    assert _backlogs(flip) == {"queue": MESSAGES, "stream": MESSAGES}


def test_what_was_asked_of_brokers_is_noted_before(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """The next attempt after one that died knows that a broker may have been asked."""
    name = TopicName.parse("persistent://public/default/noted")
    fill(stack, admin, name, 2)
    guard = UnclaimedTopic()
    replace(flip_of(admin, store, name, 2, guard), registered=lambda: ["broker b", "broker a"]).run()
    # Brokers that refuse because a load report has made the record are asked again, with the same notes before that.
    begun, sending = guard.notes[:2]
    done = guard.notes[-1]
    assert begun == {"stage": Stage.FLIPPING, "partitions": 2, "asked": ()}
    assert sending == {"asked": ("broker a", "broker b")}
    assert (done["stage"], done["asked"]) == (Stage.FLIPPED, ())
    assert done["registered"] in (("queue", "stream"), ("stream", "queue"))


class _Growing(UnclaimedTopic):
    """A partition is added right before segments are made for the earlier ones."""

    def __init__(self, admin: PulsarAdmin, name: TopicName) -> None:
        super().__init__()
        self._admin, self._name = admin, name

    def note(self, **fields: object) -> None:
        if not self.notes:
            self._admin.topics.grow(self._name, 3)
        super().note(**fields)


def test_partition_added_during_the_flip(stack: Stack, admin: PulsarAdmin, store: CasStore) -> None:
    """It is ended like the others, no message is lost, and the report names what was made for fewer."""
    name = TopicName.parse("persistent://public/default/growing")
    fill(stack, admin, name, 2)
    flip = flip_of(admin, store, name, 2, _Growing(admin, name))
    done = flip.run()
    layout = read_scalable(store, name).layout
    assert layout
    assert len([segment for segment in layout.segments.values() if segment.legacy]) == 3
    assert admin.topics.internal_stats(name.of_partition(2)).state == "Terminated"
    assert [fault for fault in done.faults if "0000-7fff-2, 8000-ffff-3" in fault]
    assert _backlogs(flip) == {"queue": MESSAGES, "stream": MESSAGES}


def test_producers_with_many_messages_under_way_go_on(
    stack: Stack, admin: PulsarAdmin, store: CasStore, clients: ClientProgram
) -> None:
    """The topic ends while its bookie is slow: every message is answered, and a later consumer gets the rest."""
    name = TopicName.parse("persistent://public/default/under-way")
    admin.topics.create(name)
    queue = ConsumerPlan("first", str(name), Language.JAVA_V5, Subscribed.SHARED, named="queue")
    assert clients.attach([queue]) == {}
    clients.open_producers(
        [ProducerPlan(f"producer-{number}", str(name), Language.JAVA_V5, interval=0.0005) for number in range(4)]
    )
    clients.start()
    wait_for("messages", lambda: all(record.sent for record in clients.collect()[0]), 30)
    bookie = stack["bookie-1"]
    bookie.pause()
    try:
        wait_for("messages under way", lambda: _under_way(clients) > 1_000, 30)
        slow = threading.Timer(0.5, bookie.resume)
        slow.start()
        flip_of(admin, store, name, 0).run()
    finally:
        bookie.resume()
    clients.leave(["first"])
    assert clients.attach([replace(queue, name="second")]) == {}
    clients.stop_sending(60)
    assert _under_way(clients) == 0
    producers, _ = clients.collect()
    assert [record.errors for record in producers] == 4 * [[]]
    sent = {(message.key, message.number) for record in producers for message in record.sent}
    # A broker that could not read while the bookie was frozen reads again after up to half a minute.
    wait_until_equal("all messages", lambda: {*_received(clients)}, sent, 120)
    # What the first consumer had got, and not yet acknowledged, may come again.
    wait_until_equal(
        "acknowledgements", lambda: admin.topics.stats(name).subscriptions["queue"].msg_backlog, 0, _ACKNOWLEDGED
    )


def _under_way(clients: ClientProgram) -> int:
    producers, _ = clients.collect()
    return sum(message.acknowledged is None for record in producers for message in record.sent)


def _received(clients: ClientProgram) -> list[tuple[str, int]]:
    _, consumers = clients.collect()
    return [(message.key, message.number) for record in consumers for message in record.received]

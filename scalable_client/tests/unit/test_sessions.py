"""Watches and registrations: what brokers push, in any order, and what becomes of lost leaders."""

from __future__ import annotations

import time

import pytest
from scalable_client.tests.support.fake_broker import FakeBroker, Peer, unheard

from pulsar_scalable import ScalableClient
from pulsar_scalable.errors import NotTheLeader, Refused, ScalableError, TopicNotFound, Unsupported
from pulsar_scalable.layout import Layout
from pulsar_scalable.native import Assignment, ConsumerKind, NativeClient
from pulsar_scalable.options import ClientOptions
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import Access
from pulsar_wire.frames import Command
from tests.support.waiting import wait_for, wait_until_equal

TOPIC = "topic://public/default/orders"
Answer = list[Command] | None


def update(session: int, epoch: int, *, controller: str | None = None, legacy: str | None = None) -> Command:
    """Return a layout of one segment."""
    segment = api.SegmentInfoProto(segment_id=epoch, hash_start=0, hash_end=0xFFFF, state=0, legacy_topic_name=legacy)
    dag = api.ScalableTopicDAG(epoch=epoch, segments=(segment,), controller_broker_url=controller)
    return api.CommandScalableTopicUpdate(session_id=session, dag=dag, resolved_topic_name=TOPIC)


def assigned(epoch: int, *ids: int) -> api.ScalableConsumerAssignment:
    """Return segments with these ids."""
    segments = tuple(
        api.ScalableAssignedSegment(segment_id=id_, hash_start=0, hash_end=0xFFFF, segment_topic=f"segment://{id_}")
        for id_ in ids
    )
    return api.ScalableConsumerAssignment(layout_epoch=epoch, segments=segments)


def session_of(broker: FakeBroker) -> int:
    """Return the newest layout session."""
    newest = broker.of(api.CommandScalableTopicLookup)[-1]
    assert isinstance(newest, api.CommandScalableTopicLookup)
    return newest.session_id


def ids(assignments: list[Assignment]) -> list[list[int]]:
    """Return the segments of assignments."""
    return [[segment.id for segment in assignment.segments] for assignment in assignments]


# Watches --------------------------------------------------------------------------------------------------------------


def test_each_new_layout_is_reported() -> None:
    """The first one before the watch is there; older ones, and the same again, not at all."""
    layouts: list[Layout] = []

    def answer(_peer: Peer, command: Command) -> Answer:
        return [update(command.session_id, 3)] if isinstance(command, api.CommandScalableTopicLookup) else None

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        watch = client.watch("orders", layouts.append)
        assert [layout.epoch for layout in layouts] == [3]
        for epoch in (3, 2, 4, 1, 5):
            broker.peers[0].push(update(session_of(broker), epoch))
        wait_until_equal("the newest", lambda: watch.layout.epoch, 5, 20)
        assert (watch.layout.topic, [layout.epoch for layout in layouts]) == (TOPIC, [3, 4, 5])
        watch.close()
        wait_for("the session's end", lambda: broker.of(api.CommandScalableTopicClose), 20)


def test_a_regular_topic_that_becomes_scalable() -> None:
    """The epoch of a regular topic is 0 before and after it becomes scalable."""
    layouts: list[Layout] = []

    def answer(_peer: Peer, command: Command) -> Answer:
        return (
            [update(command.session_id, 0, legacy="persistent://x")]
            if isinstance(command, api.CommandScalableTopicLookup)
            else None
        )

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        client.watch(TOPIC, layouts.append)
        broker.peers[0].push(update(session_of(broker), 0))
        wait_until_equal("the scalable one", lambda: len(layouts), 2, 20)
        broker.peers[0].push(update(session_of(broker), 0, legacy="persistent://x"))
        broker.peers[0].push(update(session_of(broker), 1))
        wait_until_equal("the next one", lambda: len(layouts), 3, 20)
    assert [layout.synthetic for layout in layouts] == [True, False, False]


def test_a_topic_that_is_created_again() -> None:
    """Layouts of a topic that is created again start with epoch 0, and count; older ones do not."""
    layouts: list[Layout] = []

    def layout(session: int, epoch: int, created_ms: int) -> Command:
        segment = api.SegmentInfoProto(
            segment_id=epoch, hash_start=0, hash_end=0xFFFF, state=0, created_at_ms=created_ms
        )
        return api.CommandScalableTopicUpdate(
            session_id=session,
            dag=api.ScalableTopicDAG(epoch=epoch, segments=(segment,)),
            error=None,
            message=None,
            resolved_topic_name=TOPIC,
        )

    def answer(_peer: Peer, command: Command) -> Answer:
        return [layout(command.session_id, 3, 1000)] if isinstance(command, api.CommandScalableTopicLookup) else None

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        client.watch(TOPIC, layouts.append)
        for epoch, created_ms in ((2, 900), (0, 5000), (1, 6000), (0, 5000)):
            broker.peers[0].push(layout(session_of(broker), epoch, created_ms))
        wait_until_equal("the second topic", lambda: [layout.epoch for layout in layouts], [3, 0, 1], 20)
    assert [layout.incarnation for layout in layouts] == [0, 1, 1]


def test_brokers_without_scalable_topics() -> None:
    """The error names the broker's version and the setting that switches scalable topics off."""

    def answer(_peer: Peer, command: Command) -> Answer:
        return (
            [api.CommandConnected(server_version="Pulsar Server5.0.1")]
            if isinstance(command, api.CommandConnect)
            else None
        )

    with FakeBroker(answer) as broker, ScalableClient(broker.url) as client:
        with pytest.raises(Unsupported, match=r"Pulsar Server5\.0\.1.*scalableTopicsEnabled=true"):
            client.create_producer(TOPIC)
        assert not broker.of(api.CommandScalableTopicLookup)


def test_topics_are_created_only_on_demand() -> None:
    """A lookup says that the topic is not to be created, unless the application wants that."""

    def answer(_peer: Peer, command: Command) -> Answer:
        return [update(command.session_id, 0)] if isinstance(command, api.CommandScalableTopicLookup) else None

    def asked(broker: FakeBroker) -> list[bool | None]:
        return [
            request.create_if_missing
            for request in broker.of(api.CommandScalableTopicLookup)
            if isinstance(request, api.CommandScalableTopicLookup)
        ]

    with FakeBroker(answer) as broker, ScalableClient(broker.url) as client:
        client.create_producer(TOPIC).close()
        assert {*asked(broker)} == {False}
    with FakeBroker(answer) as broker, ScalableClient(broker.url, ClientOptions(create_topics=True)) as client:
        client.create_producer(TOPIC).close()
        first, *others = asked(broker)
        assert (first, {*others}) == (True, {False})


def test_watches_outlive_connections_and_errors() -> None:
    """Sessions ask again, even without an answer for a while, and report only newer layouts."""
    layouts: list[Layout] = []

    def answer(_peer: Peer, command: Command) -> Answer:
        if not isinstance(command, api.CommandScalableTopicLookup):
            return None
        asked = len(broker.of(api.CommandScalableTopicLookup))
        if asked == 2:
            return [api.CommandScalableTopicUpdate(session_id=command.session_id, error=11, message="store is away")]
        return [update(command.session_id, {1: 3, 3: 2}.get(asked, 4))]

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        watch = client.watch(TOPIC, layouts.append)
        broker.drop_all()
        wait_until_equal("the third session", lambda: len(broker.of(api.CommandScalableTopicLookup)), 3, 20)
        wait_for("recovery", lambda: watch.error is None, 20)
        assert watch.layout.epoch == 3
        broker.drop_all()
        wait_until_equal("the fourth", lambda: watch.layout.epoch, 4, 20)
    assert [layout.epoch for layout in layouts] == [3, 4]


def test_a_topic_that_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion is detected without a notice when no broker has the topic for a while; so is a new topic."""
    monkeypatch.setattr("pulsar_scalable.native.watch._CHECK_INTERVAL", 0.2)
    monkeypatch.setattr("pulsar_scalable.native.watch._MISSING_IS_DELETED", 0.3)
    layouts: list[Layout] = []
    created_ms: int | None = 1000

    def answer(_peer: Peer, command: Command) -> Answer:
        if not isinstance(command, api.CommandScalableTopicLookup):
            return None
        if created_ms is None:
            return [
                api.CommandScalableTopicUpdate(
                    session_id=command.session_id, error=11, message="Scalable topic not found"
                )
            ]
        segment = api.SegmentInfoProto(segment_id=0, hash_start=0, hash_end=0xFFFF, state=0, created_at_ms=created_ms)
        dag = api.ScalableTopicDAG(epoch=0, segments=(segment,))
        return [api.CommandScalableTopicUpdate(session_id=command.session_id, dag=dag, resolved_topic_name=TOPIC)]

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        client.watch(TOPIC, layouts.append)
        wait_for("other sessions", lambda: len(broker.of(api.CommandScalableTopicLookup)) > 3, 20)
        assert len(layouts) == 1
        created_ms = None
        wait_for("the deletion", lambda: layouts[-1].is_deleted, 20)
        created_ms = 2000
        wait_for("the new topic", lambda: not layouts[-1].is_deleted, 20)
    assert [(layout.is_deleted, layout.incarnation) for layout in layouts] == [(False, 0), (True, 0), (False, 1)]


def test_topics_that_are_not_there() -> None:
    """Watching them fails at once, with the broker's reason."""

    def answer(_peer: Peer, command: Command) -> Answer:
        if isinstance(command, api.CommandScalableTopicLookup):
            return [
                api.CommandScalableTopicUpdate(
                    session_id=command.session_id, error=11, message="Scalable topic not found"
                )
            ]
        return None

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        with pytest.raises(TopicNotFound, match="not found"):
            client.watch(TOPIC, lambda _: None)
        with pytest.raises(TopicNotFound):
            client.look_up(TOPIC)


def test_callbacks_that_fail() -> None:
    """Later layouts come nevertheless."""
    numbers: list[int] = []

    def on_layout(layout: Layout) -> None:
        numbers.append(layout.epoch)
        raise RuntimeError("on purpose")

    def answer(_peer: Peer, command: Command) -> Answer:
        return [update(command.session_id, 0)] if isinstance(command, api.CommandScalableTopicLookup) else None

    with FakeBroker(answer) as broker, NativeClient(broker.url) as client:
        client.watch(TOPIC, on_layout)
        broker.peers[0].push(update(session_of(broker), 1))
        wait_until_equal("both", lambda: numbers, [0, 1], 20)


def test_silent_brokers() -> None:
    """A watch fails in time if no broker answers."""
    with FakeBroker(unheard) as broker, NativeClient(broker.url, Access(operation_timeout=0.3)) as client:
        begun = time.monotonic()
        with pytest.raises(ScalableError):
            client.watch(TOPIC, lambda _: None)
        assert time.monotonic() - begun < Access().operation_timeout / 2


# Registrations --------------------------------------------------------------------------------------------------------


class Leader:
    """A broker that leads, and does with registrations as a test says."""

    def __init__(self) -> None:
        self.refusals: list[tuple[int, str]] = []
        self.updates: list[api.ScalableConsumerAssignment] = []
        self.first: api.ScalableConsumerAssignment | None = assigned(1, 1)
        self.peers: list[tuple[Peer, int]] = []

    def __call__(self, peer: Peer, command: Command) -> Answer:
        """Return the broker's answers to a command."""
        if isinstance(command, api.CommandScalableTopicLookup):
            return [update(command.session_id, 1)]
        if not isinstance(command, api.CommandScalableTopicSubscribe):
            return None
        if self.refusals:
            code, message = self.refusals.pop(0)
            return [
                api.CommandScalableTopicSubscribeResponse(request_id=command.request_id, error=code, message=message)
            ]
        self.peers.append((peer, command.consumer_id))
        early = [
            api.CommandScalableTopicAssignmentUpdate(consumer_id=command.consumer_id, assignment=update)
            for update in self.updates
        ]
        return [
            *early,
            api.CommandScalableTopicSubscribeResponse(request_id=command.request_id, assignment=self.first),
        ]

    def push(self, assignment: api.ScalableConsumerAssignment) -> None:
        """Send a new assignment."""
        peer, number = self.peers[-1]
        peer.push(api.CommandScalableTopicAssignmentUpdate(consumer_id=number, assignment=assignment))


def test_assignments() -> None:
    """The first one before the registration is there, and each that takes its place."""
    leader, received = Leader(), list[Assignment]()
    with FakeBroker(leader) as broker, NativeClient(broker.url) as client:
        registration = client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, received.append)
        assert registration.is_registered
        assert ids(received) == [[1]]
        (asked,) = broker.of(api.CommandScalableTopicSubscribe)
        assert isinstance(asked, api.CommandScalableTopicSubscribe)
        assert (asked.topic, asked.subscription, asked.consumer_name, asked.consumer_type) == (TOPIC, "sub", "me", 0)
        for assignment in (assigned(1, 1, 2), assigned(0, 9), assigned(2)):
            leader.push(assignment)
        wait_until_equal("the last one", lambda: registration.assignment.epoch, 2, 20)
        assert ids(received) == [[1], [1, 2], [9], []]
        registration.close()
        assert not registration.is_registered
        (request,) = broker.of(api.CommandScalableTopicUnsubscribe)
        assert isinstance(request, api.CommandScalableTopicUnsubscribe)
        assert request.consumer_id == asked.consumer_id


def test_a_consumer_that_stays_known() -> None:
    """A consumer that detaches does not leave: its session lasts for the grace period."""
    leader = Leader()
    with FakeBroker(leader) as broker, NativeClient(broker.url) as client:
        registration = client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, unheard)
        registration.detach()
        assert (registration.is_closed, broker.of(api.CommandScalableTopicUnsubscribe)) == (True, [])
        client.register(TOPIC, "sub", "you", ConsumerKind.STREAM, unheard)
    assert len(broker.of(api.CommandScalableTopicUnsubscribe)) == 1


def test_registrations_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer registers again with its name on the same connection, and takes what the answer says."""
    monkeypatch.setattr("pulsar_scalable.native.registration._RENEW_EVERY", 0.1)
    leader, received = Leader(), list[Assignment]()
    with FakeBroker(leader) as broker, NativeClient(broker.url) as client:
        client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, received.append)
        wait_for("some registrations", lambda: len(broker.of(api.CommandScalableTopicSubscribe)) > 3, 20)
        assert ids(received) == [[1]]
        leader.first = assigned(1, 1, 2)
        wait_until_equal("the new segment", lambda: ids(received), [[1], [1, 2]], 20)
        names = {
            request.consumer_name
            for request in broker.of(api.CommandScalableTopicSubscribe)
            if isinstance(request, api.CommandScalableTopicSubscribe)
        }
        assert names == {"me"}
        assert len({id(peer) for peer, _ in leader.peers}) == 1


def test_shared_segments() -> None:
    """An assignment has the entry buckets of a segment that several consumers share."""
    leader, received = Leader(), list[Assignment]()
    shared = api.ScalableAssignedSegment(
        segment_id=1,
        hash_start=0,
        hash_end=0xFFFF,
        segment_topic="segment://1",
        bucket_ranges=(api.IntRange(start=0, end=0x3FFF), api.IntRange(start=0x4000, end=0xFFFF)),
    )
    leader.first = api.ScalableConsumerAssignment(layout_epoch=1, segments=(shared,))
    with FakeBroker(leader) as broker, NativeClient(broker.url) as client:
        client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, received.append)
    assert received[0].segments[0].buckets == ((0, 0x3FFF), (0x4000, 0xFFFF))


def test_updates_before_the_answer() -> None:
    """Updates before the answer are newer than the answer: brokers send them first."""
    leader, received = Leader(), list[Assignment]()
    leader.updates = [assigned(1, 1), assigned(1, 1, 2)]
    with FakeBroker(leader) as broker, NativeClient(broker.url) as client:
        client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, received.append)
        leader.push(assigned(1, 3))
        wait_until_equal("the last one", lambda: ids(received)[-1], [3], 20)
    assert ids(received) == [[1], [1, 2], [3]]


def test_brokers_that_do_not_lead_yet() -> None:
    """The leader is looked up again."""
    leader, received = Leader(), list[Assignment]()
    leader.refusals = [(0, "This broker is not the leader")] * 2
    with FakeBroker(leader) as broker, NativeClient(broker.url) as client:
        client.register(TOPIC, "sub", "me", ConsumerKind.CHECKPOINT, received.append)
        assert len(broker.of(api.CommandScalableTopicLookup)) == 3
    assert ids(received) == [[1]]


def test_no_leader_in_time() -> None:
    """The error says so; and what no attempt can change fails at once."""
    leader = Leader()
    with FakeBroker(leader) as broker, NativeClient(broker.url, Access(operation_timeout=2)) as client:
        leader.refusals = [(0, "This broker is not the leader")] * 99
        with pytest.raises(NotTheLeader):
            client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, lambda _: None)
    with FakeBroker(leader) as broker, NativeClient(broker.url) as client:
        leader.refusals = [(4, "not for you")]
        asked = len(broker.of(api.CommandScalableTopicSubscribe))
        with pytest.raises(Refused, match="not for you"):
            client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, lambda _: None)
        assert len(broker.of(api.CommandScalableTopicSubscribe)) == asked + 1


def test_a_leader_that_lost_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that lost its lock keeps the connection and reports nothing; the layout names the leader."""
    monkeypatch.setattr("pulsar_scalable.native.registration._RENEW_EVERY", 0.1)
    first, second, received = Leader(), Leader(), list[Assignment]()
    second.first = assigned(1, 7)
    leading: list[str] = []

    def watching(_peer: Peer, command: Command) -> Answer:
        if isinstance(command, api.CommandScalableTopicLookup):
            return [update(command.session_id, 1, controller=leading[-1])]
        return None

    with FakeBroker(first) as first_broker, FakeBroker(second) as other, FakeBroker(watching) as any_broker:
        leading.append(first_broker.url)
        with NativeClient(any_broker.url) as client:
            client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, received.append)
            wait_for("some looks", lambda: len(any_broker.of(api.CommandScalableTopicLookup)) > 3, 20)
            assert ids(received) == [[1]]
            leading.append(other.url)
            wait_until_equal("the next leader", lambda: ids(received), [[1], [7]], 20)


def test_a_leader_that_dies() -> None:
    """The consumer registers with the next one by the same name, and learns what changed."""
    first, second, received = Leader(), Leader(), list[Assignment]()
    second.first = assigned(1, 7)
    leading: list[str] = []

    def watching(_peer: Peer, command: Command) -> Answer:
        if isinstance(command, api.CommandScalableTopicLookup):
            return [update(command.session_id, 1, controller=leading[-1])]
        return None

    with FakeBroker(first) as first_broker, FakeBroker(second) as other, FakeBroker(watching) as any_broker:
        leading.append(first_broker.url)
        with NativeClient(any_broker.url) as client:
            registration = client.register(TOPIC, "sub", "me", ConsumerKind.STREAM, received.append)
            leading.append(other.url)
            first_broker.drop_all()
            wait_until_equal("the next leader", lambda: ids(received), [[1], [7]], 20)
            assert registration.is_registered
            names = {
                command.consumer_name
                for command in other.received
                if isinstance(command, api.CommandScalableTopicSubscribe)
            }
            assert names == {"me"}
            assert not any_broker.of(api.CommandScalableTopicSubscribe)
            assert any_broker.of(api.CommandConnect)

"""Consumers read the right segments at the right time."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from scalable_client.tests.support.fake_topics import TOPIC, FakeWorld

from pulsar_scalable import Checkpoint, CheckpointConsumer, InitialPosition, Message, QueueConsumer, StreamConsumer
from pulsar_scalable.errors import (
    AlreadyClosed,
    ConnectionLost,
    NotAuthorized,
    Refused,
    ScalableError,
    TimedOut,
    TopicNotFound,
    Unsupported,
)
from pulsar_scalable.options import ConsumerOptions, ProducerOptions
from tests.support.waiting import wait_for, wait_until_equal


@pytest.fixture
def world() -> FakeWorld:
    """A topic of two segments."""
    return FakeWorld(2)


@pytest.fixture
def queue(world: FakeWorld) -> Generator[QueueConsumer]:
    """A consumer of all segments."""
    with QueueConsumer(world, TOPIC, "work", ConsumerOptions()) as consumer:
        yield consumer


def stream(world: FakeWorld, name: str) -> StreamConsumer:
    """Create a consumer with a name."""
    return StreamConsumer(world, TOPIC, "bill", ConsumerOptions(consumer_name=name))


def data(messages: list[Message]) -> list[str]:
    """Return the contents of messages."""
    return [message.data().decode() for message in messages]


def take(consumer: QueueConsumer | StreamConsumer | CheckpointConsumer, count: int) -> list[str]:
    """Receive that many messages, acknowledge them if possible, and check that no more arrive."""
    messages = [consumer.receive(20_000) for _ in range(count)]
    with pytest.raises(TimedOut):
        consumer.receive(50)
    if not isinstance(consumer, CheckpointConsumer):
        for message in messages:
            consumer.acknowledge(message)
    return data(messages)


def test_a_queue_reads_all_segments(world: FakeWorld, queue: QueueConsumer) -> None:
    """Sealed segments are read, and left once all of them is acknowledged; new ones are read by themselves."""
    world.tells_ends = True
    world.store(0, "a", "b")
    tell = world.seal(0)
    world.store(2, "c")
    world.store(1, "d")
    tell()
    assert sorted(take(queue, 4)) == ["a", "b", "c", "d"]
    wait_until_equal("the sealed one is left", lambda: queue.segments, [1, 2, 3], 20)


def test_a_queue_keeps_unacknowledged_messages(world: FakeWorld, queue: QueueConsumer) -> None:
    """A sealed segment is kept for a message that comes again."""
    world.store(0, "a")
    world.seal(0)()
    message = queue.receive(20_000)
    queue.negative_acknowledge(message)
    again = queue.receive(20_000)
    assert (again.message_id(), again.segment_id()) == (message.message_id(), 0)
    assert 0 in queue.segments


def test_where_a_new_subscription_begins(world: FakeWorld) -> None:
    """A new subscription starts at the given position on existing segments, and at the start of later ones."""
    world.seal(0)()
    latest, earliest = InitialPosition.Latest, InitialPosition.Earliest
    with QueueConsumer(world, TOPIC, "late", ConsumerOptions(initial_position=latest)):
        wait_until_equal("all segments", lambda: world.positions, dict.fromkeys(range(4), latest), 20)
        world.seal(1)()
        wait_until_equal("new segments", lambda: [world.positions.get(number) for number in (4, 5)], [earliest] * 2, 20)


def test_a_queue_waits_for_redelivered_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue waits for redelivered messages longer than a sealed segment may be silent."""
    monkeypatch.setattr("pulsar_scalable.queue_consumer._SILENCE", 0.3)
    world = FakeWorld(1)
    world.redelivery_seconds = 1.5
    world.store(0, "a")
    world.seal(0)()
    with QueueConsumer(world, TOPIC, "work", ConsumerOptions(negative_ack_redelivery_delay_ms=1500)) as consumer:
        message = consumer.receive(20_000)
        consumer.negative_acknowledge(message)
        assert consumer.receive(20_000).message_id() == message.message_id()


def test_a_waiting_message_is_delivered_once(world: FakeWorld, queue: QueueConsumer) -> None:
    """After a segment was loaded again, unacknowledged messages are delivered again, but queued ones only once."""
    world.store(0, "a", "b", "c")
    assert queue.receive(20_000).data() == b"a"
    cursor = world.segments[0].cursors["work"]
    wait_until_equal("the others", lambda: cursor.taken, {0, 1, 2}, 20)
    world.redeliver_all(0)
    wait_until_equal("all of it again", lambda: cursor.taken, {0, 1, 2}, 20)
    assert take(queue, 3) == ["b", "c", "a"]
    world.redeliver_all(0)
    assert take(queue, 0) == []


def test_a_topic_that_comes_back_as_it_was(world: FakeWorld) -> None:
    """A stream reads the segments that are assigned to it again, although no other assignment comes."""
    world.store(0, "a")
    with stream(world, "one") as consumer:
        world.assign("one", 0, 1)
        assert take(consumer, 1) == ["a"]
        back = world.layout
        world.layout = replace(back, deleted=True)
        world.tell()
        with pytest.raises(TopicNotFound):
            consumer.receive(20_000)
        assert consumer.segments == []
        world.store(1, "b")
        world.layout = replace(back, generation=back.generation + 1)
        world.tell()
        assert take(consumer, 1) == ["b"]


def test_a_stream_takes_the_order_of_the_broker(world: FakeWorld) -> None:
    """Redelivered messages come before queued ones, which are delivered again after them: the newest value is last."""
    with stream(world, "one") as consumer:
        world.assign("one", 0)
        world.store(0, *"abcd")
        assert [consumer.receive(20_000).data() for _ in range(2)] == [b"a", b"b"]
        cursor = world.segments[0].cursors["bill"]
        wait_until_equal("the others", lambda: cursor.taken, {0, 1, 2, 3}, 20)
        world.redeliver_all(0)
        wait_until_equal("all of it again", lambda: cursor.taken, {0, 1, 2, 3}, 20)
        assert take(consumer, 4) == ["a", "b", "c", "d"]


def test_a_stream_is_slower_than_a_redelivery(world: FakeWorld) -> None:
    """Once a broker has begun to send messages again, none that was queued before comes ahead of an older one."""
    with stream(world, "one") as consumer:
        world.assign("one", 0)
        world.store(0, *"abcde")
        assert consumer.receive(20_000).data() == b"a"
        cursor = world.segments[0].cursors["bill"]
        wait_until_equal("the others", lambda: cursor.taken, {0, 1, 2, 3, 4}, 20)
        world.redeliver(0, 0, 1, 2)
        wait_until_equal("the first of it again", lambda: cursor.taken, {0, 1, 2, 3, 4}, 20)
        received = [consumer.receive(20_000) for _ in range(3)]
        world.redeliver(0, 3, 4)
        received += [consumer.receive(20_000) for _ in range(2)]
        assert data(received) == ["a", "b", "c", "d", "e"]


def test_a_cumulative_acknowledgement_that_is_lost(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sealed segment whose acknowledgement went with a connection comes again until the broker has it."""
    monkeypatch.setattr("pulsar_scalable.receive_queue._FIRST_IDLE_TIMEOUT", 0.3)
    with stream(world, "one") as consumer:
        world.assign("one", 0)
        world.store(0, "a", "b")
        messages = [consumer.receive(20_000) for _ in range(2)]
        world.loses_acknowledgements = True
        consumer.acknowledge_cumulative(messages[1])
        world.redeliver_all(0)
        with pytest.raises(TimedOut):
            consumer.receive(600)
        world.seal(0)()
        world.loses_acknowledgements = False
        again = [consumer.receive(20_000) for _ in range(2)]
        assert data(again) == ["a", "b"]
        consumer.acknowledge_cumulative(again[1])
        assert world.segments[0].cursors["bill"].acknowledged == {0, 1}


def test_a_stream_is_attached_again_soon(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that a stream left to look for a lost acknowledgement is tried again soon where it is refused once."""
    monkeypatch.setattr("pulsar_scalable.receive_queue._FIRST_IDLE_TIMEOUT", 0.3)
    with stream(world, "one") as consumer:
        world.assign("one", 0)
        world.store(0, "a")
        first = consumer.receive(20_000)
        world.loses_acknowledgements = True
        consumer.acknowledge_cumulative(first)
        world.loses_acknowledgements = False
        [source] = consumer._sources.values()  # pyright: ignore[reportPrivateUsage]
        world.refuses_receivers = ConnectionLost("away")
        world.seal(0)()
        wait_for("it is refused", lambda: source.refusal is not None, 20)
        world.refuses_receivers = None
        assert consumer.receive(20_000).data() == b"a"


def test_batches(world: FakeWorld, queue: QueueConsumer) -> None:
    """Some messages come together, as many as there are or are wanted."""
    world.store(0, *"abc")
    wait_until_equal("all to come", lambda: world.segments[0].cursors["work"].taken, {0, 1, 2}, 20)
    assert data(queue.batch_receive(2, 20_000)) == ["a", "b"]
    queue.wait_for_message(5000)
    assert data(queue.batch_receive(2, 100)) == ["c"]


def test_a_stream_stays_at_a_silent_segment(world: FakeWorld) -> None:
    """If brokers do not report that a sealed segment is drained, late messages are delivered until it is reassigned."""
    world.tells_ends = False
    with stream(world, "one") as consumer:
        world.seal(0)()
        world.assign("one", 0)
        with pytest.raises(TimedOut):
            consumer.receive(1500)
        world.store(0, "late")
        assert take(consumer, 1) == ["late"]


def test_a_segment_that_is_taken_away_is_released_once_it_is_acknowledged(world: FakeWorld) -> None:
    """A revoked segment is given to another consumer only after its messages are acknowledged."""
    with stream(world, "one") as first, stream(world, "two") as two:
        world.assign("one", 0, 1)
        world.store(0, "a", "b")
        messages = [first.receive(20_000) for _ in range(2)]
        first.acknowledge(messages[0])
        world.assign("two", 0)
        world.assign("one", 1)
        world.store(0, "c")
        with pytest.raises(TimedOut):
            two.receive(500)
        with pytest.raises(TimedOut):
            first.receive(50)
        first.acknowledge(messages[1])
        assert take(two, 1) == ["c"]
        first.acknowledge(messages[1])
        first.negative_acknowledge(messages[0])
        first.acknowledge_cumulative(messages[1])
        assert world.segments[0].cursors["bill"].acknowledged == {0, 1, 2}
        assert two.assignment.segments[0].id == 0
        world.store(1, "e")
        assert take(first, 1) == ["e"]
    assert world.sessions == {}


def test_a_segment_is_released_for_other_consumers(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that does not acknowledge loses its segment after a while; a late acknowledgement is ignored."""
    monkeypatch.setattr("pulsar_scalable.consumers.RELEASE_LIMIT", 0.5)
    with stream(world, "one") as first, stream(world, "two") as two:
        world.assign("one", 0)
        world.store(0, "a")
        message = first.receive(20_000)
        world.assign("one")
        world.assign("two", 0)
        assert take(two, 1) == ["a"]
        assert first.segments == []
        first.acknowledge(message)


def test_a_consumer_without_acknowledgements_gets_messages_last(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that is to be shared is given to the waiting consumer before the one that kept it attaches again."""
    monkeypatch.setattr("pulsar_scalable.consumers.RELEASE_LIMIT", 0.5)
    with stream(world, "one") as first, stream(world, "two") as two:
        world.assign("one", 0)
        world.store(0, "a")
        first.receive(20_000)
        world.assign("one", 0, shared=True)
        world.assign("two", 0, shared=True)
        assert take(two, 1) == ["a"]
        wait_until_equal("both are attached", lambda: len(world.segments[0].cursors["bill"].consumers), 2, 20)


def test_a_segment_that_is_assigned_again_at_once(world: FakeWorld) -> None:
    """The segment is attached again after its release, and its waiting messages are redelivered in order."""
    with stream(world, "one") as consumer:
        world.assign("one", 0)
        world.store(0, "a", "b", "c")
        message = consumer.receive(20_000)
        world.assign("one", 1)
        world.assign("one", 0, 1)
        with pytest.raises(TimedOut):
            consumer.receive(300)
        consumer.acknowledge(message)
        assert take(consumer, 2) == ["b", "c"]


def test_a_shared_segment(world: FakeWorld) -> None:
    """A segment is drained before it is attached in shared mode, and acknowledged message by message."""
    with stream(world, "one") as first_consumer, stream(world, "two") as two:
        world.assign("one", 0)
        world.store(0, "a", "b", "c")
        first = first_consumer.receive(20_000)
        world.assign("one", 0, shared=True)
        world.assign("two", 0, shared=True)
        with pytest.raises(TimedOut):
            two.receive(300)
        first_consumer.acknowledge_cumulative(first)
        cursor = world.segments[0].cursors["bill"]
        wait_for("both are attached", lambda: cursor.shared and len(cursor.consumers) == 2, 20)
        world.assign("one", 0, shared=True)
        messages: list[Message] = []

        def received() -> list[str]:
            for consumer in (first_consumer, two):
                messages.extend(consumer.batch_receive(2, 50))
            return sorted(data(messages))

        wait_until_equal("the others", received, ["b", "c"], 20)
        for consumer in (first_consumer, two):
            for message in messages:
                if message.source in consumer._sources.values():  # pyright: ignore[reportPrivateUsage]
                    consumer.acknowledge_cumulative(message)
        assert cursor.acknowledged == {0, 1, 2}
        assert len(cursor.consumers) == 2


def test_a_cumulative_acknowledgement_covers_all_segments(world: FakeWorld) -> None:
    """A cumulative acknowledgement covers all earlier messages of every segment, and no later ones."""
    with stream(world, "one") as consumer:
        world.assign("one", 0, 1)
        messages: list[Message] = []
        for number in range(6):
            world.store(number % 2, str(number))
            messages.append(consumer.receive(20_000))
        consumer.acknowledge_cumulative(messages[3])
        acknowledged = {number: world.segments[number].cursors["bill"].acknowledged for number in range(2)}
        assert acknowledged == {0: {0, 1}, 1: {0, 1}}
        consumer.acknowledge_cumulative(messages[5].message_id())
        assert acknowledged == {0: {0, 1, 2}, 1: {0, 1, 2}}


def test_a_busy_segment_is_reported(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that cannot attach to a segment because another one has it logs that, after a while as a warning."""
    monkeypatch.setattr("pulsar_scalable.consumers._BUSY_WARNING", 0.3)
    caplog.set_level("INFO", "pulsar_scalable")
    with stream(world, "one"), stream(world, "two"):
        world.assign("one", 0)
        wait_for("one has it", lambda: "bill" in world.segments[0].cursors, 20)
        world.assign("two", 0)
        wait_for("the warning", lambda: "another consumer has had it" in caplog.text, 20)
    levels = [record.levelname for record in caplog.records if "another consumer has" in record.message]
    assert levels[:2] == ["INFO", "WARNING"]


def test_a_detached_consumer_stays_registered(world: FakeWorld) -> None:
    """The session of a consumer that restarts outlives it; one that is closed is forgotten at once."""
    consumer = stream(world, "a")
    consumer.detach()
    assert (consumer.is_closed, [*world.sessions]) == (True, ["a"])
    stream(world, "a").close()
    assert world.sessions == {}


def test_waiting_messages_of_a_revoked_segment(world: FakeWorld) -> None:
    """Waiting messages are not given to the application if their segment is assigned to another consumer."""
    with stream(world, "one") as first, stream(world, "two") as two:
        world.assign("one", 0)
        world.store(0, "a", "b")
        wait_until_equal(
            "both to come", lambda: [cursor.taken for cursor in world.segments[0].cursors.values()], [{0, 1}], 20
        )
        world.assign("one", 1)
        world.assign("two", 0)
        with pytest.raises(TimedOut):
            first.receive(300)
        assert take(two, 2) == ["a", "b"]


def test_checkpoints(world: FakeWorld) -> None:
    """A consumer continues after the messages it received, through a split; queued messages do not count."""
    world.store(0, "a", "b")
    with CheckpointConsumer(world, TOPIC, "earliest") as consumer:
        assert consumer.receive(20_000).data() == b"a"
        saved = Checkpoint.deserialize(consumer.checkpoint().serialize())
    tell = world.seal(0)
    world.store(2, "c")
    tell()
    with CheckpointConsumer(world, TOPIC, saved) as consumer:
        assert take(consumer, 2) == ["b", "c"]
        assert consumer.checkpoint().positions[0] == "done"
        saved = consumer.checkpoint()
    world.store(2, "d")
    with CheckpointConsumer(world, TOPIC, saved) as consumer:
        assert take(consumer, 1) == ["d"]


def test_children_are_read_after_a_split_segment(world: FakeWorld) -> None:
    """No message of a child comes before one of its parent, however many these are."""
    numbers = [str(number) for number in range(500)]
    world.store(0, *numbers[:400])
    tell = world.seal(0)
    world.store(2, *numbers[400:])
    tell()
    with CheckpointConsumer(world, TOPIC, "earliest") as consumer:
        assert take(consumer, 500) == numbers


def test_children_are_read_after_a_pruned_segment(world: FakeWorld) -> None:
    """A segment that leaves the layout while it is read, or waits for a slow application, comes before its children."""
    numbers = [str(number) for number in range(500)]
    world.store(0, *numbers[:400])
    with CheckpointConsumer(world, TOPIC, "earliest") as consumer:
        assert consumer.receive(20_000).data() == b"0"
        tell = world.seal(0)
        world.store(2, *numbers[400:])
        tell()
        world.prune(0)
        assert take(consumer, 499) == numbers[1:]


def test_a_segment_whose_topic_is_gone_is_skipped(world: FakeWorld) -> None:
    """The children of a sealed segment are read although the layout still names the segment, whose topic is gone."""
    world.store(0, "lost")
    tell = world.seal(0)
    world.store(2, "a")
    tell()
    world.unreadable.add(0)
    world.unreadable_since = TopicNotFound(11, "gone")
    with CheckpointConsumer(world, TOPIC, "earliest") as consumer:
        assert take(consumer, 1) == ["a"]
        assert consumer.checkpoint().positions[0] == "done"


def test_a_reader_that_gives_messages_again() -> None:
    """Messages that a reader returns again after a lost connection are not returned to the application again."""
    world = FakeWorld(1)
    world.store(0, "a", "b", "c")
    with CheckpointConsumer(world, TOPIC, "earliest") as consumer:
        assert take(consumer, 3) == ["a", "b", "c"]
        world.readers[0].repeat(2)
        world.store(0, "d")
        assert take(consumer, 1) == ["d"]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_reader_that_falls_silent(monkeypatch: pytest.MonkeyPatch, *, sealed: bool) -> None:
    """A message that is there, and does not come, is read with another reader."""
    monkeypatch.setattr("pulsar_scalable.checkpoint_consumer._SILENCE", 0.2)
    world = FakeWorld(1)
    world.mute.add(0)
    world.store(0, "a")
    if sealed:
        world.seal(0)()
    with CheckpointConsumer(world, TOPIC, "earliest") as consumer:
        assert take(consumer, 1) == ["a"]
    assert len(world.readers) >= 2


def test_from_the_end(world: FakeWorld) -> None:
    """A consumer that begins at the end gets what comes later, and can be stopped before it got anything."""
    world.store(0, "a")
    with CheckpointConsumer(world, TOPIC, "latest") as consumer:
        saved = consumer.checkpoint()
    world.store(0, "b")
    world.store(1, "c")
    with CheckpointConsumer(world, TOPIC, saved) as consumer:
        assert sorted(take(consumer, 2)) == ["b", "c"]
    with pytest.raises(AlreadyClosed):
        consumer.receive()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ConsumerOptions, {"receiver_queue_size": 0}),
        (ConsumerOptions, {"unacked_messages_timeout_ms": 1000}),
        (ConsumerOptions, {"properties": {"n": 1}}),
        (ProducerOptions, {"batching_max_messages": 0}),
        (ProducerOptions, {"send_timeout_millis": "30000"}),
        (ProducerOptions, {"properties": {"n": 1}}),
    ],
)
def test_options_that_no_library_takes(kind: type[ConsumerOptions | ProducerOptions], said: dict[str, Any]) -> None:
    """Unknown options are refused at once, by their names."""
    with pytest.raises(Unsupported, match=next(iter(said))):
        kind(**said)


@pytest.mark.parametrize("error", [Unsupported("it does not take this"), NotAuthorized(4, "not for you")])
def test_a_subscription_that_is_refused(world: FakeWorld, error: ScalableError) -> None:
    """`subscribe` raises what another attempt would end with as well."""
    world.refuses_receivers = error
    with pytest.raises(type(error)):
        QueueConsumer(world, TOPIC, "work", ConsumerOptions())


def test_options_that_later_libraries_refuse(world: FakeWorld) -> None:
    """The application gets the error in place of messages where only a later segment is refused."""
    with QueueConsumer(world, TOPIC, "work", ConsumerOptions()) as consumer:
        world.refuses_receivers = Unsupported("it does not take this")
        world.seal(0)()
        with pytest.raises(Unsupported, match="take"):
            consumer.receive(20_000)


def test_a_subscription_that_is_made(world: FakeWorld) -> None:
    """`subscribe` returns when the subscription exists on every segment, or fails after its time."""
    world.seal(0)()
    world.opening_seconds = 0.2
    with QueueConsumer(world, TOPIC, "work", ConsumerOptions()):
        assert all("work" in segment.cursors for segment in world.segments.values())
    world.refuses_receivers = ConnectionLost("away")
    begun = time.monotonic()
    with pytest.raises(TimedOut, match=r"not subscribed on all segments: [^;]*: away"):
        QueueConsumer(world, TOPIC, "late", ConsumerOptions(), subscribe_limit=2)
    assert time.monotonic() - begun < 20


def test_a_sealed_segment_that_refuses_consumers(world: FakeWorld) -> None:
    """A sealed segment without messages does not keep a consumer from subscribing."""
    world.seal(0)()
    world.refuses_receivers, world.refusing = Refused(0, "no ledger"), {0}
    with QueueConsumer(world, TOPIC, "work", ConsumerOptions(), subscribe_limit=20) as consumer:
        assert consumer.segments == [0, 1, 2, 3]

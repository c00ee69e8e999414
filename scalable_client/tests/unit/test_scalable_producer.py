"""The order of a producer through any course of splits, merges and lost acknowledgements."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalable_client.tests.support.fake_topics import LOST_SECONDS, TOPIC, FakeWorld, Outcomes, Stored

from pulsar_scalable.errors import AlreadyClosed, ConnectionLost, QueueFull, ScalableError, TimedOut
from pulsar_scalable.native import MessageId
from pulsar_scalable.options import ProducerOptions
from pulsar_scalable.ports import Content
from pulsar_scalable.producer import ScalableProducer
from tests.support.waiting import timeout_for, wait_for, wait_until_equal

KEYS = [f"k{number}" for number in range(12)]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 40)),
        st.tuples(st.just("split"), st.integers(0, 100)),
        st.tuples(st.just("merge"), st.integers(0, 100)),
        st.tuples(st.just("lose"), st.integers(0, 100)),
        st.tuples(st.just("connect"), st.booleans().map(int)),
        st.tuples(st.just("shut"), st.just(0)),
        st.tuples(st.just("tell"), st.just(0)),
        st.tuples(st.just("breathe"), st.integers(0, 3)),
    ),
    max_size=40,
)


def nothing(_: ScalableError | None, __: object) -> None:
    """Ignore an outcome."""


class Course:
    """A producer on a topic whose controller is the test."""

    def __init__(self, segments: int, *, hasty: bool) -> None:
        self.world = FakeWorld(segments)
        self.outcomes = Outcomes()
        self.sent: dict[str, list[bytes]] = {}
        self.untold: list[Callable[[], None]] = []
        self.hasty = hasty
        self.doubled = False
        options = ProducerOptions(max_pending_messages=100_000, send_timeout_millis=20_000)
        self.producer = ScalableProducer(self.world, TOPIC, options)

    def take(self, verb: str, figure: int) -> None:
        """Take one step."""
        if verb == "send":
            self.send(figure)
        elif verb == "tell":
            self.tell()
        elif verb == "breathe":
            time.sleep(figure / 1000)
        elif verb == "shut":
            for sender in list(self.world.senders):
                sender.close_itself()
        elif verb == "connect":
            self.doubled |= bool(figure)
            self.connect(stores=bool(figure))
        elif verb == "lose":
            active = self.world.layout.active
            with self.world.lock:
                self.world.segments[active[figure % len(active)].id].lose += 1
        elif verb == "split":
            self.split(figure)
        else:
            self.merge(figure)
        if self.hasty:
            self.tell()

    def connect(self, *, stores: bool) -> None:
        """Restore lost connections."""
        for sender in list(self.world.senders):
            sender.connect_again(stores=stores)

    def send(self, count: int) -> None:
        """Send messages of all keys, and some without a key."""
        for _ in range(count):
            number = sum(map(len, self.sent.values()))
            key = KEYS[number * 7 % len(KEYS)] if number % 5 else ""
            data = str(number).encode()
            self.sent.setdefault(key, []).append(data)
            self.producer.send_async(data, self.outcomes.of(data), partition_key=key or None)

    def split(self, figure: int) -> None:
        """Split a segment that is large enough."""
        large = [segment for segment in self.world.layout.active if segment.end - segment.start > 64]
        if large and len(self.world.segments) < 40:
            self.untold.append(self.world.seal(large[figure % len(large)].id))

    def merge(self, figure: int) -> None:
        """Merge two neighbours."""
        neighbours = list(pairwise(self.world.layout.active))
        if neighbours:
            first, other = neighbours[figure % len(neighbours)]
            self.untold.append(self.world.seal(first.id, other.id))

    def tell(self) -> None:
        """Report the layouts that the producer does not know."""
        reports, self.untold = self.untold, []
        for report in reports:
            report()

    def finish(self) -> None:
        """Check the final state."""
        self.tell()
        while self.producer.pending_messages:
            self.connect(stores=False)
            time.sleep(0.002)
        self.producer.close()
        assert {data: reported for data, reported in self.outcomes.reported.items() if reported != [None]} == {}
        stored = self.world.history()
        if self.doubled:
            stored = {key: list(dict.fromkeys(contents)) for key, contents in stored.items()}
        assert {key: stored.get(key) for key in self.sent if key} == {k: v for k, v in self.sent.items() if k}
        assert sorted(stored.get("", [])) == sorted(self.sent.get("", []))


@given(steps=steps, segments=st.integers(1, 4), hasty=st.booleans())
@settings(max_examples=150)
def test_any_course(steps: list[tuple[str, int]], segments: int, hasty: bool) -> None:
    """Each message is stored once, in the order of its key, and its outcome is reported once."""
    course = Course(segments, hasty=hasty)
    for verb, figure in steps:
        course.take(verb, figure)
    course.finish()


def test_many_threads() -> None:
    """Threads that each send a key keep its order, while segments are split and merged under them."""
    course = Course(2, hasty=True)
    outcomes = Outcomes()

    def run(key: str) -> None:
        for number in range(300):
            data = f"{key}/{number}".encode()
            course.producer.send_async(data, outcomes.of(data), partition_key=key)

    threads = [threading.Thread(target=run, args=(key,)) for key in KEYS]
    for thread in threads:
        thread.start()
    for number in range(12):
        course.take("merge" if number % 3 == 2 else "split", number)
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    course.finish()
    assert all(outcome == [None] for outcome in outcomes.reported.values())
    assert course.world.history() == {key: [f"{key}/{number}".encode() for number in range(300)] for key in KEYS}


def stored_without_an_answer() -> Course:
    """Create a segment that has stored forty messages, and acknowledged the first twenty."""
    course = Course(1, hasty=False)
    course.send(20)
    wait_until_equal("the first are acknowledged", lambda: course.producer.pending_messages, 0, 20)
    course.take("lose", 0)
    course.send(20)
    wait_until_equal("the others are stored", lambda: len(course.world.segments[0].log), 40, 20)
    return course


def test_messages_that_are_stored_without_an_answer() -> None:
    """Messages that a sealed segment stored and did not acknowledge are found in it, and not stored again."""
    course = stored_without_an_answer()
    assert course.producer.pending_messages == 20
    course.take("split", 0)
    course.send(20)
    course.take("split", 0)
    course.finish()
    assert len(course.world.segments[0].log) == 40


@pytest.mark.parametrize("count", [0, 20])
def test_what_is_stored_in_a_batch(count: int) -> None:
    """Messages of a batch have the time of the first one; they are recognised, and not stored again."""
    course = Course(1, hasty=False)
    course.send(count)
    wait_until_equal("the first are acknowledged", lambda: course.producer.pending_messages, 0, 20)
    course.take("lose", 0)
    log = course.world.segments[0].log
    for number in range(3):
        course.send(1)
        wait_until_equal("it is stored", lambda: len(log), count + number + 1, 20)
        begun = log[-1].published
        wait_for("time passes", lambda begun=begun: time.time() * 1000 > begun + 2, 20)
    for message in log[count:]:
        message.published = log[count].published
    course.take("split", 0)
    course.finish()
    assert len(log) == count + 3


def test_messages_of_an_earlier_life() -> None:
    """Equal ones that a producer of the same name stored before it was opened again do not count."""
    world = FakeWorld(1)
    log = world.segments[0].log
    for data in (b"x", b"y"):
        log.append(Stored(Content(data, partition_key="k"), "fake-0", 0, MessageId(0, len(log)), published=1))
    outcomes = Outcomes()
    with ScalableProducer(world, TOPIC, ProducerOptions()) as producer:
        world.segments[0].lose = 1
        producer.send_async(b"x", outcomes.of(b"x"), partition_key="k")
        wait_until_equal("it is stored", lambda: len(log), 3, 20)
        tell = world.seal(0)
        producer.send_async(b"y", outcomes.of(b"y"), partition_key="k")
        wait_for("the other is refused", lambda: world.senders[0].refused, 20)
        tell()
        producer.flush()
    assert outcomes.reported == {b"x": [None], b"y": [None]}
    assert world.history()["k"] == [b"x", b"y", b"x", b"y"]


def test_flush_waits_for_callbacks() -> None:
    """Outcomes are reported before flush returns; in a callback it waits for no other callback."""
    numbers: list[int] = []
    with ScalableProducer(FakeWorld(2), TOPIC, ProducerOptions()) as producer:

        def on_outcome(_: ScalableError | None, __: object) -> None:
            time.sleep(0.01)  # a slow application
            producer.flush()
            numbers.append(len(numbers))

        for number in range(20):
            producer.send_async(b"x", on_outcome, partition_key=str(number))
        producer.flush()
        assert len(numbers) == 20
    producer.flush()


def test_a_sender_that_closes_before_it_answers() -> None:
    """Stored messages are recognised in the sealed segment, although a later message fails first as closed."""
    course = stored_without_an_answer()
    course.take("split", 0)
    course.take("shut", 0)
    course.send(20)
    wait_for("the segment refuses another sender", lambda: course.world.refused, 20)
    course.finish()
    assert len(course.world.segments[0].log) == 40


@pytest.mark.parametrize("cause", [ConnectionLost("fenced"), ValueError("unexpected")])
def test_a_sealed_segment_that_cannot_be_read_yet(cause: Exception) -> None:
    """No message is sent again before the sealed segment was read."""
    world = FakeWorld(1)
    world.unreadable_since = cause
    world.unreadable.add(0)
    outcomes = Outcomes()
    with ScalableProducer(world, TOPIC, ProducerOptions(send_timeout_millis=60_000)) as producer:
        producer.send(b"first", partition_key="k")
        world.segments[0].lose = 1
        producer.send_async(b"second", outcomes.of(b"second"), partition_key="k")
        wait_until_equal("it is stored", lambda: len(world.segments[0].log), 2, 20)
        world.seal(0)()
        producer.send_async(b"third", outcomes.of(b"third"), partition_key="k")
        threading.Timer(2.5, world.unreadable.clear).start()
        producer.flush()
    assert outcomes.reported == {b"second": [None], b"third": [None]}
    assert world.history()["k"] == [b"first", b"second", b"third"]


def await_closed(world: FakeWorld) -> None:
    """Wait until no sender would store what was given up: a producer closes it from another thread."""
    wait_for("all senders are closed", lambda: all(sender.is_closed for sender in world.senders), 20)


def test_a_timed_out_message_is_not_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that failed while no broker answered releases its memory, and is not stored afterwards."""
    # Otherwise a pause may be longer than the timeout of the next message.
    monkeypatch.setattr("pulsar_scalable.producer._LONGEST_PAUSE", 0.1)
    world, outcomes = FakeWorld(1), Outcomes()
    options = ProducerOptions(send_timeout_millis=1_500, max_pending_messages=3)
    with ScalableProducer(world, TOPIC, options) as producer:
        producer.send(b"first", partition_key="k")
        world.is_away = True
        for turn in range(3):
            for number in range(3):
                data = f"{turn}-{number}".encode()
                producer.send_async(data, outcomes.of(data), partition_key="k")
            wait_for("they fail", lambda: not producer.pending_messages, 20)
        # Callbacks come later than that, from another thread.
        producer.flush()
        assert all(isinstance(outcome, TimedOut) for [outcome] in outcomes.reported.values())
        await_closed(world)
        world.is_away = False
        for number in range(10):
            producer.send(f"later-{number}".encode(), partition_key="k")
        [queue] = producer._queue._queues.values()  # pyright: ignore[reportPrivateUsage]
        assert len(queue.sent) <= 1
    log = world.segments[0].log
    assert [message.data() for message in log] == [b"first", *(b"later-%d" % number for number in range(10))]
    # The id of the message that failed while it was under way may still come.
    assert log[1].sequence > log[0].sequence + 1


def test_a_message_stored_before_a_timeout_is_not_stored_again() -> None:
    """A sender that replaces a lost one has its name, and gives the same sequence ids to earlier messages."""
    world, outcomes = FakeWorld(1), Outcomes()
    world.deduplicates, world.busy_names = True, 2
    log = world.segments[0].log
    with ScalableProducer(world, TOPIC, ProducerOptions()) as producer:
        send_queue = producer._queue  # pyright: ignore[reportPrivateUsage]
        producer.send(b"first", partition_key="k")
        world.segments[0].lose = 1
        producer.send_async(b"second", outcomes.of(b"second"), partition_key="k")
        [second] = send_queue._pending.values()  # pyright: ignore[reportPrivateUsage]
        wait_until_equal("it is stored", lambda: len(log), 2, 20)
        for data in (b"third", b"fourth"):
            producer.send_async(data, outcomes.of(data), partition_key="k")
        wait_until_equal("they are stored", lambda: len(log), 4, 20)
        world.is_away = True
        send_queue.expire(second.deadline)
        wait_for("the second one fails", lambda: outcomes.reported[b"second"], 20)
        world.is_away = False
        producer.send(b"fifth", partition_key="k")
    assert isinstance(outcomes.reported[b"second"][0], TimedOut)
    assert [outcomes.reported[data] for data in (b"third", b"fourth")] == [[None], [None]]
    assert [message.data() for message in log] == [b"first", b"second", b"third", b"fourth", b"fifth"]
    assert len({message.producer for message in log}) == 1


def test_a_split_after_a_timeout() -> None:
    """A sealed segment is known to have stored what was sent after a message that was given up, and is not stored."""
    world, outcomes = FakeWorld(1), Outcomes()
    log = world.segments[0].log
    with ScalableProducer(world, TOPIC, ProducerOptions()) as producer:
        producer.send(b"first", partition_key="k")
        [queue] = producer._queue._queues.values()  # pyright: ignore[reportPrivateUsage]
        world.is_away = True
        producer.send_async(b"given up", outcomes.of(b"given up"), partition_key="k")
        wait_for("it is under way", lambda: queue.has_unresolved, 20)
        producer._queue.expire(float("inf"))  # pyright: ignore[reportPrivateUsage]
        wait_for("it fails", lambda: outcomes.reported[b"given up"], 20)
        await_closed(world)
        world.is_away, world.segments[0].lose = False, 1
        for data in (b"second", b"third"):
            producer.send_async(data, outcomes.of(data), partition_key="k")
        wait_until_equal("they are stored", lambda: len(log), 3, 20)
        world.seal(0)()
        producer.send(b"last", partition_key="k")
    assert [outcomes.reported[data] for data in (b"second", b"third")] == [[None], [None]]
    assert world.history()["k"] == [b"first", b"second", b"third", b"last"]


def test_a_defect_in_the_search_of_a_sealed_segment() -> None:
    """A message fails of which a defect keeps it unknown whether it is stored, and later ones do not wait for it."""
    world = FakeWorld(1)
    world.unreadable_since = AttributeError("a library without this method")
    world.unreadable.add(0)
    outcomes = Outcomes()
    with ScalableProducer(world, TOPIC, ProducerOptions(send_timeout_millis=0)) as producer:
        producer.send(b"first", partition_key="k")
        world.segments[0].lose = 1
        producer.send_async(b"second", outcomes.of(b"second"), partition_key="k")
        wait_until_equal("it is stored", lambda: len(world.segments[0].log), 2, 20)
        world.seal(0)()
        producer.send_async(b"third", outcomes.of(b"third"), partition_key="k")
        wait_for("both outcomes", lambda: all(outcomes.reported.values()), 20)
    assert outcomes.reported[b"third"] == [None]
    assert "delivery outcome unknown: AttributeError" in str(outcomes.reported[b"second"][0])


def test_an_answer_that_was_lost_before_the_layout_came() -> None:
    """A segment is loaded again before its layout is published: earlier pending requests delay no later message."""
    world = FakeWorld(1)
    world.lost_answers.add(0)
    outcomes = Outcomes()
    with ScalableProducer(world, TOPIC, ProducerOptions()) as producer:
        producer.send(b"first", partition_key="k")
        tell = world.seal(0)
        producer.send_async(b"second", outcomes.of(b"second"), partition_key="k")
        assert world.losing.wait(timeout_for(20))
        began = time.monotonic()
        tell()
        producer.flush()
        assert time.monotonic() - began < LOST_SECONDS / 2
        world.lost.set()
    assert outcomes.reported == {b"second": [None]}
    assert world.history()["k"] == [b"first", b"second"]


def test_equal_messages_are_not_lost() -> None:
    """If equal messages leave open how many are stored, they are sent again: none is lost."""
    course = Course(1, hasty=False)
    course.world.segments[0].lose = 1
    outcomes = [Outcomes() for _ in range(6)]
    for outcome in outcomes:
        course.producer.send_async(b"same", outcome.of(b"same"), partition_key="k")
    wait_until_equal("all are stored", lambda: len(course.world.segments[0].log), 6, 20)
    course.take("split", 0)
    course.producer.send_async(b"last", course.outcomes.of(b"last"), partition_key="k")
    course.tell()
    course.producer.flush()
    course.producer.close()
    assert [outcome.reported for outcome in outcomes] == [{b"same": [None]}] * 6
    assert course.world.history()["k"].count(b"same") >= 6


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"content": "text"}, TypeError),
        ({"properties": {"n": 1}}, TypeError),
        ({"properties": {1: "n"}}, TypeError),
        ({"partition_key": b"k"}, TypeError),
        ({"ordering_key": 1}, TypeError),
        ({"event_timestamp": 1.5}, TypeError),
        ({"event_timestamp": -1}, ValueError),
        ({"sequence_id": 1 << 63}, ValueError),
        ({"properties": {"n": "\ud800"}}, ValueError),
    ],
)
def test_invalid_messages(said: dict[str, Any], error: type[Exception]) -> None:
    """An invalid message is rejected immediately, and delays no other."""
    message: dict[str, Any] = {"content": b"x", **said}
    with ScalableProducer(FakeWorld(1), TOPIC, ProducerOptions()) as producer:
        with pytest.raises(error):
            producer.send(**message)
        assert producer.pending_messages == 0
        producer.send(b"x")


def test_what_the_library_does_not_take() -> None:
    """A message that the library rejects fails with the cause; the messages before and after it are stored."""
    world = FakeWorld(1)
    world.spoilt.add(b"1")
    outcomes = Outcomes()
    with ScalableProducer(world, TOPIC, ProducerOptions()) as producer:
        for data in (b"0", b"1", b"2"):
            producer.send_async(data, outcomes.of(data), partition_key="k")
    assert world.history()["k"] == [b"0", b"2"]
    assert (outcomes.reported[b"0"], outcomes.reported[b"2"]) == ([None], [None])
    assert "spoilt" in str(outcomes.reported[b"1"][0])


def test_a_layout_that_does_not_come() -> None:
    """Messages that a sealed segment rejected fail in time if no new layout is reported, and release their room."""
    world = FakeWorld(1)
    options = ProducerOptions(send_timeout_millis=1_500, max_pending_messages=3)
    with ScalableProducer(world, TOPIC, options) as producer:
        producer.send(b"first", partition_key="k")
        tell = world.seal(0)
        for number in range(3):
            producer.send_async(str(number).encode(), nothing, partition_key="k")
        with pytest.raises(QueueFull, match="3 messages wait"):
            producer.send_async(b"more", nothing)
        wait_until_equal("they have failed", lambda: producer.pending_messages, 0, 20)
        with pytest.raises(TimedOut, match="not stored after 1500 ms"):
            producer.send(b"later", partition_key="k")
        tell()
        producer.send(b"last", partition_key="k")
    assert world.history()["k"] == [b"first", b"last"]


def test_what_is_closed() -> None:
    """Messages that are not stored when the producer is closed fail, as do later calls; a callback cannot wait."""
    world = FakeWorld(1)
    producer = ScalableProducer(world, TOPIC, ProducerOptions())
    errors: list[Exception] = []

    def callback(error: ScalableError | None, _: object) -> None:
        try:
            producer.send(b"from a callback")
        except ScalableError as refusal:
            errors.append(refusal)

    producer.send_async(b"one", callback)
    producer.flush()
    world.seal(0)
    outcomes = Outcomes()
    producer.send_async(b"two", outcomes.of(b"two"))
    producer.close()
    producer.close()
    assert [type(error) for error in outcomes.reported[b"two"]] == [AlreadyClosed]
    assert "use send_async" in str(errors[0])
    with pytest.raises(AlreadyClosed):
        producer.send(b"three")


def test_an_empty_key_is_a_key() -> None:
    """Messages with an empty key all go to the segment of the empty key, in the order in which they were sent."""
    world = FakeWorld(8)
    outcomes = Outcomes()
    with ScalableProducer(world, TOPIC, ProducerOptions()) as producer:
        for number in range(20):
            data = str(number).encode()
            producer.send_async(data, outcomes.of(data), partition_key="")
    expected = world.layout.segment_for("").id
    stored = {number: [message.data() for message in segment.log] for number, segment in world.segments.items()}
    assert stored[expected] == [str(number).encode() for number in range(20)]
    assert [number for number, messages in stored.items() if messages] == [expected]

"""A scalable topic in memory; tests can seal its segments and lose acknowledgements."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pulsar_scalable.enums import ConsumerKind, ConsumerType
from pulsar_scalable.errors import (
    AlreadyClosed,
    ConnectionLost,
    ConsumerBusy,
    ProducerBusy,
    ScalableError,
    TimedOut,
    TopicTerminated,
)
from pulsar_scalable.layout import Layout, Segment, synthetic
from pulsar_scalable.messages import RawMessage
from pulsar_scalable.names import TopicName
from pulsar_scalable.native import AssignedSegment, Assignment, MessageId
from pulsar_scalable.options import ConsumerOptions, InitialPosition, ProducerOptions
from pulsar_scalable.ports import Content, OnAssignment, OnLayout, OnStored, Sharing, Start

TOPIC = TopicName("public/default/fake")
LOST_SECONDS = 30.0
"""Longest wait for an answer that was lost; what depends on it lasts as long."""


@dataclass
class Stored:
    """A stored message."""

    content: Content
    producer: str
    sequence: int
    id: MessageId
    published: int

    def data(self) -> bytes:
        """Return the content."""
        return self.content.data

    def properties(self) -> dict[str, str]:
        """Return the properties."""
        return self.content.properties or {}

    def partition_key(self) -> str:
        """Return the key."""
        return self.content.partition_key or ""

    def ordering_key(self) -> str:
        """Return the ordering key."""
        return self.content.ordering_key or ""

    def publish_timestamp(self) -> int:
        """Return the time of sending."""
        return self.published

    def event_timestamp(self) -> int:
        """Return the event time."""
        return self.content.event_timestamp or 0

    def message_id(self) -> MessageId:
        """Return the id."""
        return self.id

    def redelivery_count(self) -> int:
        """Return the number of earlier deliveries."""
        return 0

    def producer_name(self) -> str:
        """Return the producer's name."""
        return self.producer


@dataclass
class Cursor:
    """A subscription on a segment: entries that consumers have, and those that are acknowledged."""

    taken: set[int] = field(default_factory=set[int])
    acknowledged: set[int] = field(default_factory=set[int])
    consumers: list[object] = field(default_factory=list[object])
    shared: bool = False


@dataclass
class FakeSegment:
    """Content and subscriptions of a segment.

    Attributes:
        lose: number of acknowledgements that will be lost.
    """

    number: int
    log: list[Stored] = field(default_factory=list[Stored])
    terminated: bool = False
    lose: int = 0
    cursors: dict[str, Cursor] = field(default_factory=dict[str, Cursor])


class FakeSender:
    """Stores messages in its own thread, as brokers do; after a lost acknowledgement it sends no other."""

    def __init__(self, world: FakeWorld, segment: FakeSegment, name: str) -> None:
        self._world = world
        self._segment = segment
        self.producer_name = name
        self._queue: deque[tuple[Content, int, OnStored, int]] = deque()
        self._unanswered: list[tuple[Content, int, OnStored, int]] = []
        self._more = threading.Condition()
        self._closed = False
        self._broken = self._busy = False
        self.has_closed_itself = False
        #: Messages that arrived after the seal.
        self.refused = 0
        self._last = self._last_stored()
        self._world.senders.append(self)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """True if its broker can be reached."""
        return not self._world.is_away

    @property
    def is_closed(self) -> bool:
        """True once its client has begun to close it: it stores no more than the message at hand."""
        return self._closed

    def last_sequence_id(self) -> int:
        """Return the highest sequence id of its name if deduplication is on, else -1."""
        return self._last

    def _is_stored(self, sequence_id: int) -> bool:
        return self._world.deduplicates and sequence_id <= self._last_stored()

    def _last_stored(self) -> int:
        stored = (message.sequence for message in self._segment.log if message.producer == self.producer_name)
        return max(stored, default=-1) if self._world.deduplicates else -1

    def send(self, content: Content, sequence_id: int, on_stored: OnStored) -> None:
        """Send a message."""
        if content.data in self._world.spoilt:
            raise OverflowError("spoilt")
        with self._more:
            if self.has_closed_itself:
                on_stored(AlreadyClosed("closed"), None)
                return
            self._queue.append((content, sequence_id, on_stored, int(time.time() * 1000)))
            self._more.notify()

    def close_itself(self) -> None:
        """Close without a notification, as senders do without messages, or if their segment is sealed.

        In the latter case a new message may be refused before those without an answer are.
        """
        with self._more, self._world.lock:
            idle = not self._queue and not self._unanswered and not self._busy
            self.has_closed_itself |= idle or self._segment.terminated

    def close(self) -> None:
        """Close it."""
        with self._more:
            self._closed = True
            self._more.notify()
        self._thread.join()
        for _, _, on_stored, _ in (*self._unanswered, *self._queue):
            on_stored(AlreadyClosed("closed"), None)

    def connect_again(self, *, stores: bool) -> None:
        """Send all unanswered messages again; deduplication drops them, or they are stored twice."""
        with self._world.lock:
            if self._segment.terminated or not self._broken:
                return
            self._broken = False
            answers, self._unanswered = self._unanswered, []
            for content, sequence_id, on_stored, published in answers:
                message_id = MessageId(-1, -1)
                if stores:
                    message_id = MessageId(self._segment.number, len(self._segment.log))
                    self._segment.log.append(Stored(content, self.producer_name, sequence_id, message_id, published))
                on_stored(None, message_id)

    def _run(self) -> None:
        while True:
            with self._more:
                while not self._queue or self._world.is_away:
                    if self._closed:
                        return
                    self._more.wait(0.01)
                message = self._queue.popleft()
                self._busy = True
            self._store(message)
            self._busy = False

    def _store(self, message: tuple[Content, int, OnStored, int]) -> None:
        content, sequence_id, on_stored, published = message
        with self._world.lock:
            segment = self._segment
            if segment.terminated:
                error, message_id = TopicTerminated(15, "sealed"), None
                self.refused += 1
            elif self._is_stored(sequence_id):
                error, message_id = None, MessageId(-1, -1)
            else:
                error, message_id = None, MessageId(segment.number, len(segment.log))
                segment.log.append(Stored(content, self.producer_name, sequence_id, message_id, published))
                if segment.lose:
                    segment.lose -= 1
                    self._broken = True
            if self._broken:
                self._unanswered.append(message)
            else:
                on_stored(error, message_id)
            if error is not None:
                # Messages stored before have no answer either: a client notices the end when it reconnects.
                answers, self._unanswered = self._unanswered, []
                for _, _, callback, _ in answers:
                    callback(error, None)


class FakeReader:
    """Reads the messages of a segment from a position on."""

    def __init__(self, messages: list[Stored], at: int, *, mute: bool) -> None:
        self._found = messages
        self._at = at
        self._mute = mute

    def read_next(self, timeout_millis: int) -> RawMessage:
        """Return the next message."""
        if self._mute or not self.has_message_available():
            time.sleep(0.002)
            raise TimedOut("nothing")
        self._at += 1
        return self._found[self._at - 1]

    def has_message_available(self) -> bool:
        """Return whether there is a next message."""
        return self._at < len(self._found)

    def repeat(self, count: int) -> None:
        """Send some messages again."""
        self._at -= count

    def close(self) -> None:
        """Close it."""


class FakeReceiver:
    """Receives the unacknowledged messages of a subscription; an exclusive one excludes other receivers."""

    def __init__(self, world: FakeWorld, segment: FakeSegment, subscription: str, sharing: Sharing) -> None:
        self._world = world
        self._segment = segment
        self._cursor = segment.cursors.setdefault(subscription, Cursor())
        shared = sharing.consumer_type is not ConsumerType.Exclusive
        if self._cursor.consumers and not (shared and self._cursor.shared):
            raise ConsumerBusy(5, "another consumer has it")
        self._cursor.shared = shared
        self.buckets = sharing.buckets
        self._mine: set[int] = set()
        # Like pulsar-client: never resends an acknowledgement, and drops messages that it has acknowledged itself.
        self._acknowledged_to = -1
        self._cursor.consumers.append(self)

    def receive(self, timeout_millis: int) -> RawMessage:
        """Return the next message."""
        until = time.monotonic() + timeout_millis / 1000
        while True:
            with self._world.lock:
                for message in self._segment.log:
                    if message.id.entry not in self._cursor.taken | self._cursor.acknowledged:
                        self._cursor.taken.add(message.id.entry)
                        self._mine.add(message.id.entry)
                        if message.id.entry > self._acknowledged_to:
                            return message
            if time.monotonic() > until:
                raise TimedOut("nothing")
            time.sleep(0.002)

    def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge a message."""
        with self._world.lock:
            self._cursor.acknowledged.add(message_id.entry)

    def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge all messages up to one."""
        with self._world.lock:
            assert not self._cursor.shared, "brokers reject cumulative acknowledgements of shared subscriptions"
            self._acknowledged_to = message_id.entry
            if self._world.loses_acknowledgements:
                return
            self._cursor.acknowledged.update(range(message_id.entry + 1))

    def negative_acknowledge(self, message: RawMessage) -> None:
        """Request redelivery of a message."""
        entry = message.message_id().entry

        def again() -> None:
            with self._world.lock:
                self._cursor.taken.discard(entry)

        threading.Timer(self._world.redelivery_seconds, again).start()

    @property
    def is_drained(self) -> bool | None:
        """True if all messages are acknowledged; None for a library that does not report it."""
        if not self._world.tells_ends:
            return None
        return self._segment.terminated and len(self._cursor.acknowledged) >= len(self._segment.log)

    def close(self) -> None:
        """Release the unacknowledged messages."""
        with self._world.lock:
            self._cursor.taken -= self._mine
            if self in self._cursor.consumers:
                self._cursor.consumers.remove(self)


class FakeSession:
    """Registration of a consumer with the segments that the test assigned."""

    def __init__(self, world: FakeWorld, name: str, on_assignment: OnAssignment) -> None:
        self._world = world
        self._name = name
        self.on_assignment = on_assignment
        self.assignment = Assignment(0, ())

    def leave(self) -> None:
        """Remove the consumer."""
        self._world.sessions.pop(self._name, None)

    def detach(self) -> None:
        """Keep the registration."""


@dataclass
class FakeWatch:
    """Watch with the last reported layout."""

    layout: Layout

    def close(self) -> None:
        """Close it."""


class FakeWorld:
    """A scalable topic and its brokers."""

    def __init__(self, segments: int) -> None:
        self.lock = threading.RLock()
        equal = synthetic(TOPIC.scalable, [str(number) for number in range(segments)]).segments
        self.layout = Layout(TOPIC.scalable, 0, tuple(replace(segment, legacy_topic=None) for segment in equal))
        self.segments = {segment.id: FakeSegment(segment.id) for segment in equal}
        self._listeners: list[OnLayout] = []
        self.senders: list[FakeSender] = []
        self.sessions: dict[str, FakeSession] = {}
        self.tells_ends = False
        #: How long it takes until what was negatively acknowledged comes again.
        self.redelivery_seconds = 0.0
        #: Segments that no reader gets access to now.
        self.unreadable: set[int] = set()
        self.unreadable_since: Exception = ConnectionLost("fenced")
        #: Segments whose next reader gives nothing, although it says that there is something.
        self.mute: set[int] = set()
        self.readers: list[FakeReader] = []
        #: Segments whose next reader waits for an answer that was lost, until `lost` is set.
        self.lost_answers: set[int] = set()
        self.losing, self.lost = threading.Event(), threading.Event()
        self.refuses_receivers: ScalableError | None = None
        #: Segments that refuse receivers; all, where it is empty.
        self.refusing: set[int] = set()
        #: Seconds until a receiver of a segment is open.
        self.opening_seconds = 0.0
        #: Whether cumulative acknowledgements go with their connection.
        self.loses_acknowledgements = False
        #: Where the first receiver of a segment wanted to begin.
        self.positions: dict[int, InitialPosition] = {}
        #: Contents that the library fails to take.
        self.spoilt: set[bytes] = set()
        #: Whether no broker can be reached.
        self.is_away = False
        #: Whether brokers drop what a producer of this name has stored.
        self.deduplicates = False
        #: How often a sender's name is refused that another one had.
        self.busy_names = 0
        #: Senders that a sealed segment did not get.
        self.refused = 0

    # The backend ----------------------------------------------------------------------------------------------------

    def watch(self, topic: TopicName, on_layout: OnLayout) -> FakeWatch:
        """Report the layout, and each newer one."""
        self._listeners.append(on_layout)
        on_layout(self.layout)
        return FakeWatch(self.layout)

    def open_sender(self, topic: str, options: ProducerOptions, producer_name: str | None = None) -> FakeSender:
        """Open a producer of a segment."""
        segment = self._of(topic)
        with self.lock:
            if self.is_away:
                raise ConnectionLost("away")
            if segment.terminated:
                self.refused += 1
                raise TopicTerminated(15, "sealed")
            if self.busy_names and producer_name:
                self.busy_names -= 1
                raise ProducerBusy(16, "the name is taken")
            return FakeSender(self, segment, producer_name or f"{options.producer_name or 'fake'}-{len(self.senders)}")

    def open_reader(self, topic: str, start: Start) -> FakeReader:
        """Open a reader of a segment."""
        number = self._of(topic).number
        if number in self.lost_answers:
            self.lost_answers.discard(number)
            self.losing.set()
            self.lost.wait(LOST_SECONDS)
            raise TimedOut("no answer")
        with self.lock:
            if number in self.unreadable:
                raise self.unreadable_since
            last_entry = MessageId.deserialize(start.after).entry if start.after else -1
            self.readers.append(FakeReader(self._of(topic).log, last_entry + 1, mute=number in self.mute))
            self.mute.discard(number)
            return self.readers[-1]

    def open_receiver(self, topic: str, subscription: str, options: ConsumerOptions, sharing: Sharing) -> FakeReceiver:
        """Open a consumer of a segment."""
        if self.refuses_receivers is not None and self._of(topic).number in (self.refusing or self.segments):
            raise self.refuses_receivers
        time.sleep(self.opening_seconds)
        with self.lock:
            self.positions.setdefault(self._of(topic).number, options.initial_position)
            return FakeReceiver(self, self._of(topic), subscription, sharing)

    def register(
        self, topic: TopicName, subscription: str, consumer_name: str, kind: ConsumerKind, on_assignment: OnAssignment
    ) -> FakeSession:
        """Register a consumer, which has no segment before the test assigns some."""
        self.sessions[consumer_name] = FakeSession(self, consumer_name, on_assignment)
        return self.sessions[consumer_name]

    def assign(self, consumer_name: str, *segments: int, shared: bool = False) -> None:
        """Give a consumer segments, in place of those that it has; shared ones by two entry buckets."""
        buckets = ((0, 0x7FFF), (0x8000, 0xFFFF)) if shared else ()
        messages = [self.layout.by_id[number] for number in segments]
        assigned = tuple(
            AssignedSegment(segment.id, segment.start, segment.end, self.layout.topic_of(segment), buckets)
            for segment in messages
        )
        session = self.sessions[consumer_name]
        session.assignment = Assignment(self.layout.epoch, assigned)
        session.on_assignment(session.assignment)

    def store(self, segment: int, *data: str, key: str = "k") -> None:
        """Store messages."""
        with self.lock:
            log = self.segments[segment].log
            for text in data:
                content = Content(text.encode(), partition_key=key)
                log.append(Stored(content, "test", len(log), MessageId(segment, len(log)), 0))

    def redeliver_all(self, segment: int) -> None:
        """Send all unacknowledged messages again, as brokers do for consumers that reconnect."""
        self.redeliver(segment, *range(len(self.segments[segment].log)))

    def redeliver(self, segment: int, *entries: int) -> None:
        """Send these again, if they are unacknowledged: a part of what reconnecting consumers get."""
        with self.lock:
            for cursor in self.segments[segment].cursors.values():
                cursor.taken.difference_update(entries)

    def last_position(self, topic: str) -> bytes | None:
        """Return the id of a segment's last message."""
        log = self._of(topic).log
        return log[-1].id.serialize() if log else None

    def close(self) -> None:
        """Close it."""

    def _of(self, topic: str) -> FakeSegment:
        return self.segments[int(topic.rpartition("-")[2])]

    # The controller -------------------------------------------------------------------------------------------------

    def seal(self, *sealed: int) -> Callable[[], None]:
        """End one segment, to split it, or two neighbours, to merge them; return the announcement."""
        parents = [self.layout.by_id[number] for number in sealed]
        first = max(self.segments) + 1
        start, end = min(parent.start for parent in parents), max(parent.end for parent in parents)
        middle = (start + end) // 2
        ranges = [(start, middle), (middle + 1, end)] if len(parents) == 1 else [(start, end)]
        children = [
            Segment(first + place, *hashes, parents=tuple(sealed), children=()) for place, hashes in enumerate(ranges)
        ]
        with self.lock:
            for child in children:
                self.segments[child.id] = FakeSegment(child.id)
            for number in sealed:
                self.segments[number].terminated = True
        ids = tuple(child.id for child in children)
        others = [
            replace(segment, active=False, children=ids) if segment.id in sealed else segment
            for segment in self.layout.segments
        ]
        self.layout = replace(self.layout, epoch=self.layout.epoch + 1, segments=(*others, *children))
        return self._announcement()

    def prune(self, *sealed: int) -> None:
        """Take sealed segments out of the layout; their messages stay."""
        remaining = [segment for segment in self.layout.segments if segment.id not in sealed]
        orphans = [
            replace(segment, parents=tuple(number for number in segment.parents if number not in sealed))
            for segment in remaining
        ]
        self.layout = replace(self.layout, epoch=self.layout.epoch + 1, segments=tuple(orphans))
        self.tell()

    def tell(self) -> None:
        """Report the current layout."""
        self._announcement()()

    def _announcement(self) -> Callable[[], None]:
        layout = self.layout

        def tell() -> None:
            for listener in self._listeners:
                listener(layout)

        return tell

    def history(self) -> dict[str, list[bytes]]:
        """Return the stored contents by key, each segment after its ancestors."""
        messages: dict[str, list[bytes]] = {}
        for segment in self.layout.drain_order():
            for message in self.segments[segment.id].log:
                messages.setdefault(message.partition_key(), []).append(message.data())
        return messages


class Outcomes:
    """Outcomes that a producer reported."""

    def __init__(self) -> None:
        self.reported: dict[bytes, list[ScalableError | None]] = {}

    def of(self, data: bytes) -> Callable[[ScalableError | None, object], None]:
        """Return the callback for a message."""
        self.reported[data] = []

        def report(error: ScalableError | None, message_id: object) -> None:
            assert (error is None) == (message_id is not None)
            self.reported[data].append(error)

        return report

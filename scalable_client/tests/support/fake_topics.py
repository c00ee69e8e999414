"""A scalable topic in memory, whose segments are sealed, and whose acknowledgements are lost, when a test says so."""

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


@dataclass
class Stored:
    """A stored message."""

    content: Content
    producer: str
    sequence: int
    id: MessageId
    published: int

    def data(self) -> bytes:
        """What was sent."""
        return self.content.data

    def properties(self) -> dict[str, str]:
        """What was said of it."""
        return self.content.properties or {}

    def partition_key(self) -> str:
        """Its key."""
        return self.content.partition_key or ""

    def ordering_key(self) -> str:
        """Its other key."""
        return self.content.ordering_key or ""

    def publish_timestamp(self) -> int:
        """When it was sent."""
        return self.published

    def event_timestamp(self) -> int:
        """Its own time."""
        return self.content.event_timestamp or 0

    def message_id(self) -> MessageId:
        """Where it is stored."""
        return self.id

    def redelivery_count(self) -> int:
        """How often it came before."""
        return 0

    def producer_name(self) -> str:
        """Who sent it."""
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
    """What a segment holds.

    Attributes:
        lose: how many acknowledgements from now on are lost.
    """

    number: int
    log: list[Stored] = field(default_factory=list[Stored])
    terminated: bool = False
    lose: int = 0
    cursors: dict[str, Cursor] = field(default_factory=dict[str, Cursor])


class FakeSender:
    """Stores in a thread of its own, as brokers do; after a lost acknowledgement no other one comes."""

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
        #: Messages that came behind the seal.
        self.refused = 0
        self._last = self._last_stored()
        self._world.senders.append(self)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Whether its broker is there."""
        return not self._world.is_away

    def last_sequence_id(self) -> int:
        """The highest one of its name, where deduplication is on."""
        return self._last

    def _is_stored(self, sequence_id: int) -> bool:
        return self._world.deduplicates and sequence_id <= self._last_stored()

    def _last_stored(self) -> int:
        stored = (one.sequence for one in self._segment.log if one.producer == self.producer_name)
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
        """Close without a word, as senders do that have nothing to tell of, or find their segment sealed.

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
        """Send all again that has no answer; deduplication drops it, or it is stored a second time."""
        with self._world.lock:
            if self._segment.terminated or not self._broken:
                return
            self._broken = False
            answers, self._unanswered = self._unanswered, []
            for content, sequence_id, on_stored, published in answers:
                found = MessageId(-1, -1)
                if stores:
                    found = MessageId(self._segment.number, len(self._segment.log))
                    self._segment.log.append(Stored(content, self.producer_name, sequence_id, found, published))
                on_stored(None, found)

    def _run(self) -> None:
        while True:
            with self._more:
                while not self._queue or self._world.is_away:
                    if self._closed:
                        return
                    self._more.wait(0.01)
                one = self._queue.popleft()
                self._busy = True
            self._store(one)
            self._busy = False

    def _store(self, one: tuple[Content, int, OnStored, int]) -> None:
        content, sequence_id, on_stored, published = one
        with self._world.lock:
            segment = self._segment
            if segment.terminated:
                error, found = TopicTerminated(15, "sealed"), None
                self.refused += 1
            elif self._is_stored(sequence_id):
                error, found = None, MessageId(-1, -1)
            else:
                error, found = None, MessageId(segment.number, len(segment.log))
                segment.log.append(Stored(content, self.producer_name, sequence_id, found, published))
                if segment.lose:
                    segment.lose -= 1
                    self._broken = True
            if self._broken:
                self._unanswered.append(one)
            else:
                on_stored(error, found)
            if error is not None:
                # What was stored before it has no answer either: a client learns of the end when it connects again.
                answers, self._unanswered = self._unanswered, []
                for _, _, callback, _ in answers:
                    callback(error, None)


class FakeReader:
    """Reads what a segment holds from a place on."""

    def __init__(self, found: list[Stored], at: int, *, mute: bool) -> None:
        self._found = found
        self._at = at
        self._mute = mute

    def read_next(self, timeout_millis: int) -> RawMessage:
        """The next message."""
        if self._mute or not self.has_message_available():
            time.sleep(0.002)
            raise TimedOut("nothing")
        self._at += 1
        return self._found[self._at - 1]

    def has_message_available(self) -> bool:
        """Whether there is one."""
        return self._at < len(self._found)

    def repeat(self, count: int) -> None:
        """Give some messages again."""
        self._at -= count

    def close(self) -> None:
        """Close it."""


class FakeReceiver:
    """One of those that get what a subscription has not acknowledged; an exclusive one keeps others out."""

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
        # As pulsar-client, which sends no acknowledgement again, and drops what is acknowledged by its own account.
        self._acknowledged_to = -1
        self._cursor.consumers.append(self)

    def receive(self, timeout_millis: int) -> RawMessage:
        """The next message."""
        until = time.monotonic() + timeout_millis / 1000
        while True:
            with self._world.lock:
                for one in self._segment.log:
                    if one.id.entry not in self._cursor.taken | self._cursor.acknowledged:
                        self._cursor.taken.add(one.id.entry)
                        self._mine.add(one.id.entry)
                        if one.id.entry > self._acknowledged_to:
                            return one
            if time.monotonic() > until:
                raise TimedOut("nothing")
            time.sleep(0.002)

    def acknowledge(self, message_id: MessageId) -> None:
        """Take a message off."""
        with self._world.lock:
            self._cursor.acknowledged.add(message_id.entry)

    def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Take all up to a message off."""
        with self._world.lock:
            assert not self._cursor.shared, "brokers take no cumulative acknowledgement of what is shared"
            self._acknowledged_to = message_id.entry
            if self._world.loses_acknowledgements:
                return
            self._cursor.acknowledged.update(range(message_id.entry + 1))

    def negative_acknowledge(self, message: RawMessage) -> None:
        """Let a message come again."""
        entry = message.message_id().entry

        def again() -> None:
            with self._world.lock:
                self._cursor.taken.discard(entry)

        threading.Timer(self._world.redelivery_seconds, again).start()

    @property
    def is_drained(self) -> bool | None:
        """Whether all is acknowledged; some libraries do not tell."""
        if not self._world.tells_ends:
            return None
        return self._segment.terminated and len(self._cursor.acknowledged) >= len(self._segment.log)

    def close(self) -> None:
        """Give back what is not acknowledged."""
        with self._world.lock:
            self._cursor.taken -= self._mine
            if self in self._cursor.consumers:
                self._cursor.consumers.remove(self)


class FakeSession:
    """What a controller assigned."""

    def __init__(self, world: FakeWorld, name: str, on_assignment: OnAssignment) -> None:
        self._world = world
        self._name = name
        self.on_assignment = on_assignment
        self.assignment = Assignment(0, ())

    def leave(self) -> None:
        """Be forgotten."""
        self._world.sessions.pop(self._name, None)

    def detach(self) -> None:
        """Stay known."""


@dataclass
class FakeWatch:
    """Has the layout that was told last."""

    layout: Layout

    def close(self) -> None:
        """Close it."""


class FakeWorld:
    """A scalable topic and its brokers."""

    def __init__(self, segments: int) -> None:
        self.lock = threading.RLock()
        equal = synthetic(TOPIC.scalable, [str(number) for number in range(segments)]).segments
        self.layout = Layout(TOPIC.scalable, 0, tuple(replace(one, legacy_topic=None) for one in equal))
        self.segments = {one.id: FakeSegment(one.id) for one in equal}
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
        #: Segments whose next reader waits for an answer that was lost, for as long as it likes.
        self.lost_answers: set[int] = set()
        self.losing = threading.Event()
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
        """Tell the layout, and each newer one."""
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
            time.sleep(start.answer_limit)
            raise TimedOut("no answer")
        with self.lock:
            if number in self.unreadable:
                raise self.unreadable_since
            behind = MessageId.deserialize(start.after).entry if start.after else -1
            self.readers.append(FakeReader(self._of(topic).log, behind + 1, mute=number in self.mute))
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
        found = [self.layout.by_id[number] for number in segments]
        told = tuple(AssignedSegment(one.id, one.start, one.end, self.layout.topic_of(one), buckets) for one in found)
        session = self.sessions[consumer_name]
        session.assignment = Assignment(self.layout.epoch, told)
        session.on_assignment(session.assignment)

    def store(self, segment: int, *data: str, key: str = "k") -> None:
        """Store messages."""
        with self.lock:
            log = self.segments[segment].log
            for one in data:
                content = Content(one.encode(), partition_key=key)
                log.append(Stored(content, "test", len(log), MessageId(segment, len(log)), 0))

    def load_anew(self, segment: int) -> None:
        """Send all that is not acknowledged again, as brokers do for consumers that come back."""
        with self.lock:
            for cursor in self.segments[segment].cursors.values():
                cursor.taken.clear()

    def last_position(self, topic: str) -> bytes | None:
        """Where a segment ends."""
        log = self._of(topic).log
        return log[-1].id.serialize() if log else None

    def close(self) -> None:
        """Close it."""

    def _of(self, topic: str) -> FakeSegment:
        return self.segments[int(topic.rpartition("-")[2])]

    # The controller -------------------------------------------------------------------------------------------------

    def seal(self, *sealed: int) -> Callable[[], None]:
        """End one segment, to split it, or two neighbours, to merge them; returns what tells the new layout."""
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
        kept = [
            replace(segment, active=False, children=ids) if segment.id in sealed else segment
            for segment in self.layout.segments
        ]
        self.layout = replace(self.layout, epoch=self.layout.epoch + 1, segments=(*kept, *children))
        return self._telling()

    def prune(self, *sealed: int) -> None:
        """Take sealed segments out of the layout; their messages stay."""
        kept = [segment for segment in self.layout.segments if segment.id not in sealed]
        orphans = [
            replace(one, parents=tuple(number for number in one.parents if number not in sealed)) for one in kept
        ]
        self.layout = replace(self.layout, epoch=self.layout.epoch + 1, segments=tuple(orphans))
        self.tell()

    def tell(self) -> None:
        """Tell the layout as it is now."""
        self._telling()()

    def _telling(self) -> Callable[[], None]:
        layout = self.layout

        def tell() -> None:
            for listener in self._listeners:
                listener(layout)

        return tell

    def history(self) -> dict[str, list[bytes]]:
        """By key, what is stored, each segment behind those that it came from."""
        found: dict[str, list[bytes]] = {}
        for segment in self.layout.drain_order():
            for one in self.segments[segment.id].log:
                found.setdefault(one.partition_key(), []).append(one.data())
        return found


class Outcomes:
    """What a producer told of its messages."""

    def __init__(self) -> None:
        self.told: dict[bytes, list[ScalableError | None]] = {}

    def of(self, data: bytes) -> Callable[[ScalableError | None, object], None]:
        """The callback of a message."""
        self.told[data] = []

        def told(error: ScalableError | None, message_id: object) -> None:
            assert (error is None) == (message_id is not None)
            self.told[data].append(error)

        return told

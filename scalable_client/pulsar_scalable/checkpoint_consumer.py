"""A consumer whose positions the application keeps."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, cast

from pulsar_scalable.errors import AlreadyClosed, ProtocolViolation, ScalableError, TimedOut, TopicNotFound
from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.messages import Message, RawId, position_of
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.native.message import MessageId
from pulsar_scalable.ports import Backend, SegmentReader, Start
from pulsar_scalable.receive_queue import End, ReceiveQueue

_logger = logging.getLogger("pulsar_scalable")
_TICK_MS = 200
_LONGEST_PAUSE = 2.0
_SILENCE = 5.0

DONE = "done"
"""The position of a sealed segment all of which was received."""


@dataclass(frozen=True)
class Checkpoint:
    """How far a consumer is in each segment.

    Attributes:
        incarnation: tells topics of one name apart.
        positions: by segment, the serialised id of the last message that was received, as hex digits; empty for the
            begin, and `done` for a sealed segment of which nothing is left.

    Raises:
        ProtocolViolation: a position is no id.
    """

    incarnation: int = 0
    positions: Mapping[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        """Look at what an application kept before anything is read."""
        for number, position in self.positions.items():
            if position in ("", DONE):
                continue
            try:
                MessageId.deserialize(bytes.fromhex(position))
            except (ProtocolViolation, ValueError) as cause:
                raise ProtocolViolation(f"this is no checkpoint: {position!r} of segment {number} is no id") from cause

    def serialize(self) -> bytes:
        """The checkpoint as bytes, JSON."""
        positions = {str(number): position for number, position in sorted(self.positions.items())}
        return json.dumps({"incarnation": self.incarnation, "positions": positions}).encode()

    @classmethod
    def deserialize(cls, data: bytes) -> Self:
        """The reverse of `serialize`.

        Raises:
            ProtocolViolation: this is no checkpoint.
        """
        try:
            found = cast("dict[str, Any]", json.loads(data))
            positions = cast("dict[str, str]", found["positions"])
            return cls(
                int(found["incarnation"]), {int(number): str(position) for number, position in positions.items()}
            )
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            raise ProtocolViolation(f"this is no checkpoint: {cause!r}") from cause


StartPosition = Literal["earliest", "latest"] | Checkpoint


class CheckpointConsumer:
    """Reads a scalable topic from explicit positions; `ScalableClient.create_checkpoint_consumer` makes it.

    It has no subscription: brokers keep for it only what retention or other subscriptions keep. It gets all segments;
    what came of a split or a merge is read once all of its ancestors were received, so messages come in order per key.
    A sealed segment whose topic is gone is skipped. `checkpoint` returns the positions after what `receive` returned.
    """

    def __init__(self, backend: Backend, topic: TopicName, start: StartPosition) -> None:
        self._backend = backend
        self._topic = topic
        self._queue = ReceiveQueue(topic.path)
        self._lock = threading.Condition()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._reading: dict[int, Segment] = {}
        self._layout: Layout | None = None
        self._positions: dict[int, str] = dict(start.positions) if isinstance(start, Checkpoint) else {}
        self._incarnation = start.incarnation if isinstance(start, Checkpoint) else None
        self._last: dict[int, RawId] = {}
        self._error: ScalableError | None = None
        self._watch = backend.watch(topic, self._on_layout if start != "latest" else self._keep_layout)
        if start == "latest":
            self._begin_at_end()

    @property
    def topic(self) -> str:
        """The scalable topic, `tenant/namespace/topic`."""
        return self._topic.path

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, and not only at its end because the topic was deleted."""
        return self._closed.is_set() and self._error is None

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message.

        Args:
            timeout_millis: to wait at most; None indefinitely.

        Raises:
            TimedOut: none came.
            TopicNotFound: the topic was deleted, or the checkpoint is of an earlier topic of this name.
            AlreadyClosed: the consumer is closed, also while this waits.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        while True:
            left = None if until is None else max(0, round((until - time.monotonic()) * 1000))
            try:
                found = self._queue.get(left)
            except AlreadyClosed:
                raise self._error or AlreadyClosed(f"{self._topic.path}: the consumer is closed") from None
            with self._lock:
                if isinstance(found, Message):
                    self._positions[found.segment_id()] = found.message_id().raw.serialize().hex()
                    return found
                self._positions[cast("int", found.source)] = DONE
                self._begin_ready()

    def wait_for_message(self, timeout_millis: int) -> None:
        """Wait until `receive` is likely to find something at once, or has an error to raise; nothing is taken.

        Args:
            timeout_millis: to wait at most.
        """
        self._queue.wait(timeout_millis)

    def checkpoint(self) -> Checkpoint:
        """The positions behind all that `receive` returned."""
        with self._lock:
            return Checkpoint(self._incarnation or 0, dict(self._positions))

    def close(self) -> None:
        """Close it. Harmless when done twice."""
        self._closed.set()
        self._queue.close()
        self._watch.close()
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The layout -----------------------------------------------------------------------------------------------------

    def _keep_layout(self, layout: Layout) -> None:
        with self._lock:
            if self._layout is None or self._incarnation is None:
                self._layout = layout
                return
        self._on_layout(layout)

    def _begin_at_end(self) -> None:
        """Note where segments end now; those that come later are read from their begin."""
        layout = self._watch.layout
        found = {
            segment.id: (self._backend.last_position(layout.topic_of(segment)) or b"").hex() if segment.active else DONE
            for segment in layout.segments
        }
        with self._lock:
            self._positions = found
            self._incarnation = layout.incarnation
        self._on_layout(self._watch.layout)

    def _on_layout(self, layout: Layout) -> None:
        with self._lock:
            if self._incarnation is None:
                self._incarnation = layout.incarnation
            if layout.is_deleted or layout.incarnation != self._incarnation:
                why = "it was deleted" if layout.is_deleted else "the checkpoint is of an earlier topic of this name"
                self._error = TopicNotFound(-1, why, self._topic.path)
                self._closed.set()
                self._queue.close()
                return
            self._layout = layout
            self._begin_ready()

    def _begin_ready(self) -> None:
        """Begin with segments whose parents are done; called with the lock held."""
        layout = self._layout
        if layout is None or self._closed.is_set():
            return
        left = [one for one in self._reading.values() if self._positions.get(one.id) != DONE]
        for one in layout.segments:
            if one.id in self._reading or self._positions.get(one.id) == DONE:
                continue
            # A parent that was pruned while it is read, or waits in the queue, is in no layout any more.
            if any(one.overlaps(other) for other in left):
                continue
            if all(self._positions.get(parent) == DONE for parent in one.parents if parent in layout.by_id):
                self._reading[one.id] = one
                thread = threading.Thread(target=self._read, args=(one,), name=f"read {one.descriptor}", daemon=True)
                self._threads = [other for other in self._threads if other.is_alive()] + [thread]
                thread.start()

    # One segment ----------------------------------------------------------------------------------------------------

    def _read(self, segment: Segment) -> None:
        backoff = Backoff(_LONGEST_PAUSE)
        with self._lock:
            position = bytes.fromhex(self._positions.get(segment.id, "")) or None
            topic = self._layout.topic_of(segment) if self._layout else ""
        while not self._closed.is_set():
            try:
                reader = self._backend.open_reader(topic, Start(after=position))
                try:
                    self._read_all(segment, topic, reader)
                finally:
                    reader.close()
            except ScalableError as error:
                if isinstance(error, TopicNotFound) and self._is_sealed(segment):
                    # The layout may name a segment whose topic is gone; what came of it must not wait for it.
                    _logger.warning("%s: %s; what it held is skipped", topic, error)
                    break
                _logger.info("%s: %s; read again", topic, error)
                # What waits in the queue was read already.
                position = self._last[segment.id].serialize() if segment.id in self._last else position
                self._closed.wait(backoff.next())
            else:
                return
        self._queue.put(End(segment.id), self._closed)

    def _read_all(self, segment: Segment, topic: str, reader: SegmentReader) -> None:
        heard = time.monotonic()
        while not self._closed.is_set():
            # Asked first: what is stored behind the answer is stored before the segment is sealed.
            sealed = self._is_sealed(segment)
            try:
                raw = reader.read_next(_TICK_MS)
            except TimedOut:
                silent = time.monotonic() - heard
                if not sealed and silent < _SILENCE:
                    continue
                if reader.has_message_available():
                    if silent > _SILENCE:
                        raise
                elif sealed:
                    self._queue.put(End(segment.id), self._closed)
                    return
                else:
                    heard = time.monotonic()
                continue
            heard = time.monotonic()
            last, found = self._last.get(segment.id), raw.message_id()
            # A reader that has lost its connection may give again what it gave of a batch.
            if last is None or position_of(found) > position_of(last):
                self._queue.put(Message(segment.id, topic, raw), self._closed)
                self._last[segment.id] = found

    def _is_sealed(self, segment: Segment) -> bool:
        layout = self._layout
        found = layout.by_id.get(segment.id) if layout else None
        return found is None or not found.active

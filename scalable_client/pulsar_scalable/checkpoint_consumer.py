"""A consumer whose positions the application stores."""

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
"""Position of a sealed segment that was received completely."""


@dataclass(frozen=True)
class Checkpoint:
    """Position of a consumer in each segment.

    Attributes:
        incarnation: distinguishes topics that had the same name.
        positions: by segment id, the serialised id of the last received message as hex digits; empty for the start, and
            `done` for a sealed segment that was received completely.

    Raises:
        ProtocolViolation: a position is not a message id.
    """

    incarnation: int = 0
    positions: Mapping[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        """Check stored positions before anything is read."""
        for number, position in self.positions.items():
            if position in ("", DONE):
                continue
            try:
                MessageId.deserialize(bytes.fromhex(position))
            except (ProtocolViolation, ValueError) as cause:
                raise ProtocolViolation(
                    f"invalid checkpoint: position {position!r} of segment {number} is not a message id"
                ) from cause

    def serialize(self) -> bytes:
        """Return the checkpoint as JSON bytes."""
        positions = {str(number): position for number, position in sorted(self.positions.items())}
        return json.dumps({"incarnation": self.incarnation, "positions": positions}).encode()

    @classmethod
    def deserialize(cls, data: bytes) -> Self:
        """Read a checkpoint that `serialize` returned.

        Raises:
            ProtocolViolation: the data are not a checkpoint.
        """
        try:
            parsed = cast("dict[str, Any]", json.loads(data))
            positions = cast("dict[str, str]", parsed["positions"])
            return cls(
                int(parsed["incarnation"]), {int(number): str(position) for number, position in positions.items()}
            )
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            raise ProtocolViolation(f"invalid checkpoint: {cause!r}") from cause


StartPosition = Literal["earliest", "latest"] | Checkpoint


class CheckpointConsumer:
    """Reads a scalable topic from explicit positions; created by `ScalableClient.create_checkpoint_consumer`.

    It has no subscription, so brokers keep messages only as long as retention or other subscriptions do. It reads all
    segments; the result of a split or merge is read after all its ancestors, so the order per key is kept. A sealed
    segment whose topic was deleted is skipped. `checkpoint` returns the positions after what `receive` returned.
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
            self._start_at_end()

    @property
    def topic(self) -> str:
        """The scalable topic, `tenant/namespace/topic`."""
        return self._topic.path

    @property
    def is_closed(self) -> bool:
        """True if it was closed by the application, not ended because the topic was deleted."""
        return self._closed.is_set() and self._error is None

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Return the next message.

        Args:
            timeout_millis: longest time to wait; None to wait indefinitely.

        Raises:
            TimedOut: no message arrived in time.
            TopicNotFound: the topic was deleted, or the checkpoint belongs to an earlier topic of this name.
            AlreadyClosed: the consumer is closed, also during this call.
        """
        until = None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
        while True:
            remaining = None if until is None else max(0, round((until - time.monotonic()) * 1000))
            try:
                item = self._queue.get(remaining)
            except AlreadyClosed:
                raise self._error or AlreadyClosed(f"{self._topic.path}: the consumer is closed") from None
            with self._lock:
                if isinstance(item, Message):
                    self._positions[item.segment_id()] = item.message_id().raw.serialize().hex()
                    return item
                self._positions[cast("int", item.source)] = DONE
                self._begin_ready()

    def wait_for_message(self, timeout_millis: int) -> None:
        """Wait until `receive` can probably return or raise without waiting; takes no message.

        Args:
            timeout_millis: longest time to wait.
        """
        self._queue.wait(timeout_millis)

    def checkpoint(self) -> Checkpoint:
        """Return the positions after all messages that `receive` returned."""
        with self._lock:
            return Checkpoint(self._incarnation or 0, dict(self._positions))

    def close(self) -> None:
        """Close it. Closing twice is safe."""
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

    def _keep_layout(self, layout: Layout) -> None:
        with self._lock:
            if self._layout is None or self._incarnation is None:
                self._layout = layout
                return
        self._on_layout(layout)

    def _start_at_end(self) -> None:
        """Record where segments end now; segments created later are read from their start."""
        layout = self._watch.layout
        positions = {
            segment.id: (self._backend.last_position(layout.topic_of(segment)) or b"").hex() if segment.active else DONE
            for segment in layout.segments
        }
        with self._lock:
            self._positions = positions
            self._incarnation = layout.incarnation
        self._on_layout(self._watch.layout)

    def _on_layout(self, layout: Layout) -> None:
        with self._lock:
            if self._incarnation is None:
                self._incarnation = layout.incarnation
            if layout.is_deleted or layout.incarnation != self._incarnation:
                why = (
                    "the topic was deleted"
                    if layout.is_deleted
                    else "the checkpoint belongs to an earlier topic of this name"
                )
                self._error = TopicNotFound(-1, why, self._topic.path)
                self._closed.set()
                self._queue.close()
                return
            self._layout = layout
            self._begin_ready()

    def _begin_ready(self) -> None:
        """Start to read segments whose parents are done; called with the lock held."""
        layout = self._layout
        if layout is None or self._closed.is_set():
            return
        unfinished = [segment for segment in self._reading.values() if self._positions.get(segment.id) != DONE]
        for segment in layout.segments:
            if segment.id in self._reading or self._positions.get(segment.id) == DONE:
                continue
            # A pruned parent that is still being read, or in the queue, is in no layout any more.
            if any(segment.overlaps(other) for other in unfinished):
                continue
            if all(self._positions.get(parent) == DONE for parent in segment.parents if parent in layout.by_id):
                self._reading[segment.id] = segment
                thread = threading.Thread(
                    target=self._read, args=(segment,), name=f"read {segment.descriptor}", daemon=True
                )
                self._threads = [other for other in self._threads if other.is_alive()] + [thread]
                thread.start()

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
                    # The segment's topic may have been deleted; its children must not wait for it.
                    _logger.warning("%s: %s; the segment is skipped", topic, error)
                    break
                _logger.info("%s: %s; retrying", topic, error)
                # Messages in the queue were read already.
                position = self._last[segment.id].serialize() if segment.id in self._last else position
                self._closed.wait(backoff.next())
            else:
                return
        self._queue.put(End(segment.id), self._closed)

    def _read_all(self, segment: Segment, topic: str, reader: SegmentReader) -> None:
        last_received = time.monotonic()
        while not self._closed.is_set():
            # Checked before the read: a message stored after this check was stored before the segment was sealed.
            sealed = self._is_sealed(segment)
            try:
                raw = reader.read_next(_TICK_MS)
            except TimedOut:
                silent = time.monotonic() - last_received
                if not sealed and silent < _SILENCE:
                    continue
                if reader.has_message_available():
                    if silent > _SILENCE:
                        raise
                elif sealed:
                    self._queue.put(End(segment.id), self._closed)
                    return
                else:
                    last_received = time.monotonic()
                continue
            last_received = time.monotonic()
            last, message_id = self._last.get(segment.id), raw.message_id()
            # After a lost connection a reader may return messages of a batch again.
            if last is None or position_of(message_id) > position_of(last):
                self._queue.put(Message(segment.id, topic, raw), self._closed)
                self._last[segment.id] = message_id

    def _is_sealed(self, segment: Segment) -> bool:
        layout = self._layout
        current = layout.by_id.get(segment.id) if layout else None
        return current is None or not current.active

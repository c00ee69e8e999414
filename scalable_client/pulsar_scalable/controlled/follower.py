"""Reader of the layout topic of a controlled topic."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pulsar_scalable.controlled.layout import LAYOUT_KEY, ControlledLayout, parse_layout
from pulsar_scalable.controlled.library import Library, close_quietly, pulsar, translated
from pulsar_scalable.errors import AlreadyClosed, ProtocolViolation, ScalableError, TimedOut
from pulsar_scalable.messages import Entry, position_of
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.ports import OnLayout

_logger = logging.getLogger("pulsar_scalable")
_TICK_MS = 200
_LONGEST_PAUSE = 5.0
_AWAY = 10.0
# A client that cannot check whether a deleted topic exists again creates it by reading; brokers delete it after a
# minute.
_BLIND_PAUSE = 60.0

OnOther = Callable[[str, bytes], None]
"""Callback that receives key and content of messages that are not layouts."""


class Follower:
    """Reads the layout topic from its start, and reports each newer layout; never an older one.

    It keeps its layout while brokers are not available.

    Args:
        library: creates the reader.
        topic: topic whose layout is read.
        on_layout: called in the follower's thread.
        on_other: called there for other messages.
        on_return: called there after more than ten seconds without a connection, or without running.
        reader_name: name by which the controller identifies the reader.
        timeout: seconds within which the first layout must arrive.

    Raises:
        TimedOut: no layout arrives in time.
    """

    def __init__(
        self,
        library: Library,
        topic: TopicName,
        on_layout: OnLayout,
        *,
        on_other: OnOther | None = None,
        on_return: Callable[[], None] | None = None,
        reader_name: str | None = None,
        timeout: float = 30,
    ) -> None:
        self._library = library
        self._topic = topic
        self._on_layout = on_layout
        self._on_other = on_other
        self._on_return = on_return
        self._seen: float | None = None
        self._reader_name = reader_name
        self._read_last: ControlledLayout | None = None
        self._read_to: Entry | None = None
        self._layout: ControlledLayout | None = None
        self._error: ScalableError | None = None
        self._closed = threading.Event()
        self._has_layout = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"layout of {topic.path}", daemon=True)
        self._thread.start()
        self._has_layout.wait(timeout)
        if self._layout is None:
            self.close()
            why = self._error or f"{topic.layout_topic} has no layout"
            raise TimedOut(f"{topic.path}: no layout within {timeout:g} s: {why}")

    @property
    def layout(self) -> ControlledLayout:
        """The newest layout."""
        if self._layout is None:
            raise AlreadyClosed(f"{self._topic.path}: the follower stopped before it had a layout")
        return self._layout

    def close(self) -> None:
        """Stop it. Calling it twice is safe."""
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def _run(self) -> None:
        backoff = Backoff(_LONGEST_PAUSE)
        while not self._closed.is_set():
            try:
                self._follow(backoff)
            except ScalableError as error:
                self._error = error
                _logger.info("%s: %s; retrying", self._topic.layout_topic, error)
                self._closed.wait(backoff.next())
            if _is_deleted(self._layout):
                self._wait_until_recreated()

    def _wait_until_recreated(self) -> None:
        """Wait until the layout topic has new messages: a reader of the deleted topic would create it again."""
        end_of, backoff = self._library.end_of, Backoff(_LONGEST_PAUSE)
        if end_of is None:
            self._closed.wait(_BLIND_PAUSE)
            return
        while not self._closed.wait(backoff.next()):
            try:
                if end_of(self._topic.layout_topic) not in (None, self._read_to):
                    return
            except ScalableError as error:
                _logger.info("%s: %s; retrying", self._topic.layout_topic, error)

    def _follow(self, backoff: Backoff) -> None:
        """Read and report layouts until the topic is deleted."""
        with translated(f"reading {self._topic.layout_topic}"):
            reader = self._library.shared.create_reader(
                self._topic.layout_topic,
                pulsar.MessageId.earliest,
                reader_name=self._reader_name,
                is_read_compacted=True,
            )
            try:
                while not self._closed.is_set():
                    self._read(reader)
                    # Older layouts are read but not reported; after a deletion the layout topic is deleted, too.
                    if self._read_last is not self._layout and (_is_deleted(self._read_last) or not _has_more(reader)):
                        self._report(self._read_last)
                    if reader.is_connected():
                        self._detect_absence()
                    backoff.reset()
                    if self._is_over(reader):
                        return
            finally:
                close_quietly(reader)

    def _is_over(self, reader: Any) -> bool:
        # Without a connection, this call would create the topic again.
        return _is_deleted(self._layout) and not _has_more(reader)

    def _detect_absence(self) -> None:
        """Call `on_return` after a long absence: assignments of that time may be compacted away."""
        # This clock continues while the machine sleeps.
        now = time.time()
        before, self._seen = self._seen, now
        if before is not None and now - before > _AWAY and self._on_return is not None:
            self._on_return()

    def _read(self, reader: Any) -> None:
        try:
            message = reader.read_next(_TICK_MS)
        except pulsar.Timeout:
            return
        self._read_to = position_of(message.message_id())[:2]
        key, data = message.partition_key(), message.data()
        try:
            if key == LAYOUT_KEY:
                self._take(parse_layout(self._topic, data))
            elif self._on_other is not None:
                self._on_other(key, data)
        except ProtocolViolation as error:
            _logger.warning("%s: %s", self._topic.layout_topic, error)

    def _take(self, layout: ControlledLayout) -> None:
        if layout.supersedes(self._read_last):
            self._read_last = layout

    def _report(self, layout: ControlledLayout | None) -> None:
        if layout is None:
            return
        self._layout = layout
        try:
            self._on_layout(layout)
        except Exception:
            # The next layouts must still be reported.
            _logger.exception("%s: the callback failed for epoch %d", self._topic.path, layout.epoch)
        self._has_layout.set()


def _is_deleted(layout: ControlledLayout | None) -> bool:
    return layout is not None and layout.is_deleted


def _has_more(reader: Any) -> bool:
    # Without a connection, pulsar-client would wait for its whole timeout.
    return reader.is_connected() and reader.has_message_available()

"""Layout of a scalable topic, and its changes (PIP-468, "DAG watch session")."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from queue import Empty, SimpleQueue

from pulsar_scalable.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    ConnectionLost,
    NotAuthorized,
    ProtocolViolation,
    Refused,
    ScalableError,
    TimedOut,
    TopicNotFound,
    Unsupported,
    refused,
)
from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.native.reconnecting import Reconnecting
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.connection import Channel, Connection
from pulsar_wire.frames import Command
from pulsar_wire.pool import Pool

_logger = logging.getLogger("pulsar_scalable")

OnLayout = Callable[[Layout], None]

_CHECK_INTERVAL = 30.0
# Value of an active segment's state.
_ACTIVE = 0
# Seconds without the topic on any broker after which it counts as deleted.
_MISSING_IS_DELETED = 5.0


def layout_of(dag: api.ScalableTopicDAG, topic: str) -> Layout:
    """Return the layout that a broker sent.

    Args:
        dag: segments and leader.
        topic: `topic://tenant/namespace/topic`.
    """
    segments = [
        Segment(
            id=segment.segment_id,
            start=segment.hash_start,
            end=segment.hash_end,
            active=segment.state == _ACTIVE,
            parents=tuple(segment.parent_ids),
            children=tuple(segment.child_ids),
            legacy_topic=segment.legacy_topic_name or None,
            created_ms=segment.created_at_ms,
        )
        for segment in dag.segments
    ]
    return Layout(
        topic=topic,
        epoch=dag.epoch,
        segments=tuple(sorted(segments, key=lambda segment: segment.id)),
        brokers=tuple((broker.segment_id, broker.broker_url) for broker in dag.segment_brokers if broker.broker_url),
        controller=dag.controller_broker_url or None,
        controller_tls=dag.controller_broker_url_tls or None,
    )


class Session:
    """Session for the layouts of one topic over one connection.

    Args:
        connection: connection to any broker.
        number: id of the session.
        topic: `topic://tenant/namespace/topic`, or a regular topic.
        create: whether the broker may create a missing topic.

    Raises:
        Unsupported: the broker does not serve scalable topics.
        ConnectionLost: the connection is lost.
    """

    def __init__(self, connection: Connection, number: int, topic: str, *, create: bool = False) -> None:
        connection.require_scalable()
        self.connection = connection
        self._number = number
        self._topic = topic
        self._events: SimpleQueue[Command | ScalableError] = SimpleQueue()
        connection.attach(Channel.LAYOUT, number, self)
        connection.send(api.CommandScalableTopicLookup(session_id=number, topic=topic, create_if_missing=create))

    def on_command(self, command: Command, body: bytes) -> None:
        """Queue an update."""
        del body
        self._events.put(command)

    def on_lost(self, connection: Connection, error: ScalableError) -> None:
        """Queue the end of the session."""
        del connection
        self._events.put(error)

    def end(self) -> None:
        """End the session: `next` raises."""
        self._events.put(AlreadyClosed(f"{self._topic}: the watch is closed"))

    def next(self, timeout: float | None) -> Layout:
        """Return the next layout; the first call returns the current one.

        Args:
            timeout: seconds; None as long as the connection is open.

        Raises:
            TimedOut: no layout arrived in time.
            Refused: the broker reports an error.
            ConnectionLost: the connection is lost.
        """
        try:
            event = self._events.get(timeout=timeout)
        except Empty:
            raise TimedOut(f"{self._topic}: {self.connection.address} sent no layout for {timeout:g} s") from None
        if isinstance(event, AlreadyClosed):
            raise event
        if isinstance(event, ScalableError):
            raise ConnectionLost(f"{self._topic}: {event}") from event
        if not isinstance(event, api.CommandScalableTopicUpdate):
            raise ProtocolViolation(f"unexpected {type(event).__name__} in a layout session")
        if event.HasField("error"):
            raise refused(event.error, event.message, f"watching {self._topic}")
        if not event.HasField("dag"):
            raise ProtocolViolation(f"an update of {self._topic} has neither a layout nor an error")
        return layout_of(event.dag, event.resolved_topic_name or self._topic)

    def close(self) -> None:
        """Close the session at the broker, if the connection is open."""
        self.connection.detach(Channel.LAYOUT, self._number)
        if self.connection.lost is None:
            try:
                self.connection.send(api.CommandScalableTopicClose(session_id=self._number))
            except ScalableError as error:
                _logger.debug("%s: %s", self._topic, error)


def look_up(pool: Pool, ids: Iterator[int], topic: str, *, create: bool = False) -> Layout:
    """Return the current layout of a topic; with `create`, the broker may create a missing topic.

    Raises:
        TopicNotFound: the topic does not exist.
        ScalableError: no broker answers.
    """
    connection = pool.to_any()
    session = Session(connection, next(ids), topic, create=create)
    try:
        return session.next(pool.access.operation_timeout)
    except (ConnectionLost, TimedOut):
        pool.skip(connection)
        raise
    finally:
        session.close()


class Watch(Reconnecting):
    """Reports layouts until it is closed; created by `NativeClient.watch`.

    After a lost connection it continues with any broker that answers, and never reports an older layout. A topic that
    is deleted and created again starts with epoch 0; its layouts have another incarnation. After 30 s without a change
    it asks again, which detects a deletion.
    """

    def __init__(self, pool: Pool, ids: count[int], topic: str, on_layout: OnLayout) -> None:
        super().__init__(pool, f"watch {topic}", Backoff())
        self._ids = ids
        self._topic = topic
        self._on_layout = on_layout
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._layout: Layout | None = None
        self._missing_since: float | None = None
        self._begin()

    @property
    def layout(self) -> Layout:
        """The newest layout."""
        if self._layout is None:
            raise AlreadyClosed(f"{self._topic}: the watch ended before it had a layout")
        return self._layout

    @property
    def _has_begun(self) -> bool:
        return self._layout is not None

    def _wake(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.end()

    def _is_final(self, error: ScalableError) -> bool:
        return isinstance(error, Refused | Unsupported | ProtocolViolation)

    def _level(self, error: ScalableError) -> int:
        return logging.WARNING if isinstance(error, AuthenticationFailed | NotAuthorized) else logging.INFO

    def _serve(self) -> None:
        connection = self._pool.to_any()
        session = Session(connection, next(self._ids), self._topic)
        with self._lock:
            self._session = session
        try:
            layout = session.next(self._pool.access.operation_timeout)
            self._missing_since = None
            while not self._closed.is_set():
                self._backoff.reset()
                self._take(layout)
                try:
                    layout = session.next(_CHECK_INTERVAL)
                except TimedOut:
                    # Brokers (5.0.1) do not report the deletion of a topic; a new session detects it.
                    return
        except ScalableError as error:
            if isinstance(error, TopicNotFound):
                self._note_missing(error)
            # Another broker may have the topic.
            self._pool.skip(connection)
            raise
        finally:
            with self._lock:
                self._session = None
            session.close()

    def _take(self, layout: Layout) -> None:
        self._error = None
        if (last := self._layout) is not None:
            if layout.replaces(last):
                layout = replace(layout, generation=last.generation + 1)
            else:
                layout = replace(layout, generation=last.generation)
                if not layout.supersedes(last) and not last.is_deleted:
                    return
        self._report(layout)

    def _note_missing(self, error: TopicNotFound) -> None:
        now = time.monotonic()
        self._missing_since = self._missing_since or now
        if self._layout is not None and now - self._missing_since >= _MISSING_IS_DELETED:
            _logger.warning("%s: the topic was deleted: %s", self._topic, error)
            self._report(replace(self._layout, deleted=True))  # mutant: scalable-client/a-deletion-is-not-reported

    def _report(self, layout: Layout) -> None:
        if self._layout is not None and self._layout.is_deleted and layout.is_deleted:
            return
        self._layout = layout
        try:
            self._on_layout(layout)
        except Exception:
            # The next layouts must still be reported.
            _logger.exception("%s: the callback failed for epoch %d", self._topic, layout.epoch)
        self._ready.set()

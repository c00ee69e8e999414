"""A consumer of a scalable topic, as the topic's controller knows it, and the segments that it is to read (PIP-468).

The controller forgets a consumer whose connection is gone for longer than its grace period, 60 s by default
(`scalableTopicConsumerSessionGracePeriodSeconds`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import Self

from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.errors import (
    AlreadyClosed,
    ConnectionLost,
    NotTheLeader,
    ScalableError,
    TimedOut,
    Unready,
)
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.native.reconnecting import Reconnecting
from pulsar_scalable.native.watch import look_up
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import addresses
from pulsar_wire.connection import Channel, Connection
from pulsar_wire.frames import Command
from pulsar_wire.pool import Pool

_logger = logging.getLogger("pulsar_scalable")
# A leader that dies is followed within its session's time; longer pauses would add to it.
_LONGEST_PAUSE = 5.0
# Seconds between registrations. A broker that notices late that an earlier connection has ended takes this one for gone
# (5.0.1), and a leader that loses its lock may not report that.
_RENEW_EVERY = 30.0
_LEAVE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class AssignedSegment:
    """A segment that a consumer is to read.

    Attributes:
        id: of the segment.
        start: its first hash.
        end: its last hash.
        topic: that a consumer attaches to.
        buckets: all entry buckets of the segment, first and last hash of each, where several consumers share it; empty
            for the only consumer of a segment.
    """

    id: int
    start: int
    end: int
    topic: str
    buckets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """All segments that a consumer is to read.

    Attributes:
        epoch: of the layout.
        segments: in the order of the controller.
        incarnation: tells topics of one name apart; 0 where that is not told.
    """

    epoch: int
    segments: tuple[AssignedSegment, ...]
    incarnation: int = 0

    @classmethod
    def of(cls, data: api.ScalableConsumerAssignment) -> Self:
        """Return the assignment of a broker's command."""
        segments = [
            AssignedSegment(
                segment.segment_id,
                segment.hash_start,
                segment.hash_end,
                segment.segment_topic,
                tuple((bucket.start, bucket.end) for bucket in segment.bucket_ranges),
            )
            for segment in data.segments
        ]
        return cls(data.layout_epoch, tuple(segments))


@dataclass(frozen=True, slots=True)
class ScalableConsumer:
    """Who is to be registered.

    Attributes:
        topic: `topic://tenant/namespace/topic`.
        subscription: its name.
        name: of the consumer, unique in the subscription.
        kind: how it shares segments.
    """

    topic: str
    subscription: str
    name: str
    kind: ConsumerKind


OnAssignment = Callable[[Assignment], None]


class Registration(Reconnecting):
    """Keeps a consumer registered until it is closed; `NativeClient.register` makes it.

    It registers again with the same name when the connection breaks, or another broker leads, and every 30 s. When it
    is closed, the controller gives its segments to others at once; after `detach`, once the grace period is over.
    """

    def __init__(
        self,
        pool: Pool,
        ids: count[int],
        consumer: ScalableConsumer,
        on_assignment: OnAssignment,
    ) -> None:
        super().__init__(pool, f"register {consumer.name} for {consumer.topic}", Backoff(_LONGEST_PAUSE))
        self._ids = ids
        self._consumer = consumer
        self._topic = consumer.topic
        self._name = consumer.name
        self._on_assignment = on_assignment
        self._events: SimpleQueue[api.ScalableConsumerAssignment | ScalableError] = SimpleQueue()
        self._assignment: Assignment | None = None
        self._registered = False
        self._stays_known = False
        self._begin()

    @property
    def consumer_name(self) -> str:
        """The name that the controller knows."""
        return self._name

    @property
    def assignment(self) -> Assignment:
        """The newest assignment; it holds through lost connections, until the controller gives another."""
        if self._assignment is None:
            raise AlreadyClosed(f"{self._topic}: {self._name} was never registered")
        return self._assignment

    @property
    def is_registered(self) -> bool:
        """Whether the connection to the controller stands."""
        return self._registered

    @property
    def _has_begun(self) -> bool:
        return self._assignment is not None

    def detach(self) -> None:
        """Close it without leaving: a consumer of the same name that comes within the grace period has its segments."""
        self._stays_known = True
        self.close()

    def _wake(self) -> None:
        self._events.put(AlreadyClosed(f"{self._topic}: the registration is closed"))

    def _is_final(self, error: ScalableError) -> bool:
        return not isinstance(error, ConnectionLost | TimedOut | NotTheLeader | Unready)

    def _serve(self) -> None:
        """Register with the leader, and take assignments until the connection is lost or this is closed."""
        layout = look_up(self._pool, self._ids, self._topic)
        url = layout.controller_tls if self._pool.secure else layout.controller
        # Without a leader any broker will do: the one that is asked tries to lead. A connection of its own, because the
        # controller takes its end for the consumer's.
        connection = self._pool.own(url)
        number = next(self._ids)
        inbox = _Inbox(self._events)
        try:
            connection.attach(Channel.ASSIGNMENT, number, inbox)
            self._register(connection, number, inbox)
            self._registered, self._error = True, None
            renew_at = time.monotonic() + _RENEW_EVERY
            while True:
                try:
                    event = self._events.get(timeout=max(0.0, renew_at - time.monotonic()))
                except Empty:
                    self._check_leader(connection)
                    self._register(connection, number, inbox)
                    renew_at = time.monotonic() + _RENEW_EVERY
                    continue
                if isinstance(event, ScalableError):
                    raise event
                self._backoff.reset()
                self._take(Assignment.of(event))
        finally:
            if self._registered and self._closed.is_set() and not self._stays_known:
                self._unregister(connection, number)
            self._registered = False
            connection.detach(Channel.ASSIGNMENT, number)
            connection.close()
            self._forget_events()

    def _register(self, connection: Connection, number: int, inbox: _Inbox) -> None:
        connection.require_scalable()
        inbox.used = False
        request = api.CommandScalableTopicSubscribe(
            topic=self._topic,
            subscription=self._consumer.subscription,
            consumer_name=self._name,
            consumer_id=number,
            consumer_type=self._consumer.kind,
        )
        what = f"registering {self._name} for {self._topic}"
        answer = connection.ask(request, what, api.CommandScalableTopicSubscribeResponse)
        # What came before the answer is at least as new as it: assignments are sent before they are answered.
        if not inbox.used and answer.HasField("assignment"):
            self._take(Assignment.of(answer.assignment))

    def _unregister(self, connection: Connection, number: int) -> None:
        if connection.lost is not None:
            return
        request = api.CommandScalableTopicUnsubscribe(consumer_id=number)
        what = f"leaving {self._consumer.subscription} of {self._topic}"
        try:
            connection.ask(request, what, api.CommandSuccess, _LEAVE_TIMEOUT)
        except ScalableError as error:
            # The grace period ends it instead.
            _logger.info("%s: %s left without an answer: %s", self._topic, self._name, error)

    def _check_leader(self, connection: Connection) -> None:
        try:
            layout = look_up(self._pool, self._ids, self._topic)
        except ScalableError as error:
            # Who leads is not known; the connection stands.
            _logger.debug("%s: %s", self._topic, error)
            return
        url = layout.controller_tls if self._pool.secure else layout.controller
        if url and addresses(url)[0] != connection.address:
            raise ConnectionLost(f"{url} leads now instead of {connection.address}")

    def _take(self, found: Assignment) -> None:
        # The newest one of the leader counts, whatever its epoch: a topic that was created again begins with 0.
        changed = found != self._assignment
        self._assignment = found
        if changed:
            try:
                self._on_assignment(found)
            except Exception:
                # Later assignments may be taken.
                _logger.exception("%s: the callback failed for an assignment of epoch %d", self._topic, found.epoch)
        self._settled.set()

    def _forget_events(self) -> None:
        while not self._events.empty():
            self._events.get()
        if self._closed.is_set():
            self._wake()


class _Inbox:
    """Takes what one connection brings.

    Attributes:
        used: whether an assignment came.
    """

    def __init__(self, events: SimpleQueue[api.ScalableConsumerAssignment | ScalableError]) -> None:
        self._events = events
        self.used = False

    def on_command(self, command: Command, body: bytes) -> None:
        del body
        if isinstance(command, api.CommandScalableTopicAssignmentUpdate) and command.HasField("assignment"):
            self.used = True
            self._events.put(command.assignment)

    def on_lost(self, connection: Connection, error: ScalableError) -> None:
        self._events.put(ConnectionLost(f"{connection.address}: {error}"))

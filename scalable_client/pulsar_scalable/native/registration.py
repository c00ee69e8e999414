"""Registration of a consumer with the controller of a scalable topic, and the segments assigned to it (PIP-468).

The controller removes a consumer whose connection is lost for longer than its grace period, 60 s by default
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
# A dead leader is replaced within its session's timeout; longer pauses would add to it.
_LONGEST_PAUSE = 5.0
# Seconds between registrations. A broker that detects the end of an earlier connection late takes this consumer for
# gone (5.0.1), and a leader that loses its lock may not report that.
_RENEW_EVERY = 30.0
_LEAVE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class AssignedSegment:
    """A segment that a consumer must read.

    Attributes:
        id: id of the segment.
        start: its first hash.
        end: its last hash.
        topic: topic that a consumer connects to.
        buckets: all entry buckets of the segment, first and last hash of each, if consumers share it; empty for a
            single consumer.
    """

    id: int
    start: int
    end: int
    topic: str
    buckets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """Segments that a consumer must read.

    Attributes:
        epoch: epoch of the layout.
        segments: in the controller's order.
        incarnation: distinguishes topics that had the same name; 0 if unknown.
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
    """A consumer to register.

    Attributes:
        topic: `topic://tenant/namespace/topic`.
        subscription: name of the subscription.
        name: name of the consumer, unique in the subscription.
        kind: order that the consumer needs.
    """

    topic: str
    subscription: str
    name: str
    kind: ConsumerKind


OnAssignment = Callable[[Assignment], None]


class Registration(Reconnecting):
    """Keeps a consumer registered until it is closed; created by `NativeClient.register`.

    It registers again with the same name after a lost connection, when another broker leads, and every 30 s. After
    `close` the controller hands its segments over immediately; after `detach`, when the grace period is over.
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
        """Name of the consumer."""
        return self._name

    @property
    def assignment(self) -> Assignment:
        """The newest assignment; it stays valid after a lost connection, until the controller sends another."""
        if self._assignment is None:
            raise AlreadyClosed(f"{self._topic}: {self._name} is not registered yet")
        return self._assignment

    @property
    def is_registered(self) -> bool:
        """True if there is a connection to the controller."""
        return self._registered

    @property
    def _has_begun(self) -> bool:
        return self._assignment is not None

    def detach(self) -> None:
        """Close it without unregistering: a consumer with the same name gets its segments within the grace period."""
        self._stays_known = True
        self.close()

    def _wake(self) -> None:
        self._events.put(AlreadyClosed(f"{self._topic}: the registration is closed"))

    def _is_final(self, error: ScalableError) -> bool:
        return not isinstance(error, ConnectionLost | TimedOut | NotTheLeader | Unready)

    def _serve(self) -> None:
        """Register with the leader, and handle assignments until the connection is lost or this is closed."""
        layout = look_up(self._pool, self._ids, self._topic)
        url = layout.controller_tls if self._pool.secure else layout.controller
        # Without a leader any broker will do: the one that is asked tries to lead. The connection is not shared,
        # because the controller takes its end for the end of the consumer.
        connection = self._pool.open_unshared(url)
        number = next(self._ids)
        handler = _AssignmentHandler(self._events)
        try:
            connection.attach(Channel.ASSIGNMENT, number, handler)
            self._register(connection, number, handler)
            self._registered, self._error = True, None
            renew_at = time.monotonic() + _RENEW_EVERY
            while True:
                try:
                    event = self._events.get(timeout=max(0.0, renew_at - time.monotonic()))
                except Empty:
                    self._check_leader(connection)
                    self._register(connection, number, handler)
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
            self._discard_events()

    def _register(self, connection: Connection, number: int, handler: _AssignmentHandler) -> None:
        connection.require_scalable()
        handler.has_assignment = False
        request = api.CommandScalableTopicSubscribe(
            topic=self._topic,
            subscription=self._consumer.subscription,
            consumer_name=self._name,
            consumer_id=number,
            consumer_type=self._consumer.kind,
        )
        what = f"registering {self._name} for {self._topic}"
        answer = connection.ask(request, what, api.CommandScalableTopicSubscribeResponse)
        # An assignment that arrived before the answer is at least as new: assignments are sent before the answer.
        if not handler.has_assignment and answer.HasField("assignment"):
            self._take(Assignment.of(answer.assignment))

    def _unregister(self, connection: Connection, number: int) -> None:
        if connection.lost is not None:
            return
        request = api.CommandScalableTopicUnsubscribe(consumer_id=number)
        what = f"leaving {self._consumer.subscription} of {self._topic}"
        try:
            connection.ask(request, what, api.CommandSuccess, _LEAVE_TIMEOUT)
        except ScalableError as error:
            # The consumer is removed after the grace period instead.
            _logger.info("%s: %s was not unregistered: %s", self._topic, self._name, error)

    def _check_leader(self, connection: Connection) -> None:
        try:
            layout = look_up(self._pool, self._ids, self._topic)
        except ScalableError as error:
            # The leader is unknown; the connection is up.
            _logger.debug("%s: %s", self._topic, error)
            return
        url = layout.controller_tls if self._pool.secure else layout.controller
        if url and addresses(url)[0] != connection.address:
            raise ConnectionLost(f"{url} leads now instead of {connection.address}")

    def _take(self, assignment: Assignment) -> None:
        # The leader's newest assignment is valid whatever its epoch: a recreated topic starts with 0.
        changed = assignment != self._assignment
        self._assignment = assignment
        if changed:
            try:
                self._on_assignment(assignment)
            except Exception:
                # The next assignments must still be reported.
                _logger.exception(
                    "%s: the callback failed for an assignment of epoch %d", self._topic, assignment.epoch
                )
        self._ready.set()

    def _discard_events(self) -> None:
        while not self._events.empty():
            self._events.get()
        if self._closed.is_set():
            self._wake()


class _AssignmentHandler:
    """Receives the assignments of one connection.

    Attributes:
        has_assignment: whether an assignment arrived.
    """

    def __init__(self, events: SimpleQueue[api.ScalableConsumerAssignment | ScalableError]) -> None:
        self._events = events
        self.has_assignment = False

    def on_command(self, command: Command, body: bytes) -> None:
        del body
        if isinstance(command, api.CommandScalableTopicAssignmentUpdate) and command.HasField("assignment"):
            self.has_assignment = True
            self._events.put(command.assignment)

    def on_lost(self, connection: Connection, error: ScalableError) -> None:
        self._events.put(ConnectionLost(f"{connection.address}: {error}"))

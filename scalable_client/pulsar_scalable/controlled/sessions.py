"""Registrations of consumers with the controller of a topic: made over REST, followed in the layout topic.

The controller recognises a consumer by the name of its layout reader: `{subscription}/{consumer name}`.
"""

from __future__ import annotations

import logging
import threading

from pulsar_scalable.controlled import rest
from pulsar_scalable.controlled.follower import Follower
from pulsar_scalable.controlled.layout import AssignmentMessage, assignment_key, parse_assignment
from pulsar_scalable.controlled.library import Library
from pulsar_scalable.controlled.rest import ConsumerKey, RestAccess
from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.errors import AlreadyClosed, ConnectionLost, ProtocolViolation, ScalableError, Unready
from pulsar_scalable.layout import Layout
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.native.registration import Assignment
from pulsar_scalable.ports import OnAssignment

_logger = logging.getLogger("pulsar_scalable")


class ControlledSession:
    """Registration of a consumer with a workflow.

    The consumer keeps its assignment while the controller is not available. After an eviction it has none until it is
    registered again.

    Args:
        library: creates the reader of the layout topic.
        access: access to the controller.
        consumer: consumer to register.
        kind: order that the consumer needs.
        on_assignment: called in threads of this session, one at a time.
        timeout: seconds within which the first assignment must arrive.
    """

    def __init__(
        self,
        library: Library,
        access: RestAccess,
        consumer: ConsumerKey,
        kind: ConsumerKind,
        on_assignment: OnAssignment,
        *,
        timeout: float,
    ) -> None:
        self._access = access
        self._consumer = consumer
        self._kind = kind
        self._on_assignment = on_assignment
        self._key = assignment_key(consumer.subscription, consumer.name)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._current: AssignmentMessage | None = None
        self._early: AssignmentMessage | None = None
        self._eviction: AssignmentMessage | None = None
        self._joining = self._left = False
        self._follower = Follower(
            library,
            consumer.topic,
            self._on_layout,
            on_other=self._on_other,
            on_return=self._on_return,
            reader_name=f"{consumer.subscription}/{consumer.name}",
            timeout=timeout,
        )
        try:
            self._begin(self._join_within(timeout))
        except BaseException:
            self._follower.close()
            raise

    @property
    def assignment(self) -> Assignment:
        """The newest assignment."""
        if self._current is None:
            raise AlreadyClosed(f"{self._consumer.topic.path}: {self._consumer.name} is not registered yet")
        return self._current.assignment

    def leave(self) -> None:
        """End the registration; the controller hands the segments over immediately, if it can be reached."""
        if self._closed.is_set():
            return
        self._left = True
        self.detach()
        self._unregister()

    def _unregister(self) -> None:
        try:
            rest.leave(self._access, self._urls(), self._consumer)
        except ScalableError as error:
            _logger.info("%s: not unregistered; the controller will remove it later: %s", self._key, error)

    def detach(self) -> None:
        """Stop following the registration; the controller keeps it for the grace period."""
        if not self._closed.is_set():
            self._closed.set()
            self._follower.close()

    def _urls(self) -> tuple[str, ...]:
        return (*self._access.urls, *self._follower.layout.controller_urls)

    def _join_within(self, timeout: float) -> AssignmentMessage:
        backoff, waited = Backoff(5), 0.0
        while True:
            try:
                return rest.join(self._access, self._urls(), self._consumer, self._kind)
            except (ConnectionLost, Unready):
                pause = backoff.next()
                waited += pause
                if waited > timeout or self._closed.wait(pause):
                    raise

    def _begin(self, message: AssignmentMessage) -> None:
        self._take(message)
        with self._lock:
            early, self._early = self._early, None
        if early is not None:
            self._take(early)
        self._rejoin_if_evicted()

    def _on_other(self, key: str, data: bytes) -> None:
        # An empty value removes the key: no assignment is left of an earlier consumer with this name.
        if key != self._key or not data:
            return
        try:
            message = parse_assignment(data)
        except ProtocolViolation as error:
            _logger.warning("%s: %s", self._key, error)
            return
        with self._lock:
            if message.evicted:
                if self._eviction is None or _is_newer(message, self._eviction):
                    self._eviction = message
            elif self._current is None:
                # From an earlier consumer with this name, unless it is newer than the pending answer.
                self._early = message
                return
        if message.evicted:
            self._rejoin_if_evicted()
        else:
            self._take(message)

    def _on_layout(self, layout: Layout) -> None:
        if not layout.is_deleted:
            self._rejoin_if_evicted()

    def _on_return(self) -> None:
        # Registering again is safe if the session still exists.
        self._rejoin_if_evicted("it had no connection, and may have missed its eviction")

    def _rejoin_if_evicted(self, why: str = "") -> None:
        """Register again if the controller has removed the consumer, or for the given reason."""
        with self._lock:
            if self._current is None or self._joining or not (why := self._eviction_reason(self._current) or why):
                return
            self._joining = True
        _logger.warning("%s: %s; registering again", self._key, why)
        threading.Thread(target=self._rejoin, name=f"register {self._key}", daemon=True).start()

    def _eviction_reason(self, message: AssignmentMessage) -> str:
        """Return why the controller does not know the consumer any more; empty if it does."""
        if 0 < message.created_ms < self._follower.layout.incarnation:
            return "the topic was created again"
        if self._eviction is not None and (message is self._eviction or _is_newer(self._eviction, message)):
            return "the controller has removed this consumer"
        return ""

    def _take(self, message: AssignmentMessage) -> None:
        with self._lock:
            if self._current is not None and not _is_newer(message, self._current):
                return
            changed = self._current is None or message.assignment != self._current.assignment
            self._current = message
            if changed:
                try:
                    self._on_assignment(message.assignment)
                except Exception:
                    # The next assignments must still be reported.
                    _logger.exception("%s: the callback failed for an assignment", self._key)

    def _rejoin(self) -> None:
        backoff = Backoff(5)
        while not self._closed.is_set():
            if self._eviction is not None:
                self._take(self._eviction)
            try:
                message = rest.join(self._access, self._urls(), self._consumer, self._kind)
            except Exception as error:  # noqa: BLE001 - the consumer depends on this thread
                level = logging.INFO if isinstance(error, ConnectionLost | Unready) else logging.WARNING
                _logger.log(level, "%s: %r; retrying", self._key, error)
            else:
                if self._left:
                    # The registration may have arrived after the end.
                    self._unregister()
                    return
                self._take(message)
                with self._lock:
                    # It may have been evicted again during the request; an answer without news is fine, too.
                    self._joining = bool(self._eviction_reason(self._current or message))
                if not self._joining:
                    return
            self._closed.wait(backoff.next())


def _is_newer(message: AssignmentMessage, other: AssignmentMessage) -> bool:
    if message.created_ms and other.created_ms and message.created_ms != other.created_ms:
        return message.created_ms > other.created_ms
    return message.generation > other.generation

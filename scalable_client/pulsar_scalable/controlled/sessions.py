"""Sessions of consumers with the controller of a topic: registered over REST, followed in the layout topic.

The controller sees who is there by the name of the reader that follows its layout: `{subscription}/{consumer name}`.
"""

from __future__ import annotations

import logging
import threading

from pulsar_scalable.controlled import rest
from pulsar_scalable.controlled.follower import Follower
from pulsar_scalable.controlled.layout import Told, assignment_key, parse_assignment
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
    """A consumer that a controller of ours knows.

    Without the controller the consumer keeps its assignment. One that was evicted has none until it is
    registered again.

    Args:
        library: makes the reader of the layout topic.
        access: to the controller.
        consumer: that is registered.
        kind: how it shares segments.
        on_assignment: called in threads of this session, one at a time.
        timeout: seconds in which the first assignment must come.
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
        self._told: Told | None = None
        self._early: Told | None = None
        self._eviction: Told | None = None
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
        if self._told is None:
            raise AlreadyClosed(f"{self._consumer.topic.path}: {self._consumer.name} was never registered")
        return self._told.assignment

    def leave(self) -> None:
        """End it, and let the controller give its segments to others at once, if it can be reached."""
        if self._closed.is_set():
            return
        self._left = True
        self.detach()
        self._take_leave()

    def _take_leave(self) -> None:
        try:
            rest.leave(self._access, self._urls(), self._consumer)
        except ScalableError as error:
            _logger.info("%s: left without the controller, which will notice: %s", self._key, error)

    def detach(self) -> None:
        """Follow it no more; the controller notices, and waits for the grace period."""
        if not self._closed.is_set():
            self._closed.set()
            self._follower.close()

    def _urls(self) -> tuple[str, ...]:
        return (*self._access.urls, *self._follower.layout.controller_urls)

    def _join_within(self, timeout: float) -> Told:
        backoff, waited = Backoff(5), 0.0
        while True:
            try:
                return rest.join(self._access, self._urls(), self._consumer, self._kind)
            except (ConnectionLost, Unready):
                pause = backoff.next()
                waited += pause
                if waited > timeout or self._closed.wait(pause):
                    raise

    def _begin(self, told: Told) -> None:
        self._take(told)
        with self._lock:
            early, self._early = self._early, None
        if early is not None:
            self._take(early)
        self._look()

    def _on_other(self, key: str, data: bytes) -> None:
        # Without a value: nothing is left of an earlier life of this name.
        if key != self._key or not data:
            return
        try:
            told = parse_assignment(data)
        except ProtocolViolation as error:
            _logger.warning("%s: %s", self._key, error)
            return
        with self._lock:
            if told.evicted:
                if self._eviction is None or _is_newer(told, self._eviction):
                    self._eviction = told
            elif self._told is None:
                # Of an earlier life of this name, unless it is newer than the answer that is awaited.
                self._early = told
                return
        if told.evicted:
            self._look()
        else:
            self._take(told)

    def _on_layout(self, layout: Layout) -> None:
        if not layout.is_deleted:
            self._look()

    def _on_return(self) -> None:
        # Harmless where the session continues.
        self._look("it was away, and may have missed that the controller forgot it")

    def _look(self, why: str = "") -> None:
        """Give back what others have by now, or what is deleted, and register again, where the controller forgot it."""
        with self._lock:
            if self._told is None or self._joining or not (why := self._is_forgotten(self._told) or why):
                return
            self._joining = True
        _logger.warning("%s: %s; it registers again", self._key, why)
        threading.Thread(target=self._rejoin, name=f"register {self._key}", daemon=True).start()

    def _is_forgotten(self, told: Told) -> str:
        """Why the controller does not know the consumer any more; empty as long as it does."""
        if 0 < told.created_ms < self._follower.layout.incarnation:
            return "the topic was created again"
        if self._eviction is not None and (told is self._eviction or _is_newer(self._eviction, told)):
            return "the controller has forgotten this consumer"
        return ""

    def _take(self, told: Told) -> None:
        with self._lock:
            if self._told is not None and not _is_newer(told, self._told):
                return
            changed = self._told is None or told.assignment != self._told.assignment
            self._told = told
            if changed:
                try:
                    self._on_assignment(told.assignment)
                except Exception:
                    # Later assignments may be taken.
                    _logger.exception("%s: the callback failed for an assignment", self._key)

    def _rejoin(self) -> None:
        backoff = Backoff(5)
        while not self._closed.is_set():
            if self._eviction is not None:
                self._take(self._eviction)
            try:
                told = rest.join(self._access, self._urls(), self._consumer, self._kind)
            except Exception as error:  # noqa: BLE001 - the consumer waits for this thread alone
                level = logging.INFO if isinstance(error, ConnectionLost | Unready) else logging.WARNING
                _logger.log(level, "%s: %r; tried again", self._key, error)
            else:
                if self._left:
                    # The registration may have come behind the end.
                    self._take_leave()
                    return
                self._take(told)
                with self._lock:
                    # It may have been forgotten again meanwhile; an answer that tells nothing new is good as well.
                    self._joining = bool(self._is_forgotten(self._told or told))
                if not self._joining:
                    return
            self._closed.wait(backoff.next())


def _is_newer(told: Told, other: Told) -> bool:
    if told.created_ms and other.created_ms and told.created_ms != other.created_ms:
        return told.created_ms > other.created_ms
    return told.generation > other.generation

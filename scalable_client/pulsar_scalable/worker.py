"""The work on a producer's lanes: a thread for each opens the segment's producer, and sends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from pulsar_scalable.backends import Backend, SegmentSender, Start
from pulsar_scalable.errors import (
    AuthenticationFailed,
    IncompatibleSchema,
    NotAuthorized,
    ProducerBusy,
    ScalableError,
    TimedOut,
    TopicNotFound,
    TopicTerminated,
    Unsupported,
)
from pulsar_scalable.lane import Lane
from pulsar_scalable.messages import RawMessage
from pulsar_scalable.native.backoff import Backoff
from pulsar_scalable.options import ProducerOptions
from pulsar_scalable.outbox import Outbox
from pulsar_scalable.outgoing import Outgoing, stored_of

_logger = logging.getLogger("pulsar_scalable")
# Another attempt would end the same way; applications have to know.
_FINAL = (AuthenticationFailed, IncompatibleSchema, NotAuthorized, ProducerBusy, Unsupported)
_LONGEST_PAUSE = 2.0
_READ_LIMIT_MS = 5000
_PATIENCE = 10.0
_END_LIMIT = 10.0
# Clocks of producers differ, and brokers find a time among messages of all of them.
_CLOCKS_MS = 60_000


class Worker:
    """Works on lanes.

    Args:
        backend: opens producers and readers of segments.
        options: of the producer.
    """

    def __init__(self, backend: Backend, options: ProducerOptions) -> None:
        self._backend = backend
        self._options = options
        self._threads: list[threading.Thread] = []

    def start(self, outbox: Outbox, lane: Lane) -> None:
        """Begin to work on a lane."""
        made = threading.Thread(target=self._run, args=(outbox, lane), name=f"send to {lane.topic}", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        made.start()
        self._threads.append(made)

    def join(self) -> None:
        """Wait until the producers of segments are closed, for some seconds at most."""
        until = time.monotonic() + _END_LIMIT
        for one in self._threads:
            one.join(max(0.0, until - time.monotonic()))

    def _run(self, outbox: Outbox, lane: Lane) -> None:
        last: SegmentSender | None = None
        while (sender := self._open(outbox, lane)) is not None:
            last = sender
            try:
                while found := outbox.next(lane):
                    for one, sequence_id in found:
                        sender.send(one.content, sequence_id, partial(outbox.stored, lane, one))
            finally:
                sender.close()
            if not outbox.opens_again(lane):
                break
        if not lane.done:
            self._resolve(outbox, lane, last)

    def _open(self, outbox: Outbox, lane: Lane) -> SegmentSender | None:
        """The sender of a lane; None once the lane has ended or is done."""
        backoff = Backoff(_LONGEST_PAUSE)
        while outbox.is_wanted(lane):
            try:
                sender = self._backend.open_sender(lane.topic, self._options)
            except (TopicTerminated, *_FINAL) as error:
                outbox.refused(lane, error)
            except ScalableError as error:
                _logger.info("%s: %s; opened again", lane.topic, error)
                outbox.pause(lane, backoff.next())
            else:
                if outbox.opened(lane, sender):
                    return sender
                sender.close()
        return None

    def _resolve(self, outbox: Outbox, lane: Lane, sender: SegmentSender | None) -> None:
        """Find out what a sealed segment has stored of what it did not acknowledge.

        It is sealed, so what it holds is all that it will ever hold.
        """
        sent = outbox.sent(lane)
        stored: list[RawMessage] = []
        if sent and sender is not None:
            search = _Search(lane, partial(self._tail, lane, sent, sender.producer_name))
            # Brokers may give no access to a topic that was terminated amid sends (apache/pulsar pull request 26678).
            search.done.wait(self._patience)
            if search.found is None:
                _logger.warning("%s cannot be read: what it did not acknowledge is sent again", lane.topic)
            stored = stored_of(sent, search.found or [])
            search.given_up.set()
        outbox.resolve(lane, sent, stored)

    @property
    def _patience(self) -> float:
        limit = self._options.send_timeout_millis / 1000
        return min(_PATIENCE, limit / 3) if limit else _PATIENCE

    def _tail(self, lane: Lane, sent: list[Outgoing], producer_name: str) -> list[RawMessage]:
        """What a segment holds of this producer behind the last message that is known to be stored."""
        since = None if lane.last is not None else sent[0].sent_ms - _CLOCKS_MS
        reader = self._backend.open_reader(lane.topic, Start(behind=lane.last, time_ms=since))
        found: list[RawMessage] = []
        try:
            while reader.has_message_available():
                message = reader.read_next(_READ_LIMIT_MS)
                if message.producer_name() == producer_name:
                    found.append(message)
        except TimedOut as cause:
            raise ScalableError(f"a message that is there does not come: {cause}") from cause
        finally:
            reader.close()
        return found


class _Search:
    """Reads a segment in a thread of its own, again and again until that succeeds.

    Attributes:
        found: what it holds; None as long as that is not known.
        done: set once it is, or will never be.
        given_up: nobody waits any more.
    """

    def __init__(self, lane: Lane, read: Callable[[], list[RawMessage]]) -> None:
        self.found: list[RawMessage] | None = None
        self.done = threading.Event()
        self.given_up = threading.Event()
        self._lane = lane
        self._read = read
        threading.Thread(target=self._run, name=f"look into {lane.topic}", daemon=True).start()

    def _run(self) -> None:
        backoff = Backoff(_LONGEST_PAUSE)
        while not self.given_up.is_set() and not self._lane.done:
            try:
                self.found = self._read()
                break
            except TopicNotFound:
                break
            except ScalableError as error:
                _logger.info("%s: %s; read again", self._lane.topic, error)
                self.given_up.wait(backoff.next())
        self.done.set()

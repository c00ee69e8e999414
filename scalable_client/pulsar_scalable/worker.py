"""The work on a producer's lanes: a thread for each opens the segment's producer, and sends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from pulsar_scalable.backends import Backend, Content, OnStored, SegmentSender, Start
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
from pulsar_scalable.outgoing import stored_of

_logger = logging.getLogger("pulsar_scalable")
# Another attempt would end the same way; applications have to know.
_FINAL = (AuthenticationFailed, IncompatibleSchema, NotAuthorized, ProducerBusy, Unsupported)
_DEFECTS = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)
_LONGEST_PAUSE = 2.0
_READ_LIMIT_MS = 5000
# Seconds. All later messages wait for a segment that was just loaded anew, which loses answers; slow brokers need more.
_FIRST_ANSWER, _LONGEST_ANSWER = 2, 32
_LOOK = 0.05
_END_LIMIT = 10.0
# A broker that lost a connection without an end holds the name of its producer until it misses an answer.
_BUSY_LIMIT = 60.0
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
        while (sender := self._open(outbox, lane, last.producer_name if last else None)) is not None:
            last = sender
            try:
                while found := outbox.next(lane):
                    for one, sequence_id in found:
                        _send(sender, one.content, sequence_id, partial(outbox.stored, lane, one))
            finally:
                sender.close()
            if not outbox.opens_again(lane):
                break
        if not lane.done:
            self._resolve(outbox, lane, last)

    def _open(self, outbox: Outbox, lane: Lane, replaced: str | None) -> SegmentSender | None:
        """Return the sender of a lane; None once the lane has ended or is done.

        One that replaces another takes its name: deduplication knows by it what is stored.
        """
        backoff = Backoff(_LONGEST_PAUSE)
        busy_until = time.monotonic() + _BUSY_LIMIT if replaced else 0.0
        while outbox.is_wanted(lane):
            try:
                sender = self._backend.open_sender(lane.topic, self._options, replaced)
            except (TopicTerminated, *_FINAL) as error:
                if isinstance(error, ProducerBusy) and time.monotonic() < busy_until:
                    outbox.pause(lane, backoff.next())
                else:
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
            search = _Search(lane, partial(self._tail, lane, lane.begun_ms, sender.producer_name))
            self._await(search, outbox, lane)
            if search.failure is not None:
                outbox.fail(sent, search.failure)
            stored = stored_of(sent, search.found or [])
            search.given_up.set()
        outbox.resolve(lane, sent, stored)

    def _await(self, search: _Search, outbox: Outbox, lane: Lane) -> None:
        """Wait for what a search finds, as long as a message that it may find waits for its outcome."""
        while not search.done.wait(_LOOK) and outbox.sent(lane):
            if outbox.has_left(lane):
                search.read_beside()

    def _tail(self, lane: Lane, begun: int, producer_name: str, answer_limit: int) -> list[RawMessage]:
        """What a segment holds of this producer behind the last message that is known to be stored."""
        since = begun - _CLOCKS_MS if begun else None
        reader = self._backend.open_reader(lane.topic, Start(lane.last, since, answer_limit))
        found: list[RawMessage] = []
        try:
            while reader.has_message_available():
                message = reader.read_next(_READ_LIMIT_MS)
                if message.producer_name() == producer_name and message.publish_timestamp() >= begun:
                    found.append(message)
        except TimedOut as cause:
            raise ScalableError(f"a message that is there does not come: {cause}") from cause
        finally:
            reader.close()
        return found


def _send(sender: SegmentSender, content: Content, sequence_id: int, on_stored: OnStored) -> None:
    try:
        sender.send(content, sequence_id, on_stored)
    except Exception as cause:
        # Without this thread all later messages of the segment would only time out.
        _logger.exception("message %d cannot be sent", sequence_id)
        on_stored(ScalableError(f"the library does not take this message: {cause!r}"), None)


class _Search:
    """Reads a segment in threads of its own, again and again until that succeeds.

    Attributes:
        found: what it holds; None as long as that is not known.
        failure: why that will never be known; a defect, of this package or of pulsar-client.
        done: set once it is, or will never be.
        given_up: nobody waits any more.
    """

    def __init__(self, lane: Lane, read: Callable[[int], list[RawMessage]]) -> None:
        self.found: list[RawMessage] | None = None
        self.failure: ScalableError | None = None
        self.done = threading.Event()
        self.given_up = threading.Event()
        self._lane = lane
        self._read = read
        self._beside = False
        self._begin()

    def read_beside(self) -> None:
        """Read once more beside what is under way; only the first call counts.

        A controller of ours has a sealed segment loaded anew before it publishes the layout: what began before that
        may be refused, and in a pause, or wait for an answer that went with its connection.
        """
        if not self._beside:
            self._beside = True
            self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._run, name=f"look into {self._lane.topic}", daemon=True).start()

    def _run(self) -> None:
        backoff, limit = Backoff(_LONGEST_PAUSE), _FIRST_ANSWER
        while not self.given_up.is_set() and not self._lane.done and not self.done.is_set():
            try:
                self.found = self._read(limit)
                break
            except (TopicNotFound, *_FINAL) as error:
                _logger.warning("%s: %s: what it did not acknowledge is sent again", self._lane.topic, error)
                break
            except _DEFECTS as error:
                # Another attempt would end the same way, and all later messages of these keys wait for this one.
                _logger.exception("%s: it is not known what the segment stored", self._lane.topic)
                self.failure = ScalableError(f"{self._lane.topic}: a message may be stored or not: {error!r}")
                break
            except Exception as error:  # noqa: BLE001 - the messages wait for this thread alone
                _logger.info("%s: %r; read again", self._lane.topic, error)
                self.given_up.wait(backoff.next())
                limit = min(2 * limit, _LONGEST_ANSWER)
        self.done.set()

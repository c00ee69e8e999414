"""A consumer that receives messages in order per key."""

from __future__ import annotations

import time

from pulsar_scalable.consumers import SegmentsConsumer
from pulsar_scalable.enums import ConsumerKind, ConsumerType
from pulsar_scalable.errors import ScalableError
from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.messages import Message, MessageId
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.registration import Assignment
from pulsar_scalable.options import ConsumerOptions
from pulsar_scalable.ports import Backend, SegmentReceiver, Sessions, Sharing
from pulsar_scalable.receive_queue import Source

_LONGEST_IDLE_TIMEOUT = 60.0


class StreamConsumer(SegmentsConsumer):
    """Receives messages in order per key; created by `ScalableClient.subscribe_stream`.

    The topic's controller assigns segments to the consumers of a subscription. The result of a split or merge is
    assigned after all its ancestors are drained. A segment goes to one consumer. If Pulsar 5 has more consumers than
    segments, several consumers share a segment by entry buckets: all messages of a key go to one of them.

    A segment that is reassigned is released once the application has acknowledged its messages, at the latest 60 s
    after the last acknowledgement. Until then none of its messages is returned.

    Without a controller the consumer keeps its segments. A consumer that returns with the same name within the grace
    period gets the same segments.
    """

    def __init__(
        self,
        backend: Backend,
        topic: TopicName,
        subscription: str,
        options: ConsumerOptions,
        sessions: Sessions | None = None,
        *,
        subscribe_limit: float = 30.0,
    ) -> None:
        super().__init__(backend, topic, subscription, options)
        self._keeps_session = False
        self._wanted = Assignment(0, ())
        self._watch = backend.watch(topic, self._on_layout)
        try:
            self._session = (sessions or backend).register(
                topic, subscription, self._name, ConsumerKind.STREAM, self._on_assignment
            )
        except ScalableError:
            self._watch.close()
            raise
        # Segments that cannot be reached now are attached later.
        self._wait_until_subscribed(subscribe_limit)

    @property
    def assignment(self) -> Assignment:
        """The segments that the controller assigned last."""
        return self._session.assignment

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all messages that `receive` returned before it, in all segments.

        An id that is not from a received message acknowledges only its own segment, up to that message. Messages in
        segments that this consumer does not have any more are delivered again; that is not an error.

        Raises:
            AlreadyClosed: the consumer is closed.
            ScalableError: the acknowledgement failed.
        """
        own, last = self._find(message)
        with self._lock:
            sources = list(self._sources.values())
        for source in sources:
            with self._lock:
                received = [message_id for message_id in source.handed.values() if _is_covered(message_id, last)]
            if source is own and last not in received:
                received.append(last)
            if source.buckets:
                # The broker accepts only individual acknowledgements for a Key_Shared subscription.
                self._acknowledge(source, received)
            elif received:
                newest = max(received, key=lambda message_id: message_id.position)
                self._acknowledge(source, [newest], cumulatively=True)

    def _on_layout(self, layout: Layout) -> None:
        with self._lock:
            self._take_layout(layout)
            if not layout.is_deleted:  # mutant: scalable-client/a-topic-that-comes-back-is-not-read
                # A topic that comes back after a deletion may have the same assignment, which is not reported again.
                self._reconcile()

    def _on_assignment(self, assignment: Assignment) -> None:
        with self._lock:
            self._wanted = assignment
            self._reconcile()

    def _reconcile(self) -> None:
        """Release segments that are not assigned or are shared differently, attach the others; the lock is held."""
        wanted = {segment.id: segment for segment in self._wanted.segments}
        for source in self._sources.values():
            assignment = wanted.get(source.segment.id)
            if assignment is None or assignment.buckets != source.buckets:
                source.released.set()
        for assigned in self._wanted.segments:
            segment = Segment(assigned.id, assigned.start, assigned.end)
            self._attach(segment, assigned.topic, self._wanted.incarnation, assigned.buckets)

    def _on_released(self) -> None:
        # It may have been assigned again since it was released, or be shared differently.
        self._reconcile()

    def _sharing(self, source: Source) -> Sharing:
        if not source.buckets:
            return Sharing(ConsumerType.Exclusive)
        return Sharing(ConsumerType.KeyShared, source.buckets)

    def _is_ordered(self, source: Source) -> bool:
        # If consumers share a segment, brokers may send a message of one key after newer ones of another key.
        return not source.buckets

    def _is_over(self, source: Source, receiver: SegmentReceiver) -> bool:
        """Return whether the broker may have lost an acknowledgement of an idle sealed segment.

        When its connection breaks, pulsar-client drops an unsent cumulative acknowledgement. Then it also drops
        everything that the broker sends again up to that message. A new receiver gets it.
        """
        idle = (
            not source.handed and not source.waiting and time.monotonic() - source.last_activity > source.idle_timeout
        )
        # mutant: scalable-client/a-lost-acknowledgement-stays-lost
        if receiver.is_drained is not None or not idle or not self._is_sealed(source):
            return False
        source.idle_timeout = min(2 * source.idle_timeout, _LONGEST_IDLE_TIMEOUT)
        return True

    def _should_reattach(self, source: Source) -> bool:
        source.was_idle = False  # mutant: scalable-client/a-stream-that-was-left-waits-long
        return not source.stopped.is_set()

    def _may_open(self, source: Source) -> bool:
        # Layouts and assignments arrive independently.
        return self._layout is not None and source.incarnation in (0, self._layout.incarnation)

    def detach(self) -> None:
        """Close it, but keep its session for the grace period: a consumer with the same name gets its segments.

        Use it for restarts, so that other consumers keep their segments. `close` hands the segments over immediately.
        Calling it twice is safe.
        """
        self._keeps_session = True
        self.close()

    def _leave(self) -> None:
        if self._keeps_session:
            self._session.detach()
        else:
            self._session.leave()
        self._watch.close()


def _is_covered(message_id: MessageId, last: MessageId) -> bool:
    """Return whether a cumulative acknowledgement of `last` includes a message."""
    if last.turn:
        return message_id.turn <= last.turn
    return message_id.segment == last.segment and message_id.position <= last.position

"""A consumer that gets messages in order per key."""

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

_LONGEST_PATIENCE = 60.0


class StreamConsumer(SegmentsConsumer):
    """Receives messages in order per key; `ScalableClient.subscribe_stream` makes it.

    The topic's controller assigns segments to the consumers of a subscription, and those that came of a split or a
    merge only when all of their ancestors are drained. A segment goes to one consumer, or, where Pulsar 5 has more
    consumers than segments, to several that share it by entry buckets: all messages of a key come to one of them.

    A segment that the controller takes away is released once the application has acknowledged what it received of it,
    at the latest 60 s after the last acknowledgement; meanwhile nothing more of it is handed out.

    Without the controller the consumer keeps its segments. A consumer that comes back with the same name, within the
    grace period, gets the same segments.
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
        # Segments that cannot be reached now are attached to later.
        self._await_subscribed(subscribe_limit)

    @property
    def assignment(self) -> Assignment:
        """The segments that the controller assigned last."""
        return self._session.assignment

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all that `receive` returned before it, of all segments.

        An id that was not taken from a received message acknowledges its own segment only, up to that message. What
        belongs to segments that this consumer does not have any more comes again; that is no error.

        Raises:
            AlreadyClosed: the consumer is closed.
            ScalableError: it cannot be acknowledged.
        """
        own, last = self._find(message)
        with self._lock:
            sources = list(self._sources.values())
        for source in sources:
            with self._lock:
                received = [one for one in source.handed.values() if _comes_with(one, last)]
            if source is own and last not in received:
                received.append(last)
            if source.buckets:
                # The broker takes no other acknowledgement of a subscription that is shared by key.
                self._acknowledge(source, received)
            elif received:
                newest = max(received, key=lambda one: one.position)
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
        """Release what is not assigned, or in another way, and attach to what is; called with the lock held."""
        wanted = {one.id: one for one in self._wanted.segments}
        for source in self._sources.values():
            assigned = wanted.get(source.segment.id)
            if assigned is None or assigned.buckets != source.buckets:
                source.released.set()
        for one in self._wanted.segments:
            segment = Segment(one.id, one.start, one.end)
            self._attach(segment, one.topic, self._wanted.incarnation, one.buckets)

    def _on_released(self) -> None:
        # It may have been assigned again meanwhile, or to be shared in another way.
        self._reconcile()

    def _sharing(self, source: Source) -> Sharing:
        if not source.buckets:
            return Sharing(ConsumerType.Exclusive)
        return Sharing(ConsumerType.KeyShared, source.buckets)

    def _is_ordered(self, source: Source) -> bool:
        # Where consumers share a segment, brokers send messages of one key later than newer ones of another key.
        return not source.buckets

    def _is_over(self, source: Source, receiver: SegmentReceiver) -> bool:
        """Return whether the broker may lack an acknowledgement of a sealed segment from which nothing comes any more.

        pulsar-client drops a cumulative acknowledgement that it has not sent when its connection breaks, and from then
        on everything that the broker sends again up to that message. A new receiver gets it.
        """
        idle = not source.handed and not source.waiting and time.monotonic() - source.heard > source.patience
        # mutant: scalable-client/a-lost-acknowledgement-stays-lost
        if receiver.is_drained is not None or not idle or not self._is_sealed(source):
            return False
        source.patience = min(2 * source.patience, _LONGEST_PATIENCE)
        return True

    def _goes_on(self, source: Source) -> bool:
        source.left = False  # mutant: scalable-client/a-stream-that-was-left-waits-long
        return not source.stopped.is_set()

    def _may_open(self, source: Source) -> bool:
        # The layout comes another way than the assignment.
        return self._layout is not None and source.incarnation in (0, self._layout.incarnation)

    def detach(self) -> None:
        """Close it, and keep its session for the grace period: a consumer of the same name gets its segments.

        For restarts, in which others must keep what they have. `close` gives the segments to others at once. Harmless
        when done twice.
        """
        self._keeps_session = True
        self.close()

    def _leave(self) -> None:
        if self._keeps_session:
            self._session.detach()
        else:
            self._session.leave()
        self._watch.close()


def _comes_with(one: MessageId, last: MessageId) -> bool:
    """Return whether a cumulative acknowledgement of the last message covers another message."""
    if last.turn:
        return one.turn <= last.turn
    return one.segment == last.segment and one.position <= last.position

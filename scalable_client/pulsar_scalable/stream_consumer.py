"""A consumer that gets messages in order per key."""

from __future__ import annotations

import logging
from dataclasses import replace

from pulsar_scalable.backends import Backend, SegmentReceiver, Sessions
from pulsar_scalable.consumers import LOOK_AGAIN, SegmentsConsumer
from pulsar_scalable.errors import ScalableError
from pulsar_scalable.inbox import Source
from pulsar_scalable.layout import Layout, Segment
from pulsar_scalable.messages import Message, MessageId, place_of
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.registration import Assignment
from pulsar_scalable.options import ConsumerOptions
from pulsar_scalable.wire.commands import ConsumerKind, ConsumerType

_logger = logging.getLogger("pulsar_scalable")


class StreamConsumer(SegmentsConsumer):
    """Receives messages in order per key; `ScalableClient.subscribe_stream` makes it.

    The topic's controller assigns segments to the consumers of a subscription, each segment to one of them, and those
    that came of a split or a merge only when what they came of is drained. This consumer attaches to each exclusively,
    and waits while another one still has it. Where it has a segment and what that came of, it begins with the older.

    Without the controller it keeps its segments and goes on. A consumer that comes back with the same name, within the
    grace period, gets the same segments.
    """

    def __init__(
        self,
        backend: Backend,
        topic: TopicName,
        subscription: str,
        options: ConsumerOptions,
        sessions: Sessions | None = None,
    ) -> None:
        super().__init__(backend, topic, subscription, replace(options, consumer_type=ConsumerType.Exclusive))
        self._keeps_session = False
        self._watch = backend.watch(topic, self._take_layout)
        try:
            self._session = (sessions or backend).register(
                topic, subscription, self._name, ConsumerKind.STREAM, self._on_assignment
            )
        except ScalableError:
            self._watch.close()
            raise

    @property
    def assignment(self) -> Assignment:
        """The segments that the controller gave it last."""
        return self._session.assignment

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Say that all messages of a segment up to this one are processed; those of other segments are not touched.

        Raises:
            AlreadyClosed: this consumer does not have its segment any more; who has it gets the messages again.
            ScalableError: it cannot be acknowledged.
        """
        source, receiver, found = self._find(message)
        receiver.acknowledge_cumulative(found.raw)
        with self._lock:
            source.unacknowledged = {one for one in source.unacknowledged if one > found.place}

    def _on_assignment(self, assignment: Assignment) -> None:
        with self._lock:
            wanted = {one.id: one for one in assignment.segments}
            for source in list(self._sources.values()):
                if source.segment.id not in wanted:
                    self._stop(source)
            for one in assignment.segments:
                self._attach(Segment(one.id, one.start, one.end), one.topic, assignment.incarnation)

    def detach(self) -> None:
        """Close it, and keep its session for the grace period: whoever subscribes with its name gets its segments.

        For restarts, in which others shall keep what they have. `close` gives the segments to others at once, where
        the topic is a controlled one. Harmless when done twice.
        """
        self._keeps_session = True
        self.close()

    def _leave(self) -> None:
        if self._keeps_session:
            self._session.detach()
        else:
            self._session.leave()
        self._watch.close()

    def _may_open(self, source: Source) -> bool:
        layout = self._layout
        if layout is None or source.segment.id not in layout.by_id:
            # The layout comes another way than the assignment.
            return False
        if source.incarnation not in (0, layout.incarnation):
            return False
        with self._lock:
            older = [self._sources[number] for number in _ancestors(layout, source.segment.id) & {*self._sources}]
        return all(one.finished.is_set() for one in older)

    def _is_over(self, source: Source, receiver: SegmentReceiver) -> bool:
        if not self._is_sealed(source):
            return False
        drained = receiver.is_drained
        if drained or self._all_came(source, receiver):
            source.finished.set()
        # Where brokers do not tell, the controller sees it, and takes the segment away. Silence says nothing: a busy
        # broker is silent as well, and whoever leaves for that leaves messages to nobody.
        return drained is True

    def _all_came(self, source: Source, receiver: SegmentReceiver) -> bool:
        if source.finished.is_set():
            return True
        try:
            last = receiver.last_message_id()
        except ScalableError as error:
            # It is asked again.
            _logger.debug("%s: %s", source.topic, error)
            return False
        return last.entry_id() < 0 or (source.last is not None and source.last >= place_of(last))

    def _goes_on(self, source: Source) -> bool:
        # It stays among the sources, so that what came of it may begin. A broker that was killed forgets the newest
        # acknowledgements: as long as the controller gives the segment to nobody else, this consumer looks again.
        return not source.stopped.wait(LOOK_AGAIN)


def _ancestors(layout: Layout, number: int) -> set[int]:
    found: set[int] = set()
    left = [number]
    while left:
        one = layout.by_id.get(left.pop())
        parents = [parent for parent in (one.parents if one else ()) if parent not in found]
        found.update(parents)
        left += parents
    return found

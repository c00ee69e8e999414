"""A consumer of all segments of a scalable topic, without order."""

from __future__ import annotations

import time

from pulsar_scalable.consumers import SegmentsConsumer
from pulsar_scalable.layout import Layout
from pulsar_scalable.names import TopicName
from pulsar_scalable.options import ConsumerOptions
from pulsar_scalable.ports import Backend, SegmentReceiver
from pulsar_scalable.receive_queue import Source

# For brokers that do not report the end of a sealed segment: detach after this silence, and check again later, because
# another consumer may have died with unacknowledged messages.
_SILENCE = 30.0
_REATTACH_DELAY = 300.0


class QueueConsumer(SegmentsConsumer):
    """Receives messages of all segments, active and sealed; created by `ScalableClient.subscribe`.

    Once created, its subscription exists on every segment: all messages that are sent later are delivered.

    Consumers of one subscription share its messages: each message goes to one of them at a time. Order is not kept; for
    order per key, use `StreamConsumer`. New segments are attached automatically; sealed ones are detached once all
    their messages are acknowledged.
    """

    def __init__(
        self,
        backend: Backend,
        topic: TopicName,
        subscription: str,
        options: ConsumerOptions,
        *,
        subscribe_limit: float = 30.0,
    ) -> None:
        super().__init__(backend, topic, subscription, options)
        self._drained: set[tuple[int, int]] = set()
        self._watch = backend.watch(topic, self._on_layout)
        if not self._wait_until_subscribed(subscribe_limit):  # mutant: scalable-client/subscribe-returns-at-once
            error = self._not_subscribed()
            self.close()
            raise error

    def _on_layout(self, layout: Layout) -> None:
        with self._lock:
            self._take_layout(layout)
            if layout.is_deleted:
                return
            for source in list(self._sources.values()):
                if source.segment.id not in layout.by_id:
                    self._stop(source)
            for segment in layout.segments:
                if (layout.incarnation, segment.id) not in self._drained:
                    self._attach(segment, layout.topic_of(segment), layout.incarnation)

    def _leave(self) -> None:
        self._watch.close()

    def _may_open(self, source: Source) -> bool:
        del source
        return True

    def _is_over(self, source: Source, receiver: SegmentReceiver) -> bool:
        if not self._is_sealed(source):
            return False
        if drained := receiver.is_drained:
            source.finished.set()
        idle = not source.handed and not source.waiting and time.monotonic() - source.last_activity > _SILENCE
        return drained or (drained is None and idle)

    def _should_reattach(self, source: Source) -> bool:
        if not source.finished.is_set():
            return not source.stopped.wait(_REATTACH_DELAY)
        with self._lock:
            if self._layout is not None:
                self._drained.add((self._layout.incarnation, source.segment.id))
            self._stop(source)
        return False

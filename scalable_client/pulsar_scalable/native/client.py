"""Client for brokers of Pulsar 5: layouts, registrations, producers and consumers over the binary protocol."""

from __future__ import annotations

import threading
from itertools import count
from typing import Self, TypeVar

from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.layout import Layout
from pulsar_scalable.native.backoff import Ticker
from pulsar_scalable.native.consumer import SegmentConsumer, SegmentConsumerOptions
from pulsar_scalable.native.producer import SegmentProducer
from pulsar_scalable.native.registration import OnAssignment, Registration, ScalableConsumer
from pulsar_scalable.native.watch import OnLayout, Watch, look_up
from pulsar_scalable.options import ProducerOptions
from pulsar_wire.access import Access
from pulsar_wire.pool import Pool

_MemberT = TypeVar("_MemberT", Watch, Registration, SegmentProducer, SegmentConsumer)


class NativeClient:
    """Connections to brokers of Pulsar 5, and everything that is open over them.

    Args:
        service_url: `pulsar://host:port,host:port` or `pulsar+ssl://…` of brokers; any of them.
        access: credentials, TLS and timeouts.

    Raises:
        Unsupported: the service URL is invalid.
    """

    def __init__(self, service_url: str, access: Access | None = None) -> None:
        self._pool = Pool(service_url, access or Access())
        self._ids = count(1)
        self._ticker = Ticker()
        self._lock = threading.Lock()
        self._members: list[Watch | Registration | SegmentProducer | SegmentConsumer] = []

    def look_up(self, topic: str, *, create: bool = False) -> Layout:
        """Return the current layout of a scalable topic; for a regular topic, its layout for scalable clients.

        With `create`, the broker creates a missing scalable topic if automatic creation is allowed.

        Raises:
            TopicNotFound: the topic does not exist.
            ScalableError: no broker answers.
        """
        return look_up(self._pool, self._ids, topic, create=create)

    def watch(self, topic: str, on_layout: OnLayout) -> Watch:
        """Report the layout of a topic now, and each newer one (PIP-468, "DAG watch session").

        Args:
            topic: `topic://tenant/namespace/topic`, or a regular topic.
            on_layout: called in the watch's thread, for the first layout before this returns; while it blocks, later
                layouts wait. It is also called when only the brokers of segments change.

        Raises:
            TopicNotFound: the topic does not exist.
            ScalableError: no layout arrives within the operation timeout.
        """
        return self._keep(Watch(self._pool, self._ids, topic, on_layout))

    def register(
        self, topic: str, subscription: str, consumer_name: str, kind: ConsumerKind, on_assignment: OnAssignment
    ) -> Registration:
        """Register a consumer with the topic's controller (PIP-468, "Consumer registration").

        Args:
            topic: `topic://tenant/namespace/topic`.
            subscription: name of the subscription.
            consumer_name: unique in the subscription; with the same name a consumer keeps its segments.
            kind: whether segments are assigned after their parents are drained, or immediately.
            on_assignment: called in the registration's thread, for the first assignment before this returns.

        Raises:
            ScalableError: it is not registered within the operation timeout.
        """
        consumer = ScalableConsumer(topic, subscription, consumer_name, kind)
        made = Registration(self._pool, self._ids, consumer, on_assignment)
        return self._keep(made)

    def create_producer(self, topic: str, options: ProducerOptions | None = None) -> SegmentProducer:
        """Open a producer of one topic, `segment://…` or `persistent://…`, by complete name; not of a partitioned one.

        Messages are sent one by one, without batches.

        Raises:
            TopicTerminated: the segment is sealed.
            ScalableError: it cannot be opened.
        """
        made = SegmentProducer(self._pool, topic, next(self._ids), options or ProducerOptions())
        self._ticker.add(made)
        return self._keep(made)

    def subscribe(
        self, topic: str, subscription_name: str, options: SegmentConsumerOptions | None = None
    ) -> SegmentConsumer:
        """Open a consumer of one topic, `segment://…` or `persistent://…`, by complete name; not of a partitioned one.

        Raises:
            ConsumerBusy: others hold the subscription.
            ScalableError: it cannot be opened.
        """
        made = SegmentConsumer(
            self._pool, topic, subscription_name, next(self._ids), options or SegmentConsumerOptions()
        )
        self._ticker.add(made)
        return self._keep(made)

    def discard(self, made: Watch | Registration | SegmentProducer | SegmentConsumer) -> None:
        """Close an object that this client opened, and forget it; otherwise it is kept until the client is closed."""
        with self._lock:
            self._members = [member for member in self._members if member is not made]
        made.close()
        if isinstance(made, SegmentProducer | SegmentConsumer):
            self._ticker.remove(made)

    def close(self) -> None:
        """Close everything that is open, and the connections. Closing twice is safe."""
        with self._lock:
            members, self._members = self._members, []
        for member in members:
            member.close()
            if isinstance(member, SegmentProducer | SegmentConsumer):
                self._ticker.remove(member)
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, made: _MemberT) -> _MemberT:
        with self._lock:
            for member in self._members:
                if member.is_closed and isinstance(member, SegmentProducer | SegmentConsumer):
                    self._ticker.remove(member)
            self._members = [member for member in self._members if not member.is_closed]
            self._members.append(made)
        return made

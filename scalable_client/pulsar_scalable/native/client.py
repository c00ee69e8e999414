"""The way in to everything that this package does over the binary protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Self, TypeVar

from pulsar_scalable.enums import Compression, ConsumerKind, ConsumerType, InitialPosition
from pulsar_scalable.layout import Layout
from pulsar_scalable.native.backoff import Ticker
from pulsar_scalable.native.consumer import SegmentConsumer
from pulsar_scalable.native.message import MessageId
from pulsar_scalable.native.options import ConsumerOptions, OnEnd, ProducerOptions
from pulsar_scalable.native.producer import SegmentProducer
from pulsar_scalable.native.registration import OnAssignment, Registration, ScalableConsumer
from pulsar_scalable.native.watch import OnLayout, Watch, look_up
from pulsar_wire.access import Access, tls_context
from pulsar_wire.pool import Pool

_MemberT = TypeVar("_MemberT", Watch, Registration, SegmentProducer, SegmentConsumer)


class NativeClient:
    """Connections to brokers of Pulsar 5, and what is open over them.

    Args:
        service_url: `pulsar://host:port,host:port` or `pulsar+ssl://…` of brokers; any of them will do.
        token: for token authentication, or a function that gives it each time that a broker asks.
        operation_timeout_seconds: for each request.
        connection_timeout_ms: to connect and to be greeted.
        keep_alive_seconds: of silence, after which a broker is asked whether it is there; after twice as many the
            connection is given up.
        tls_trust_certs_file_path: authorities, PEM; None for the system's.
        tls_certificate_file_path: of this client, PEM, where brokers want one.
        tls_private_key_file_path: of that certificate.
        tls_allow_insecure_connection: take any certificate.
        tls_validate_hostname: whether a certificate has to name the broker's host.

    Raises:
        Unsupported: the service URL is none.
    """

    def __init__(
        self,
        service_url: str,
        *,
        token: str | Callable[[], str] | None = None,
        operation_timeout_seconds: float = 30,
        connection_timeout_ms: int = 10_000,
        keep_alive_seconds: float = 30,
        tls_trust_certs_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = True,
    ) -> None:
        tls = None
        if service_url.startswith("pulsar+ssl://"):
            tls = tls_context(
                trust_certs_file=tls_trust_certs_file_path,
                certificate_file=tls_certificate_file_path,
                private_key_file=tls_private_key_file_path,
                allow_insecure=tls_allow_insecure_connection,
                validate_hostname=tls_validate_hostname,
            )
        access = Access(
            operation_timeout=operation_timeout_seconds,
            connection_timeout=connection_timeout_ms / 1000,
            keep_alive=keep_alive_seconds,
            token=token,
            tls=tls,
        )
        self._pool = Pool(service_url, access)
        self._ids = count(1)
        self._ticker = Ticker()
        self._lock = threading.Lock()
        self._members: list[Watch | Registration | SegmentProducer | SegmentConsumer] = []

    def look_up(self, topic: str, *, create: bool = False) -> Layout:
        """Return the layout of a scalable topic as it is now; of a regular one, what it looks like to scalable clients.

        With `create`, the broker creates a scalable topic that is missing, where it may create topics automatically.

        Raises:
            TopicNotFound: there is none.
            ScalableError: no broker can tell.
        """
        return look_up(self._pool, self._ids, topic, create=create)

    def watch(self, topic: str, on_layout: OnLayout) -> Watch:
        """Tell the layout of a topic now, and each newer one (PIP-468, "DAG watch session").

        Args:
            topic: `topic://tenant/namespace/topic`, or a regular one.
            on_layout: called in the watch's own thread, for the first layout before this returns; it may wait, and
                holds up later layouts meanwhile. It is also called where the same segments have other brokers.

        Raises:
            TopicNotFound: there is none.
            ScalableError: no broker tells it within the operation timeout.
        """
        return self._keep(Watch(self._pool, self._ids, topic, on_layout))

    def register(
        self, topic: str, subscription: str, consumer_name: str, kind: ConsumerKind, on_assignment: OnAssignment
    ) -> Registration:
        """Register a consumer with the topic's controller (PIP-468, "Consumer registration").

        Args:
            topic: `topic://tenant/namespace/topic`.
            subscription: its name.
            consumer_name: unique in the subscription; with the same name a consumer keeps its segments.
            kind: whether segments come once their parents are drained, or at once; consumers share them in any case.
            on_assignment: called in the registration's own thread, for the first assignment before this returns.

        Raises:
            ScalableError: it is not registered within the operation timeout.
        """
        consumer = ScalableConsumer(topic, subscription, consumer_name, kind)
        made = Registration(self._pool, self._ids, consumer, on_assignment)
        return self._keep(made)

    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        *,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        compression_type: Compression = Compression.NONE,
        max_pending_messages: int = 1000,
        block_if_queue_full: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> SegmentProducer:
        """Open a producer of one topic, `segment://…` or `persistent://…`, in full; not of a partitioned one.

        All else is described at `ProducerOptions`.

        Raises:
            TopicTerminated: the segment is sealed.
            ScalableError: it cannot be opened.
        """
        options = ProducerOptions(
            producer_name=producer_name,
            initial_sequence_id=initial_sequence_id,
            send_timeout_millis=send_timeout_millis,
            max_pending_messages=max_pending_messages,
            block_if_queue_full=block_if_queue_full,
            compression_type=compression_type,
            properties=properties,
        )
        made = SegmentProducer(self._pool, topic, next(self._ids), options)
        self._ticker.add(made)
        return self._keep(made)

    def subscribe(
        self,
        topic: str,
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        initial_position: InitialPosition = InitialPosition.Latest,
        *,
        receiver_queue_size: int = 1000,
        consumer_name: str | None = None,
        negative_ack_redelivery_delay_ms: int = 60_000,
        ack_receipt_enabled: bool = False,
        priority_level: int | None = None,
        properties: Mapping[str, str] | None = None,
        end_of_topic: OnEnd | None = None,
        start_message_id: MessageId | None = None,
        create_topic: bool = True,
        buckets: tuple[tuple[int, int], ...] = (),
    ) -> SegmentConsumer:
        """Open a consumer of one topic, `segment://…` or `persistent://…`, in full; not of a partitioned one.

        All else is described at `ConsumerOptions`.

        Raises:
            ConsumerBusy: others hold the subscription.
            ScalableError: it cannot be opened.
        """
        options = ConsumerOptions(
            consumer_type=consumer_type,
            initial_position=initial_position,
            receiver_queue_size=max(1, receiver_queue_size),
            consumer_name=consumer_name,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            ack_receipt_enabled=ack_receipt_enabled,
            priority_level=priority_level,
            properties=properties,
            end_of_topic=end_of_topic,
            start_message_id=start_message_id,
            create_topic=create_topic,
            buckets=buckets,
        )
        made = SegmentConsumer(self._pool, topic, subscription_name, next(self._ids), options)
        self._ticker.add(made)
        return self._keep(made)

    def discard(self, made: Watch | Registration | SegmentProducer | SegmentConsumer) -> None:
        """Close what this client opened, and forget it; else it stays known here until the client is closed."""
        with self._lock:
            self._members = [one for one in self._members if one is not made]
        made.close()
        if isinstance(made, SegmentProducer | SegmentConsumer):
            self._ticker.remove(made)

    def close(self) -> None:
        """Close all that is open, and the connections. Harmless when done twice."""
        with self._lock:
            members, self._members = self._members, []
        for one in members:
            one.close()
            if isinstance(one, SegmentProducer | SegmentConsumer):
                self._ticker.remove(one)
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, made: _MemberT) -> _MemberT:
        with self._lock:
            for one in self._members:
                if one.is_closed and isinstance(one, SegmentProducer | SegmentConsumer):
                    self._ticker.remove(one)
            self._members = [one for one in self._members if not one.is_closed]
            self._members.append(made)
        return made

"""The way in: a client of scalable topics, whoever controls them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pulsar_scalable.checkpoint_consumer import CheckpointConsumer, StartPosition
from pulsar_scalable.controlled.rest import RestAccess
from pulsar_scalable.enums import Compression, InitialPosition
from pulsar_scalable.errors import AlreadyClosed, Refused, ScalableError, TopicNotFound, Unsupported
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.client import NativeClient
from pulsar_scalable.native_backend import NativeBackend
from pulsar_scalable.options import ConsumerOptions, ProducerOptions
from pulsar_scalable.ports import Backend
from pulsar_scalable.producer import ScalableProducer
from pulsar_scalable.queue_consumer import QueueConsumer
from pulsar_scalable.stream_consumer import StreamConsumer
from pulsar_wire.access import tls_context

if TYPE_CHECKING:
    from pulsar_scalable.controlled.backend import ControlledBackend

_MemberT = TypeVar("_MemberT", ScalableProducer, QueueConsumer, StreamConsumer, CheckpointConsumer)


class ScalableClient:
    """Makes producers and consumers of scalable topics; the options are those of `pulsar.Client`.

    A topic `topic://tenant/namespace/topic` is controlled by a broker of Pulsar 5. One that is named
    `persistent://tenant/namespace/topic`, or in short, is looked for among those that a workflow controls, on brokers
    of any Pulsar from 4.0 on, and then among those of Pulsar 5.

    Args:
        service_url: `pulsar://host:port,host:port` or `pulsar+ssl://…` of brokers.
        authentication: of `pulsar`; with native topics, `token` serves instead.
        token: for token authentication, or a function that gives it each time that it is needed; also for the
            controller's REST interface.
        operation_timeout_seconds: for each request.
        connection_timeout_ms: to connect and to be greeted.
        io_threads: of pulsar-client.
        logger: of pulsar-client, `pulsar.ConsoleLogger(…)` for example.
        listener_name: of brokers that are reached in several ways; controlled topics only.
        tls_trust_certs_file_path: authorities, PEM; None for the system's.
        tls_allow_insecure_connection: take any certificate.
        tls_validate_hostname: whether a certificate has to name the broker's host.
        tls_certificate_file_path: of this client, PEM.
        tls_private_key_file_path: of that certificate.
        controller_url: of the controller's REST interface, `https://host:port`, where layouts do not tell it.
        create_topics: whether a `topic://…` that does not exist may be created, with one segment, by brokers that
            create topics automatically. By default nothing is created.

    Raises:
        Unsupported: the service URL is none, or the options exclude each other.
    """

    def __init__(
        self,
        service_url: str,
        *,
        authentication: Any = None,
        token: str | Callable[[], str] | None = None,
        operation_timeout_seconds: int = 30,
        connection_timeout_ms: int = 10_000,
        io_threads: int = 1,
        logger: Any = None,
        listener_name: str | None = None,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        tls_certificate_file_path: str | None = None,
        tls_private_key_file_path: str | None = None,
        controller_url: str | None = None,
        create_topics: bool = False,
    ) -> None:
        self._create_topics = create_topics
        if authentication is not None and token is not None:
            raise Unsupported("authentication and token exclude each other")
        self._authentication = authentication
        self._native_client = NativeClient(
            service_url,
            token=token,
            operation_timeout_seconds=operation_timeout_seconds,
            connection_timeout_ms=connection_timeout_ms,
            tls_trust_certs_file_path=tls_trust_certs_file_path,
            tls_certificate_file_path=tls_certificate_file_path,
            tls_private_key_file_path=tls_private_key_file_path,
            tls_allow_insecure_connection=tls_allow_insecure_connection,
            tls_validate_hostname=tls_validate_hostname,
        )
        tls = tls_context(
            trust_certs_file=tls_trust_certs_file_path,
            certificate_file=tls_certificate_file_path,
            private_key_file=tls_private_key_file_path,
            allow_insecure=tls_allow_insecure_connection,
        )
        urls = tuple(controller_url.split(",")) if controller_url else ()
        self._access = RestAccess(urls, token, operation_timeout_seconds, tls)
        self._timeout = operation_timeout_seconds
        self._service_url = service_url
        self._settings: dict[str, Any] = {
            "authentication": authentication,
            "operation_timeout_seconds": operation_timeout_seconds,
            "connection_timeout_ms": connection_timeout_ms,
            "io_threads": io_threads,
            "logger": logger,
            "listener_name": listener_name,
            "tls_trust_certs_file_path": tls_trust_certs_file_path,
            "tls_allow_insecure_connection": tls_allow_insecure_connection,
            "tls_validate_hostname": tls_validate_hostname,
            "tls_certificate_file_path": tls_certificate_file_path,
            "tls_private_key_file_path": tls_private_key_file_path,
        }
        self._token = token
        self._native = NativeBackend(self._native_client)
        self._lock = threading.Lock()
        self._controlled: ControlledBackend | None = None
        self._members: list[ScalableProducer | QueueConsumer | StreamConsumer | CheckpointConsumer] = []
        self._closed = False

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
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        properties: Mapping[str, str] | None = None,
    ) -> ScalableProducer:
        """Make a producer of a scalable topic; options are described at `ProducerOptions`.

        Raises:
            TopicNotFound: there is no such scalable topic.
            ScalableError: its layout is not to be had.
        """
        options = ProducerOptions(
            producer_name=producer_name,
            initial_sequence_id=initial_sequence_id,
            send_timeout_millis=send_timeout_millis,
            max_pending_messages=max_pending_messages,
            block_if_queue_full=block_if_queue_full,
            compression_type=compression_type,
            batching_enabled=batching_enabled,
            batching_max_messages=batching_max_messages,
            batching_max_allowed_size_in_bytes=batching_max_allowed_size_in_bytes,
            batching_max_publish_delay_ms=batching_max_publish_delay_ms,
            properties=properties,
        )
        name, backend = self._place(topic)
        return self._keep(ScalableProducer(backend, name, options))

    def subscribe(
        self,
        topic: str,
        subscription_name: str,
        *,
        consumer_name: str | None = None,
        receiver_queue_size: int = 1000,
        unacked_messages_timeout_ms: int | None = None,
        negative_ack_redelivery_delay_ms: int = 60_000,
        initial_position: InitialPosition = InitialPosition.Earliest,
        properties: Mapping[str, str] | None = None,
    ) -> QueueConsumer:
        """Make a consumer that shares messages with others, without an order; options are those of `ConsumerOptions`.

        Raises:
            TopicNotFound: there is no such scalable topic.
            ScalableError: its layout is not to be had.
        """
        options = ConsumerOptions(
            consumer_name=consumer_name,
            receiver_queue_size=receiver_queue_size,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            initial_position=initial_position,
            properties=properties,
        )
        name, backend = self._place(topic)
        return self._keep(QueueConsumer(backend, name, subscription_name, options, subscribe_limit=self._timeout))

    def subscribe_stream(
        self,
        topic: str,
        subscription_name: str,
        *,
        consumer_name: str | None = None,
        receiver_queue_size: int = 1000,
        unacked_messages_timeout_ms: int | None = None,
        negative_ack_redelivery_delay_ms: int = 60_000,
        initial_position: InitialPosition = InitialPosition.Earliest,
        properties: Mapping[str, str] | None = None,
    ) -> StreamConsumer:
        """Make a consumer that gets messages in order per key; options are those of `ConsumerOptions`.

        Raises:
            TopicNotFound: there is no such scalable topic.
            ScalableError: its layout is not to be had, or its controller does not register the consumer.
        """
        options = ConsumerOptions(
            consumer_name=consumer_name,
            receiver_queue_size=receiver_queue_size,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            initial_position=initial_position,
            properties=properties,
        )
        name, backend = self._place(topic)
        return self._keep(StreamConsumer(backend, name, subscription_name, options, subscribe_limit=self._timeout))

    def create_checkpoint_consumer(self, topic: str, start: StartPosition = "earliest") -> CheckpointConsumer:
        """Make a consumer whose positions the application keeps.

        Args:
            topic: the scalable topic.
            start: `"earliest"`, `"latest"`, or a `Checkpoint`.

        Raises:
            TopicNotFound: there is no such scalable topic, or the checkpoint is of an earlier one of its name.
            ScalableError: its layout is not to be had.
        """
        name, backend = self._place(topic)
        return self._keep(CheckpointConsumer(backend, name, start))

    def close(self) -> None:
        """Close all that is open. Harmless when done twice."""
        with self._lock:
            members, self._members = self._members, []
            self._closed = True
        for one in members:
            one.close()
        self._native.close()
        if self._controlled is not None:
            self._controlled.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self, made: _MemberT) -> _MemberT:
        with self._lock:
            self._members = [one for one in self._members if not one.is_closed]
            self._members.append(made)
        return made

    def _place(self, topic: str) -> tuple[TopicName, Backend]:
        """The topic, and who controls it."""
        name = TopicName.parse(topic)
        if self._closed:
            raise AlreadyClosed("the client is closed")
        if not name.native and self._is_controlled(name):
            with self._lock:
                if self._controlled is None:
                    # Only this needs pulsar-client.
                    from pulsar_scalable.controlled.backend import ControlledBackend

                    if self._token is not None:
                        self._settings["authentication"] = _token_of(self._token)
                    self._controlled = ControlledBackend(
                        self._service_url,
                        self._settings,
                        self._access,
                        self._timeout,
                        self._native if self._authentication is None else None,
                    )
                return name, self._controlled
        self._require_native(name)
        return name, self._native

    def _is_controlled(self, name: TopicName) -> bool:
        """Whether the layout topic is there; looking for it must not make it."""
        if self._authentication is not None:
            # Only pulsar-client can identify itself, and it makes topics that it looks for.
            return True
        return self._native.exists(name.layout_topic)

    def _require_native(self, name: TopicName) -> None:
        cure = (
            f"start a controller for it (workflow ScalableTopicController, topic persistent://{name.path}),"
            f" or on Pulsar 5 create it with PUT /admin/v2/scalable/{name.path}"
        )
        try:
            layout = self._native_client.look_up(name.scalable, create=self._create_topics and name.native)
        except TopicNotFound as cause:
            raise TopicNotFound(-1, f"there is no such scalable topic; {cure}", name.path) from cause
        except Unsupported as cause:
            if name.native:
                raise Unsupported(f"{name.path}: {cause}") from cause
            raise TopicNotFound(-1, f"there is no such scalable topic ({cause}); {cure}", name.path) from cause
        except Refused as cause:
            raise ScalableError(f"{name.path}: {cause}; {cure}") from cause
        if layout.synthetic and not name.native:
            raise TopicNotFound(-1, f"it is an ordinary topic, or none; {cure}", name.path)


def _token_of(token: str | Callable[[], str]) -> Any:
    from pulsar_scalable.controlled.library import pulsar

    return pulsar.AuthenticationToken(token)

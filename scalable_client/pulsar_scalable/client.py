"""The client of scalable topics, for both kinds of controllers."""

from __future__ import annotations

import ssl
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

from pulsar_scalable.checkpoint_consumer import CheckpointConsumer, StartPosition
from pulsar_scalable.controlled.rest import RestAccess
from pulsar_scalable.errors import AlreadyClosed, Refused, ScalableError, TopicNotFound, Unsupported
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.client import NativeClient
from pulsar_scalable.native_backend import NativeBackend
from pulsar_scalable.options import ClientOptions, ConsumerOptions, ProducerOptions
from pulsar_scalable.ports import Backend
from pulsar_scalable.producer import ScalableProducer
from pulsar_scalable.queue_consumer import QueueConsumer
from pulsar_scalable.stream_consumer import StreamConsumer
from pulsar_wire.access import Access, addresses, tls_context
from pulsar_wire.hosts import listed_hosts

if TYPE_CHECKING:
    from pulsar_scalable.controlled.backend import ControlledBackend

_MemberT = TypeVar("_MemberT", ScalableProducer, QueueConsumer, StreamConsumer, CheckpointConsumer)


class ScalableClient:
    """Client that creates producers and consumers of scalable topics.

    A topic `topic://tenant/namespace/topic` is controlled by a broker of Pulsar 5. A name
    `persistent://tenant/namespace/topic`, or a short name, is looked up first among the topics that a workflow
    controls (brokers from Pulsar 4.0 on), then among those of Pulsar 5.

    Args:
        service_url: `pulsar://host:port,host:port` or `pulsar+ssl://…` of brokers.
        options: credentials, TLS and timeouts.

    Raises:
        Unsupported: the service URL is invalid, or two options exclude each other.
    """

    def __init__(self, service_url: str, options: ClientOptions | None = None) -> None:
        options = options or ClientOptions()
        if options.authentication is not None and options.token is not None:
            raise Unsupported("set either authentication or token, not both")
        self._options = options
        self._service_url = service_url
        urls = tuple(options.controller_url.split(",")) if options.controller_url else ()
        token_hosts = _token_hosts(service_url, urls, options)
        access = Access(
            operation_timeout=options.operation_timeout_seconds,
            connection_timeout=options.connection_timeout_ms / 1000,
            token=options.token,
            token_hosts=token_hosts,
            tls=_tls(options) if service_url.startswith("pulsar+ssl://") else None,
        )
        self._native_client = NativeClient(service_url, access)
        self._rest = RestAccess(urls, options.token, options.operation_timeout_seconds, _tls(options), token_hosts)
        self._native = NativeBackend(self._native_client)
        self._lock = threading.Lock()
        self._controlled: ControlledBackend | None = None
        self._members: list[ScalableProducer | QueueConsumer | StreamConsumer | CheckpointConsumer] = []
        self._closed = False

    def create_producer(self, topic: str, options: ProducerOptions | None = None) -> ScalableProducer:
        """Create a producer of a scalable topic.

        Raises:
            TopicNotFound: the scalable topic does not exist.
            ScalableError: its layout cannot be read.
        """
        name, backend = self._find(topic)
        return self._keep(ScalableProducer(backend, name, options or ProducerOptions()))

    def subscribe(self, topic: str, subscription_name: str, options: ConsumerOptions | None = None) -> QueueConsumer:
        """Create a consumer that shares messages with others, without order.

        Raises:
            TopicNotFound: the scalable topic does not exist.
            ScalableError: its layout cannot be read.
        """
        name, backend = self._find(topic)
        limit = self._options.operation_timeout_seconds
        return self._keep(
            QueueConsumer(backend, name, subscription_name, options or ConsumerOptions(), subscribe_limit=limit)
        )

    def subscribe_stream(
        self, topic: str, subscription_name: str, options: ConsumerOptions | None = None
    ) -> StreamConsumer:
        """Create a consumer that receives messages in order per key.

        Raises:
            TopicNotFound: the scalable topic does not exist.
            ScalableError: its layout cannot be read, or its controller does not register the consumer.
        """
        name, backend = self._find(topic)
        limit = self._options.operation_timeout_seconds
        return self._keep(
            StreamConsumer(backend, name, subscription_name, options or ConsumerOptions(), subscribe_limit=limit)
        )

    def create_checkpoint_consumer(self, topic: str, start: StartPosition = "earliest") -> CheckpointConsumer:
        """Create a consumer whose positions the application stores.

        Args:
            topic: the scalable topic.
            start: `"earliest"`, `"latest"`, or a `Checkpoint`.

        Raises:
            TopicNotFound: the scalable topic does not exist, or the checkpoint belongs to an earlier one of its name.
            ScalableError: its layout cannot be read.
        """
        name, backend = self._find(topic)
        return self._keep(CheckpointConsumer(backend, name, start))

    def close(self) -> None:
        """Close all producers and consumers. Closing twice is safe."""
        with self._lock:
            members, self._members = self._members, []
            self._closed = True
        for member in members:
            member.close()
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
            self._members = [member for member in self._members if not member.is_closed]
            self._members.append(made)
        return made

    def _find(self, topic: str) -> tuple[TopicName, Backend]:
        """Return the name of a topic, and the backend of its controller."""
        name = TopicName.parse(topic)
        if self._closed:
            raise AlreadyClosed("the client is closed")
        if not name.native and self._is_controlled(name):
            with self._lock:
                if self._controlled is None:
                    # Imported only here, because it needs pulsar-client.
                    from pulsar_scalable.controlled.backend import ControlledBackend

                    self._controlled = ControlledBackend(
                        self._service_url,
                        self._options,
                        self._rest,
                        self._native if self._options.authentication is None else None,
                    )
                return name, self._controlled
        self._require_native(name)
        return name, self._native

    def _is_controlled(self, name: TopicName) -> bool:
        """Return whether the layout topic exists; the check does not create it."""
        if self._options.authentication is not None:
            # Only pulsar-client has these credentials, and it would create a topic that it looks up.
            return True
        return self._native.exists(name.layout_topic)

    def _require_native(self, name: TopicName) -> None:
        cure = (
            f"start a controller for it (workflow TopicController, topic persistent://{name.path}),"
            f" or on Pulsar 5 create it with PUT /admin/v2/scalable/{name.path}"
        )
        try:
            layout = self._native_client.look_up(name.scalable, create=self._options.create_topics and name.native)
        except TopicNotFound as cause:
            raise TopicNotFound(-1, f"scalable topic does not exist; {cure}", name.path) from cause
        except Unsupported as cause:
            if name.native:
                raise Unsupported(f"{name.path}: {cause}") from cause
            raise TopicNotFound(-1, f"scalable topic does not exist ({cause}); {cure}", name.path) from cause
        except Refused as cause:
            raise ScalableError(f"{name.path}: {cause}; {cure}") from cause
        if layout.synthetic and not name.native:
            raise TopicNotFound(
                -1, f"not a scalable topic: it is an ordinary topic, or does not exist; {cure}", name.path
            )


def _token_hosts(service_url: str, controller_urls: tuple[str, ...], options: ClientOptions) -> tuple[str, ...]:
    """Return the hosts that the application named.

    Raises:
        Unsupported: the service URL, or an entry of `token_hosts`, is invalid.
    """
    controllers = [urlsplit(url).hostname or "" for url in controller_urls]
    try:
        further = listed_hosts(options.token_hosts)
    except ValueError as cause:
        raise Unsupported(f"token_hosts: {cause}") from cause
    named = [address.host for address in addresses(service_url)] + controllers
    return (*(host.lower() for host in named if host), *further)


def _tls(options: ClientOptions) -> ssl.SSLContext:
    return tls_context(
        trust_certs_file=options.tls_trust_certs_file_path,
        certificate_file=options.tls_certificate_file_path,
        private_key_file=options.tls_private_key_file_path,
        allow_insecure=options.tls_allow_insecure_connection,
        validate_hostname=options.tls_validate_hostname,
    )

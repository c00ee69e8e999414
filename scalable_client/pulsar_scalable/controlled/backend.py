"""Topics that a workflow controls."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any

from pulsar_scalable.backends import EmptyReader, LayoutWatch, OnAssignment, OnLayout, Start
from pulsar_scalable.controlled.follower import Follower
from pulsar_scalable.controlled.library import Library
from pulsar_scalable.controlled.rest import Place, RestAccess
from pulsar_scalable.controlled.segments import Reader, Receiver, Sender, last_position
from pulsar_scalable.controlled.sessions import ControlledSession
from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.errors import ScalableError, TopicNotFound
from pulsar_scalable.names import TopicName
from pulsar_scalable.native_backend import NativeBackend
from pulsar_scalable.options import ConsumerOptions, ProducerOptions

_logger = logging.getLogger("pulsar_scalable")


class ControlledBackend:
    """Talks to brokers through pulsar-client, and to controllers over REST.

    Args:
        service_url: of brokers.
        settings: further arguments of `pulsar.Client`.
        access: to controllers.
        timeout: seconds in which a layout and an assignment have to come.
        native: sees what the library does not tell; None where it cannot identify itself.
    """

    def __init__(
        self,
        service_url: str,
        settings: Mapping[str, Any],
        access: RestAccess,
        timeout: float,
        native: NativeBackend | None,
    ) -> None:
        self._native = native
        self._library = Library(service_url, settings, native.end_of if native else None)
        self._access = access
        self._timeout = timeout

    def watch(self, topic: TopicName, on_layout: OnLayout) -> LayoutWatch:
        """Tell the layout of a topic, and each newer one."""
        return Follower(
            self._library,
            topic,
            on_layout,
            reader_name=f"layout-{secrets.token_hex(5)}",
            timeout=self._timeout,
        )

    def register(
        self,
        topic: TopicName,
        subscription: str,
        consumer_name: str,
        kind: ConsumerKind,
        on_assignment: OnAssignment,
    ) -> ControlledSession:
        """Register a consumer."""
        place = Place(topic, subscription, consumer_name, secrets.token_hex(8))
        return ControlledSession(self._library, self._access, place, kind, on_assignment, timeout=self._timeout)

    def open_sender(self, topic: str, options: ProducerOptions, producer_name: str | None = None) -> Sender:
        """Open a producer of a segment."""
        return Sender(self._library, topic, options, producer_name)

    def open_receiver(self, topic: str, subscription: str, options: ConsumerOptions) -> Receiver:
        """Open a consumer of a segment."""
        return Receiver(self._library, topic, subscription, options)

    def open_reader(self, topic: str, start: Start) -> Reader | EmptyReader:
        """Open a reader of a segment."""
        if self._is_empty(topic):
            return EmptyReader()
        return Reader(self._library, topic, start)

    def _is_empty(self, topic: str) -> bool:
        # The library would try again and again, and not tell why.
        try:
            return self._native is not None and self._native.is_empty(topic)
        except TopicNotFound:
            raise
        except ScalableError as error:
            _logger.info("%s: %s", topic, error)
            return False

    def last_position(self, topic: str) -> bytes | None:
        """The serialised id of the last message of a segment."""
        return last_position(self._library, topic)

    def close(self) -> None:
        """Close all that is open."""
        self._library.close()

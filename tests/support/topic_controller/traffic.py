"""Traffic of a controlled topic at all times, and what must hold of its messages.

Producers of all manners send numbered messages of keys of their own; a subscription is shared by several consumers, and
another one is read in order by several with sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from pulsar_devstack.traffic.audit import Tolerated
from pulsar_devstack.traffic.keyed_traffic import Arrivals, Receiving, Sending, delivery
from pulsar_devstack.traffic.plan import Subscribed
from pulsar_scalable import ClientOptions, ConsumerOptions, ProducerOptions, ScalableClient, StreamConsumer
from pulsar_scalable.controlled.library import pulsar
from tests.support.waiting import wait_for, wait_until_equal

SHARED, ORDERED = "work", "bill"
"""Subscriptions of each topic."""

# A change that waits for Temporal, or for a broker, holds messages back for as long.
_SEND_TIMEOUT_MS = 240_000
_MANNERS = ("plain", "batched", "named")


class Traffic:
    """Sends and receives from the entry of the context to its end.

    Args:
        broker_urls: of brokers.
        topic: the scalable one, with both subscriptions.
        registrar: URL of what registers consumers.
        rate: messages per second, of all producers.
        consumers: of each subscription.

    Attributes:
        streams: consumers of the ordered subscription that are open, by name.
    """

    def __init__(self, broker_urls: str, topic: str, registrar: str, *, rate: float = 100, consumers: int = 2) -> None:
        self._urls, self._topic, self._registrar = broker_urls, topic, registrar
        self._rate, self._consumers = rate, consumers
        self._opened = ExitStack()
        self.shared, self.ordered = Arrivals(SHARED, Subscribed.SHARED), Arrivals(ORDERED)
        self.sendings: list[Sending] = []
        self.streams: dict[str, StreamConsumer] = {}
        self._receiving: list[Receiving] = []

    def __enter__(self) -> Self:
        with self._opened as opened:
            client = self.client = opened.enter_context(
                ScalableClient(
                    self._urls,
                    ClientOptions(
                        controller_url=self._registrar,
                        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
                        operation_timeout_seconds=30,
                    ),
                )
            )
            for number in range(self._consumers):
                self._receiving.append(Receiving(client.subscribe(self._topic, SHARED), self.shared))
                self.join(f"c{number}")
            for manner in _MANNERS:
                producer = client.create_producer(
                    self._topic,
                    ProducerOptions(
                        producer_name=f"{manner}-producer" if manner == "named" else None,
                        send_timeout_millis=_SEND_TIMEOUT_MS,
                        block_if_queue_full=True,
                        batching_enabled=manner == "batched",
                    ),
                )
                self.sendings.append(Sending(producer, len(_MANNERS) / self._rate, manner))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def close(self) -> None:
        """Close all clients, once all was stopped."""
        self._opened.close()

    def join(self, name: str) -> None:
        """Add a consumer of the ordered subscription."""
        consumer = self.client.subscribe_stream(self._topic, ORDERED, ConsumerOptions(consumer_name=name))
        self._receiving.append(Receiving(consumer, self.ordered))
        self.streams[name] = consumer

    def leave(self, name: str) -> None:
        """Remove a consumer of the ordered subscription while it receives; others get its segments at once."""
        self.streams.pop(name).close()

    def die(self, name: str) -> None:
        """End a consumer of the ordered subscription without unregistering it; `join` starts it again."""
        self.streams.pop(name).detach()

    @property
    def count(self) -> int:
        """Messages that were handed over to producers."""
        return sum(sending.count for sending in self.sendings)

    def wait_for_more(self, messages: int, limit: float = 150) -> None:
        """Wait until each producer has this many more messages stored, and both subscriptions have all of these."""
        before = [self._stored(sending) for sending in self.sendings]

        def more() -> bool:
            return all(
                self._stored(sending) >= had + messages for sending, had in zip(self.sendings, before, strict=True)
            )

        wait_for(f"{messages} more messages of each producer", more, limit)
        stored = self._all_stored()
        for what, received in self._subscriptions():
            with self._with_details(lambda what=what, received=received: f"{what} lacks {received.missing(stored)}"):
                wait_for(f"{what} to have them", lambda received=received: not received.missing(stored), limit)

    def wait_for_readers(self, active: Iterable[int], limit: float = 60) -> None:
        """Wait until ordered consumers were assigned the active segments, each of them once, and no others."""
        wanted = sorted(active)
        with self._with_details(lambda: "not all of them are read once"):
            wait_until_equal(f"consumers of {wanted}", lambda: sorted(self._assigned()), wanted, limit)

    def stop(self, limit: float = 90) -> None:
        """End the sending, and wait until what is stored has come; what is missing then is one of the `faults`."""
        for sending in self.sendings:
            sending.stop()
        stored = self._all_stored()
        for _, received in self._subscriptions():
            try:
                wait_for("all", lambda received=received: not received.missing(stored), limit)
            except AssertionError:
                continue
        for receiving in self._receiving:
            receiving.stop()

    def missing(self, received: Arrivals) -> list[str]:
        """Return the stored messages that a subscription has not received."""
        return received.missing(self._all_stored())

    def faults(self) -> list[str]:
        """Return the faults of messages, once all was stopped."""
        stored = self._all_stored()
        faults = [
            f"{what} lacks {message}"
            for what, received in self._subscriptions()
            for message in received.missing(stored)
        ]
        # Consumers leave and die: what they have not acknowledged comes again.
        faults += delivery(self.sendings, [self.shared, self.ordered]).faults(Tolerated.DUPLICATES)
        return faults + [fault for sending in self.sendings for fault in sending.faults()]

    def _assigned(self) -> list[int]:
        return [segment.id for stream in self.streams.values() for segment in stream.assignment.segments]

    @contextmanager
    def _with_details(self, what: Callable[[], str]) -> Generator[None]:
        """Add to a failed wait what is wrong, and which segments ordered consumers were assigned and read."""
        try:
            yield
        except AssertionError as error:
            each = [
                f"{name}: assigned {[segment.id for segment in consumer.assignment.segments]}, has {consumer.segments}"
                for name, consumer in self.streams.items()
            ]
            raise AssertionError("; ".join([str(error), what(), *each])) from error

    def _subscriptions(self) -> Sequence[tuple[str, Arrivals]]:
        return [(SHARED, self.shared), (ORDERED, self.ordered)]

    def _all_stored(self) -> dict[str, list[int]]:
        return {key: numbers for sending in self.sendings for key, numbers in sending.stored().items()}

    @staticmethod
    def _stored(sending: Sending) -> int:
        return sum(map(len, sending.stored().values()))

"""Acknowledge messages of a subscription that were not received: put it where it shall stand."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from clients.closeable import Closeable
from clients.pulsar.names import TopicName
from clients.pulsar.wire.connection import Connection
from clients.pulsar.wire.frames import command
from clients.pulsar.wire.place import Place
from clients.pulsar.wire.pulsar_api_pb2 import (
    CommandAck,
    CommandCloseConsumer,
    CommandSubscribe,
    KeyValue,
    MessageIdData,
)

_TOGETHER = 500


class RawSubscription(Closeable):
    """A durable subscription that exists, held as its only consumer; nothing is received. For one thread.

    Acknowledging only adds: an attempt that wakes up late can acknowledge nothing but what it would have anyway.

    Args:
        connection: to the broker that owns the topic.
        topic: whose subscription.
        name: of the subscription.
        notes: shown in the topic's statistics.

    Raises:
        StoreContention: others consume it.
        StoreError: it cannot be opened.
    """

    def __init__(self, connection: Connection, topic: TopicName, name: str, *, notes: dict[str, str]) -> None:
        self._connection = connection
        self._what = f"subscription {name} of {topic}"
        self._id = connection.new_id()
        number = connection.new_id()
        wanted = CommandSubscribe(
            topic=str(topic),
            subscription=name,
            subType=CommandSubscribe.Exclusive,
            consumer_id=self._id,
            request_id=number,
            durable=True,
            metadata=[KeyValue(key=key, value=value) for key, value in notes.items()],
            force_topic_creation=False,
        )
        connection.ask(command(subscribe=wanted), number, f"opening {self._what}")

    def acknowledge_up_to(self, place: Place) -> None:
        """Acknowledge everything up to and with this place; harmless where that is done.

        Raises:
            StoreError: the broker refuses, or does not answer in time.
        """
        self._acknowledge(CommandAck.Cumulative, [_id(place)])

    def acknowledge(self, places: Iterable[Place]) -> None:
        """Acknowledge single entries; raises as `acknowledge_up_to`."""
        waiting = iter(places)
        while part := [_id(place) for place in islice(waiting, _TOGETHER)]:
            self._acknowledge(CommandAck.Individual, part)

    def close(self) -> None:
        """Let others consume it."""
        number = self._connection.new_id()
        closing = CommandCloseConsumer(consumer_id=self._id, request_id=number)
        self._connection.ask(command(close_consumer=closing), number, f"closing {self._what}")

    def _acknowledge(self, kind: CommandAck.AckType, places: list[MessageIdData]) -> None:
        number = self._connection.new_id()
        acknowledged = CommandAck(consumer_id=self._id, ack_type=kind, message_id=places, request_id=number)
        self._connection.ask(command(ack=acknowledged), number, f"acknowledging on {self._what}")


def _id(place: Place) -> MessageIdData:
    return MessageIdData(ledgerId=place.ledger_id, entryId=place.entry_id)

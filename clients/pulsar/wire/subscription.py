"""Acknowledge messages of a subscription that were not received: put it where it must be."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from clients.closeable import Closeable
from clients.pulsar.names import TopicName
from clients.pulsar.wire.connection import BrokerConnection
from clients.pulsar.wire.position import EntryPosition
from pulsar_wire.connection import Channel
from pulsar_wire.pulsar_api_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandCloseConsumer,
    CommandSeek,
    CommandSubscribe,
    CommandSuccess,
    MessageIdData,
)
from pulsar_wire.values import key_values

_TOGETHER = 500

EXCLUSIVE = "Exclusive"
"""Type of a subscription with one consumer."""

TYPES = (EXCLUSIVE, "Shared", "Failover", "Key_Shared")
"""All types, as statistics name them."""


class RawSubscription(Closeable):
    """A durable subscription that exists, held as its only consumer if it is exclusive; nothing is received.

    For one thread.

    Check the fence when it is open: brokers let another attempt open it only when this one is gone, also if they must
    close the connection of a frozen one first, and then ignore its acknowledgements.

    Args:
        connection: to the broker that owns the topic.
        topic: whose subscription.
        name: of the subscription.
        kind: type of the subscription, as statistics name it.
        notes: shown in the topic's statistics.

    Raises:
        StoreContention: others consume it, and do not share it.
        StoreError: it cannot be opened.
    """

    def __init__(
        self, connection: BrokerConnection, topic: TopicName, name: str, kind: str = EXCLUSIVE, *, notes: dict[str, str]
    ) -> None:
        self._connection = connection
        self._what = f"subscription {name} of {topic}"
        self._id = connection.new_id(Channel.CONSUMER)
        wanted = CommandSubscribe(
            topic=str(topic),
            subscription=name,
            subType=kind,
            consumer_id=self._id,
            durable=True,
            metadata=key_values(notes),
            force_topic_creation=False,
        )
        connection.ask(wanted, f"opening {self._what}", CommandSuccess)

    def acknowledge_up_to(self, position: EntryPosition) -> None:
        """Acknowledge everything up to and with this position; harmless where that is done.

        Raises:
            StoreError: the broker refuses, or does not answer in time.
        """
        self._acknowledge(CommandAck.Cumulative, [_id(position)])

    def acknowledge(self, positions: Iterable[EntryPosition]) -> None:
        """Acknowledge single entries; raises as `acknowledge_up_to`."""
        waiting = iter(positions)
        while ids := [_id(position) for position in islice(waiting, _TOGETHER)]:
            self._acknowledge(CommandAck.Individual, ids)

    def reset_to(self, position: EntryPosition) -> None:
        """Reset the subscription to an entry, which is delivered next; the broker closes this consumer.

        Raises:
            StoreError: the broker refuses, or does not answer in time.
        """
        seek = CommandSeek(consumer_id=self._id, message_id=_id(position))
        self._connection.ask(seek, f"resetting {self._what}", CommandSuccess)

    def close(self) -> None:
        """Close the consumer, so that others can consume."""
        closing = CommandCloseConsumer(consumer_id=self._id)
        self._connection.ask(closing, f"closing {self._what}", CommandSuccess)

    def _acknowledge(self, kind: CommandAck.AckType, positions: list[MessageIdData]) -> None:
        acknowledged = CommandAck(consumer_id=self._id, ack_type=kind, message_id=positions)
        self._connection.ask(acknowledged, f"acknowledging on {self._what}", CommandAckResponse)


def _id(position: EntryPosition) -> MessageIdData:
    return MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)

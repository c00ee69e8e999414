"""Commands between clients and brokers; the type of a command is the number of its field in `BaseCommand`.

Source: PulsarApi.proto of Pulsar 5.0.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from pulsar_scalable.wire.proto import (
    Message,
    flag,
    integer,
    integers,
    nested,
    nested_all,
    optional_integer,
    optional_raw,
    optional_text,
    text,
)


class ConsumerType(IntEnum):
    """How consumers share a subscription; the numbers are those of pulsar-client as well."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(IntEnum):
    """Where a new subscription begins; the numbers are those of pulsar-client as well."""

    Latest = 0
    Earliest = 1


class AckType(IntEnum):
    """One message, or all up to it."""

    INDIVIDUAL = 0
    CUMULATIVE = 1


class LookupType(IntEnum):
    """What a broker says of a topic's owner."""

    REDIRECT = 0
    CONNECT = 1
    FAILED = 2


class ConsumerKind(IntEnum):
    """Whose order counts: a STREAM gets segments once all of their ancestors are drained, CHECKPOINT at once.

    The controller shares the segments among the consumers of a subscription in both cases.
    """

    STREAM = 0
    CHECKPOINT = 1


@dataclass(frozen=True, slots=True)
class KeyValue(Message):
    """One property."""

    key: str = text(1)
    value: str = text(2)


@dataclass(frozen=True, slots=True)
class IntRange(Message):
    """A range of hashes, its end included."""

    start: int = integer(1)
    end: int = integer(2)


@dataclass(frozen=True, slots=True)
class KeySharedMeta(Message):
    """How consumers of a Key_Shared subscription share messages.

    With `entry_bucket_dispatch`, `hash_ranges` are the entry buckets of a segment, the same for each of its consumers.
    """

    key_shared_mode: int = integer(1)
    hash_ranges: tuple[IntRange, ...] = nested_all(3, IntRange)
    entry_bucket_dispatch: bool | None = flag(5)


@dataclass(frozen=True, slots=True)
class MessageIdData(Message):
    """Where a message is stored; `ack_set` has a bit for each message of a batch that is not acknowledged."""

    ledger_id: int = integer(1)
    entry_id: int = integer(2)
    partition: int | None = optional_integer(3)
    batch_index: int | None = optional_integer(4)
    ack_set: tuple[int, ...] = integers(5)
    batch_size: int | None = optional_integer(6)


@dataclass(frozen=True, slots=True)
class Command(Message):
    """What stands in a frame.

    Attributes:
        number: its type, and the number of its field.
    """

    number: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class FeatureFlags(Message):
    """What a peer can do."""

    supports_auth_refresh: bool | None = flag(1)
    supports_broker_entry_metadata: bool | None = flag(2)
    supports_scalable_topics: bool | None = flag(8)


@dataclass(frozen=True, slots=True)
class Connect(Command):
    """The first command on a connection."""

    number: ClassVar[int] = 2
    client_version: str = text(1)
    auth_data: bytes | None = optional_raw(3)
    protocol_version: int | None = optional_integer(4)
    auth_method_name: str | None = optional_text(5)
    feature_flags: FeatureFlags | None = nested(10, FeatureFlags)


@dataclass(frozen=True, slots=True)
class Connected(Command):
    """The broker takes the connection."""

    number: ClassVar[int] = 3
    server_version: str = text(1)
    protocol_version: int | None = optional_integer(2)
    max_message_size: int | None = optional_integer(3)
    feature_flags: FeatureFlags | None = nested(4, FeatureFlags)


@dataclass(frozen=True, slots=True)
class AuthData(Message):
    """Credentials."""

    auth_method_name: str | None = optional_text(1)
    auth_data: bytes | None = optional_raw(2)


@dataclass(frozen=True, slots=True)
class AuthChallenge(Command):
    """The broker wants credentials again, before those that it has expire."""

    number: ClassVar[int] = 36


@dataclass(frozen=True, slots=True)
class AuthResponse(Command):
    """Credentials again."""

    number: ClassVar[int] = 37
    client_version: str | None = optional_text(1)
    response: AuthData | None = nested(2, AuthData)
    protocol_version: int | None = optional_integer(3)


@dataclass(frozen=True, slots=True)
class Ping(Command):
    """Are you there?"""

    number: ClassVar[int] = 18


@dataclass(frozen=True, slots=True)
class Pong(Command):
    """I am."""

    number: ClassVar[int] = 19


@dataclass(frozen=True, slots=True)
class Success(Command):
    """A request succeeded."""

    number: ClassVar[int] = 13
    request_id: int = integer(1)


@dataclass(frozen=True, slots=True)
class Error(Command):
    """A request failed; what fails before the broker took the connection has no request."""

    number: ClassVar[int] = 14
    request_id: int = integer(1)
    error: int = integer(2)
    message: str = text(3)


@dataclass(frozen=True, slots=True)
class LookupTopic(Command):
    """Who owns a topic?"""

    number: ClassVar[int] = 23
    topic: str = text(1)
    request_id: int = integer(2)
    authoritative: bool | None = flag(3)


@dataclass(frozen=True, slots=True)
class LookupTopicResponse(Command):
    """The owner, or who knows it."""

    number: ClassVar[int] = 24
    broker_service_url: str | None = optional_text(1)
    broker_service_url_tls: str | None = optional_text(2)
    response: int | None = optional_integer(3)
    request_id: int = integer(4)
    authoritative: bool | None = flag(5)
    error: int | None = optional_integer(6)
    message: str | None = optional_text(7)
    proxy_through_service_url: bool | None = flag(8)


@dataclass(frozen=True, slots=True)
class Producer(Command):
    """Open a producer; `epoch` grows each time that the same one is opened again."""

    number: ClassVar[int] = 5
    topic: str = text(1)
    producer_id: int = integer(2)
    request_id: int = integer(3)
    producer_name: str | None = optional_text(4)
    metadata: tuple[KeyValue, ...] = nested_all(6, KeyValue)
    epoch: int | None = optional_integer(8)
    user_provided_producer_name: bool | None = flag(9)


@dataclass(frozen=True, slots=True)
class ProducerSuccess(Command):
    """The producer is open; where `producer_ready` is false, a second answer will follow."""

    number: ClassVar[int] = 17
    request_id: int = integer(1)
    producer_name: str = text(2)
    last_sequence_id: int | None = optional_integer(3)
    producer_ready: bool | None = flag(6)


@dataclass(frozen=True, slots=True)
class Send(Command):
    """Store a message, which follows."""

    number: ClassVar[int] = 6
    producer_id: int = integer(1)
    sequence_id: int = integer(2)
    num_messages: int | None = optional_integer(3)


@dataclass(frozen=True, slots=True)
class SendReceipt(Command):
    """A message is stored; ledger and entry are -1 where deduplication dropped it."""

    number: ClassVar[int] = 7
    producer_id: int = integer(1)
    sequence_id: int = integer(2)
    message_id: MessageIdData | None = nested(3, MessageIdData)


@dataclass(frozen=True, slots=True)
class SendError(Command):
    """A message is not stored."""

    number: ClassVar[int] = 8
    producer_id: int = integer(1)
    sequence_id: int = integer(2)
    error: int = integer(3)
    message: str = text(4)


@dataclass(frozen=True, slots=True)
class CloseProducer(Command):
    """Close a producer: a request of clients, or the broker's news."""

    number: ClassVar[int] = 15
    producer_id: int = integer(1)
    request_id: int = integer(2)


@dataclass(frozen=True, slots=True)
class Subscribe(Command):
    """Open a consumer."""

    number: ClassVar[int] = 4
    topic: str = text(1)
    subscription: str = text(2)
    sub_type: int = integer(3)
    consumer_id: int = integer(4)
    request_id: int = integer(5)
    consumer_name: str | None = optional_text(6)
    priority_level: int | None = optional_integer(7)
    durable: bool | None = flag(8)
    start_message_id: MessageIdData | None = nested(9, MessageIdData)
    metadata: tuple[KeyValue, ...] = nested_all(10, KeyValue)
    initial_position: int | None = optional_integer(13)
    force_topic_creation: bool | None = flag(15)
    key_shared_meta: KeySharedMeta | None = nested(17, KeySharedMeta)
    consumer_epoch: int | None = optional_integer(19)


@dataclass(frozen=True, slots=True)
class Flow(Command):
    """The broker may send so many messages more."""

    number: ClassVar[int] = 11
    consumer_id: int = integer(1)
    message_permits: int = integer(2)


@dataclass(frozen=True, slots=True)
class Deliver(Command):
    """A stored entry, which follows: the proto's CommandMessage."""

    number: ClassVar[int] = 9
    consumer_id: int = integer(1)
    message_id: MessageIdData | None = nested(2, MessageIdData)
    redelivery_count: int | None = optional_integer(3)
    ack_set: tuple[int, ...] = integers(4)
    consumer_epoch: int | None = optional_integer(5)


@dataclass(frozen=True, slots=True)
class Ack(Command):
    """Messages are processed; with a request id the broker answers."""

    number: ClassVar[int] = 10
    consumer_id: int = integer(1)
    ack_type: int = integer(2)
    message_id: tuple[MessageIdData, ...] = nested_all(3, MessageIdData)
    request_id: int | None = optional_integer(8)


@dataclass(frozen=True, slots=True)
class AckResponse(Command):
    """The answer to an acknowledgement that has a request id."""

    number: ClassVar[int] = 38
    consumer_id: int = integer(1)
    error: int | None = optional_integer(4)
    message: str | None = optional_text(5)
    request_id: int | None = optional_integer(6)


@dataclass(frozen=True, slots=True)
class Redeliver(Command):
    """Send messages again: those named, or all that are not acknowledged."""

    number: ClassVar[int] = 20
    consumer_id: int = integer(1)
    message_ids: tuple[MessageIdData, ...] = nested_all(2, MessageIdData)
    consumer_epoch: int | None = optional_integer(3)


@dataclass(frozen=True, slots=True)
class ReachedEndOfTopic(Command):
    """The topic is terminated, and the consumer got all of it."""

    number: ClassVar[int] = 27
    consumer_id: int = integer(1)


@dataclass(frozen=True, slots=True)
class Unsubscribe(Command):
    """Remove the subscription."""

    number: ClassVar[int] = 12
    consumer_id: int = integer(1)
    request_id: int = integer(2)


@dataclass(frozen=True, slots=True)
class Seek(Command):
    """Move the subscription to a message, or to a time in milliseconds since 1970."""

    number: ClassVar[int] = 28
    consumer_id: int = integer(1)
    request_id: int = integer(2)
    message_id: MessageIdData | None = nested(3, MessageIdData)
    message_publish_time: int | None = optional_integer(4)


@dataclass(frozen=True, slots=True)
class GetLastMessageId(Command):
    """Which message is the topic's last?"""

    number: ClassVar[int] = 29
    consumer_id: int = integer(1)
    request_id: int = integer(2)


@dataclass(frozen=True, slots=True)
class GetLastMessageIdResponse(Command):
    """The last message; entry -1 where the topic is empty."""

    number: ClassVar[int] = 30
    last_message_id: MessageIdData | None = nested(1, MessageIdData)
    request_id: int = integer(2)


@dataclass(frozen=True, slots=True)
class CloseConsumer(Command):
    """Close a consumer: a request of clients, or the broker's news."""

    number: ClassVar[int] = 16
    consumer_id: int = integer(1)
    request_id: int = integer(2)


def properties(pairs: Mapping[str, str]) -> tuple[KeyValue, ...]:
    """Properties as they are sent."""
    return tuple(KeyValue(key=key, value=value) for key, value in pairs.items())

"""Interfaces that producers and consumers need from the controller of a topic.

`pulsar_scalable.native` implements them for brokers of Pulsar 5, which control topics themselves;
`pulsar_scalable.controlled` for brokers from Pulsar 4.0 on, whose topics a workflow controls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from pulsar_scalable.enums import ConsumerKind, ConsumerType
from pulsar_scalable.errors import Refused, ScalableError, TimedOut
from pulsar_scalable.layout import Layout
from pulsar_scalable.messages import RawMessage
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.registration import Assignment
from pulsar_scalable.options import ConsumerOptions, ProducerOptions

OnLayout = Callable[[Layout], None]
OnAssignment = Callable[[Assignment], None]
OnStored = Callable[[ScalableError | None, Any], None]
"""Callback that receives an error, or the message's id in its segment."""


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a message that an application sends.

    Attributes:
        data: the payload.
        properties: of the message.
        partition_key: key of the message; None for no key.
        ordering_key: key for Key_Shared subscriptions only.
        event_timestamp: milliseconds since 1970.
        sequence_id: sequence id that the application set; None for none.

    Raises:
        TypeError: a value has the wrong type.
        ValueError: a number is out of range, or a text cannot be encoded.
    """

    data: bytes
    properties: dict[str, str] | None = None
    partition_key: str | None = None
    ordering_key: str | None = None
    event_timestamp: int | None = None
    sequence_id: int | None = None

    @classmethod
    def of(
        cls,
        data: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        event_timestamp: int | None = None,
    ) -> Self:
        """Return the content for the options in `MessageOptions`; errors are those of the class."""
        copied = dict(properties) if properties else None
        return cls(data, copied, partition_key, ordering_key or None, event_timestamp or None, sequence_id)

    def __post_init__(self) -> None:
        """Reject values here that the client library would reject in another thread."""
        _require_type("content", self.data, bytes)
        for name, text in (("partition_key", self.partition_key), ("ordering_key", self.ordering_key)):
            if text is not None:
                _require_text(name, text)
        for name, text in (self.properties or {}).items():
            _require_text("the name of a property", name)
            _require_text(f"property {name}", text)
        if self.event_timestamp is not None:
            _require_number("event_timestamp", self.event_timestamp)
        if self.sequence_id is not None:
            _require_number("sequence_id", self.sequence_id)


def _require_type(name: str, value: object, kind: type) -> None:
    """Check the type of a value.

    Raises:
        TypeError: it has another type.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__}, and is {type(value).__name__}: {value!r:.100}")


def _require_number(name: str, value: int) -> None:
    """Check that a value is a number of 63 bits.

    Raises:
        TypeError: it is not a number.
        ValueError: it is negative, or too large.
    """
    _require_type(name, value, int)
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{name} must be a number from 0 to 2^63 - 1, and is {value}")


def _require_text(name: str, value: str) -> None:
    _require_type(name, value, str)
    # A lone surrogate cannot be encoded.
    value.encode()


class Closable(Protocol):
    """Interface of objects that can be closed."""

    def close(self) -> None:
        """Close it; closing twice is safe."""
        ...


class LayoutWatch(Closable, Protocol):
    """Watch on the layout of a topic."""

    @property
    def layout(self) -> Layout:
        """The newest layout."""
        ...


class SegmentSender(Closable, Protocol):
    """Sends messages to one segment, in order."""

    @property
    def producer_name(self) -> str:
        """Name of the producer, which its messages have."""
        ...

    @property
    def is_connected(self) -> bool:
        """True if it is connected; messages that are sent without a connection are sent later."""
        ...

    def last_sequence_id(self) -> int:
        """Return the sequence id that deduplication knew when this was opened; -1 for none."""
        ...

    def send(self, content: Content, sequence_id: int, on_stored: OnStored) -> None:
        """Send a message without waiting; after a rejected message no later one is stored.

        `on_stored` is called in any thread. After `TopicTerminated` and `AlreadyClosed` the message may be stored or
        not.
        """
        ...


class SegmentReceiver(Closable, Protocol):
    """Receives the messages of one segment for a subscription."""

    def receive(self, timeout_millis: int) -> RawMessage:
        """Return the next message.

        Raises:
            TimedOut: no message arrived in time.
            ScalableError: receiving failed.
        """
        ...

    def acknowledge(self, message_id: Any) -> None:
        """Acknowledge a message, by its id in the segment."""
        ...

    def acknowledge_cumulative(self, message_id: Any) -> None:
        """Acknowledge all messages up to this one, by its id in the segment."""
        ...

    def negative_acknowledge(self, message: RawMessage) -> None:
        """Request redelivery of a message after the redelivery delay."""
        ...

    @property
    def is_drained(self) -> bool | None:
        """True if the segment is sealed and the subscription has acknowledged all of it; None if unknown."""
        ...


class SegmentReader(Closable, Protocol):
    """Reads one segment without a subscription."""

    def read_next(self, timeout_millis: int) -> RawMessage:
        """Return the next message.

        Raises:
            TimedOut: no message arrived in time.
            ScalableError: reading failed.
        """
        ...

    def has_message_available(self) -> bool:
        """Return whether there is a next message now.

        Raises:
            ScalableError: the broker does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """Way in which consumers share the subscription of a segment.

    Attributes:
        consumer_type: subscription type.
        buckets: all entry buckets of a segment that several stream consumers share.
    """

    consumer_type: ConsumerType
    buckets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Position where a reader starts: after a message, at a time, or at the start of the segment.

    Attributes:
        after: serialised id of the message before the first one.
        time_ms: publishing time in milliseconds since 1970.
        answer_limit: most seconds for each answer of a broker. pulsar-client waits that long for an answer that was
            lost with a connection.
    """

    after: bytes | None = None
    time_ms: int | None = None
    answer_limit: int = 10


class Session(Protocol):
    """Registration of a consumer with the controller of a topic, which assigns segments to it."""

    @property
    def assignment(self) -> Assignment:
        """The newest assignment; it is valid until the controller sends another one."""
        ...

    def leave(self) -> None:
        """End the registration; the controller assigns the segments to others. Calling it twice is safe."""
        ...

    def detach(self) -> None:
        """Stop following the registration; the controller keeps it for the grace period. Calling it twice is safe."""
        ...


class Sessions(Protocol):
    """Source of assignments for stream consumers."""

    def register(
        self,
        topic: TopicName,
        subscription: str,
        consumer_name: str,
        kind: ConsumerKind,
        on_assignment: OnAssignment,
    ) -> Session:
        """Register a consumer; the first assignment is reported before this returns.

        Raises:
            ScalableError: the consumer is not registered.
        """
        ...


class Backend(Sessions, Closable, Protocol):
    """Access to the controller and the segments of a topic."""

    def watch(self, topic: TopicName, on_layout: OnLayout) -> LayoutWatch:
        """Report the layout of a topic before this returns, then each newer one; never an older one.

        Raises:
            TopicNotFound: the topic does not exist.
            ScalableError: no layout arrives in time.
        """
        ...

    def open_sender(self, topic: str, options: ProducerOptions, producer_name: str | None = None) -> SegmentSender:
        """Open a producer of a segment.

        Args:
            topic: topic of the segment.
            options: options of the scalable topic's producer.
            producer_name: complete name of the sender that this one replaces; None for a name from the options.

        Raises:
            TopicTerminated: the segment is sealed.
            ScalableError: it cannot be opened.
        """
        ...

    def open_receiver(
        self, topic: str, subscription: str, options: ConsumerOptions, sharing: Sharing
    ) -> SegmentReceiver:
        """Open a consumer of a segment.

        Raises:
            ConsumerBusy: others hold the subscription.
            ScalableError: it cannot be opened.
        """
        ...

    def open_reader(self, topic: str, start: Start) -> SegmentReader:
        """Open a reader of a segment.

        Raises:
            TopicNotFound: the segment is gone.
            ScalableError: it cannot be opened.
        """
        ...

    def last_position(self, topic: str) -> bytes | None:
        """Return the serialised id of the last message of a segment; None if it is empty.

        Raises:
            TopicNotFound: the segment was deleted.
            ScalableError: the broker does not answer.
        """
        ...


class EmptyReader:
    """Reader of a sealed segment that has no messages left.

    Brokers (4.0.8, 4.2.4, 5.0.1) reject readers of a topic that is terminated, has no ledgers, and was loaded again.
    """

    def read_next(self, timeout_millis: int) -> RawMessage:
        """Raise TimedOut: the segment is empty."""
        raise TimedOut(f"the segment is empty; waiting {timeout_millis} ms would not change that")

    def has_message_available(self) -> bool:
        """Return False: the segment is empty."""
        return False

    def close(self) -> None:
        """Close nothing."""


def is_without_ledgers(error: ScalableError) -> bool:
    """Return whether an error may mean that a sealed segment has no messages left, so that readers are rejected.

    The broker's cause is a NoSuchElementException, which has neither text nor code.
    """
    return isinstance(error, Refused) and error.code == 0 and not error.message

"""What producers and consumers of scalable topics want of whoever controls a topic.

`pulsar_scalable.native` talks to brokers of Pulsar 5 that control topics themselves; `pulsar_scalable.controlled` to
brokers of any Pulsar from 4.0 on, whose topics a workflow controls.
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
"""Gets an error, or the message's id in its segment."""


@dataclass(frozen=True, slots=True)
class Content:
    """What an application sends.

    Attributes:
        data: the payload.
        properties: of the message.
        partition_key: its key, None for none.
        ordering_key: the key for Key_Shared subscriptions alone.
        event_timestamp: milliseconds since 1970.
        sequence_id: that the application gave; None for none.

    Raises:
        TypeError: something is of another type.
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
        """Return what an application sends, by the names of `MessageOptions`; errors are those of the class."""
        copied = dict(properties) if properties else None
        return cls(data, copied, partition_key, ordering_key or None, event_timestamp or None, sequence_id)

    def __post_init__(self) -> None:
        """Refuse here what the library would refuse in another thread."""
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


def _require_type(name: str, found: object, kind: type) -> None:
    """Refuse what is of another type.

    Raises:
        TypeError: it is.
    """
    if not isinstance(found, kind):
        raise TypeError(f"{name} must be {kind.__name__}, and is {type(found).__name__}: {found!r:.100}")


def _require_number(name: str, found: int) -> None:
    """Refuse what is no number of 63 bits.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, or too large.
    """
    _require_type(name, found, int)
    if not 0 <= found < 1 << 63:
        raise ValueError(f"{name} must be a number from 0 to 2^63 - 1, and is {found}")


def _require_text(name: str, found: str) -> None:
    _require_type(name, found, str)
    # Half of a surrogate pair cannot be.
    found.encode()


class Closable(Protocol):
    """Can be closed."""

    def close(self) -> None:
        """Close it; harmless when done twice."""
        ...


class LayoutWatch(Closable, Protocol):
    """Follows the layout of a topic."""

    @property
    def layout(self) -> Layout:
        """The newest layout."""
        ...


class SegmentSender(Closable, Protocol):
    """Sends to one segment, in order."""

    @property
    def producer_name(self) -> str:
        """The name that its messages carry."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether a broker can be reached; what is sent meanwhile is sent later."""
        ...

    def last_sequence_id(self) -> int:
        """Of the last message that deduplication knows when this was opened; -1 for none."""
        ...

    def send(self, content: Content, sequence_id: int, on_stored: OnStored) -> None:
        """Send a message without waiting; after a refusal, none that comes after it is stored.

        What happened is told from any thread; `TopicTerminated` and `AlreadyClosed` leave open whether it was stored.
        """
        ...


class SegmentReceiver(Closable, Protocol):
    """Receives what a subscription gets of one segment."""

    def receive(self, timeout_millis: int) -> RawMessage:
        """The next message.

        Raises:
            TimedOut: none came.
            ScalableError: it cannot be received.
        """
        ...

    def acknowledge(self, found: Any) -> None:
        """Say that a message is processed, by its id in the segment."""
        ...

    def acknowledge_cumulative(self, found: Any) -> None:
        """Say that all messages up to one are processed, by its id in the segment."""
        ...

    def negative_acknowledge(self, found: RawMessage) -> None:
        """Let a message be sent again after the redelivery delay."""
        ...

    @property
    def is_drained(self) -> bool | None:
        """Whether the segment is sealed, and all of it acknowledged by the subscription; None if nobody tells."""
        ...


class SegmentReader(Closable, Protocol):
    """Reads one segment without a subscription."""

    def read_next(self, timeout_millis: int) -> RawMessage:
        """The next message.

        Raises:
            TimedOut: none came.
            ScalableError: it cannot be read.
        """
        ...

    def has_message_available(self) -> bool:
        """Whether there is a next message now.

        Raises:
            ScalableError: nobody can tell.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the subscription of a segment is shared.

    Attributes:
        consumer_type: of each of its consumers.
        buckets: all entry buckets of a segment that several consumers of a stream share.
    """

    consumer_type: ConsumerType
    buckets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Where a reader starts: after a message, at a time, or at the start of the segment.

    Attributes:
        after: serialised id of the last message that is not wanted.
        time_ms: publishing time in milliseconds since 1970.
        answer_limit: seconds that each answer of a broker may take. pulsar-client waits for one that was lost with a
            connection until then.
    """

    after: bytes | None = None
    time_ms: int | None = None
    answer_limit: int = 10


class Session(Protocol):
    """A consumer that a topic's controller knows, and to which it assigns segments."""

    @property
    def assignment(self) -> Assignment:
        """The newest assignment; it holds as long as the controller gives no other one."""
        ...

    def leave(self) -> None:
        """End it; the controller gives its segments to others. Harmless when done twice."""
        ...

    def detach(self) -> None:
        """Tell no more of it; the controller keeps it for the grace period. Harmless when done twice."""
        ...


class Sessions(Protocol):
    """Where stream consumers get their segments."""

    def register(
        self,
        topic: TopicName,
        subscription: str,
        consumer_name: str,
        kind: ConsumerKind,
        on_assignment: OnAssignment,
    ) -> Session:
        """Register a consumer; the first assignment is told before this returns.

        Raises:
            ScalableError: it is not registered.
        """
        ...


class Backend(Sessions, Closable, Protocol):
    """Whoever controls a topic, and where its segments are."""

    def watch(self, topic: TopicName, on_layout: OnLayout) -> LayoutWatch:
        """Tell the layout of a topic now, before this returns, and each newer one; never an older one.

        Raises:
            TopicNotFound: there is none.
            ScalableError: nobody tells it in time.
        """
        ...

    def open_sender(self, topic: str, options: ProducerOptions, producer_name: str | None = None) -> SegmentSender:
        """Open a producer of a segment.

        Args:
            topic: the segment's.
            options: of the producer of the scalable topic.
            producer_name: that of the sender which this one replaces, in full; None for a name by the options.

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
        """The serialised id of the last message of a segment; None where it is empty.

        Raises:
            TopicNotFound: the segment is gone.
            ScalableError: nobody can tell.
        """
        ...


class EmptyReader:
    """Reads a sealed segment of which nothing is left.

    Brokers (4.0.8, 4.2.4, 5.0.1) refuse readers of a topic that is terminated, has no ledger, and was loaded again.
    """

    def read_next(self, timeout_millis: int) -> RawMessage:
        """There is no message."""
        raise TimedOut(f"the segment is empty; waiting {timeout_millis} ms would not change that")

    def has_message_available(self) -> bool:
        """There is none."""
        return False

    def close(self) -> None:
        """Nothing is open."""


def is_without_ledgers(error: ScalableError) -> bool:
    """Whether this may be how brokers refuse a reader of a sealed segment of which nothing is left.

    The cause is a NoSuchElementException, which has no text, and for which there is no code.
    """
    return isinstance(error, Refused) and error.code == 0 and not error.message

"""Send stored messages to a topic as they are, as its only producer, or as the only one of a name."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from clients.closeable import Closeable
from clients.errors import StoreConflict, StoreContention, StoreError, StoreUnsupported
from clients.pulsar.names import StoredTopic
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.connection import BrokerConnection, refused
from clients.pulsar.wire.frames import Message
from clients.pulsar.wire.lookup import connect
from clients.pulsar.wire.position import EntryPosition
from pulsar_wire.connection import Channel
from pulsar_wire.errors import Refused, ServerError
from pulsar_wire.frames import Command, encode
from pulsar_wire.pulsar_api_pb2 import (
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSendError,
    CommandSendReceipt,
    CommandSuccess,
    CommandTopicMigrated,
    MessageIdData,
)
from pulsar_wire.values import key_values, signed

# Brokers stop reading a connection with more pending messages than this.
_MESSAGES_AHEAD, _BYTES_AHEAD = 900, 8 << 20
_TOGETHER = 128 << 10
_DRAIN_EVERY = 0.1
#: What a message may have next to its payload within a broker's limit.
_METADATA_ROOM = 10 << 10


OnStored = Callable[[EntryPosition], None]


class RawProducer(Closeable):
    """A producer next to which no other attempt can produce, until it is fenced; for one thread.

    The broker closes all other producers. Messages of an older producer, of an earlier attempt or an application, are
    refused from that moment on, and the name is free again only when all that it had on its way is stored: what is
    read from the topic after this constructor stays its end.

    The broker gives each exclusive producer a higher epoch of the topic, which it keeps in the metadata store, and then
    refuses an application's exclusive producer that comes back with the epoch from before. With `keeps_epoch` the
    topic's epoch stays 0, below which no producer is, unless an application has raised it.

    Without `exclusive` others may send next to it, but not with the same name: the broker refuses the name until the
    client that had it has left, or has not answered for 5 s (`connectionLivenessCheckTimeoutMillis`), in which case
    it closes that client's connection.

    Args:
        url: addresses of brokers.
        topic: where messages go.
        access: timeout, TLS and credentials.
        name: of the producer, the same for all attempts.
        notes: shown in the topic's statistics.
        on_stored: called for each message with its position, in the order in which they were sent.
        exclusive: whether no other producer may send to the topic.
        keeps_epoch: whether exclusive producers of applications come to the topic with an epoch of another cluster.

    Raises:
        StoreError: the topic cannot be opened so.
    """

    def __init__(
        self,
        url: str,
        topic: StoredTopic,
        access: WireAccess,
        *,
        name: str,
        notes: dict[str, str],
        on_stored: OnStored,
        exclusive: bool = True,
        keeps_epoch: bool = False,
    ) -> None:
        self._topic = topic
        self._name = name
        self._mode = CommandProducer.ExclusiveWithFencing if exclusive else CommandProducer.Shared
        self._on_stored = on_stored
        self._unstored: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._parts: list[bytes] = []
        self._queued = 0
        self._failure: StoreError | None = None
        self._connection: BrokerConnection = connect(url, topic, access)
        self._id = self._connection.new_id(Channel.PRODUCER)
        try:
            self._sequence = self._open(notes, access.timeout, keeps_epoch=keeps_epoch) + 1
        except BaseException:
            self._connection.close()
            raise

    def send(self, message: Message) -> None:
        """Send a message; its position is reported later, and the call waits where too many are on their way.

        Raises:
            StoreContention: another attempt has taken over the topic.
            StoreError: the broker refuses, or does not answer in time.
        """
        size = len(message.data)
        if size > self._connection.largest_message + _METADATA_ROOM:
            raise StoreUnsupported(
                f"{self._topic}: a message of {size:,} bytes is larger than {self._connection.server} takes; raise "
                "maxMessageSize on the brokers and nettyMaxFrameSizeBytes on the bookies of that cluster"
            )
        while len(self._unstored) >= _MESSAGES_AHEAD or (self._unstored and self._bytes + size > _BYTES_AHEAD):
            self._await()
        sent = CommandSend(
            producer_id=self._id,
            sequence_id=self._sequence,
            num_messages=message.messages,
            is_chunk=message.is_chunk or None,
        )
        self._unstored.append((self._sequence, size))
        self._sequence += 1
        self._bytes += size
        self._parts.append(encode(sent, message.data))
        self._queued += size
        if self._queued >= _TOGETHER:
            self._flush_socket()
            self.stay()

    def flush(self) -> None:
        """Wait until all is stored; raises as `send`."""
        while self._unstored:
            self._await()

    def stay(self) -> None:
        """Answer the broker's keep-alives while there is nothing to send; raises as `send`."""
        self._note(self._connection.take())
        self._check()

    def close(self) -> None:
        """Leave the topic to others; what is on its way may still be stored."""
        try:
            if self._failure is None:
                closing = CommandCloseProducer(producer_id=self._id)
                self._connection.ask(closing, f"leaving {self._topic}", CommandSuccess)
        except StoreError:
            # The end of the connection does the same.
            pass
        finally:
            self._connection.close()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _open(self, notes: dict[str, str], timeout: float, *, keeps_epoch: bool) -> int:
        """Open the producer; return the last number that the broker knows of this name."""
        until = time.monotonic() + timeout
        topic_epoch = 0 if keeps_epoch else None
        while True:
            wanted = CommandProducer(
                topic=str(self._topic),
                producer_id=self._id,
                producer_name=self._name,
                user_provided_producer_name=True,
                # True allows encrypted messages, and where they are required each one is looked at.
                encrypted=True,
                metadata=key_values(notes),
                producer_access_mode=self._mode,
                topic_epoch=topic_epoch,
            )
            try:
                what = f"becoming the producer of {self._topic}"
                return self._connection.ask(wanted, what, CommandProducerSuccess).last_sequence_id
            except StoreContention as error:
                if topic_epoch is not None and _is_fenced(error):
                    topic_epoch = None
                    continue
                # The one that was fenced keeps the name until all that it sent is stored.
                if time.monotonic() > until:
                    raise
                time.sleep(_DRAIN_EVERY)

    def _flush_socket(self) -> None:
        if self._parts:
            self._connection.send(b"".join(self._parts))
            self._parts, self._queued = [], 0

    def _await(self) -> None:
        self._flush_socket()
        self._note(self._connection.receive(f"storing messages of {self._topic}"))
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _note(self, pushed: list[tuple[Command, bytes]]) -> None:
        for command, _ in pushed:
            if isinstance(command, CommandSendReceipt):
                self._stored(command.sequence_id, command.message_id)
            else:
                self._failure = self._failure or self._failure_of(command)

    def _failure_of(self, command: Command) -> StoreError | None:
        if isinstance(command, CommandSendError):
            if "is closed" in command.message:
                return self._fenced()
            # Brokers give such a message the code of a failed metadata store, with which another attempt helps.
            code = ServerError.NOT_ALLOWED if "must be encrypted" in command.message else command.error
            return refused(f"storing messages of {self._topic}", code, command.message, self._connection.server)
        if isinstance(command, CommandCloseProducer):
            return self._fenced()
        if isinstance(command, CommandTopicMigrated):
            return StoreConflict(f"{self._topic} sends its clients to yet another cluster; copy to that one")
        return None

    def _stored(self, sequence: int, position: MessageIdData) -> None:
        if not self._unstored or self._unstored[0][0] != sequence:
            self._failure = self._failure or StoreContention(f"{self._topic}: a receipt for a message that is not due")
            return
        _, size = self._unstored.popleft()
        self._bytes -= size
        # Brokers say -1 of what deduplication drops.
        if signed(position.ledgerId) < 0:
            self._failure = self._failure or StoreConflict(
                f"{self._topic}: the broker took message {sequence} of {self._name} for a duplicate; turn off "
                "deduplication of this topic on that cluster for the time of the copy"
            )
            return
        if self._failure is None:
            self._on_stored(EntryPosition(position.ledgerId, position.entryId))

    def _fenced(self) -> StoreError:
        return StoreContention(
            f"{self._topic}: another producer took over, or the topic moved to another broker",
            server=self._connection.server,
        )


def _is_fenced(error: StoreError) -> bool:
    """Return whether the epoch of the topic is higher than the one that was sent."""
    return isinstance(error.__cause__, Refused) and error.__cause__.code == ServerError.PRODUCER_FENCED

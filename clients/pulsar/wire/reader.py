"""Read stored messages of a topic through its broker, with their positions, without leaving a subscription."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator

from clients.closeable import Closeable
from clients.deadline import Deadline
from clients.errors import StoreConflict, StoreUnreachable
from clients.pulsar.names import StoredTopic
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.connection import BrokerConnection
from clients.pulsar.wire.frames import Message, parse_message
from clients.pulsar.wire.lookup import connect
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from pulsar_wire.connection import Channel
from pulsar_wire.frames import encode
from pulsar_wire.pulsar_api_pb2 import (
    CommandCloseConsumer,
    CommandFlow,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandMessage,
    CommandSubscribe,
    CommandSuccess,
    MessageIdData,
)
from pulsar_wire.values import key_values, signed, unsigned

# Brokers count messages, and send whole batches.
_PERMITS = 1000


class RawReader(Closeable):
    """Reads entries in their order; for one thread.

    The broker leaves out what consumers never get: its own markers, and messages of transactions that were aborted.

    Args:
        url: addresses of brokers.
        topic: where they are stored.
        access: timeout, TLS and credentials.
        after: the position after which it starts.
        compacted: whether to leave out what compaction has removed.
        notes: shown in the topic's statistics.

    Raises:
        StoreError: the topic cannot be opened.
    """

    def __init__(
        self,
        url: str,
        topic: StoredTopic,
        access: WireAccess,
        *,
        after: EntryPosition = EARLIEST,
        compacted: bool = False,
        notes: dict[str, str],
    ) -> None:
        self._topic = topic
        self._after = after
        self._arrived: deque[tuple[EntryPosition, bytes]] = deque()
        self._closed = False
        self._consumed = 0
        self._timeout = access.timeout
        self._connection: BrokerConnection = connect(url, topic, access)
        self._id = self._connection.new_id(Channel.CONSUMER)
        try:
            self._subscribe(after, notes, compacted=compacted)
            self._allow(_PERMITS)
        except BaseException:
            self._connection.close()
            raise

    def last(self) -> EntryPosition | None:
        """Return the position of the last entry that consumers get; None where there is none, or none after the start.

        Raises:
            StoreError: the broker does not say.
        """
        asked = CommandGetLastMessageId(consumer_id=self._id)
        what = f"asking for the end of {self._topic}"
        answer = self._connection.ask(asked, what, CommandGetLastMessageIdResponse)
        last = EntryPosition(signed(answer.last_message_id.ledgerId), signed(answer.last_message_id.entryId))
        # Brokers say -1 where nothing is stored, also of a ledger that is still empty.
        if last.ledger_id < 0 or last.entry_id < 0:
            return None
        return last if last > self._after else None

    def entries(self, last: EntryPosition) -> Iterator[tuple[EntryPosition, Message]]:
        """Yield positions and messages up to and with this position, which must be there.

        Raises:
            StoreError: the broker does not send them in time, or sends something else.
        """
        deadline = Deadline(self._timeout)
        while True:
            # Other commands, and entries from before the start, do not count.
            if deadline.is_over:
                raise StoreUnreachable(f"reading {self._topic}: no entry in {deadline.seconds:g} s; try again")
            if not self._arrived:
                if self._closed:
                    raise StoreUnreachable(f"reading {self._topic}: the broker closed it; try again")
                self._receive()
                continue
            position, data = self._arrived.popleft()
            if position <= self._after:
                # Brokers start with the position itself, of which a client may have had a part.
                self._count(parse_message(data))
                continue
            if position > last:
                raise StoreConflict(
                    f"reading {self._topic}: the entry {position[0]}:{position[1]} came after {last[0]}:{last[1]}"
                )
            decoded = parse_message(data)
            self._count(decoded)
            yield position, decoded
            if position == last:
                return
            deadline = Deadline(self._timeout)

    def close(self) -> None:
        """End the connection, and with it the reader."""
        self._connection.close()

    def _count(self, decoded: Message) -> None:
        self._consumed += decoded.messages
        if self._consumed * 2 >= _PERMITS:
            self._allow(self._consumed)
            self._consumed = 0

    def _subscribe(self, after: EntryPosition, notes: dict[str, str], *, compacted: bool) -> None:
        wanted = CommandSubscribe(
            topic=str(self._topic),
            subscription=f"pulsar-migrate-{uuid.uuid4().hex[:10]}",
            subType=CommandSubscribe.Exclusive,
            consumer_id=self._id,
            durable=False,
            start_message_id=MessageIdData(ledgerId=unsigned(after.ledger_id), entryId=unsigned(after.entry_id)),
            metadata=key_values(notes),
            read_compacted=compacted,
            force_topic_creation=False,
        )
        self._connection.ask(wanted, f"reading {self._topic}", CommandSuccess)

    def _allow(self, messages: int) -> None:
        self._connection.send(encode(CommandFlow(consumer_id=self._id, messagePermits=messages)))

    def _receive(self) -> None:
        for command, data in self._connection.receive(f"reading {self._topic}"):
            if isinstance(command, CommandMessage):
                self._arrived.append((EntryPosition(command.message_id.ledgerId, command.message_id.entryId), data))
            elif isinstance(command, CommandCloseConsumer):
                self._closed = True

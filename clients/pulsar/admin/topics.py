"""Topics: which there are, how they are, where they lie, who owns them, and what ends or moves them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote_plus

from pydantic import BeforeValidator, Field, TypeAdapter

from clients.pulsar.admin.answers import NAMES, STRINGS, Answer, Rate, WholeAnswer
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.http import Endpoint, ReadEndpoint, parsed
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName, encoded_namespace

PERSISTENT, NON_PERSISTENT = "persistent", "non-persistent"

COMPACTION = "__compaction"
"""The broker's own cursor of a topic that is compacted."""
DEDUPLICATION = "pulsar.dedup"
"""The broker's own cursor of a topic that deduplicates."""
REPLICATOR = "pulsar.repl."
"""Start of the names of cursors by which brokers send to other clusters, unless `replicatorPrefix` is configured."""

_TERMINATED = "Terminated"

_MIGRATED = "migrated"


def is_brokers_cursor(name: str) -> bool:
    """Return whether a cursor is the brokers' own: no client reads by it, and it never has a consumer."""
    # mutant: blue-green/cursors-of-brokers-count-as-subscriptions
    return name in (COMPACTION, DEDUPLICATION) or name.startswith(REPLICATOR)


class Position(Answer):
    """A place in a topic: after it comes what is not yet acknowledged.

    Attributes:
        ledger_id: of the ledger.
        entry_id: of the entry in it.
    """

    ledger_id: int
    entry_id: int


EARLIEST = Position(ledger_id=-1, entry_id=-1)
"""Before the first message that is there."""
LATEST = Position(ledger_id=2**63 - 1, entry_id=2**63 - 1)
"""After the last message."""


class Client(WholeAnswer):
    """A producer or a consumer that is connected.

    Attributes:
        address: `/host:port` of the client.
        client_version: of its library; empty if it does not say.
        metadata: what it says of itself.
        producer_name: of a producer; it keeps its name when it connects again.
        consumer_name: of a consumer, likewise.
        msg_rate_in: messages per second of a producer, in the last minute.
        msg_throughput_in: bytes per second, likewise.
    """

    address: str | None = None
    client_version: str | None = None
    metadata: dict[str, str] | None = None
    producer_name: str = ""
    consumer_name: str = ""
    msg_rate_in: Rate = 0.0
    msg_throughput_in: Rate = 0.0


class SubscriptionStats(WholeAnswer):
    """How a subscription is.

    Attributes:
        type: `Exclusive`, `Shared`, `Failover`, `Key_Shared` or, before the first consumer, none.
        msg_backlog: messages that are not acknowledged.
        msg_delayed: messages held back until they are due.
        is_durable: False for a reader's.
        is_replicated: whether its position is carried to other clusters.
        subscription_properties: what users have noted.
        last_consumed_flow_timestamp: when a consumer last asked for messages; 0 for never since the topic was loaded.
        consumers: that are connected.
    """

    type: str | None = None
    msg_backlog: int = 0
    msg_delayed: int = 0
    is_durable: bool = Field(default=True, alias="isDurable")
    is_replicated: bool = Field(default=False, alias="isReplicated")
    subscription_properties: dict[str, str] = Field(default_factory=dict[str, str])
    last_consumed_flow_timestamp: int = 0
    consumers: tuple[Client, ...] = ()


class ReplicationStats(Answer):
    """How the replication to one cluster is.

    Attributes:
        replication_backlog: messages that are not yet there.
        connected: whether it runs.
    """

    replication_backlog: int = 0
    connected: bool = False


class LastCompaction(Answer):
    """The last compaction of a topic since its broker loaded it.

    Attributes:
        last_compaction_succeed_timestamp: when it ended, in milliseconds since 1970 by the broker's clock; 0 for never.
    """

    last_compaction_succeed_timestamp: int = 0


class TopicStats(WholeAnswer):
    """How a topic is that a broker has loaded.

    Attributes:
        msg_in_counter: messages since it was loaded.
        msg_rate_in: messages per second.
        msg_throughput_in: bytes per second.
        msg_rate_out: messages per second, to all consumers.
        msg_throughput_out: bytes per second, likewise.
        storage_size: bytes.
        backlog_size: bytes that are not acknowledged.
        publishers: that are connected.
        subscriptions: by name.
        replication: by cluster.
        compaction: the last one.
        msg_chunk_published: whether a message came in chunks since it was loaded. Brokers notice it when they count
            rates, once a minute by default.
        ongoing_txn_count: transactions that are open.
        committed_txn_count: transactions that were committed since it was loaded.
        aborted_txn_count: transactions that were aborted, likewise.
    """

    msg_in_counter: int = 0
    msg_rate_in: Rate = 0.0
    msg_throughput_in: Rate = 0.0
    msg_rate_out: Rate = 0.0
    msg_throughput_out: Rate = 0.0
    storage_size: int = 0
    backlog_size: int = 0
    publishers: tuple[Client, ...] = ()
    subscriptions: dict[str, SubscriptionStats] = Field(default_factory=dict[str, SubscriptionStats])
    replication: dict[str, ReplicationStats] = Field(default_factory=dict[str, ReplicationStats])
    compaction: LastCompaction = LastCompaction()
    msg_chunk_published: bool = False
    ongoing_txn_count: int = 0
    committed_txn_count: int = 0
    aborted_txn_count: int = 0

    @property
    def has_clients(self) -> bool:
        """Whether a producer, a consumer or a reader is connected."""
        return bool(self.publishers) or any(subscription.consumers for subscription in self.subscriptions.values())

    @property
    def client_subscriptions(self) -> dict[str, SubscriptionStats]:
        """Return the subscriptions of clients; brokers name that of compaction next to them."""
        return {name: stats for name, stats in self.subscriptions.items() if not is_brokers_cursor(name)}

    @property
    def durable_subscriptions(self) -> dict[str, SubscriptionStats]:
        """Return the subscriptions of clients that stay when no consumer uses them; those of readers do not."""
        return {name: stats for name, stats in self.client_subscriptions.items() if stats.is_durable}


class PartitionedMetadata(Answer):
    """Stored statistics of a partitioned topic.

    Attributes:
        partitions: how many.
        properties: what users have noted.
    """

    partitions: int
    properties: dict[str, str] = Field(default_factory=dict[str, str])


class PartitionedStats(TopicStats):
    """How a partitioned topic is; sums leave out what clients say of themselves, so look at each partition.

    Attributes:
        metadata: what is stored of the whole.
        partitions: by the partition's full name; those are left out that cannot be loaded.
    """

    metadata: PartitionedMetadata
    partitions: dict[str, TopicStats] = Field(default_factory=dict[str, TopicStats])


class LedgerStats(Answer):
    """A ledger of a topic.

    Attributes:
        ledger_id: its id.
        entries: how many; 0 while it is written to.
        size: in bytes.
        offloaded: whether it is in tiered storage.
    """

    ledger_id: int
    entries: int = 0
    size: int = 0
    offloaded: bool = False


class CursorStats(Answer):
    """A cursor of a topic.

    Attributes:
        mark_delete_position: `ledger:entry`, up to which all is acknowledged.
        individually_deleted_messages: ranges after it that are acknowledged, as text.
        cursor_ledger: the ledger of its positions; -1 for none.
        properties: numbers that it carries.
    """

    mark_delete_position: str
    individually_deleted_messages: str = ""
    cursor_ledger: int = -1
    properties: dict[str, int] | None = None


def _decode_names(cursors: dict[str, Any]) -> dict[str, Any]:
    """Return cursors by their names; brokers send names as they store them."""
    return {unquote_plus(name): cursor for name, cursor in cursors.items()}


class InternalStats(Answer):
    """How a topic's managed ledger is, as the broker that owns it has it in memory.

    Attributes:
        state: `LedgerOpened`, `Terminated`, …
        entries_added_counter: entries since the topic was loaded.
        pending_add_entries_count: entries that bookies have not confirmed yet.
        number_of_entries: entries that are kept.
        last_confirmed_entry: `ledger:entry` of the last message.
        ledgers: oldest first.
        cursors: by name.
        compacted_ledger: what compaction wrote; its id is -1 before that.
    """

    state: str = ""
    entries_added_counter: int = 0
    pending_add_entries_count: int = 0
    number_of_entries: int = 0
    last_confirmed_entry: str = ""
    ledgers: tuple[LedgerStats, ...] = ()
    cursors: Annotated[dict[str, CursorStats], BeforeValidator(_decode_names)] = Field(
        default_factory=dict[str, CursorStats]
    )
    compacted_ledger: LedgerStats | None = None

    @property
    def terminated(self) -> bool:
        """Whether the topic takes no messages any more."""
        return self.state == _TERMINATED


class InternalInfo(Answer):
    """A topic's managed ledger in the metadata store; also of a topic that cannot be loaded.

    Attributes:
        ledgers: oldest first.
        terminated_position: where the topic was ended; None if it was not.
        properties: of the managed ledger.
        cursors: names of its cursors, with what is stored of each.
    """

    ledgers: tuple[LedgerStats, ...] = ()
    terminated_position: Position | None = None
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    cursors: Annotated[dict[str, Any], BeforeValidator(_decode_names)] = Field(default_factory=dict[str, Any])

    @property
    def marked(self) -> bool:
        """Return whether brokers have begun to end the topic, to send its clients to another cluster (PIP-188)."""
        return self.properties.get(_MIGRATED) == "true"

    @property
    def migrated(self) -> bool:
        """Whether the topic was ended because its clients were sent to another cluster (PIP-188)."""
        # Both: brokers set the mark and terminate in two steps, and people can terminate a topic as well.
        return self.terminated_position is not None and self.marked


class EntryHead(NamedTuple):
    """Metadata of a stored entry.

    Attributes:
        producer: name of who sent it.
        published: when that was, by its producer's clock; None for none, or one after the year 9999.
        chunk: which part of a message it is, counted from 0.
        chunks: of how many.
    """

    producer: str
    published: datetime | None = None
    chunk: int = 0
    chunks: int = 1

    @property
    def is_unfinished(self) -> bool:
        """Whether more of its message must follow."""
        return self.chunk + 1 < self.chunks


class Compaction(Answer):
    """State of the last compaction.

    Attributes:
        status: `NOT_RUN`, `RUNNING`, `SUCCESS` or `ERROR`.
        last_error: of the last that failed.
    """

    status: str
    last_error: str = ""


class _Partitions(Answer):
    partitions: int


_RETENTION = TypeAdapter(Retention)
_STATS = TypeAdapter(TopicStats)
_PARTITIONED_STATS = TypeAdapter(PartitionedStats)
_INTERNAL_STATS = TypeAdapter(InternalStats)
_INTERNAL_INFO = TypeAdapter(InternalInfo)
_PARTITIONS = TypeAdapter(_Partitions)
_COMPACTION = TypeAdapter(Compaction)
_POSITION = TypeAdapter(Position)


class TopicsReader:
    """Topics."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def names(self, namespace: str, *, domain: str = PERSISTENT, system: bool = False) -> list[str]:
        """Return full names of the topics of `tenant/namespace`; of partitioned ones each partition.

        Args:
            namespace: `tenant/namespace`.
            domain: those that are not persistent are listed while a broker has them.
            system: with those that belong to the brokers.
        """
        return self._endpoint.get_as(NAMES, f"/{domain}/{encoded_namespace(namespace)}", {"includeSystemTopic": system})

    def partitioned_names(self, namespace: str, *, domain: str = PERSISTENT) -> list[str]:
        """Return full names of the partitioned topics of `tenant/namespace`."""
        return self._endpoint.get_as(NAMES, f"/{domain}/{encoded_namespace(namespace)}/partitioned")

    def retention(self, topic: TopicName) -> Retention:
        """Return how long acknowledged messages of a topic are kept, wherever that is set."""
        return self._endpoint.get_as(_RETENTION, f"/{topic.rest_path}/retention", {"applied": True})

    def partitions(self, topic: TopicName) -> int:
        """Return how many partitions a topic has; 0 where it is none of partitions.

        Raises:
            AdminNotFound: there is no such topic.
        """
        return self._endpoint.get_as(_PARTITIONS, f"/{topic.rest_path}/partitions").partitions

    def stats(self, topic: TopicName) -> TopicStats:
        """Return how a topic is, its backlogs counted exactly; loads it.

        Raises:
            AdminNotFound: there is no such topic.
            AdminServerError: it cannot be loaded; while its clients are sent elsewhere, the reason says so.
        """
        return self._endpoint.get_as(_STATS, f"/{topic.rest_path}/stats", {"getPreciseBacklog": True})

    def partitioned_stats(self, topic: TopicName) -> PartitionedStats:
        """Return how a partitioned topic is, and each partition.

        Raises:
            AdminNotFound: there is no such partitioned topic.
        """
        params = {"getPreciseBacklog": True, "perPartition": True}
        return self._endpoint.get_as(_PARTITIONED_STATS, f"/{topic.rest_path}/partitioned-stats", params)

    def internal_stats(self, topic: TopicName) -> InternalStats:
        """Return how a topic's managed ledger is; loads the topic.

        Raises:
            AdminNotFound: there is no such topic.
        """
        return self._endpoint.get_as(_INTERNAL_STATS, f"/{topic.rest_path}/internalStats")

    def internal_info(self, topic: TopicName) -> InternalInfo:
        """Return a topic's managed ledger as it is stored; does not load the topic.

        Raises:
            AdminServerError: among others where there is no such topic.
        """
        return self._endpoint.get_as(_INTERNAL_INFO, f"/{topic.rest_path}/internal-info")

    def entry_head(self, topic: TopicName, position: tuple[int, int]) -> EntryHead:
        """Return the metadata of an entry, without its payload.

        Args:
            topic: whose it is.
            position: its ledger, and its number in that.

        Raises:
            AdminNotFound: there is no such topic.
            AdminServerError: among others where there is no such entry.
        """
        headers = self._endpoint.head(f"/{topic.rest_path}/ledger/{position[0]}/entry/{position[1]}")
        return EntryHead(
            producer=headers.get("X-Pulsar-producer-name", ""),
            published=_time(headers.get("X-Pulsar-publish-time", "")),
            chunk=int(headers.get("X-Pulsar-chunk-id", "0")),
            chunks=int(headers.get("X-Pulsar-num-chunks-from-msg", "1")),
        )

    def properties(self, topic: TopicName) -> dict[str, str]:
        """Return the properties of a topic; the broker hides its own ones."""
        # Of a partitioned topic without any the answer is empty.
        return self._endpoint.set_as(STRINGS, f"/{topic.rest_path}/properties") or {}

    def compaction(self, topic: TopicName) -> Compaction:
        """Return the state of the last compaction."""
        return self._endpoint.get_as(_COMPACTION, f"/{topic.rest_path}/compaction")

    def owner_urls(self, topic: TopicName) -> list[str]:
        """Return addresses of the admin interface of the broker that owns a topic; one without an owner gets one."""
        answer = self._endpoint.get(f"/lookup/v2/topic/{topic.rest_path}")
        return registered_urls(answer.content, self._endpoint.access)


class Topics(TopicsReader):
    """Topics, and what changes them."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def create(
        self, topic: TopicName, properties: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> None:
        """Create a topic without partitions, in a namespace that exists.

        Raises:
            AdminConflict: it exists.
        """
        self._calls.put(f"/{topic.rest_path}", dict(properties) if properties else None, timeout=timeout)

    def create_partitioned(self, topic: TopicName, partitions: int) -> None:
        """Create a topic with so many partitions.

        Raises:
            AdminConflict: it exists.
        """
        self._calls.put(f"/{topic.rest_path}/partitions", partitions)

    def grow(self, topic: TopicName, partitions: int) -> None:
        """Give a partitioned topic more partitions, so many in all."""
        self._calls.post(f"/{topic.rest_path}/partitions", partitions)

    def create_missed_partitions(self, topic: TopicName) -> None:
        """Create the partitions of a partitioned topic that are not there."""
        self._calls.post(f"/{topic.rest_path}/createMissedPartitions")

    def delete(self, topic: TopicName, *, force: bool = False) -> None:
        """Delete a topic with its ledgers; with `force` its subscriptions and connections too.

        Raises:
            AdminNotFound: there is no such topic.
            AdminPreconditionFailed: it has clients.
        """
        self._calls.delete(f"/{topic.rest_path}", {"force": force})

    def delete_partitioned(self, topic: TopicName, *, force: bool = False) -> None:
        """Delete a partitioned topic with all partitions.

        Raises:
            AdminNotFound: there is no such topic.
        """
        self._calls.delete(f"/{topic.rest_path}/partitions", {"force": force})

    def unload(self, topic: TopicName) -> None:
        """Unload a topic; the next request for it loads it again."""
        self._calls.put(f"/{topic.rest_path}/unload")

    def terminate(self, topic: TopicName) -> Position:
        """End a topic: nothing more can be sent, all can be read. Returns where; harmless when done twice."""
        return parsed(_POSITION, self._calls.post(f"/{topic.rest_path}/terminate"))

    def set_properties(self, topic: TopicName, properties: Mapping[str, str]) -> None:
        """Add or change what users have noted."""
        self._calls.put(f"/{topic.rest_path}/properties", dict(properties))

    def remove_property(self, topic: TopicName, key: str) -> None:
        """Remove one note, or one of the broker's own marks."""
        self._calls.delete(f"/{topic.rest_path}/properties", {"key": key})

    def compact(self, topic: TopicName) -> None:
        """Start a compaction; it runs on its own."""
        self._calls.put(f"/{topic.rest_path}/compaction")


def _time(text: str) -> datetime | None:
    """Return a time in ISO 8601; None for another text, among them years after 9999, which producers can send."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None

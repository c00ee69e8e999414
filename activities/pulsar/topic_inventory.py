"""Inventory of a topic: partitions, properties, policies, schemas, subscriptions and connected clients."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound, AdminServerError
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.admin.topic_policies import GLOBAL
from clients.pulsar.admin.topics import COMPACTION, PERSISTENT, Client, TopicStats
from clients.pulsar.names import TopicName

_ATTEMPTS = 3
_PAUSE = 0.5
_REDIRECTED = "migrated"
# System topics of the namespace `pulsar/system` are not here: clients may use their names in other namespaces.
_TRANSACTIONS = r"(__transaction_buffer_snapshot(_indexes|_segments)?|.*__transaction_pending_ack)(-partition-\d+)?"
_OF_TRANSACTIONS = re.compile(_TRANSACTIONS, re.DOTALL)
_SYSTEM = re.compile(rf"__change_events(-partition-\d+)?|{_TRANSACTIONS}", re.DOTALL)


class TopicPartition(NamedTuple):
    """A partition, or a topic without partitions, as its owning broker reports it.

    Attributes:
        name: its name.
        stats: its statistics; None if it cannot be loaded.
        load_error: why it cannot be loaded, from the broker.
        migrated: it was terminated because its clients were redirected; known only if it is not loaded.
    """

    name: TopicName
    stats: TopicStats | None
    load_error: str = ""
    migrated: bool = False

    @property
    def is_redirected(self) -> bool:
        """True if it cannot be loaded only because its clients are redirected."""
        return self.stats is None and _REDIRECTED in self.load_error


@dataclass(frozen=True)
class SubscriptionInventory:
    """A subscription, over all partitions of its topic.

    Attributes:
        name: its name.
        type: `Exclusive`, `Shared`, `Failover` or `Key_Shared`; `None` before its first consumer.
        durable: False for a reader's subscription.
        replicated: its position is replicated to other clusters.
        properties: set by users.
        backlog: unacknowledged messages.
        delayed: messages of the backlog that are not due yet.
        consumers: connected to any partition.
        parts: the partitions that have it, or the topic itself.
    """

    name: str
    type: str
    durable: bool
    replicated: bool
    properties: Mapping[str, str]
    backlog: int
    delayed: int
    consumers: tuple[Client, ...]
    parts: frozenset[TopicName]


@dataclass(frozen=True)
class TopicInventory:
    """A topic with all its partitions.

    Attributes:
        name: its name.
        partitions: how many; 0 for a topic without partitions.
        properties: set by users.
        policies: set on the topic itself, by name; None if they cannot be read.
        schemas: all versions, oldest first.
        parts: the existing partitions, or the topic itself.
        known_types: earlier types of subscriptions, which brokers forget when they load a topic again.
    """

    name: TopicName
    partitions: int = 0
    properties: Mapping[str, str] | None = None
    policies: Mapping[str, Any] | None = None
    schemas: tuple[Schema, ...] = ()
    parts: tuple[TopicPartition, ...] = ()
    known_types: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def persistent(self) -> bool:
        """True if its messages are stored."""
        return self.name.domain == PERSISTENT

    @property
    def lasting(self) -> bool:
        """True if it exists without clients; brokers keep other topics only while a client uses them."""
        return self.persistent or self.partitions > 0

    @property
    def unloadable(self) -> tuple[TopicPartition, ...]:
        """Partitions that no broker can load."""
        return tuple(partition for partition in self.parts if partition.stats is None)

    def own_policy(self, name: str) -> Any:
        """Return a policy that is set on the topic itself; None without one.

        Args:
            name: without the prefix of policies for all clusters; a policy of this cluster goes first.
        """
        policies = self.policies or {}
        return policies.get(name, policies.get(f"{GLOBAL}{name}"))

    def after_failback(self, ended: Container[TopicName]) -> TopicInventory:
        """Return the topic as it is after the failback: not redirected, and without its terminated partitions."""
        partitions = (partition for partition in self.parts if partition.name not in ended)
        return replace(
            self,
            parts=tuple(
                partition._replace(stats=TopicStats()) if partition.is_redirected else partition
                for partition in partitions
            ),
        )

    @property
    def has_messages(self) -> bool:
        """True if messages are stored, also consumed ones that are not trimmed yet."""
        return any(stats.storage_size > 0 for stats in self.stats)

    @property
    def compacted(self) -> bool:
        """True if it was compacted: readers may use it as a table, and its plain messages are not complete."""
        return any(COMPACTION in stats.subscriptions for stats in self.stats)

    @property
    def chunked(self) -> bool:
        """True if a chunked message was sent since it was loaded."""
        return any(stats.msg_chunk_published for stats in self.stats)

    @property
    def producers(self) -> tuple[Client, ...]:
        """Producers that are connected to any partition."""
        return tuple(client for stats in self.stats for client in stats.publishers)

    @cached_property
    def subscriptions(self) -> Mapping[str, SubscriptionInventory]:
        """Clients' subscriptions of the loaded partitions, by name."""
        names = {name: None for stats in self.stats for name in stats.client_subscriptions}
        return {name: self._subscription(name) for name in names}

    @property
    def durable(self) -> list[SubscriptionInventory]:
        """Subscriptions that stay when no consumer uses them."""
        return [subscription for subscription in self.subscriptions.values() if subscription.durable]

    @property
    def stats(self) -> list[TopicStats]:
        """Statistics of the loaded partitions."""
        return [partition.stats for partition in self.parts if partition.stats is not None]

    def _subscription(self, name: str) -> SubscriptionInventory:
        by_partition = {
            partition.name: partition.stats.subscriptions[name]
            for partition in self.parts
            if partition.stats is not None and name in partition.stats.subscriptions
        }
        every = list(by_partition.values())
        types = (stats.type for stats in every if stats.type not in (None, "None"))
        return SubscriptionInventory(
            name=name,
            type=next(types, self.known_types.get(name, "None")),
            durable=all(stats.is_durable for stats in every),
            replicated=any(stats.is_replicated for stats in every),
            properties={key: value for stats in every for key, value in stats.subscription_properties.items()},
            backlog=sum(stats.msg_backlog for stats in every),
            delayed=sum(stats.msg_delayed for stats in every),
            consumers=tuple(client for stats in every for client in stats.consumers),
            parts=frozenset(by_partition),
        )


def is_system_topic(name: TopicName) -> bool:
    """Return whether a topic belongs to brokers; retry and dead-letter topics belong to clients."""
    return _SYSTEM.fullmatch(name.topic) is not None


def is_transaction_topic(name: TopicName) -> bool:
    """Return whether brokers keep the transactions of another topic in a topic."""
    return _OF_TRANSACTIONS.fullmatch(name.topic) is not None


class TopicReader:
    """Reads single topics; thread-safe.

    Args:
        admin: of the cluster.
        check: raises if the work must stop.
        described: also read properties, policies and schemas, with several requests for each topic.
    """

    def __init__(self, admin: PulsarAdminReader, check: Callable[[], None], *, described: bool = True) -> None:
        self._admin, self._check, self._is_described = admin, check, described

    def plain(self, name: TopicName) -> TopicInventory | None:
        """Return a topic without partitions; None if it is gone."""
        self._check()
        topic = self._read(name)
        if topic is None:
            return None
        try:
            properties = self._properties(topic)
            return self._described(TopicInventory(name, properties=properties, parts=(topic,)))
        except AdminNotFound:
            return None

    def partitioned(self, name: TopicName) -> TopicInventory | None:
        """Return a topic with partitions; None if it is gone."""
        self._check()
        try:
            stats = self._admin.topics.partitioned_stats(name)
        except AdminNotFound:
            return None
        count = stats.metadata.partitions
        partitions: list[TopicPartition] = []
        for partition_name in map(name.of_partition, range(count)):
            # A broker silently omits a partition that it cannot load.
            its_stats = stats.partitions.get(str(partition_name))
            partition = (
                TopicPartition(partition_name, its_stats) if its_stats is not None else self._read(partition_name)
            )
            partitions += [partition] if partition is not None else []
        try:
            topic = TopicInventory(name, count, stats.metadata.properties, parts=tuple(partitions))
            return self._described(topic)
        except AdminNotFound:
            return None

    def passing(self, name: TopicName) -> TopicInventory | None:
        """Return a topic whose messages are not stored; None if it is gone."""
        self._check()
        try:
            count = self._admin.topics.partitions(name)
            names = [name.of_partition(number) for number in range(count)] if count else [name]
            partitions: list[TopicPartition] = []
            for partition_name in names:
                try:
                    partitions.append(TopicPartition(partition_name, self._admin.topics.stats(partition_name)))
                except AdminNotFound:
                    # No client uses it, so no broker has it.
                    continue
        except AdminNotFound:
            return None
        return TopicInventory(name, count, {}, {}, self._schemas(name), tuple(partitions))

    def _described(self, topic: TopicInventory) -> TopicInventory:
        if not self._is_described:
            return topic
        return replace(topic, policies=self._policies(topic), schemas=self._schemas(topic.name))

    def _schemas(self, name: TopicName) -> tuple[Schema, ...]:
        return tuple(self._admin.schemas.versions(name))

    def _properties(self, topic: TopicPartition) -> Mapping[str, str] | None:
        if topic.stats is None or not self._is_described:
            return None
        return self._admin.topics.properties(topic.name)

    def _policies(self, topic: TopicInventory) -> Mapping[str, Any] | None:
        # Brokers refuse to read the policies of a topic with the name of a partition (412); it has none of its own.
        if topic.name.partition is not None:
            return {}
        try:
            return self._admin.topic_policies.read(topic.name, [subscription.name for subscription in topic.durable])
        except AdminServerError:
            if not topic.unloadable:
                raise
            return None

    def _read(self, name: TopicName) -> TopicPartition | None:
        for remaining in reversed(range(_ATTEMPTS)):
            try:
                return TopicPartition(name, self._admin.topics.stats(name))
            except AdminNotFound:
                return None
            except AdminConflict as error:
                # It has the name of a partition, and such a partitioned topic does not exist.
                return TopicPartition(name, None, error.reason)
            except AdminServerError as error:
                if _REDIRECTED not in error.reason and remaining:
                    # It may be moving between brokers, or have just been created.
                    time.sleep(_PAUSE)
                    continue
                return self._unloadable(name, error)
        raise AssertionError("the last attempt returns")

    def _unloadable(self, name: TopicName, error: AdminServerError) -> TopicPartition | None:
        try:
            info = self._admin.topics.internal_info(name)
        except (AdminNotFound, AdminServerError):
            # Brokers also answer 500 for a topic that does not exist, or was never loaded.
            listed = str(name) in self._admin.topics.names(name.namespace_path, domain=name.domain)
            return TopicPartition(name, None, error.reason) if listed else None
        return TopicPartition(name, None, error.reason, info.migrated)

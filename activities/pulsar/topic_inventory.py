"""A topic as it is: partitions, properties, policies, schemas, subscriptions and who is connected."""

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
_SENT_AWAY = "migrated"
# Those of the namespace `pulsar/system` have names that are anybody's elsewhere.
_TRANSACTIONS = r"(__transaction_buffer_snapshot(_indexes|_segments)?|.*__transaction_pending_ack)(-partition-\d+)?"
_OF_TRANSACTIONS = re.compile(_TRANSACTIONS, re.DOTALL)
_SYSTEM = re.compile(rf"__change_events(-partition-\d+)?|{_TRANSACTIONS}", re.DOTALL)


class TopicPartition(NamedTuple):
    """A topic without partitions, or one partition, as the broker that owns it has it.

    Attributes:
        name: its name.
        stats: how it is; None where it cannot be loaded.
        trouble: why it cannot be loaded, in the broker's words.
        migrated: whether it was ended because its clients were sent elsewhere; known of one that is not loaded.
    """

    name: TopicName
    stats: TopicStats | None
    load_error: str = ""
    migrated: bool = False

    @property
    def is_redirected(self) -> bool:
        """Whether it cannot be loaded for no other reason than that its clients are sent elsewhere."""
        return self.stats is None and _SENT_AWAY in self.load_error


@dataclass(frozen=True)
class SubscriptionInventory:
    """A subscription of a whole topic.

    Attributes:
        name: its name.
        type: `Exclusive`, `Shared`, `Failover` or `Key_Shared`; `None` before its first consumer.
        durable: False for a reader's.
        replicated: whether its position is carried to other clusters.
        properties: what users have noted.
        backlog: messages that are not acknowledged, of all partitions.
        delayed: those among them that are held back until they are due.
        consumers: that are connected, to any partition.
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
    """A whole topic.

    Attributes:
        name: its name.
        partitions: how many; 0 for a topic without partitions.
        properties: what users have noted.
        policies: that are set on the topic itself, by name; None where they cannot be read.
        schemas: all versions, oldest first.
        parts: the partitions that are there, or the topic itself.
        known_types: of subscriptions, as they were seen before: brokers forget them when they load a topic again.
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
        """Whether its messages are stored."""
        return self.name.domain == PERSISTENT

    @property
    def lasting(self) -> bool:
        """Whether it is there without clients: brokers hold others only while somebody uses them."""
        return self.persistent or self.partitions > 0

    @property
    def unloadable(self) -> tuple[TopicPartition, ...]:
        """What no broker can load."""
        return tuple(part for part in self.parts if part.stats is None)

    def own_policy(self, name: str) -> Any:
        """Return a policy that is set on the topic itself; None where it has none.

        Args:
            name: without the prefix of policies that hold in all clusters, before which one of this cluster counts.
        """
        policies = self.policies or {}
        return policies.get(name, policies.get(f"{GLOBAL}{name}"))

    def after_failback(self, ended: Container[TopicName]) -> TopicInventory:
        """The same once its clients are not sent away any more, and the parts that were ended for that are gone."""
        parts = (part for part in self.parts if part.name not in ended)
        return replace(
            self, parts=tuple(part._replace(stats=TopicStats()) if part.is_redirected else part for part in parts)
        )

    @property
    def has_messages(self) -> bool:
        """Whether anything was sent that is still there, or not yet trimmed."""
        return any(stats.storage_size > 0 for stats in self.stats)

    @property
    def compacted(self) -> bool:
        """Whether it was compacted: readers may use it as a table, of which plain messages are not all."""
        return any(COMPACTION in stats.subscriptions for stats in self.stats)

    @property
    def chunked(self) -> bool:
        """Whether a message came in chunks since it was loaded."""
        return any(stats.msg_chunk_published for stats in self.stats)

    @property
    def producers(self) -> tuple[Client, ...]:
        """That are connected, to any partition."""
        return tuple(client for stats in self.stats for client in stats.publishers)

    @cached_property
    def subscriptions(self) -> Mapping[str, SubscriptionInventory]:
        """Clients' subscriptions of the parts that are loaded, by name."""
        names = {name: None for stats in self.stats for name in stats.client_subscriptions}
        return {name: self._subscription(name) for name in names}

    @property
    def durable(self) -> list[SubscriptionInventory]:
        """Those of them that stay when no consumer uses them."""
        return [subscription for subscription in self.subscriptions.values() if subscription.durable]

    @property
    def stats(self) -> list[TopicStats]:
        """How the parts are that are loaded."""
        return [part.stats for part in self.parts if part.stats is not None]

    def _subscription(self, name: str) -> SubscriptionInventory:
        found = {
            part.name: part.stats.subscriptions[name]
            for part in self.parts
            if part.stats is not None and name in part.stats.subscriptions
        }
        each = list(found.values())
        return SubscriptionInventory(
            name=name,
            type=next((one.type for one in each if one.type not in (None, "None")), self.known_types.get(name, "None")),
            durable=all(one.is_durable for one in each),
            replicated=any(one.is_replicated for one in each),
            properties={key: value for one in each for key, value in one.subscription_properties.items()},
            backlog=sum(one.msg_backlog for one in each),
            delayed=sum(one.msg_delayed for one in each),
            consumers=tuple(client for one in each for client in one.consumers),
            parts=frozenset(found),
        )


def is_system_topic(name: TopicName) -> bool:
    """Whether a topic belongs to brokers; retry and dead-letter topics belong to clients."""
    return _SYSTEM.fullmatch(name.topic) is not None


def is_transaction_topic(name: TopicName) -> bool:
    """Whether brokers keep in a topic what transactions have done in another one."""
    return _OF_TRANSACTIONS.fullmatch(name.topic) is not None


class TopicReader:
    """Reads topics one by one; for many threads.

    Args:
        admin: of the cluster.
        check: raises where the work must stop.
        described: with properties, policies and schemas, which take several requests for each topic.
    """

    def __init__(self, admin: PulsarAdminReader, check: Callable[[], None], *, described: bool = True) -> None:
        self._admin, self._check, self._is_described = admin, check, described

    def plain(self, name: TopicName) -> TopicInventory | None:
        """A topic without partitions; None if it is gone."""
        self._check()
        part = self._part(name)
        if part is None:
            return None
        try:
            properties = self._properties(part)
            return self._described(TopicInventory(name, properties=properties, parts=(part,)))
        except AdminNotFound:
            return None

    def partitioned(self, name: TopicName) -> TopicInventory | None:
        """A topic with partitions; None if it is gone."""
        self._check()
        try:
            stats = self._admin.topics.partitioned_stats(name)
        except AdminNotFound:
            return None
        count = stats.metadata.partitions
        parts: list[TopicPartition] = []
        for partition in map(name.of_partition, range(count)):
            # A broker leaves out a partition that it cannot load, without a word.
            known = stats.partitions.get(str(partition))
            part = TopicPartition(partition, known) if known is not None else self._part(partition)
            parts += [part] if part is not None else []
        try:
            topic = TopicInventory(name, count, stats.metadata.properties, parts=tuple(parts))
            return self._described(topic)
        except AdminNotFound:
            return None

    def passing(self, name: TopicName) -> TopicInventory | None:
        """A topic whose messages are not stored; None if it is gone."""
        self._check()
        try:
            count = self._admin.topics.partitions(name)
            names = [name.of_partition(number) for number in range(count)] if count else [name]
            parts: list[TopicPartition] = []
            for one in names:
                try:
                    parts.append(TopicPartition(one, self._admin.topics.stats(one)))
                except AdminNotFound:
                    # Nobody uses it, so no broker has it.
                    continue
        except AdminNotFound:
            return None
        return TopicInventory(name, count, {}, {}, self._schemas(name), tuple(parts))

    def _described(self, topic: TopicInventory) -> TopicInventory:
        if not self._is_described:
            return topic
        return replace(topic, policies=self._policies(topic), schemas=self._schemas(topic.name))

    def _schemas(self, name: TopicName) -> tuple[Schema, ...]:
        return tuple(self._admin.schemas.versions(name))

    def _properties(self, part: TopicPartition) -> Mapping[str, str] | None:
        if part.stats is None or not self._is_described:
            return None
        return self._admin.topics.properties(part.name)

    def _policies(self, topic: TopicInventory) -> Mapping[str, Any] | None:
        # A topic that is named like a partition of nothing has none of its own: brokers refuse to be asked (412).
        if topic.name.partition is not None:
            return {}
        try:
            return self._admin.topic_policies.read(topic.name, [one.name for one in topic.durable])
        except AdminServerError:
            if not topic.unloadable:
                raise
            return None

    def _part(self, name: TopicName) -> TopicPartition | None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                return TopicPartition(name, self._admin.topics.stats(name))
            except AdminNotFound:
                return None
            except AdminConflict as error:
                # It is named like a partition of nothing.
                return TopicPartition(name, None, error.reason)
            except AdminServerError as error:
                if _SENT_AWAY not in error.reason and left:
                    # While it moves from broker to broker, or has only just been created.
                    time.sleep(_PAUSE)
                    continue
                return self._unloadable(name, error)
        raise AssertionError("the last attempt returns")

    def _unloadable(self, name: TopicName, trouble: AdminServerError) -> TopicPartition | None:
        try:
            info = self._admin.topics.internal_info(name)
        except (AdminNotFound, AdminServerError):
            # Brokers answer 500 for a topic that is not there as well, and for one that was never loaded.
            listed = str(name) in self._admin.topics.names(name.namespace_path, domain=name.domain)
            return TopicPartition(name, None, trouble.reason) if listed else None
        return TopicPartition(name, None, trouble.reason, info.migrated)

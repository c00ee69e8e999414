"""The regular topic that gets the messages of a scalable one; created if it is missing, used by no other client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from activities.pulsar.schema_versions import complete_versions
from activities.pulsar.topic_inventory import TopicInventory
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreContention, StoreUnsupported, VersionConflict
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.admin.late_requests import FencedAdmin
from clients.pulsar.admin.policy_calls import BACKLOG_QUOTAS
from clients.pulsar.admin.topics import Client, InternalStats
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import NOTE
from clients.pulsar.wire.position import EntryPosition
from models.broker_settings import (
    QUOTA_LIMITS,
    backlog_quota,
    deletes_consumed,
    eviction_limit,
    message_ttl,
    subscription_expiration,
)
from models.lifecycle.failures import summarize
from models.scalable_topic.copies import KEEPER
from spark.scalable_topic.copy_record import CopyRecord, read_stored, record_path, write_stored

_ELSEWHERE = "name another target"


class CopyTarget:
    """The regular topic.

    Args:
        admin: its cluster's admin interface, with the fence of this attempt.
        store: the metadata store.
        name: the topic.
        partitions: its number of partitions; 0 for an unpartitioned topic.
        fence: called before each change; raises when this attempt must not write any more.
    """

    def __init__(
        self, admin: FencedAdmin, store: CasStore, name: TopicName, partitions: int, fence: Callable[[], None]
    ) -> None:
        self._admin = admin
        self._store = store
        self.name = name
        self.partitions = partitions
        self._fence = fence

    @property
    def parts(self) -> list[TopicName]:
        """Its partitions, or the topic itself."""
        return [self.name.of_partition(number) for number in range(self.partitions)] or [self.name]

    def require_ready(self, wanted: CopyRecord) -> CopyRecord | None:
        """Require that the topic may get this copy; only read.

        Returns:
            The record of the copy that it holds; None if it is empty or does not exist.

        Raises:
            StoreConflict: it holds something else, others send to it, or brokers would drop parts of it.
        """
        previous, _ = read_stored(self._store, CopyRecord, record_path(self.name))
        shape = (wanted.source, wanted.partitions, wanted.hashing)
        if previous is not None and (previous.source, previous.partitions, previous.hashing) != shape:
            raise StoreConflict(
                f"{self.name} gets the messages of topic://{previous.source}, with {previous.partitions} partitions "
                f"and hash {previous.hashing}; {_ELSEWHERE}"
            )
        self._require_shape()
        self._require_lasting()  # mutant: scalable-topic/what-keeps-a-copy-expires
        stats = [self._stats(partition) for partition in self.parts]
        if previous is not None and all(stat is not None and KEEPER in stat.cursors for stat in stats):
            self._require_alone()
            return previous
        full = [
            partition for partition, stat in zip(self.parts, stats, strict=True) if stat is not None and _holds(stat)
        ]
        if full:
            what = "does not hold its copy any more, and" if previous else "is not a copy of this topic, and"
            raise StoreConflict(f"{self.name} {what} holds messages ({summarize(full)}); {_ELSEWHERE}")
        self._require_alone()
        return None

    def prepare(self, wanted: CopyRecord, subscriptions: Collection[str]) -> None:
        """Create what is missing, and the record; idempotent.

        Args:
            wanted: the record.
            subscriptions: subscriptions that get all messages.

        Raises:
            StoreConflict: see `require_ready`.
            StoreContention: another attempt does the same.
        """
        previous = self.require_ready(wanted)
        if previous is None:
            # Records of an earlier copy belong to a topic that was deleted.
            self.forget()
            _, held = read_stored(self._store, CopyRecord, record_path(self.name))
            self._fence()
            write_stored(self._store, held, wanted)
        with suppress(AdminConflict):
            if self.partitions:
                self._admin.topics.create_partitioned(self.name, self.partitions)
            else:
                self._admin.topics.create(self.name)
        for partition in self.parts:
            # The keeper comes last: it marks the partition as ready.
            for subscription in (*subscriptions, KEEPER):
                self._subscribe(partition, subscription)

    def copy_schemas(self, source: TopicName) -> None:
        """Add the versions of the scalable topic's schema that are missing: messages name them by number.

        Raises:
            StoreUnsupported: other versions have these numbers.
        """
        if other := complete_versions(self._admin, self.name, self._admin.schemas.versions(source)):
            raise StoreUnsupported(
                f"{self.name}: version {other.version} of its schema is another than that of {source}, and messages "
                f"name it; {_ELSEWHERE}"
            )

    def forget(self) -> None:
        """Delete the records of the copy, if there are any."""
        path = record_path(self.name)
        for kind in ("segments", "parts"):
            for name in self._store.children(f"{path}/{kind}"):
                self._delete(f"{path}/{kind}/{name}")
            # ZooKeeper's node above them.
            self._delete(f"{path}/{kind}")
        self._delete(path)

    def delete_keeper(self) -> None:
        """Delete the subscription that retains the messages.

        Raises:
            StoreConflict: no other durable subscription of a partition would retain them.
        """
        all_stats = [(partition, self._stats(partition)) for partition in self.parts]
        there = [(partition, stats) for partition, stats in all_stats if stats is not None and KEEPER in stats.cursors]
        bare = [partition for partition, _ in there if not self._other_subscriptions(partition)]
        if bare:
            raise StoreConflict(
                f"{summarize(bare)} have no subscription but {KEEPER}, and would lose all messages with it; create "
                "those of their consumers first, at the earliest message"
            )
        for partition, _ in there:
            with suppress(AdminNotFound):
                self._admin.or_never(
                    connect=lambda admin, partition=partition: admin.topics.internal_stats(partition),
                    change=lambda admin, partition=partition: admin.subscriptions.delete(partition, KEEPER),
                )

    # Inside ---------------------------------------------------------------------------------------------------------

    def _require_shape(self) -> None:
        try:
            there = self._admin.topics.partitions(self.name)
        except AdminNotFound:
            return
        if there != self.partitions:
            raise StoreConflict(
                f"{self.name} has {there or 'no'} partitions, and {self.partitions or 'none'} are asked for; give its "
                "number of partitions, or name another target"
            )

    def _require_lasting(self) -> None:
        losses = dict(self._losses())
        if losses:
            raise StoreConflict(
                f"brokers {', and '.join(losses.values())}, and {self.name} would lose messages; switch off "
                f"{', '.join(losses)} for the topic or its namespace, or name a target in another namespace"
            )

    def _losses(self) -> Iterator[tuple[str, str]]:
        """Yield the policies by which brokers drop what the copy's subscriptions keep, each with its effect."""
        inherited = self._admin.namespaces.policies(self.name.namespace_path).raw
        settings = self._admin.brokers.runtime_configuration()
        own = TopicInventory(self.name, policies=self._own_policies()).own_policy
        if (minutes := _nearest(own("subscriptionExpirationTime"), subscription_expiration(inherited, settings))) > 0:
            effect = f"delete a subscription that has had no consumer for {minutes} minutes, and so {KEEPER}"
            yield "subscription expiration", effect
        if (seconds := _nearest(own("messageTTL"), message_ttl(inherited, settings))) > 0:
            yield "message TTL", f"drop messages that were not consumed for {seconds} seconds"
        if deletes_consumed(own("inactiveTopicPolicies") or inherited.get("inactive_topic_policies"), settings):
            effect = "delete a partition that holds no message for a subscription, and its subscriptions"
            yield "deletion of inactive topics", effect
        quotas: Mapping[str, Mapping[str, Any]] = own(BACKLOG_QUOTAS) or {}
        for kind in QUOTA_LIMITS:
            limit = eviction_limit(kind, quotas.get(kind) or backlog_quota(kind, inherited, settings))
            if limit is not None:
                yield f"the backlog quota {kind}", f"drop the oldest of a backlog ({QUOTA_LIMITS[kind]} {limit})"

    def _own_policies(self) -> Mapping[str, Any]:
        try:
            return self._admin.topic_policies.read(self.name)
        except AdminNotFound:
            return {}

    def _require_alone(self) -> None:
        others = [
            publisher
            for partition in self.parts
            for publisher in self._publishers(partition)
            if NOTE not in (publisher.metadata or {})
        ]
        if others:
            raise StoreConflict(
                f"{self.name} has {len(others)} producers, the first from {others[0].address}; no other client may "
                "send there until all is copied: stop them"
            )

    def _publishers(self, partition: TopicName) -> Sequence[Client]:
        try:
            return self._admin.topics.stats(partition).publishers
        except AdminNotFound:
            return ()

    def _other_subscriptions(self, partition: TopicName) -> Sequence[str]:
        return [name for name in self._admin.topics.stats(partition).durable_subscriptions if name != KEEPER]

    def _stats(self, partition: TopicName) -> InternalStats | None:
        try:
            return self._admin.topics.internal_stats(partition)
        except AdminNotFound:
            return None

    def _subscribe(self, partition: TopicName, name: str) -> None:
        stats = self._stats(partition)
        if stats is not None and name in stats.cursors:
            return
        with suppress(AdminConflict):
            self._admin.or_never(
                connect=lambda admin: admin.subscriptions.names(partition),
                change=lambda admin: admin.subscriptions.create(partition, name),
            )

    def _delete(self, path: str) -> None:
        if (node := self._store.get(path)) is None:
            return
        self._fence()
        try:
            self._store.delete(path, node.version)
        except VersionConflict as cause:
            raise StoreContention(f"{path}: another attempt changes the record of the copy") from cause


def _nearest(own: int | None, inherited: int) -> int:
    return inherited if own is None else own


def _holds(stats: InternalStats) -> bool:
    return stats.number_of_entries > 0 and EntryPosition.parse(stats.last_confirmed_entry).entry_id >= 0

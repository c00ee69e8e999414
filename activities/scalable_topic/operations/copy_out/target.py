"""The regular topic that gets the messages of a scalable one: created where it is missing, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from activities.pulsar.schema_versions import complete_versions
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreContention, StoreUnsupported, VersionConflict
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.admin.late_requests import FencedAdmin
from clients.pulsar.admin.topics import Client, InternalStats
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import NOTE
from clients.pulsar.wire.position import EntryPosition
from models.broker_settings import subscription_expiration
from models.lifecycle.failures import some
from models.scalable_topic.copies import KEEPER
from spark.scalable_topic.copy_record import CopyRecord, read_stored, record_path, write_stored

_ELSEWHERE = "name another target, or delete it"


class CopyTarget:
    """The regular topic.

    Args:
        admin: its cluster's admin interface, with the fence of this attempt.
        store: the metadata store.
        name: the topic.
        partitions: that it is to have; 0 for none.
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
        """Return whether the topic may get this copy; only reads.

        Returns:
            The record of the copy that it holds; None where it is empty, or is not there.

        Raises:
            StoreConflict: it holds something else, or others send to it.
        """
        known, _ = read_stored(self._store, CopyRecord, record_path(self.name))
        told = (wanted.source, wanted.partitions, wanted.hashing)
        if known is not None and (known.source, known.partitions, known.hashing) != told:
            raise StoreConflict(
                f"{self.name} gets the messages of topic://{known.source}, with {known.partitions} partitions and hash "
                f"{known.hashing}; {_ELSEWHERE}"
            )
        self._require_shape()
        self._require_lasting()  # mutant: scalable-topic/what-keeps-a-copy-expires
        stats = [self._stats(part) for part in self.parts]
        if known is not None and all(stat is not None and KEEPER in stat.cursors for stat in stats):
            self._require_alone()
            return known
        full = [part for part, one in zip(self.parts, stats, strict=True) if one is not None and _holds(one)]
        if full:
            what = "does not hold the copy any more that was made to it, and" if known else "is no copy of this, and"
            raise StoreConflict(f"{self.name} {what} holds messages ({some(full)}); {_ELSEWHERE}")
        self._require_alone()
        return None

    def prepare(self, wanted: CopyRecord, subscriptions: Collection[str]) -> None:
        """Create what is missing, and the record; harmless when done twice.

        Args:
            wanted: the record.
            subscriptions: that get all messages.

        Raises:
            StoreConflict: see `require_ready`.
            StoreContention: another attempt does the same.
        """
        known = self.require_ready(wanted)
        if known is None:
            # What an earlier copy left belongs to a topic that was deleted.
            self.forget()
            _, held = read_stored(self._store, CopyRecord, record_path(self.name))
            self._fence()
            write_stored(self._store, held, wanted)
        with suppress(AdminConflict):
            if self.partitions:
                self._admin.topics.create_partitioned(self.name, self.partitions)
            else:
                self._admin.topics.create(self.name)
        for part in self.parts:
            # The keeper comes last: it says that the part is ready.
            for subscription in (*subscriptions, KEEPER):
                self._subscribe(part, subscription)

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
        """Delete the records of the copy; harmless where there are none."""
        path = record_path(self.name)
        for kind in ("segments", "parts"):
            for name in self._store.children(f"{path}/{kind}"):
                self._delete(f"{path}/{kind}/{name}")
            # ZooKeeper's node above them.
            self._delete(f"{path}/{kind}")
        self._delete(path)

    def let_go(self) -> None:
        """Delete the subscription for which messages were kept.

        Raises:
            StoreConflict: no other durable subscription of a part would keep them.
        """
        found = [(part, self._stats(part)) for part in self.parts]
        there = [(part, one) for part, one in found if one is not None and KEEPER in one.cursors]
        bare = [part for part, _ in there if not self._others(part)]
        if bare:
            raise StoreConflict(
                f"{some(bare)} have no subscription but {KEEPER}, and would lose all messages with it; create those of "
                "their consumers first, at the earliest message"
            )
        for part, _ in there:
            with suppress(AdminNotFound):
                self._admin.or_never(
                    connect=lambda admin, part=part: admin.topics.internal_stats(part),
                    change=lambda admin, part=part: admin.subscriptions.delete(part, KEEPER),
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
        namespace = self.name.namespace_path
        policies = self._admin.namespaces.policies(namespace).raw
        if minutes := subscription_expiration(policies, self._admin.brokers.runtime_configuration()):
            raise StoreConflict(
                f"brokers delete a subscription in {namespace} that has had no consumer for {minutes} minutes, and so "
                f"{KEEPER}, which keeps what is copied; switch that off (pulsar-admin namespaces "
                f"set-subscription-expiration-time -t 0 {namespace}), or name a target in another namespace"
            )

    def _require_alone(self) -> None:
        strangers = [
            publisher
            for part in self.parts
            for publisher in self._publishers(part)
            if NOTE not in (publisher.metadata or {})
        ]
        if strangers:
            raise StoreConflict(
                f"{self.name} has {len(strangers)} producers, the first from {strangers[0].address}; nobody may send "
                "there before all is copied: stop them"
            )

    def _publishers(self, part: TopicName) -> Sequence[Client]:
        try:
            return self._admin.topics.stats(part).publishers
        except AdminNotFound:
            return ()

    def _others(self, part: TopicName) -> Sequence[str]:
        return [name for name in self._admin.topics.stats(part).durable_subscriptions if name != KEEPER]

    def _stats(self, part: TopicName) -> InternalStats | None:
        try:
            return self._admin.topics.internal_stats(part)
        except AdminNotFound:
            return None

    def _subscribe(self, part: TopicName, name: str) -> None:
        stats = self._stats(part)
        if stats is not None and name in stats.cursors:
            return
        with suppress(AdminConflict):
            self._admin.subscriptions.create(part, name)

    def _delete(self, path: str) -> None:
        if (node := self._store.get(path)) is None:
            return
        self._fence()
        try:
            self._store.delete(path, node.version)
        except VersionConflict as cause:
            raise StoreContention(f"{path}: another attempt changes the record of the copy") from cause


def _holds(stats: InternalStats) -> bool:
    return stats.number_of_entries > 0 and EntryPosition.parse(stats.last_confirmed_entry).entry_id >= 0

"""Census of the features that a cluster uses, read only: settings of brokers, paths, policies, statistics of topics.

It costs two requests for each broker. In the metadata store it costs three lists, one list for each tenant, and one
pipelined read of two records for each namespace. The statistics of topics are those that a migration reads anyway.
Uses are counted, and at most ten objects of each feature are kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.releases import SeenBroker
from activities.pulsar.topic_inventory import TopicInventory
from clients.json_text import read_json
from clients.pulsar.admin.topics import TopicStats
from clients.store import Record, StoreReader, Unreadable, text_of
from models.broker_settings import configuration_store_apart, is_same_store, metadata_store_of
from models.coverage.results import SHOWN, FeatureState, FeatureUse
from models.coverage.table import PAGE, UNKNOWN_FEATURE, Feature, ItemKind, Outcome, coverage
from models.ledger_store import ledgers_of_pulsar
from models.lifecycle.failures import summarize

_POLICIES, _LOCAL_POLICIES = b"/admin/policies", b"/admin/local-policies"
# Families of paths are identified by their first name; here by the first two.
_DEEP = (b"/admin", b"/pulsar")
# Families of one record, which may be empty.
_BY_VALUE = (b"/bookies", b"/admin/configuration")
_AT_ONCE = 500
_ALL_TYPES = {"Exclusive", "Failover", "Key_Shared", "Shared"}
_UNREAD = "unread"
_CHILDREN = "/*"
_V1 = "/admin/policies/*/*/*"


class FeatureCensus:
    """Collects the features that a cluster uses.

    Args:
        cluster: `clusterName` of its brokers; replication to it does not count.
        limit: most objects that are kept of each item; None for all.
    """

    def __init__(self, cluster: str, *, limit: int | None = SHOWN) -> None:
        self._cluster = cluster
        self._limit = limit
        self._table = coverage()
        self._cursors = self._names(ItemKind.CURSOR)
        #: By item, in the order of the census.
        self._objects: defaultdict[str, list[str]] = defaultdict(list)
        self._count: Counter[str] = Counter()
        self._last: dict[str, str] = {}
        self._unknown: set[str] = set()
        self._silent: list[str] = []
        #: Facts of the cluster that a receipt keeps, by name.
        self.facts: dict[str, str] = {}
        self.checked_kinds: set[ItemKind] = set()

    """Kinds of items that the census has."""

    # Adding -----------------------------------------------------------------------------------------------------------

    def add_brokers(self, brokers: Sequence[SeenBroker]) -> None:
        """Add the settings of brokers; settings that could not be read count as unknown."""
        self.checked_kinds.add(ItemKind.SETTING)
        for broker in brokers:
            if broker.settings is None:
                # mutant: coverage/settings-that-cannot-be-read-pass
                self._silent.append(f"{broker.name} ({broker.why})")
                continue
            for name, value in broker.settings.items():
                if _matters(name, value, broker.settings):
                    # The value of an unknown setting may be a secret.
                    is_known = ItemKind.SETTING.item(name) in self._table.of_item
                    self._note(
                        ItemKind.SETTING, name, value, f"{broker.name} ({name}={value})" if is_known else broker.name
                    )

    def add_store(
        self,
        reader: StoreReader,
        selects: Callable[[str], bool] = lambda _: True,
        *,
        tenants: Collection[str] | None = None,
        own: Collection[str] = (),
    ) -> None:
        """Add the families of paths, the tenants and the policies of namespaces.

        Args:
            reader: of the metadata store.
            selects: whether a migration includes a namespace, `tenant/namespace`.
            tenants: of these namespaces; None for all.
            own: paths below the root that the migration's plan names, and that need no check.

        Raises:
            StoreError: the store cannot be read.
        """
        self.checked_kinds |= {ItemKind.PATH, ItemKind.TENANT, ItemKind.POLICY, ItemKind.LOCAL_POLICY}
        self._add_paths(reader, own)
        named = None if tenants is None else [_POLICIES + b"/" + tenant.encode() for tenant in tenants]
        nodes = sorted(reader.children(_POLICIES) if named is None else named)
        for tenant, record in zip(nodes, reader.read(nodes), strict=True):
            chosen = [path for path in sorted(reader.children(tenant)) if selects(_name(path))]
            if chosen:
                self._add_record(ItemKind.TENANT, record, _name(tenant))
            for start in range(0, len(chosen), _AT_ONCE):
                self._add_policies(reader, chosen[start : start + _AT_ONCE])

    def add_topic(self, topic: TopicInventory) -> None:
        """Add the statistics and policies of a topic, with its subscriptions and clients."""
        self.checked_kinds |= {ItemKind.TOPIC, ItemKind.SUBSCRIPTION, ItemKind.PRODUCER, ItemKind.CONSUMER}
        self.checked_kinds |= {ItemKind.TOPIC_POLICY, ItemKind.CURSOR}
        for name, value in (topic.policies or {}).items():
            self._note(ItemKind.TOPIC_POLICY, name.rpartition("/")[2], value, str(topic.name))
        for partition in topic.parts:
            if partition.stats is not None:
                self._add_statistics(str(partition.name), partition.stats)

    @property
    def silent(self) -> tuple[str, ...]:
        """The brokers whose settings could not be read, each with the reason."""
        return tuple(self._silent)

    # Results ----------------------------------------------------------------------------------------------------------

    def uses(self, migration: str, accepted: Collection[str] = ()) -> tuple[FeatureUse, ...]:
        """Return the features in use, in the order of the table, and then the accepted unknown items.

        Args:
            migration: its kind, or `kind/mode`.
            accepted: ids that the operator accepts.
        """
        features = (self._use(feature, migration, accepted) for feature in self._table.features if self.has(feature))
        return (*features, *map(self._accepted_unknown, sorted(self._unknown & {*accepted})))

    def has(self, feature: Feature) -> bool:
        """Return whether the census has a use of a feature."""
        return any(self._count[item] for item in feature.items)

    def check(
        self, findings: Findings, migration: str, accepted: Collection[str], codes: Collection[str] = ()
    ) -> tuple[FeatureUse, ...]:
        """Add blockers for items that are unknown, refused or need a decision; return the features in use.

        Args:
            findings: get the blockers.
            migration: its kind, or `kind/mode`.
            accepted: ids of features and names of unknown items that the operator accepts.
            codes: of blockers that exist already.
        """
        if self._silent and BROKERS_UNKNOWN not in codes:
            findings.block(
                BROKERS_UNKNOWN,
                f"the settings of brokers cannot be read: {'; '.join(self._silent[:SHOWN])}",
                "let the worker reach their admin interface, with credentials of a superuser if it asks for them "
                "(PULSAR_MIGRATE_ADMIN_*); a broker that was killed vanishes when its session has expired",
            )
        for item in sorted(self._unknown - {*accepted}):
            kind, _, name = item.partition(":")
            what = f"the policies of {name} cannot be read" if kind == _UNREAD else f"unknown {kind} {name}"
            findings.block(
                UNKNOWN_FEATURE,
                f"{what}: {self._named(item)}",
                f"check what it is for, and whether the migration carries it ({PAGE}). "
                f'To accept it as it is, set "accept": ["{item}"]',
            )
        for feature in self._table.features:
            cell = feature.cell(migration)
            if not cell.by_census or not self.has(feature):
                continue
            cause = f"{feature.title}: {self._named(*feature.items)}; {cell.text}"
            if cell.outcome is Outcome.REFUSED:  # mutant: coverage/refused-features-can-be-accepted
                findings.block(feature.id, cause, feature.cure)
            elif feature.id not in accepted:  # mutant: coverage/questions-are-not-asked
                findings.block(
                    feature.id, cause, f'{feature.cure}. To accept it as it is, set "accept": ["{feature.id}"]'
                )
        return self.uses(migration, accepted)

    def state(self, feature: Feature) -> tuple[FeatureState, str]:
        """Return whether a feature is in use, and the reason if that is not known."""
        kinds = {ItemKind(item.partition(":")[0]) for item in feature.items}
        missing = sorted(kinds - self.checked_kinds)
        if self.has(feature):
            return FeatureState.IN_USE, ""
        if not feature.items:
            return FeatureState.UNKNOWN, feature.unseen
        if ItemKind.SETTING in kinds and self._silent:
            return FeatureState.UNKNOWN, f"the settings of {', '.join(self._silent[:SHOWN])} cannot be read"
        if kinds & {ItemKind.POLICY, ItemKind.LOCAL_POLICY} and any(self._unread_items()):
            return FeatureState.UNKNOWN, f"the policies of {', '.join(self._unread_items()[:SHOWN])} cannot be read"
        if len(missing) == len(kinds):
            return FeatureState.UNKNOWN, f"{', '.join(missing)} statistics are read by the dry run"
        return FeatureState.NOT_IN_USE, f"without {', '.join(missing)} statistics" if missing else ""

    def unknown(self) -> dict[str, list[str]]:
        """Return the items that are not in the table, each with the kept objects."""
        return {item: list(self._objects[item]) for item in sorted(self._unknown)}

    def objects(self, feature: Feature) -> list[str]:
        """Return the kept objects that use a feature."""
        return self._objects_of(feature.items)

    # Inside -----------------------------------------------------------------------------------------------------------

    def _use(self, feature: Feature, migration: str, accepted: Collection[str]) -> FeatureUse:
        cell = feature.cell(migration)
        return FeatureUse(
            feature=feature.id,
            title=feature.title,
            outcome=cell.outcome,
            how=cell.text,
            objects=tuple(self.objects(feature)[:SHOWN]),
            count=sum(self._count[item] for item in feature.items),
            accepted=cell.by_census and cell.outcome is Outcome.DECISION and feature.id in accepted,
        )

    def _accepted_unknown(self, item: str) -> FeatureUse:
        return FeatureUse(
            feature=item,
            title=f"unknown {item.replace(':', ' ', 1)}",
            outcome=Outcome.DECISION,
            how="not checked; it was accepted as it is",
            objects=tuple(self._objects[item][:SHOWN]),
            count=self._count[item],
            accepted=True,
        )

    def _objects_of(self, items: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(name for item in items for name in self._objects[item]))

    def _named(self, *items: str) -> str:
        return summarize(self._objects_of(items), shown=SHOWN, total=sum(self._count[item] for item in items))

    def _unread_items(self) -> list[str]:
        return sorted(item.partition(":")[2] for item in self._unknown if item.startswith(f"{_UNREAD}:"))

    def _note(self, kind: ItemKind, name: str, value: object, where: str) -> None:
        item = kind.item(name)
        if item in self._table.without_effect or not self._is_used(item, value):
            return
        if item not in self._table.of_item:
            self._unknown.add(item)  # mutant: coverage/unknown-items-pass
        self._keep(item, where)

    def _keep(self, item: str, where: str) -> None:
        if self._last.get(item) == where:
            return  # Several producers of one topic, for example.
        self._last[item] = where
        self._count[item] += 1
        if self._limit is None or len(self._objects[item]) < self._limit:
            self._objects[item].append(where)

    def _unread(self, name: str, why: str) -> None:
        item = f"{_UNREAD}:{name}"
        self._unknown.add(item)  # mutant: coverage/policies-that-cannot-be-read-pass
        self._keep(item, why)

    def _is_used(self, item: str, value: object) -> bool:
        if item in ("policy:replication_clusters", "policy:allowed_clusters", "topic-policy:replication"):
            return bool(set(cast("list[str]", value or [])) - {self._cluster})
        return self._table.is_set(item, value)

    def _add_statistics(self, topic: str, stats: TopicStats) -> None:
        self._add_fields(ItemKind.TOPIC, stats.fields, topic)
        for producer in stats.publishers:
            self._add_fields(ItemKind.PRODUCER, producer.fields, topic)
        for name, subscription in stats.subscriptions.items():
            where = f"{topic} {name}"
            self._add_fields(ItemKind.SUBSCRIPTION, subscription.fields, where)
            for consumer in subscription.consumers:
                self._add_fields(ItemKind.CONSUMER, consumer.fields, where)
            if start := next(filter(name.startswith, self._cursors), ""):
                self._note(ItemKind.CURSOR, start, name, topic)

    def _add_fields(self, kind: ItemKind, fields: Mapping[str, Any], where: str) -> None:
        for name, value in fields.items():
            self._note(kind, name, value, where)

    def _names(self, kind: ItemKind) -> list[str]:
        return [item.partition(":")[2] for item in self._table.of_item if item.startswith(f"{kind}:")]

    def _add_paths(self, reader: StoreReader, own: Collection[str]) -> None:
        paths = [
            path for path in reader.children(b"/") if path not in _DEEP and path.decode(errors="replace") not in own
        ]
        # mutant: coverage/only-one-level-of-paths
        paths += [path for parent in _DEEP for path in reader.children(parent)]
        items = self._names(ItemKind.PATH)
        values = {
            record.path: text_of(record.value, record.path)
            for record in reader.read(_BY_VALUE)
            if isinstance(record, Record)
        }
        for path in paths:
            name = path.decode(errors="backslashreplace")
            value = values.get(path, name)
            if name in items or f"{name}{_CHILDREN}" not in items:
                self._note(ItemKind.PATH, name, value, name)
        for name in items:
            if name.endswith(_CHILDREN) and name != _V1:
                for child in reader.children(name.removesuffix(_CHILDREN).encode()):
                    self._note(ItemKind.PATH, name, name, child.decode(errors="backslashreplace"))

    def _add_policies(self, reader: StoreReader, paths: Sequence[bytes]) -> None:
        local = [_LOCAL_POLICIES + path.removeprefix(_POLICIES) for path in paths]
        records = zip(reader.read(paths), reader.read(local), strict=True)
        for path, (policies, own) in zip(paths, records, strict=True):
            if isinstance(policies, Record) and not policies.value:
                # The node of a cluster of Pulsar 1 has no value, and has namespaces below it.
                for namespace in reader.children(path):
                    self._note(ItemKind.PATH, _V1, _V1, _name(namespace))
                continue
            self._add_record(ItemKind.POLICY, policies, _name(path))
            self._add_record(ItemKind.LOCAL_POLICY, own, _name(path))

    def _add_record(self, kind: ItemKind, record: Record | Unreadable | None, namespace: str) -> None:
        if record is None or (isinstance(record, Record) and not record.value):
            return
        if isinstance(record, Unreadable):
            self._unread(namespace, record.reason)
            return
        try:
            fields = read_json(record.value)
            self._add_fields(kind, fields, namespace)
        except (ValueError, AttributeError) as error:
            self._unread(namespace, f"not a JSON object ({error})")


def _matters(name: str, value: str, settings: Mapping[str, str]) -> bool:
    """Return whether a broker's setting adds something to its other settings."""
    match name:
        case "configurationMetadataStoreUrl" | "configurationStoreServers" | "globalZookeeperServers":
            return configuration_store_apart(settings)[0] == name
        case "bookkeeperMetadataServiceUri":
            return bool(value) and not _in_metadata_store(value, metadata_store_of(settings))
        case "subscriptionTypesEnabled":
            return set(value.strip("[]").split(", ")) != _ALL_TYPES
        case _:
            return True


def _in_metadata_store(uri: str, store: str) -> bool:
    try:
        ledgers = ledgers_of_pulsar(uri)
        return ledgers is not None and is_same_store(str(ledgers), store)
    except ValueError:
        return False


def _name(path: bytes) -> str:
    return path.removeprefix(_POLICIES).lstrip(b"/").decode(errors="backslashreplace")

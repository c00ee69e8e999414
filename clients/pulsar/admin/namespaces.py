"""Namespaces: their policies, permissions and publish rates, and the flag that moves their clients (PIP-188)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from clients.pulsar.admin.answers import NAMES, OBJECT, STRINGS, Answer
from clients.pulsar.admin.bodies import text_of
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.admin.namespace_policies import PolicyPath, set_single_policy
from clients.pulsar.names import encoded, encoded_namespace


class Policies(Answer):
    """A namespace's policies: all of them as the broker gives them, and those by name that migrations look at.

    Attributes:
        raw: the whole object, to be written elsewhere as it is.
        replication_clusters: clusters that have the namespace's messages.
        deleted: whether the namespace is being deleted.
        migrated: whether its clients are redirected to another cluster.
    """

    raw: dict[str, Any]
    replication_clusters: tuple[str, ...] = ()
    deleted: bool = False
    migrated: bool = False

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Policies:
        """Return policies from the broker's JSON, whose names are partly not those of Java."""
        return cls(
            raw=dict(raw),
            replication_clusters=tuple(raw.get("replication_clusters") or ()),
            deleted=bool(raw.get("deleted")),
            migrated=bool(raw.get("migrated")),
        )


class PublishRate(Answer):
    """How much may be sent to each topic; -1 for no limit.

    Attributes:
        publish_throttling_rate_in_msg: messages per second.
        publish_throttling_rate_in_byte: bytes per second.
    """

    publish_throttling_rate_in_msg: int = -1
    publish_throttling_rate_in_byte: int = -1


class InactiveTopics(Answer):
    """Policy for unused topics.

    Attributes:
        inactive_topic_delete_mode: `delete_when_no_subscriptions`, or `delete_when_subscriptions_caught_up`.
        max_inactive_duration_seconds: how long a topic must be unused.
        delete_while_inactive: whether it is deleted at all.
    """

    inactive_topic_delete_mode: str
    max_inactive_duration_seconds: int
    delete_while_inactive: bool


class AutoTopicCreation(Answer):
    """Policy that says if a request for a topic that does not exist creates it, and as which type.

    Attributes:
        allow_auto_topic_creation: whether it does.
        topic_type: `partitioned` or `non-partitioned`.
        default_num_partitions: of a partitioned one.
    """

    allow_auto_topic_creation: bool
    topic_type: str | None = None
    default_num_partitions: int | None = None


class Retention(Answer):
    """How long acknowledged messages are kept; -1 indefinitely, 0 not at all.

    Attributes:
        retention_time_in_minutes: at least so long,
        retention_size_in_m_b: while they are not larger than this (MB).
    """

    retention_time_in_minutes: int
    retention_size_in_m_b: int


class BookieAffinity(Answer):
    """The groups of bookies that keep a namespace's messages, with commas between them.

    Attributes:
        bookkeeper_affinity_group_primary: of them first.
        bookkeeper_affinity_group_secondary: where the first are too few; none by default.
    """

    bookkeeper_affinity_group_primary: str | None = None
    bookkeeper_affinity_group_secondary: str | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups."""
        lists = (self.bookkeeper_affinity_group_primary, self.bookkeeper_affinity_group_secondary)
        return tuple(name.strip() for names in lists if names for name in names.split(","))


class NamespaceAction(StrEnum):
    """Rights of a role in a namespace."""

    PRODUCE = "produce"
    CONSUME = "consume"
    FUNCTIONS = "functions"
    SOURCES = "sources"
    SINKS = "sinks"
    PACKAGES = "packages"


_PERMISSIONS = TypeAdapter(dict[str, tuple[str, ...]])
_RATE = TypeAdapter(PublishRate | None)
_INACTIVE = TypeAdapter(InactiveTopics | None)
_RETENTION = TypeAdapter(Retention | None)
_AFFINITY = TypeAdapter(BookieAffinity | None)
_AFFINITY_PATH = "persistence/bookieAffinity"


class NamespacesReader:
    """Namespaces; each is named `tenant/namespace`."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def names(self, tenant: str) -> list[str]:
        """Return `tenant/namespace` of each namespace of a tenant.

        Raises:
            AdminNotFound: there is no such tenant.
        """
        return self._endpoint.get_as(NAMES, f"/namespaces/{encoded(tenant)}")

    def policies(self, name: str) -> Policies:
        """Return all policies of a namespace.

        Raises:
            AdminNotFound: there is no such namespace.
        """
        return Policies.of(self._endpoint.get_as(OBJECT, _path(name)))

    def permissions(self, name: str) -> dict[str, tuple[str, ...]]:
        """Return the rights of each role."""
        return self._endpoint.get_as(_PERMISSIONS, f"{_path(name)}/permissions")

    def publish_rate(self, name: str) -> PublishRate | None:
        """Return the publish limit; None if the namespace has none."""
        return self._endpoint.set_as(_RATE, f"{_path(name)}/publishRate")

    def inactive_topics(self, name: str) -> InactiveTopics | None:
        """Return the policy for unused topics; None if the namespace does not set it."""
        return self._endpoint.set_as(_INACTIVE, f"{_path(name)}/inactiveTopicPolicies")

    def retention(self, name: str) -> Retention | None:
        """Return how long acknowledged messages are kept; None if the namespace does not set it."""
        return self._endpoint.set_as(_RETENTION, f"{_path(name)}/retention")

    def bookie_affinity(self, name: str) -> BookieAffinity | None:
        """Return the groups of bookies that keep its messages; None if the namespace does not set it."""
        try:
            group = self._endpoint.set_as(_AFFINITY, f"{_path(name)}/{_AFFINITY_PATH}")
        except AdminNotFound:
            # Brokers keep no local policies of a namespace before its first topic.
            return None
        return group if group and group.groups else None

    def anti_affinity_group(self, name: str) -> str:
        """Return the group of namespaces that brokers keep apart from each other; empty if it is in none."""
        try:
            # Brokers answer with the bare text, and not with JSON.
            return text_of(self._endpoint.get(f"{_path(name)}/antiAffinity")).strip('"')
        except AdminNotFound:
            # Likewise.
            return ""

    def properties(self, name: str) -> dict[str, str]:
        """Return the properties of a namespace."""
        return self._endpoint.get_as(STRINGS, f"{_path(name)}/properties")

    def resource_groups(self) -> list[str]:
        """Return names of the groups that namespaces may share limits in."""
        return self._endpoint.get_as(NAMES, "/resourcegroups")

    def resource_group(self, name: str) -> dict[str, Any]:
        """Return the limits of such a group.

        Raises:
            AdminNotFound: there is no such group.
        """
        return self._endpoint.get_as(OBJECT, f"/resourcegroups/{encoded(name)}")


class Namespaces(NamespacesReader):
    """Namespaces, with the calls that change them."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def create(self, name: str, policies: Mapping[str, Any] | None = None) -> None:
        """Create a namespace, with all its policies in one call.

        Args:
            name: `tenant/namespace`.
            policies: the broker's JSON, for example another cluster's `Policies.raw`; None for the defaults.

        Raises:
            AdminConflict: it exists.
            AdminDenied: the tenant may not use one of the clusters.
        """
        self._calls.put(_path(name), dict(policies) if policies is not None else None)

    def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a namespace; with `force` its topics too.

        Raises:
            AdminConflict: it has topics.
            AdminUnsupported: brokers do not allow `force` (`forceDeleteNamespaceAllowed`).
        """
        self._calls.delete(_path(name), {"force": force})

    def unload(self, name: str) -> None:
        """Unload all topics of a namespace; the next request for a topic loads it again."""
        self._calls.put(f"{_path(name)}/unload")

    def set_migrated(self, name: str, *, migrated: bool) -> None:
        """Set whether a namespace's clients are redirected to the stored cluster (`Clusters.set_migration`).

        The flag is read in `policies`.
        """
        self._calls.post(f"{_path(name)}/migration", migrated)

    def set_policy(self, name: str, path: PolicyPath, value: Any) -> None:
        """Set one policy, by its position in `Policies.raw`; see `single_policies`.

        Raises:
            AdminPreconditionFailed: it contradicts another policy.
            AdminUnsupported: there is no call that sets it.
        """
        set_single_policy(self._calls, name, path, value)

    def grant(self, name: str, role: str, actions: Sequence[NamespaceAction]) -> None:
        """Grant a role these rights, and no others."""
        self._calls.post(f"{_path(name)}/permissions/{encoded(role)}", [action.value for action in actions])

    def revoke(self, name: str, role: str) -> None:
        """Revoke all rights of a role."""
        self._calls.delete(f"{_path(name)}/permissions/{encoded(role)}")

    def set_publish_rate(self, name: str, rate: PublishRate) -> None:
        """Limit how much may be sent to each topic."""
        self._calls.post(f"{_path(name)}/publishRate", rate.body())

    def remove_publish_rate(self, name: str) -> None:
        """Remove the namespace's own limit; then the broker's applies."""
        self._calls.delete(f"{_path(name)}/publishRate")

    def set_retention(self, name: str, retention: Retention) -> None:
        """Set how long acknowledged messages are kept.

        Raises:
            AdminPreconditionFailed: a backlog quota is larger.
        """
        self._calls.post(f"{_path(name)}/retention", retention.body())

    def remove_retention(self, name: str) -> None:
        """Remove the namespace's own retention; then the broker's applies."""
        self._calls.delete(f"{_path(name)}/retention")

    def set_bookie_affinity(self, name: str, affinity: BookieAffinity) -> None:
        """Keep messages on bookies of some groups; holds for ledgers that are created after that."""
        self._calls.post(f"{_path(name)}/{_AFFINITY_PATH}", affinity.body())

    def set_backlog_quota(self, name: str, kind: str, quota: Mapping[str, Any]) -> None:
        """Limit the backlog of unacknowledged messages.

        Args:
            name: `tenant/namespace`.
            kind: `destination_storage` or `message_age`.
            quota: one entry of `backlog_quota_map` in the broker's JSON.
        """
        self._calls.post(f"{_path(name)}/backlogQuota", dict(quota), {"backlogQuotaType": kind})

    def set_message_ttl(self, name: str, seconds: int) -> None:
        """Acknowledge messages that are older than this."""
        self._calls.post(f"{_path(name)}/messageTTL", seconds)

    def set_deduplication(self, name: str, *, enabled: bool) -> None:
        """Drop messages that a producer sends again."""
        self._calls.post(f"{_path(name)}/deduplication", enabled)

    def set_schema_compatibility(self, name: str, strategy: str) -> None:
        """Set the compatibility of schemas, for example `FULL` or `BACKWARD`."""
        self._calls.put(f"{_path(name)}/schemaCompatibilityStrategy", strategy)

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Add or change properties."""
        self._calls.put(f"{_path(name)}/properties", dict(properties))


def _path(name: str) -> str:
    return f"/namespaces/{encoded_namespace(name)}"

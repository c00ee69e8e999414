"""Checks of green's limits and settings that would refuse a namespace, before anything is created there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from activities.blue_green.checks.settings import BothSides, elements, stricter_settings
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.provisioning.translation import cluster_names
from activities.pulsar.topic_inventory import TopicInventory
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.namespaces import Policies
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topics import Client, TopicStats
from models.blue_green.differences import Difference, DifferenceKind
from models.lifecycle.failures import Blocker, summarize
from models.releases import DEFAULTS, Release

# Brokers' settings that apply to namespaces without a policy of their own.
_DEFAULTS = (
    "allowAutoSubscriptionCreation",
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "authenticationEnabled",
    "authorizationEnabled",
    "backlogQuotaDefaultLimitBytes",
    "backlogQuotaDefaultLimitGB",
    "backlogQuotaDefaultLimitSecond",
    "backlogQuotaDefaultRetentionPolicy",
    "brokerDeduplicationEnabled",
    "brokerDeleteInactiveTopicsEnabled",
    "brokerDeleteInactiveTopicsMode",
    "brokerServiceCompactionThresholdInBytes",
    "defaultNumPartitions",
    "defaultNumberOfNamespaceBundles",
    "defaultRetentionSizeInMB",
    "defaultRetentionTimeInMinutes",
    "delayedDeliveryEnabled",
    "delayedDeliveryMaxDelayInMillis",
    "dispatchThrottlingRatePerSubscriptionInByte",
    "dispatchThrottlingRatePerSubscriptionInMsg",
    "dispatchThrottlingRatePerTopicInByte",
    "dispatchThrottlingRatePerTopicInMsg",
    "enableReplicatedSubscriptions",
    "isAllowAutoUpdateSchemaEnabled",
    "isSchemaValidationEnforced",
    "managedLedgerDefaultAckQuorum",
    "managedLedgerDefaultEnsembleSize",
    "managedLedgerDefaultWriteQuorum",
    "maxConsumersPerSubscription",
    "maxConsumersPerTopic",
    "maxMessageSize",
    "maxProducersPerTopic",
    "maxPublishRatePerTopicInBytes",
    "maxPublishRatePerTopicInMessages",
    "maxUnackedMessagesPerConsumer",
    "maxUnackedMessagesPerSubscription",
    "schemaCompatibilityStrategy",
    "subscribeThrottlingRatePerConsumer",
    "subscriptionExpirationTimeMinutes",
    "subscriptionTypesEnabled",
    "transactionCoordinatorEnabled",
    "ttlDurationDefaultInSeconds",
)
# Settings that apply to the whole cluster.
_OF_CLUSTER = (
    "acknowledgmentAtBatchIndexLevelEnabled",
    "anonymousUserRole",
    "authenticateOriginalAuthData",
    "brokerMaxConnections",
    "brokerMaxConnectionsPerIp",
    "enableNonPersistentTopics",
    "enablePersistentTopics",
    "encryptionRequireOnProducer",
    "entryFilterNames",
    "loadBalancerLoadPlacementStrategy",
    "loadBalancerLoadSheddingStrategy",
    "loadManagerClassName",
    "maxConsumerMetadataSize",
    "strictlyVerifySubscriptionName",
    "subscriptionKeySharedEnable",
    "subscriptionRedeliveryTrackerEnabled",
    "systemTopicEnabled",
    "tlsHostnameVerificationEnabled",
    "topicLevelPoliciesEnabled",
)
_BROKERS = "brokers: "
_NONE: Mapping[str, int] = MappingProxyType({})


def broker_differences(blue: Mapping[str, str], green: Mapping[str, str]) -> list[Difference]:
    """Return brokers' settings that differ: defaults of namespaces first, then settings of the whole cluster.

    Args:
        blue: configuration of a broker of blue.
        green: configuration of a broker of green.
    """
    return [
        Difference(
            path=f"{_BROKERS}{name}",
            kind=DifferenceKind.DIFFERS,
            blue=blue[name],
            green=green[name],
            # What only some topics use is checked with these.
            # mutant: blue-green/settings-of-green-pass
            harmless=all(setting.uses for setting in stricter_settings(name, blue[name], green[name])),
        )
        for name in (*_DEFAULTS, *_OF_CLUSTER)
        if name in blue and name in green and elements(blue[name]) != elements(green[name])
    ]


def differences_by_broker(brokers: BothSides) -> dict[Difference, list[str]]:
    """Return the settings that differ between both sides, with the brokers of green that have them."""
    differing: dict[Difference, list[str]] = {}
    # Before brokers are compared with each other: there may be many, and they agree on most settings.
    names = [name for name in (*_DEFAULTS, *_OF_CLUSTER) if not brokers.agree(name)]
    distinct = {tuple((name, own[name]) for name in names if name in own): None for own in brokers.blue.values()}
    for broker, green in brokers.green.items():
        for difference in {item: None for blue in distinct for item in broker_differences(dict(blue), green)}:
            differing.setdefault(difference, []).append(broker)
    return differing


def effects(blue: str, green: str, difference: Difference) -> list[str]:
    """Return what clients notice of a difference where brokers of green, or in a failback those of blue, are stricter.

    Args:
        blue: name of blue.
        green: name of green.
        difference: one of `broker_differences`.
    """
    name = difference.path.removeprefix(_BROKERS)
    later = (setting for setting in stricter_settings(name, difference.green, difference.blue) if setting.can_block)
    return [
        *(f"{green} {setting.effect}" for setting in stricter_settings(name, difference.blue, difference.green)),
        *(f"a later failback may be refused, because {blue} {setting.effect}" for setting in later),
    ]


def is_default(difference: Difference) -> bool:
    """Return whether a setting of the brokers holds only for namespaces without a policy of their own."""
    return difference.path.removeprefix(_BROKERS) in _DEFAULTS


def are_defaults(difference: Difference, blue: Release, green: Release) -> bool:
    """Return whether a setting differs only because the defaults of both releases differ.

    Args:
        difference: one of `broker_differences`.
        blue: the release of blue's brokers.
        green: the release of green's brokers.
    """
    name = difference.path.removeprefix(_BROKERS)
    return name in DEFAULTS and (difference.blue, difference.green) == (blue.default(name), green.default(name))


def green_room(green: PulsarAdminReader, namespaces: Iterable[str]) -> list[Blocker]:
    """Return blockers for limits on tenants and namespaces that all these namespaces would exceed on green."""
    limits = _Limits(green.brokers.runtime_configuration())
    tenants, wanted = set(green.tenants.names()), set(namespaces)
    blockers: list[Blocker] = []
    names = {name.partition("/")[0] for name in wanted}
    if limits.exceeded("maxTenants", len(tenants | names)) and names - tenants:
        blockers.append(limits.blocker("maxTenants", "tenants", len(tenants | names)))
    for tenant in sorted(names):
        existing = set(green.namespaces.names(tenant)) if tenant in tenants else set[str]()
        both = existing | {name for name in wanted if name.startswith(f"{tenant}/")}
        if both != existing and limits.exceeded("maxNamespacesPerTenant", len(both)):
            blockers.append(limits.blocker("maxNamespacesPerTenant", f"namespaces of tenant {tenant}", len(both)))
    return blockers


def green_clusters(
    green: PulsarAdminReader, inventory: NamespaceInventory, tenant: Tenant, *, names: Mapping[str, str]
) -> list[Blocker]:
    """Return blockers for clusters that a namespace or its tenant uses, and that green does not know."""
    existing = {*green.clusters.names(), "global"}
    policies = inventory.policies
    blockers: list[Blocker] = []
    for what, clusters in (
        (f"tenant {inventory.name.partition('/')[0]}", tenant.allowed_clusters),
        (f"namespace {inventory.name}", policies.replication_clusters),
    ):
        if lacking := [name for name in cluster_names(clusters, names) if name not in existing]:
            cause = f"{what} uses {', '.join(lacking)}, which green does not know."
            cure = f"Make it existing on green (pulsar-admin clusters create), or take it from {what} on blue."
            blockers.append(Blocker(code="GREEN_LACKS_CLUSTER", cause=cause, cure=cure))
    return blockers


def green_quotas(
    green: PulsarAdminReader, inventory: NamespaceInventory, there: NamespaceInventory | None
) -> list[Blocker]:
    """Return blockers for limits of green that a namespace of blue would exceed.

    Args:
        green: reader of green.
        inventory: namespace of blue.
        there: the same namespace on green; None if green does not have it.
    """
    limits = _Limits(green.brokers.runtime_configuration())
    existing = set(green.topics.names(inventory.name)) if there else set[str]()
    limits = limits.of_namespace((there or inventory).policies)
    blockers: list[Blocker] = []
    topics = [topic for topic in inventory.topics.values() if topic.lasting]
    wanted = {str(partition) for topic in topics if topic.persistent for partition in _parts(topic)}
    if wanted - existing and limits.exceeded("maxTopicsPerNamespace", len(wanted | existing)):
        what = f"topics and partitions in namespace {inventory.name}"
        blockers.append(limits.blocker("maxTopicsPerNamespace", what, len(wanted | existing)))
    blockers += limits.most("maxNumPartitionsPerPartitionedTopic", "partitions", _partitions(topics))
    own = _own_limits(there, _SUBSCRIPTIONS)
    blockers += limits.most(_SUBSCRIPTIONS, "subscriptions", _subscriptions(topics), own)
    persistent = [topic for topic in topics if topic.persistent]
    for limit in _CLIENT_LIMITS:
        counts, own = _most_clients(persistent, limit), _own_limits(there, limit.of_topic)
        if inventory.policies.raw.get(limit.of_namespace) is not None:
            # Blue enforces this policy, which is copied, but green has topics with a limit of their own.
            counts = {topic: count for topic, count in counts.items() if topic in own}
        blockers += limits.most(limit.of_brokers, limit.what, counts, own)
    blockers += _refused_types(limits, inventory, persistent)
    if any(topic.policies for topic in topics) and not limits.topic_policies:
        cause = f"topics of {inventory.name} have policies of their own, and green's brokers have them switched off."
        cure = "Set topicLevelPoliciesEnabled=true and systemTopicEnabled=true on green's brokers, and restart them."
        blockers.append(Blocker(code="GREEN_LACKS_TOPIC_POLICIES", cause=cause, cure=cure))
    affinity = inventory.affinity
    if affinity and (lacking := sorted({*affinity.groups} - {*green.brokers.bookie_groups()})):
        cause = f"bookies of {', '.join(lacking)} keep the messages of {inventory.name}, and green has no such group."
        cure = (
            "Put bookies of green into it (pulsar-admin bookies set-bookie-rack --group), or take the namespace out of "
            "it on blue (pulsar-admin namespaces delete-bookie-affinity-group)."
        )
        blockers.append(Blocker(code="GREEN_LACKS_BOOKIE_GROUP", cause=cause, cure=cure))
    group = inventory.policies.raw.get("resource_group_name")
    if group and group not in green.namespaces.resource_groups():
        cause = f"namespace {inventory.name} belongs to resource group {group}, which green does not have."
        cure = "Create it on green (pulsar-admin resourcegroups create), or take the namespace out of it on blue."
        blockers.append(Blocker(code="GREEN_LACKS_RESOURCE_GROUP", cause=cause, cure=cure))
    return blockers


class _ClientLimit(NamedTuple):
    """A limit on clients of a topic or subscription, with its name on each level.

    Attributes:
        of_brokers: name in the brokers' configuration.
        of_namespace: name among a namespace's policies; empty if there is none.
        of_topic: name among a topic's policies; likewise.
        what: what is limited.
        counts: function that returns the numbers in a topic; each must be within the limit.
    """

    of_brokers: str
    of_namespace: str
    of_topic: str
    what: str
    counts: Callable[[TopicStats], Iterable[int]]


def _producers(stats: TopicStats) -> list[int]:
    return [len(stats.publishers)]


def _consumers_of_each(stats: TopicStats) -> list[int]:
    return [len(sub.consumers) for sub in stats.subscriptions.values()]


def _consumers(stats: TopicStats) -> list[int]:
    return [sum(_consumers_of_each(stats))]


def _of_each_address(clients: Iterable[Client]) -> list[int]:
    """Return how many clients each address has; brokers do not compare ports."""
    return [*Counter((client.address or "").rpartition(":")[0] for client in clients).values()]


def _producers_of_each_address(stats: TopicStats) -> list[int]:
    return _of_each_address(stats.publishers)


def _consumers_of_each_address(stats: TopicStats) -> list[int]:
    return _of_each_address(client for sub in stats.subscriptions.values() for client in sub.consumers)


_CLIENT_LIMITS = (
    _ClientLimit(
        "maxProducersPerTopic",
        "max_producers_per_topic",
        "maxProducers",
        "producers",
        _producers,
    ),
    _ClientLimit(
        "maxConsumersPerTopic",
        "max_consumers_per_topic",
        "maxConsumers",
        "consumers",
        _consumers,
    ),
    _ClientLimit(
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
        "maxConsumersPerSubscription",
        "consumers in one subscription",
        _consumers_of_each,
    ),
    _ClientLimit(
        "maxSameAddressProducersPerTopic",
        "",
        "",
        "producers of one address",
        _producers_of_each_address,
    ),
    _ClientLimit(
        "maxSameAddressConsumersPerTopic",
        "",
        "",
        "consumers of one address",
        _consumers_of_each_address,
    ),
)
_SUBSCRIPTIONS = "maxSubscriptionsPerTopic"
_TYPES = "subscriptionTypesEnabled"


def _own_limits(there: NamespaceInventory | None, policy: str) -> dict[str, int]:
    """Return the limits that topics of green have on their own, by topic."""
    topics = there.topics.values() if there else ()
    own = {str(topic.name): topic.own_policy(policy) for topic in topics}
    return {name: int(value) for name, value in own.items() if value is not None}


def _most_clients(topics: Iterable[TopicInventory], limit: _ClientLimit) -> dict[str, int]:
    """Return the largest number that a limit of brokers counts, by topic, without topics with a limit of their own."""
    return {
        str(topic.name): max((count for stats in topic.stats for count in limit.counts(stats)), default=0)
        for topic in topics
        if topic.own_policy(limit.of_topic) is None
    }


def _refused_types(limits: _Limits, inventory: NamespaceInventory, topics: Iterable[TopicInventory]) -> list[Blocker]:
    """Return a blocker if subscriptions have types that brokers of green do not allow."""
    # Policies of the namespace and of its topics take precedence, and are copied.
    if inventory.policies.raw.get("subscription_types_enabled") or _TYPES not in limits.values:
        return []
    allowed = elements(limits.values[_TYPES])
    refused = [
        f"{topic.name} {sub.name} ({sub.type})"
        for topic in topics
        if topic.own_policy(_TYPES) is None
        for sub in topic.subscriptions.values()
        if sub.consumers and sub.type not in allowed  # mutant: blue-green/types-of-subscriptions
    ]
    if not refused:
        return []
    types = ", ".join(allowed)
    cause = f"brokers of green allow only subscriptions of {types}, and others are in use: {summarize(refused)}."
    cure = (
        f"Allow their types on green ({_TYPES} in its broker.conf), or set them for the namespace on blue "
        "(pulsar-admin namespaces set-subscription-types-enabled)."
    )
    return [Blocker(code="GREEN_SUBSCRIPTION_TYPES", cause=cause, cure=cure)]


class _Limits(NamedTuple):
    values: Mapping[str, str]

    @property
    def topic_policies(self) -> bool:
        return all(self.values.get(name) != "false" for name in ("topicLevelPoliciesEnabled", "systemTopicEnabled"))

    def of_namespace(self, policies: Policies) -> _Limits:
        """Return the limits with the namespace's own policies, which take precedence."""
        named = {
            "maxTopicsPerNamespace": policies.raw.get("max_topics_per_namespace"),
            _SUBSCRIPTIONS: policies.raw.get("max_subscriptions_per_topic"),
        }
        # mutant: blue-green/limits-of-a-namespace-of-green-pass
        named |= {limit.of_brokers: policies.raw.get(limit.of_namespace) for limit in _CLIENT_LIMITS}
        return _Limits({**self.values, **{name: str(value) for name, value in named.items() if value is not None}})

    def of_topic(self, name: str, own: int | None) -> _Limits:
        """Return the limits with a topic's own, which takes precedence; None if it has none."""
        # mutant: blue-green/limits-of-a-topic-of-green-pass
        return self if own is None else _Limits({**self.values, name: str(own)})

    def exceeded(self, name: str, count: int) -> bool:
        return 0 < self._limit(name) < count

    def most(self, name: str, what: str, counts: Mapping[str, int], own: Mapping[str, int] = _NONE) -> list[Blocker]:
        """Return a blocker if topics exceed a limit; `own` has that of topics that have one of their own."""
        topics = [topic for topic, _ in Counter(counts).most_common()]
        limits = {topic: self.of_topic(name, own.get(topic)) for topic in topics}
        over = [topic for topic in topics if limits[topic].exceeded(name, counts[topic])]
        if not over:
            return []
        return [limits[over[0]].blocker(name, f"{what} of {summarize(over)}", counts[over[0]])]

    def blocker(self, name: str, what: str, count: int) -> Blocker:
        cause = f"green would have {count} {what}; its limit {name} is {self._limit(name)}."
        cure = f"Raise {name} on green, in its brokers' configuration or in the policies of the namespace or topic."
        return Blocker(code="GREEN_QUOTA", cause=cause, cure=cure)

    def _limit(self, name: str) -> int:
        # 0 means unlimited.
        return int(self.values.get(name) or 0)


def _parts(topic: TopicInventory) -> list[str]:
    names = [topic.name.of_partition(number) for number in range(topic.partitions)] or [topic.name]
    return [str(name) for name in names]


def _partitions(topics: Iterable[TopicInventory]) -> dict[str, int]:
    return {str(topic.name): topic.partitions for topic in topics}


def _subscriptions(topics: Iterable[TopicInventory]) -> dict[str, int]:
    # A topic's own limit is copied with it, and blue enforces it already.
    return {str(topic.name): len(topic.durable) for topic in topics if topic.own_policy(_SUBSCRIPTIONS) is None}

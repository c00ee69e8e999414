"""How green differs from blue, computed from two inventories: names of clusters, kinds, and what is never changed."""

from __future__ import annotations

from typing import Any

import pytest

from activities.blue_green.checks.quotas import are_defaults, broker_differences, is_default
from activities.blue_green.provisioning.differences import differences, tenant_differences
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.provisioning.translation import translated_policies, translated_tenant
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition, is_system_topic
from clients.pulsar.admin.namespaces import Policies
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topics import SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.differences import Difference, DifferenceKind
from models.releases import parse_release

SPACE = "acme/orders"
NAMES = {"blue": "green"}
RELEASE = parse_release("5.0.1")
TOPIC = TopicName.parse(f"{SPACE}/t")
MISSING, DIFFERS, EXTRA = DifferenceKind.MISSING, DifferenceKind.DIFFERS, DifferenceKind.EXTRA


def namespace(*topics: TopicInventory, **raw: Any) -> NamespaceInventory:
    """Return a namespace with these policies."""
    return NamespaceInventory(SPACE, Policies.of(raw), {topic.name: topic for topic in topics})


def topic(
    name: TopicName = TOPIC, partitions: int = 0, *, subscriptions: tuple[str, ...] = (), **more: Any
) -> TopicInventory:
    """Return a topic that is loaded, with durable subscriptions."""
    stats = TopicStats(subscriptions={subscription: SubscriptionStats() for subscription in subscriptions})
    parts = [name.of_partition(number) for number in range(partitions)] or [name]
    given: dict[str, Any] = {
        "properties": {},
        "policies": {},
        "parts": tuple(TopicPartition(partition, stats) for partition in parts),
    }
    return TopicInventory(name, partitions, **{**given, **more})


def kinds(blue: NamespaceInventory, green: NamespaceInventory | None) -> dict[str, DifferenceKind]:
    """Return kinds by path, without what all paths begin with."""
    return {
        difference.path.removeprefix(f"namespace {SPACE}: ").removeprefix(f"topic {TOPIC}: "): difference.kind
        for difference in differences(blue, green, names=NAMES, release=RELEASE)
    }


def test_clusters_have_other_names_on_green() -> None:
    """Lists of clusters and policies per cluster are translated; third clusters keep their names, also without ours."""
    policies = Policies.of(
        {
            "replication_clusters": ["west", "blue", "green"],
            "allowed_clusters": [],
            "topicDispatchRate": {"blue": {"a": 1}, "west": {"a": 2}},
            "publishMaxMessageRate": {},
            "bundles": {"boundaries": ["0x0", "0x7", "0xf"], "numBundles": 2},
            "migrated": True,
            "deleted": False,
            "properties": {"blue": "blue"},
        }
    )
    assert translated_policies(policies, NAMES) == {
        "replication_clusters": ["green", "west"],
        "allowed_clusters": [],
        "topicDispatchRate": {"green": {"a": 1}, "west": {"a": 2}},
        "publishMaxMessageRate": {},
        "bundles": {"numBundles": 2},
        "properties": {"blue": "blue"},
    }
    tenant = translated_tenant(Tenant(admin_roles=("b", "a"), allowed_clusters=("west",)), NAMES)
    assert tenant == Tenant(admin_roles=("a", "b"), allowed_clusters=("green", "west"))


def test_equal_namespaces() -> None:
    """Translated, unordered and unset policies are equal, whichever release reports them."""
    blue = namespace(
        replication_clusters=["blue", "west"],
        clusterSubscribeRate={"blue": {"ratePeriodInSecond": 1}},
        auth_policies={"namespace_auth": {"app": ["produce", "consume"]}},
        bundles={"numBundles": 4, "boundaries": ["0x0", "0x1"]},
        backlog_quota_map={},
        migrated=True,
    )
    green = namespace(
        replication_clusters=["west", "green"],
        clusterSubscribeRate={"green": {"ratePeriodInSecond": 1}},
        auth_policies={"namespace_auth": {"app": ["consume", "produce"]}, "destination_auth": {}},
        bundles={"numBundles": 4},
        encryption_required=False,
        schema_compatibility_strategy="UNDEFINED",
        is_allow_auto_update_schema_with_replicator=True,
        offload_threshold=-1,
    )
    assert kinds(blue, green) == {}


def test_policies() -> None:
    """Each policy is a difference of its own; only green's is extra, bundles are harmless, and secrets stay secret."""
    blue = namespace(
        retention_policies={"retentionSizeInMB": 1},
        properties={"a": "b"},
        auth_policies={"namespace_auth": {"app": ["produce"], "other": ["consume"]}},
        offload_policies={"s3ManagedLedgerOffloadCredentialSecret": "hush", "managedLedgerOffloadDriver": "s3"},
        latency_stats_sample_rate={"blue": 3},
        bundles={"numBundles": 4},
    )
    green = namespace(
        properties={"a": "c", "only": "green"},
        auth_policies={"namespace_auth": {"app": ["produce"]}},
        offload_policies={"gcsDriver": False},
        bundles={"numBundles": 8},
    )
    assert kinds(blue, green) == {
        "auth_policies.namespace_auth.other": DIFFERS,
        "latency_stats_sample_rate.green": DIFFERS,
        "offload_policies.managedLedgerOffloadDriver": DIFFERS,
        "offload_policies.s3ManagedLedgerOffloadCredentialSecret": DIFFERS,
        "properties.a": DIFFERS,
        "retention_policies": DIFFERS,
        "properties.only": EXTRA,
        "bundles": DIFFERS,
    }
    by_name = {
        difference.path.rpartition(": ")[2]: difference
        for difference in differences(blue, green, names=NAMES, release=RELEASE)
    }
    assert "hush" not in str([*by_name.values()])
    assert not by_name["bundles"].blocks
    assert by_name["retention_policies"] == Difference(
        path=f"namespace {SPACE}: retention_policies",
        kind=DIFFERS,
        blue='{"retentionSizeInMB": 1}',
        green="not set",
        creatable=True,
    )
    # No call of a broker sets it in a namespace that exists.
    assert not by_name["latency_stats_sample_rate.green"].creatable


def test_policies_that_always_have_a_value() -> None:
    """A policy that green alone has changed from its default is reported as a difference, not as something extra."""
    strict = namespace(encryption_required=True, subscription_auth_mode="Prefix", is_allow_auto_update_schema=False)
    fields = dict.fromkeys(("encryption_required", "subscription_auth_mode", "is_allow_auto_update_schema"), DIFFERS)
    assert kinds(namespace(), strict) == kinds(strict, namespace()) == fields


@pytest.mark.parametrize(
    ("name", "value", "of_topic"),
    [
        ("message_ttl_in_seconds", 5, "messageTTL"),
        ("subscription_expiration_time_minutes", 1, "global/subscriptionExpirationTime"),
        ("entryFilters", {"entryFilterNames": "f"}, "entryFilters"),
        ("subscription_types_enabled", ["Shared"], "subscriptionTypesEnabled"),
    ],
)
def test_policies_of_green_that_cost_messages(name: str, value: Any, of_topic: str) -> None:
    """A policy that blue does not have, and by which consumers would miss messages on green, must be removed there."""
    (difference,) = differences(namespace(), namespace(**{name: value}), names=NAMES, release=RELEASE)
    assert (difference.path, difference.blocks) == (f"namespace {SPACE}: {name}", True)
    assert kinds(namespace(), namespace(max_producers_per_topic=5)) == {"max_producers_per_topic": EXTRA}
    own = namespace(topic(policies={of_topic: value}))
    (difference,) = differences(namespace(topic()), own, names=NAMES, release=RELEASE)
    assert (difference.path, difference.creatable) == (f"topic {TOPIC}: policy {of_topic}", False)
    assert difference.blocks
    assert kinds(namespace(), namespace(message_ttl_in_seconds=0)) == {"message_ttl_in_seconds": EXTRA}


def test_a_topic_that_green_alone_deletes() -> None:
    """A topic of green must not be deleted with its subscriptions by a policy of its own that blue does not have."""
    mode = {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "maxInactiveDurationSeconds": 60}
    for deletes in (True, False):
        own = topic(policies={"inactiveTopicPolicies": {**mode, "deleteWhileInactive": deletes}})
        (difference,) = differences(namespace(topic()), namespace(own), names=NAMES, release=RELEASE)
        assert (difference.path, difference.blocks) == (f"topic {TOPIC}: policy inactiveTopicPolicies", deletes)


def test_old_and_new_offload_fields() -> None:
    """A limit for offloading is the same in the field of older releases and in the newer one."""
    old = namespace(offload_threshold=5, offload_deletion_lag_ms=7)
    new = namespace(
        offload_policies={"managedLedgerOffloadThresholdInBytes": 5, "managedLedgerOffloadDeletionLagInMillis": 7}
    )
    assert kinds(old, new) == kinds(new, old) == {}
    assert kinds(old, namespace(offload_threshold=6, offload_deletion_lag_ms=7)) == {
        "offload_policies.managedLedgerOffloadThresholdInBytes": DIFFERS
    }


def test_a_namespace_that_is_not_there() -> None:
    """A missing namespace is reported with its stored topics, without their content."""
    passing = TopicName.parse(f"non-persistent://{SPACE}/p")
    blue = namespace(topic(subscriptions=("s",), properties={"a": "b"}), topic(passing), retention_policies={"x": 1})
    assert kinds(blue, None) == {f"namespace {SPACE}": MISSING, f"topic {TOPIC}": MISSING}
    assert all(
        difference.creatable and difference.blocks
        for difference in differences(blue, None, names=NAMES, release=RELEASE)
    )


def test_a_partition_without_a_topic_cannot_be_created() -> None:
    """A topic with the name of a partition, but without a partitioned topic, cannot be created."""
    orphan = TopicName.parse(f"{SPACE}/x-partition-0")
    [difference] = differences(namespace(topic(orphan)), namespace(), names=NAMES, release=RELEASE)
    assert (difference.path, difference.kind, difference.creatable) == (f"topic {orphan}", MISSING, False)


def test_topics() -> None:
    """Properties, policies, schemas and subscriptions are compared one by one."""
    schemas = tuple(Schema(version=number, type="AVRO", data=f"{number}") for number in range(3))
    blue = topic(
        partitions=2,
        subscriptions=("s", "lost"),
        properties={"a": "b", "c": "d"},
        policies={"replication": ["blue"], "maxProducers": 3, "messageTTL": 5},
        schemas=schemas,
    )
    green = topic(
        partitions=2,
        subscriptions=("s", "more"),
        properties={"a": "x", "e": "f"},
        policies={"replication": ["green"], "maxProducers": 4, "maxConsumers": 5},
        schemas=schemas[:1],
    )
    assert kinds(namespace(blue), namespace(green)) == {
        "property a": DIFFERS,
        "property c": MISSING,
        "property e": EXTRA,
        "schema version 1": MISSING,
        "schema version 2": MISSING,
        "policy maxProducers": DIFFERS,
        "policy messageTTL": MISSING,
        "policy maxConsumers": EXTRA,
        "subscription lost": MISSING,
        "subscription more": EXTRA,
    }


def test_schemas_in_another_order() -> None:
    """The first version that differs is reported and no later one, since no call repairs it."""
    first, second = (Schema(version=0, type="JSON", data=data) for data in "ab")
    later = Schema(version=1, type="JSON", data="c")
    blue, green = namespace(topic(schemas=(first, later))), namespace(topic(schemas=(second,)))
    [difference] = differences(blue, green, names=NAMES, release=RELEASE)
    assert (difference.path, difference.kind, difference.creatable) == (
        f"topic {TOPIC}: schema version 0",
        DIFFERS,
        False,
    )
    assert kinds(namespace(topic(schemas=(first,))), namespace(topic(schemas=(first, later)))) == {
        "schema version 1": EXTRA
    }


def test_a_topic_that_has_moved() -> None:
    """A topic that blue does not load any more is compared only in what blue still reports."""
    moved = topic(
        properties=None, policies=None, parts=(TopicPartition(TOPIC, None, "already migrated", migrated=True),)
    )
    assert kinds(namespace(moved), namespace(topic(subscriptions=("s",), properties={"a": "b"}))) == {}


def test_green_is_not_empty() -> None:
    """Messages on green block, whatever else is equal; so does a topic that green cannot load."""
    stats = TopicStats(storage_size=9, subscriptions={"s": SubscriptionStats(msg_backlog=4)})
    green = namespace(topic(parts=(TopicPartition(TOPIC, stats),)))
    [difference] = differences(namespace(topic(subscriptions=("s",))), green, names=NAMES, release=RELEASE)
    assert (difference.kind, difference.green, difference.blocks) == (
        DifferenceKind.GREEN_HAS_MESSAGES,
        "backlogs: s 4",
        True,
    )
    [difference] = differences(
        namespace(topic()),
        namespace(topic(parts=(TopicPartition(TOPIC, None, "no offloader"),))),
        names=NAMES,
        release=RELEASE,
    )
    assert (difference.kind, difference.green) == (DIFFERS, "cannot be loaded: no offloader")


def test_partitions() -> None:
    """Fewer partitions can be added to, more cannot be taken away; partitions that were not created are."""
    two, three = topic(partitions=2), topic(partitions=3)
    for blue, green, creatable in ((three, two, True), (two, three, False), (three, topic(), False)):
        [difference] = differences(namespace(blue), namespace(green), names=NAMES, release=RELEASE)
        assert (difference.path, difference.kind, difference.creatable) == (
            f"topic {TOPIC}: partitions",
            DIFFERS,
            creatable,
        )
    lacking = topic(partitions=3, parts=three.parts[:1])
    [difference] = differences(namespace(three), namespace(lacking), names=NAMES, release=RELEASE)
    assert (difference.path, difference.kind, difference.blue) == (
        f"topic {TOPIC}: partitions of 3",
        MISSING,
        "2 not created",
    )


def test_tenants() -> None:
    """A tenant keeps what only green gave it, and lacks what blue gave it until that is aligned."""
    blue = Tenant(admin_roles=("a", "b"), allowed_clusters=("blue", "west"))
    green = Tenant(admin_roles=("a", "c"), allowed_clusters=("green", "west", "east"))
    [difference] = tenant_differences("acme", blue, None, names=NAMES)
    assert (difference.path, difference.kind) == ("tenant acme", MISSING)
    kind_by_path = {
        tenant_difference.path: tenant_difference.kind
        for tenant_difference in tenant_differences("acme", blue, green, names=NAMES)
    }
    assert kind_by_path == {"tenant acme: adminRoles": DIFFERS, "tenant acme: allowedClusters": EXTRA}


def test_system_topics() -> None:
    """Topics of the brokers stay; retry and dead-letter topics are their owners'."""
    for name in (
        "__change_events",
        "__change_events-partition-0",
        "__transaction_buffer_snapshot",
        "t-s__transaction_pending_ack",
    ):
        assert is_system_topic(TopicName.parse(f"{SPACE}/{name}")), name
    for name in ("t-s-RETRY", "t-s-DLQ", "__mine", "healthcheck", "my__change_events", "t-partition-0"):
        assert not is_system_topic(TopicName.parse(f"{SPACE}/{name}")), name


def test_defaults_of_brokers() -> None:
    """Defaults that differ are reported, and are harmless unless green takes smaller messages."""
    blue = {"maxMessageSize": "10", "subscriptionTypesEnabled": "[Shared, Failover]", "loadBalancerEnabled": "true"}
    green = {"maxMessageSize": "5", "subscriptionTypesEnabled": "[Failover, Shared]", "loadBalancerEnabled": "false"}
    [difference] = broker_differences(blue, green)
    assert (difference.path, difference.blocks) == ("brokers: maxMessageSize", True)
    [difference] = broker_differences({"defaultRetentionTimeInMinutes": "5"}, {"defaultRetentionTimeInMinutes": "0"})
    assert (difference.blue, difference.green, difference.blocks, is_default(difference)) == ("5", "0", False, True)
    assert not are_defaults(difference, parse_release("4.0.8"), parse_release("5.0.1"))
    [difference] = broker_differences(
        {"defaultNumberOfNamespaceBundles": "4"}, {"defaultNumberOfNamespaceBundles": "32"}
    )
    assert are_defaults(difference, parse_release("4.0.8"), parse_release("5.0.1"))
    assert not are_defaults(difference, parse_release("5.0.1"), parse_release("5.0.1"))
    [difference] = broker_differences({"loadManagerClassName": "a"}, {"loadManagerClassName": "b"})
    assert (difference.path, difference.blocks, is_default(difference)) == (
        "brokers: loadManagerClassName",
        False,
        False,
    )


@pytest.mark.parametrize(
    ("name", "blue", "green", "blocks"),
    [
        ("encryptionRequireOnProducer", "false", "true", True),
        ("encryptionRequireOnProducer", "true", "false", False),
        ("subscriptionKeySharedEnable", "true", "false", True),
        ("subscriptionKeySharedEnable", "false", "true", False),
        ("entryFilterNames", "[]", "[a]", True),
        ("entryFilterNames", "[a]", "[]", False),
        ("maxMessageSize", "5", "10", False),
        ("enablePersistentTopics", "true", "false", True),
    ],
)
def test_settings_that_would_stop_clients(name: str, blue: str, green: str, *, blocks: bool) -> None:
    """Brokers of green that refuse what blue's take, or keep messages back, are a blocker."""
    [difference] = broker_differences({name: blue}, {name: green})
    assert (difference.path, difference.blocks) == (f"brokers: {name}", blocks)

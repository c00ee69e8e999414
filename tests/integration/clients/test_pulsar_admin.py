"""Every call of the admin client, once and more, on a real broker that asks for tokens."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest
from pydantic import SecretStr

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.clusters import ClusterMigration, ClusterUrls
from clients.pulsar.admin.errors import (
    AdminConflict,
    AdminDenied,
    AdminNotFound,
    AdminPreconditionFailed,
    AdminServerError,
    AdminUnsupported,
)
from clients.pulsar.admin.namespaces import NamespaceAction, PublishRate, Retention
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topics import EARLIEST, LATEST
from clients.pulsar.names import TopicName
from pulsar_devstack.servers.server_releases import chosen_release
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.pulsar_client import pulsar
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.clients.dynamic_settings import dynamic_values, remove_dynamic, set_dynamic
from tests.support.clients.pulsar_auth import SUPERUSER, TokenKey
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

CLUSTER, TENANT, SPACE = "here", "acme", "acme/orders"
GREEN = ClusterUrls(service_url="http://127.0.0.1:1", broker_service_url="pulsar://127.0.0.1:2")
ODD = "odd näme+1%*~.-_&?#;"
ABSENT = TopicName.parse(f"{SPACE}/absent")
MESSAGES = 10


@pytest.fixture(scope="module")
def key() -> TokenKey:
    """Signs tokens that the broker accepts."""
    return TokenKey()


@pytest.fixture(scope="module")
def urls(make_stack: MakeStack, key: TokenKey) -> tuple[str, str]:
    """The admin interface and the service address of a broker that asks for tokens."""
    settings = {
        **key.broker_settings(),
        # Topics of a namespace whose clients are sent elsewhere are ended within a second.
        "clusterMigrationCheckDurationSeconds": "1",
        "forceDeleteNamespaceAllowed": "true",
    }
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, cluster=CLUSTER, broker_settings=settings))
    return stack.admin_urls[0], stack.broker_url


@pytest.fixture(scope="module")
def admin(urls: tuple[str, str], key: TokenKey) -> Generator[PulsarAdmin]:
    """A superuser, with a tenant and a namespace."""
    access = AdminAccess(30, Token(SecretStr(key.token(SUPERUSER))), destinations=LOOPBACK_PLAIN)
    with PulsarAdmin.open(access, urls[:1]) as admin:
        admin.tenants.create(TENANT, Tenant(admin_roles=("boss",), allowed_clusters=(CLUSTER,)))
        admin.namespaces.create(SPACE)
        yield admin


def topic(admin: PulsarAdmin, name: str) -> TopicName:
    """Return a new topic of the namespace."""
    made = TopicName.parse(f"{SPACE}/{name}")
    admin.topics.create(made)
    return made


def test_brokers(admin: PulsarAdmin, urls: tuple[str, str]) -> None:
    """Brokers say who they are, what they run on and whether they can write; a dynamic setting is set and removed."""
    brokers = admin.brokers
    assert brokers.names(CLUSTER) == [urls[0].removeprefix("http://")]
    assert brokers.leader().service_url == urls[0]
    assert brokers.version() == chosen_release().version
    assert brokers.runtime_configuration()["clusterName"] == CLUSTER
    brokers.check_health()
    name = "maxConcurrentLookupRequest"
    assert name in brokers.dynamic_names()
    set_dynamic(admin, name, "4321")
    assert dynamic_values(admin) == {name: "4321"}
    wait_until_equal("the broker", lambda: brokers.runtime_configuration()[name], "4321", 10)
    remove_dynamic(admin, name)
    assert dynamic_values(admin) == {}
    with pytest.raises(AdminPreconditionFailed):
        set_dynamic(admin, "clusterName", "other")


def test_clusters(admin: PulsarAdmin) -> None:
    """Clusters are made known, changed and forgotten; an update replaces all addresses."""
    clusters = admin.clusters
    assert clusters.get(CLUSTER).service_url
    clusters.create("green", GREEN)
    with pytest.raises(AdminConflict, match="already exists"):
        clusters.create("green", GREEN)
    assert set(clusters.names()) == {CLUSTER, "green"}
    assert clusters.get("green") == GREEN
    secure = ClusterUrls(service_url_tls="https://127.0.0.1:3", broker_service_url_tls="pulsar+ssl://127.0.0.1:4")
    clusters.update("green", secure)
    assert clusters.get("green") == secure
    clusters.delete("green")
    with pytest.raises(AdminNotFound, match="Cluster does not exist"):
        clusters.get("green")


def test_where_a_cluster_moves_to(admin: PulsarAdmin) -> None:
    """The other cluster's addresses are stored before anybody is sent there; half an address is never sent."""
    clusters = admin.clusters
    assert clusters.migration(CLUSTER) is None
    clusters.set_migration(CLUSTER, GREEN, migrated=False)
    assert clusters.migration(CLUSTER) == ClusterMigration(migrated=False, migrated_cluster_url=GREEN)
    for half in (ClusterUrls(service_url="http://127.0.0.1:1"), ClusterUrls(broker_service_url="pulsar://127.0.0.1:2")):
        with pytest.raises(ValueError, match="needs an address"):
            clusters.set_migration(CLUSTER, half, migrated=True)


def test_tenants(admin: PulsarAdmin) -> None:
    """Tenants are created, changed and deleted; their clusters must be known."""
    tenants = admin.tenants
    assert tenants.get(TENANT) == Tenant(admin_roles=("boss",), allowed_clusters=(CLUSTER,))
    tenants.create("gone", Tenant(allowed_clusters=(CLUSTER,)))
    with pytest.raises(AdminConflict):
        tenants.create("gone", Tenant(allowed_clusters=(CLUSTER,)))
    with pytest.raises(AdminPreconditionFailed, match="Clusters do not exist"):
        tenants.create("other", Tenant(allowed_clusters=("nowhere",)))
    tenants.update("gone", Tenant(admin_roles=("a", "b"), allowed_clusters=(CLUSTER,)))
    assert set(tenants.get("gone").admin_roles) == {"a", "b"}
    assert {TENANT, "gone"} <= set(tenants.names())
    tenants.delete("gone")
    with pytest.raises(AdminNotFound):
        tenants.get("gone")
    with pytest.raises(AdminConflict):
        tenants.delete(TENANT)


def test_policies_are_carried_to_another_namespace(admin: PulsarAdmin) -> None:
    """Policies that were set one by one can be written to another namespace in one call, and are equal there."""
    spaces, name = admin.namespaces, f"{TENANT}/rich"
    spaces.create(name)
    spaces.set_retention(name, Retention(retention_time_in_minutes=60, retention_size_in_m_b=10))
    spaces.set_backlog_quota(
        name, "destination_storage", {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    )
    spaces.set_message_ttl(name, 3600)
    spaces.set_deduplication(name, enabled=True)
    spaces.set_publish_rate(name, PublishRate(publish_throttling_rate_in_msg=7))
    spaces.set_schema_compatibility(name, "FULL")
    spaces.set_properties(name, {"owner": "team"})
    spaces.grant(name, "app", [NamespaceAction.PRODUCE, NamespaceAction.CONSUME])
    policies = spaces.policies(name)
    assert (policies.replication_clusters, policies.deleted, policies.migrated) == ((CLUSTER,), False, False)
    assert policies.raw["backlog_quota_map"]["destination_storage"]["limitSize"] == 1000
    assert (policies.raw["message_ttl_in_seconds"], policies.raw["deduplicationEnabled"]) == (3600, True)
    assert policies.raw["schema_compatibility_strategy"] == "FULL"

    spaces.create(f"{TENANT}/copy", policies.raw)
    assert spaces.policies(f"{TENANT}/copy") == policies
    assert set(spaces.names(TENANT)) == {SPACE, name, f"{TENANT}/copy"}
    with pytest.raises(AdminConflict):
        spaces.create(name, policies.raw)
    with pytest.raises(AdminDenied, match="not in the list of allowed clusters"):
        spaces.create(f"{TENANT}/else", {**policies.raw, "replication_clusters": ["blue"]})
    for space in (name, f"{TENANT}/copy"):
        spaces.delete(space)
    with pytest.raises(AdminNotFound):
        spaces.policies(name)


def test_single_policies(admin: PulsarAdmin) -> None:
    """A policy that a namespace does not set is None, and one that was set can be read and removed."""
    spaces = admin.namespaces
    assert (spaces.publish_rate(SPACE), spaces.retention(SPACE), spaces.permissions(SPACE)) == (None, None, {})
    rate, retention = (
        PublishRate(publish_throttling_rate_in_msg=1),
        Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1),
    )
    spaces.set_publish_rate(SPACE, rate)
    spaces.set_retention(SPACE, retention)
    spaces.grant(SPACE, "app", [NamespaceAction.PRODUCE])
    spaces.set_properties(SPACE, {"a": "b"})
    assert (spaces.publish_rate(SPACE), spaces.retention(SPACE)) == (rate, retention)
    assert (spaces.permissions(SPACE), spaces.properties(SPACE)) == ({"app": ("produce",)}, {"a": "b"})
    spaces.remove_publish_rate(SPACE)
    spaces.remove_retention(SPACE)
    spaces.revoke(SPACE, "app")
    assert (spaces.publish_rate(SPACE), spaces.retention(SPACE), spaces.permissions(SPACE)) == (None, None, {})
    spaces.unload(SPACE)
    with pytest.raises(AdminNotFound):
        spaces.names("missing")


def test_topics(admin: PulsarAdmin) -> None:
    """A topic with an odd name is created, looked at, unloaded, ended and deleted."""
    topics, name = admin.topics, TopicName.parse(f"{SPACE}/{ODD}")
    topics.create(name, {"colour": "blue"})
    with pytest.raises(AdminConflict):
        topics.create(name)
    assert str(name) in topics.names(SPACE)
    assert topics.partitions(name) == 0
    assert topics.properties(name) == {"colour": "blue"}
    topics.set_properties(name, {"size": "big"})
    topics.remove_property(name, "colour")
    assert topics.properties(name) == {"size": "big"}
    topics.unload(name)
    assert topics.stats(name).subscriptions == {}
    stats, info = topics.internal_stats(name), topics.internal_info(name)
    assert (stats.state, info.terminated_position, info.properties) == ("LedgerOpened", None, {"size": "big"})
    assert [ledger.ledger_id for ledger in stats.ledgers] == [ledger.ledger_id for ledger in info.ledgers] != []
    assert len(topics.owner_urls(name)) == 1
    ended = topics.terminate(name)
    assert topics.terminate(name) == ended
    info = topics.internal_info(name)
    assert (topics.internal_stats(name).state, info.terminated_position, info.migrated) == ("Terminated", ended, False)
    topics.delete(name)
    for call in (topics.stats, topics.internal_stats, topics.partitions, topics.delete):
        with pytest.raises(AdminNotFound):
            call(name)
    with pytest.raises(AdminServerError):
        topics.internal_info(name)


def test_a_failure_does_not_reach_the_next_request(admin: PulsarAdmin) -> None:
    """Bytes that a broker writes after an answer 500 are never taken for the answer to the next request."""
    # Over one connection about one request in ten meets it.
    for _ in range(100):
        with pytest.raises(AdminServerError, match="Request failed"):
            admin.topics.internal_info(ABSENT)
        assert TENANT in admin.tenants.names()


def test_partitioned_topics(admin: PulsarAdmin) -> None:
    """Partitions are counted, added, ended and deleted together, and each has its own statistics."""
    topics, name = admin.topics, TopicName.parse(f"{SPACE}/parts")
    topics.create_partitioned(name, 2)
    with pytest.raises(AdminConflict):
        topics.create_partitioned(name, 2)
    topics.grow(name, 3)
    assert topics.partitions(name) == 3
    assert topics.partitioned_names(SPACE) == [str(name)]
    parts = [name.of_partition(number) for number in range(3)]
    assert set(map(str, parts)) <= set(topics.names(SPACE))
    assert topics.partitioned_stats(name).partitions.keys() == set(map(str, parts))
    for partition in parts:
        topics.terminate(partition)
    assert {topics.internal_stats(partition).state for partition in parts} == {"Terminated"}
    topics.delete_partitioned(name, force=True)
    assert topics.partitioned_names(SPACE) == []
    with pytest.raises(AdminNotFound):
        topics.partitioned_stats(name)


def test_subscriptions(admin: PulsarAdmin, urls: tuple[str, str], key: TokenKey) -> None:
    """Subscriptions with odd names are created at either end, moved and deleted; backlogs are exact."""
    subscriptions, name, sub = admin.subscriptions, topic(admin, "read"), f"s/{ODD}"
    client = pulsar.Client(urls[1], authentication=pulsar.AuthenticationToken(key.token(SUPERUSER)))
    producer = client.create_producer(str(name))
    for number in range(MESSAGES):
        producer.send(b"%d" % number)
    client.close()

    subscriptions.create(name, sub, EARLIEST, properties={"a": "b"})
    subscriptions.create(name, "late", LATEST, replicated=True)
    with pytest.raises(AdminConflict):
        subscriptions.create(name, sub)
    assert set(subscriptions.names(name)) == {sub, "late"}
    assert subscriptions.properties(name, sub) == {"a": "b"}
    subscriptions.set_properties(name, sub, {"c": "d"})
    assert subscriptions.properties(name, sub) == {"c": "d"}
    stats = admin.topics.stats(name).subscriptions
    assert {stat: stats[stat].msg_backlog for stat in stats} == {sub: MESSAGES, "late": 0}
    assert (stats["late"].is_replicated, stats[sub].is_replicated, stats[sub].is_durable) == (True, False, True)

    def backlog() -> int:
        return admin.topics.stats(name).subscriptions[sub].msg_backlog

    start = subscriptions.cursor(name, sub)
    assert start
    assert start.mark_delete_position.endswith(":-1")
    subscriptions.skip(name, sub, 3)
    assert backlog() == MESSAGES - 3
    moved = subscriptions.cursor(name, sub)
    assert moved
    assert moved.mark_delete_position.endswith(":2")
    subscriptions.skip_all(name, sub)
    assert backlog() == 0
    subscriptions.reset_to(name, sub, EARLIEST)
    assert backlog() == MESSAGES
    subscriptions.delete(name, "late")
    subscriptions.delete(name, sub, force=True)
    assert subscriptions.names(name) == []
    assert subscriptions.cursor(name, sub) is None
    with pytest.raises(AdminNotFound):
        subscriptions.delete(name, sub)


def test_subscriptions_of_partitioned_topics(admin: PulsarAdmin) -> None:
    """A subscription is created on every partition; on a partition without a parent the broker refuses it."""
    name = TopicName.parse(f"{SPACE}/wide")
    admin.topics.create_partitioned(name, 2)
    admin.subscriptions.create(name, "all")
    assert admin.subscriptions.names(name) == ["all"]
    assert {admin.subscriptions.names(name.of_partition(number))[0] for number in range(2)} == {"all"}
    with pytest.raises(AdminUnsupported):
        admin.subscriptions.reset_to(name, "all", EARLIEST)
    with pytest.raises(AdminConflict, match="Partition metadata not found"):
        admin.subscriptions.create(ABSENT.of_partition(0), "all")
    with pytest.raises(AdminNotFound):
        admin.subscriptions.names(ABSENT)
    admin.topics.delete_partitioned(name, force=True)


def test_schemas(admin: PulsarAdmin) -> None:
    """Versions of a schema are added and read, one that does not fit is refused, and all are deleted."""
    schemas, name = admin.schemas, topic(admin, f"typed {ODD}")

    def definition(*types: str) -> str:
        fields = [{"name": f"f{n}", "type": ["null", kind], "default": None} for n, kind in enumerate(types)]
        return json.dumps({"type": "record", "name": "Row", "fields": fields})

    assert (schemas.latest(name), schemas.versions(name), schemas.version(name, 0)) == (None, [], None)
    schemas.add(name, "AVRO", definition("int"), {"by": "us"})
    schemas.add(name, "AVRO", definition("int", "int"))
    with pytest.raises(AdminConflict):
        schemas.add(name, "AVRO", definition("string"))
    first, second = schemas.versions(name)
    assert (first.version, first.type, first.properties, json.loads(first.data)) == (
        0,
        "AVRO",
        {"by": "us"},
        json.loads(definition("int")),
    )
    assert schemas.latest(name) == second
    assert schemas.version(name, 0) == first
    assert schemas.version(name, 7) is None
    schemas.delete(name)
    assert schemas.latest(name) is None


def test_compaction(admin: PulsarAdmin) -> None:
    """A compaction is started, and its end is seen."""
    name = topic(admin, "compacted")
    assert admin.topics.compaction(name).status == "NOT_RUN"
    admin.topics.compact(name)
    wait_until_equal("the compaction", lambda: admin.topics.compaction(name).status, "SUCCESS", 30)


def test_a_namespace_moves_to_another_cluster(admin: PulsarAdmin) -> None:
    """The flag of a namespace is set and read; its loaded topics are ended and marked, also once they are unloaded."""
    spaces, name = admin.namespaces, f"{TENANT}/moves"
    spaces.create(name)
    admin.clusters.set_migration(CLUSTER, GREEN, migrated=False)
    moved = TopicName.parse(f"{name}/topic")
    admin.topics.create(moved)
    assert admin.topics.stats(moved).publishers == ()
    spaces.set_migrated(name, migrated=True)
    assert spaces.policies(name).migrated
    wait_for("the topic's end", lambda: admin.topics.internal_info(moved).migrated, 30)
    admin.topics.unload(moved)
    with pytest.raises(AdminServerError, match="already migrated"):
        admin.topics.stats(moved)
    assert admin.topics.internal_info(moved).migrated
    spaces.set_migrated(name, migrated=False)
    assert not spaces.policies(name).migrated
    spaces.delete(name, force=True)


def test_a_path_that_a_broker_lacks(admin: PulsarAdmin) -> None:
    """An unknown path, as on a broker without the plugin of PIP-477, is distinguished from a missing object."""
    with pytest.raises(AdminUnsupported, match="Not Found"):
        admin.bookie_clusters.check()


def test_a_reader_reads_the_same(admin: PulsarAdmin, urls: tuple[str, str], key: TokenKey) -> None:
    """The client without calls for changes can read everything that the full client can read."""
    name = topic(admin, "shown")
    access = AdminAccess(30, Token(SecretStr(key.token(SUPERUSER))), destinations=LOOPBACK_PLAIN)
    with PulsarAdminReader.open(access, urls[:1]) as reader:
        assert reader.topics.internal_info(name) == admin.topics.internal_info(name)
        assert reader.namespaces.policies(SPACE) == admin.namespaces.policies(SPACE)
        assert reader.brokers.version() == admin.brokers.version()
        assert (reader.tenants.names(), reader.clusters.names()) == (admin.tenants.names(), admin.clusters.names())
        assert (reader.subscriptions.names(name), reader.schemas.latest(name)) == ([], None)

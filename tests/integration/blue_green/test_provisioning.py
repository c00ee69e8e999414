"""PROVISION between two real clusters: what blue has is on green afterwards, in the same words."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from activities.blue_green.checks.quotas import green_quotas
from activities.blue_green.provisioning.inventory import read_namespace
from activities.blue_green.provisioning.namespaces import compare_namespace, provision_namespace
from activities.lifecycle.context import ActivityContext
from clients.errors import Superseded
from clients.pulsar.admin.namespaces import BookieAffinity, NamespaceAction
from clients.pulsar.names import TopicName
from models.blue_green.differences import DifferenceKind, Provisioned
from models.releases import parse_release
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import send_to
from tests.support.blue_green.environment import BLUE, GREEN, NAMES, Clusters
from tests.support.blue_green.namespaces import (
    ODD,
    POLICIES,
    TOPIC_POLICIES,
    create_namespace,
    create_topic,
    record,
    set_topic_policies,
)

MISSING, DIFFERS, EXTRA = DifferenceKind.MISSING, DifferenceKind.DIFFERS, DifferenceKind.EXTRA


def nothing() -> None:
    """Accept the attempt: it is neither cancelled nor late."""


def provision(
    clusters: Clusters, namespace: str, *, align: bool = False, fence: Callable[[], None] = nothing
) -> Provisioned:
    """Provision one namespace."""
    return provision_namespace(
        clusters.blue_admin,
        clusters.green_admin,
        namespace,
        names=NAMES,
        release=clusters.green_release,
        fence=fence,
        change_or_never=clusters.change_green,
        align=align,
        context=ActivityContext(),
    )


def kinds(result: Provisioned) -> dict[str, DifferenceKind]:
    """Return what is left, by path."""
    return {difference.path: difference.kind for difference in result.differences}


def schema_versions(clusters: Clusters, topic: TopicName) -> tuple[list[tuple[Any, ...]], ...]:
    """Return number, type, definition and properties of all versions on both sides."""
    return tuple(
        [(version.version, version.type, version.data, version.properties) for version in admin.schemas.versions(topic)]
        for admin in (clusters.blue_admin, clusters.green_admin)
    )


def topic_policies(clusters: Clusters) -> dict[str, Any]:
    """Return every policy that a topic of blue's release can have."""
    release = parse_release(clusters.blue_admin.brokers.version())
    return {name: value for name, value in TOPIC_POLICIES.items() if not release.lacked_topic_policy(name)}


@pytest.fixture(scope="module")
def rich(clusters: Clusters) -> str:
    """A namespace of blue with everything that a namespace can have."""
    admin, name = clusters.blue_admin, "rich/all"
    create_namespace(admin, name, **POLICIES)
    for topic in (create_topic(admin, f"{name}/plain", colour="blue"), create_topic(admin, f"{name}/parts", 3, a="b")):
        set_topic_policies(admin, topic, topic_policies(clusters))
        admin.subscriptions.create(topic, "s/ %ü", replicated=True, properties={"näme": "1/2"})
        admin.subscriptions.create(topic, "plain")
        admin.topic_policies.set(topic, "subscription/s/ %ü/dispatchRate", TOPIC_POLICIES["dispatchRate"])
    for fields in ("a", "ab", "abc"):
        admin.schemas.add(TopicName.parse(f"{name}/parts"), "AVRO", record(*fields), {"fields": fields})
    admin.subscriptions.create(create_topic(admin, f"{name}/{ODD}"), ODD)
    admin.topics.create_partitioned(TopicName.parse(f"non-persistent://{name}/passing"), 2)
    return name


def test_everything_is_copied(clusters: Clusters, rich: str) -> None:
    """After one run nothing differs, cluster names are translated, and a second run changes nothing."""
    before = compare_namespace(
        clusters.blue_admin, clusters.green_admin, rich, names=NAMES, release=clusters.green_release
    )
    assert {difference.kind for difference in before} == {MISSING}
    assert {difference.path for difference in before} >= {
        "tenant rich",
        f"namespace {rich}",
        f"topic persistent://{rich}/plain",
    }
    assert "rich" not in clusters.green_admin.tenants.names()

    done = provision(clusters, rich)
    assert done.differences == ()
    counted = {what: done.created[what] for what in ("tenant", "namespace", "topic", "schema version", "subscription")}
    assert counted == {"tenant": 1, "namespace": 1, "topic": 4, "schema version": 3, "subscription": 5}

    green = clusters.green_admin
    tenant = green.tenants.get("rich")
    assert (set(tenant.admin_roles), tenant.allowed_clusters) == ({"boss", "deputy"}, (GREEN,))
    raw = green.namespaces.policies(rich).raw
    assert raw["replication_clusters"] == [GREEN]
    assert raw["publishMaxMessageRate"] == {GREEN: POLICIES["publishMaxMessageRate"][BLUE]}
    assert green.namespaces.permissions(rich)["näme/1"] == ("functions",)
    for name in ("plain", "parts"):
        topic = TopicName.parse(f"{rich}/{name}")
        policies = green.topic_policies.read(topic, ["s/ %ü"])
        assert policies.keys() == {*topic_policies(clusters), "subscription/s/ %ü/dispatchRate"}
        assert policies["replication"] == [GREEN]
        assert policies["global/maxProducers"] == 30
        assert green.subscriptions.names(topic) != []
    assert green.topics.partitions(TopicName.parse(f"{rich}/parts")) == 3
    assert green.topics.properties(TopicName.parse(f"{rich}/parts")) == {"a": "b"}
    versions = schema_versions(clusters, TopicName.parse(f"{rich}/parts"))
    assert versions[0] == versions[1]
    assert [number for number, *_ in versions[1]] == [0, 1, 2]

    again = provision(clusters, rich, align=True)
    assert (again.created, again.differences) == ({}, ())


def test_bookies_of_a_namespace(clusters: Clusters) -> None:
    """The group of bookies that keeps a namespace's messages is carried; green must have it, and the plan says so."""
    name, group = "affine/one", BookieAffinity(bookkeeper_affinity_group_primary="fast")
    admin, green, path = clusters.blue_admin, clusters.green_admin, "namespace affine/one: bookieAffinityGroup"
    create_namespace(admin, name)
    create_topic(admin, f"{name}/t")
    admin.namespaces.set_bookie_affinity(name, group)
    blue = read_namespace(admin, name)
    assert blue
    assert [blocker.code for blocker in green_quotas(green, blue, None)] == ["GREEN_LACKS_BOOKIE_GROUP"]
    with _bookie_in_group(clusters.green, "fast"):
        assert green_quotas(green, blue, None) == []
        plan = compare_namespace(admin, green, name, names=NAMES, release=clusters.green_release)
        assert (path, MISSING) in [(difference.path, difference.kind) for difference in plan]
        assert provision(clusters, name).differences == ()
        assert green.namespaces.bookie_affinity(name) == group
        assert green.topics.stats(TopicName.parse(f"{name}/t"))
        green.namespaces.set_bookie_affinity(name, BookieAffinity(bookkeeper_affinity_group_primary="slow"))
        assert kinds(provision(clusters, name)) == {path: DIFFERS}
        assert provision(clusters, name, align=True).differences == ()
        assert green.namespaces.bookie_affinity(name) == group


@contextmanager
def _bookie_in_group(stack: Stack, group: str) -> Generator[None]:
    """Put the one bookie of a cluster into a group."""
    url = f"{stack.admin_urls[0]}/admin/v2/bookies"
    bookie = httpx.get(f"{url}/all", timeout=30).raise_for_status().json()["bookies"][0]["bookieId"]
    place, rack = f"{url}/racks-info/{bookie}", {"rack": "/rack-1", "hostname": "localhost"}
    httpx.post(place, params={"group": group}, json=rack, timeout=30).raise_for_status()
    yield
    httpx.delete(place, timeout=30).raise_for_status()


def test_two_at_once(clusters: Clusters) -> None:
    """Two attempts that run at once end as one does."""
    name = "twice/space"
    create_namespace(clusters.blue_admin, name)
    for number in range(6):
        topic = create_topic(clusters.blue_admin, f"{name}/t{number}", number % 3, a="b")
        clusters.blue_admin.subscriptions.create(topic, "s")
        clusters.blue_admin.schemas.add(topic, "AVRO", record("a"))
        clusters.blue_admin.schemas.add(topic, "AVRO", record("a", "b"))
    start = threading.Barrier(2)

    def run(_: int) -> Provisioned:
        start.wait()
        return provision(clusters, name)

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(run, range(2)))
    assert [result.differences for result in both] == [(), ()]
    assert provision(clusters, name) == Provisioned()


def test_drift_is_changed_only_when_asked(clusters: Clusters) -> None:
    """Differences are reported, and changed on green on request; things that only green has are never changed."""
    name = "drift/space"
    blue, green = clusters.blue_admin, clusters.green_admin
    create_namespace(blue, name, **POLICIES)
    topic = create_topic(blue, f"{name}/t", colour="blue")
    set_topic_policies(blue, topic, {"maxProducers": 3})
    blue.subscriptions.create(topic, "s", properties={"a": "b"})
    create_namespace(green, name, **{key: POLICIES[key] for key in ("retention_policies", "properties")})
    green.namespaces.set_properties(name, {"owner": "another team", "only": "here"})
    green.namespaces.grant(name, "stranger", [NamespaceAction.PRODUCE])
    create_topic(green, f"{name}/t", colour="green", size="big")
    set_topic_policies(green, topic, {"maxProducers": 4, "maxConsumers": 5})
    green.subscriptions.create(topic, "s", replicated=True)
    green.subscriptions.create(topic, "other")
    create_topic(green, f"{name}/only")

    reported = kinds(provision(clusters, name))
    space, on = f"namespace {name}: ", f"topic {topic}: "
    differing = {
        f"{space}{'.'.join(path)}"
        for path in (
            ("properties", "owner"),
            ("auth_policies", "namespace_auth", "app"),
            ("backlog_quota_map", "message_age"),
            ("topicDispatchRate", GREEN),
            ("message_ttl_in_seconds",),
            ("subscription_auth_mode",),
        )
    } | {f"{on}property colour", f"{on}policy maxProducers", f"{on}subscription s replicated"}
    extras = {
        f"{space}properties.only",
        f"{space}auth_policies.namespace_auth.stranger",
        f"{on}property size",
        f"{on}policy maxConsumers",
        f"{on}subscription other",
        f"topic persistent://{name}/only",
    }
    assert {path for path, kind in reported.items() if kind is DIFFERS} >= differing
    assert {path for path, kind in reported.items() if kind is EXTRA} == extras
    assert MISSING not in reported.values()
    assert green.topics.properties(topic)["colour"] == "green"
    assert green.namespaces.properties(name)["owner"] == "another team"

    aligned = provision(clusters, name, align=True)
    # The brokers chose the bundles when another client created the namespace.
    remaining = {path: kind for path, kind in kinds(aligned).items() if "Offload" not in path and "offload" not in path}
    # A broker keeps a rate in two places when it is set by itself.
    extras |= {f"{space}clusterDispatchRate.{GREEN}"}
    assert remaining == {**dict.fromkeys(extras, EXTRA), f"{space}bundles": DIFFERS}
    assert {kind for path, kind in kinds(aligned).items() if path not in remaining} == {EXTRA}
    assert aligned.blocking == ()
    assert green.topics.properties(topic) == {"colour": "blue", "size": "big"}
    assert green.namespaces.policies(name).raw["message_ttl_in_seconds"] == POLICIES["message_ttl_in_seconds"]
    assert green.topic_policies.read(topic) == {"maxProducers": 3, "maxConsumers": 5}


def test_partition_counts(clusters: Clusters) -> None:
    """Partitions are never added without being asked for, and more of them than on blue stay a blocker."""
    name = "counts/space"
    blue, green = clusters.blue_admin, clusters.green_admin
    create_namespace(blue, name)
    create_namespace(green, name)
    fewer, more = (create_topic(blue, f"{name}/{topic}", 3) for topic in ("fewer", "more"))
    shape = create_topic(blue, f"{name}/shape")
    for topic in (fewer, more, shape):
        blue.subscriptions.create(topic, "s")
    create_topic(green, f"{name}/fewer", 2)
    create_topic(green, f"{name}/more", 5)
    create_topic(green, f"{name}/shape", 2)
    paths = {f"topic {topic}: partitions" for topic in (fewer, more, shape)}
    result = provision(clusters, name)
    assert kinds(result) == dict.fromkeys(paths, DIFFERS)
    assert {difference.path: difference.creatable for difference in result.differences} == {
        f"topic {fewer}: partitions": True,
        f"topic {more}: partitions": False,
        f"topic {shape}: partitions": False,
    }
    aligned = provision(clusters, name, align=True)
    assert kinds(aligned) == dict.fromkeys(paths - {f"topic {fewer}: partitions"}, DIFFERS)
    assert green.topics.partitions(fewer) == 3
    assert {tuple(green.subscriptions.names(fewer.of_partition(number))) for number in range(3)} == {("s",)}


def test_schema_history(clusters: Clusters) -> None:
    """Versions get the same numbers also where others were deleted, or came while another rule held."""
    name = "schemas/space"
    blue = clusters.blue_admin
    create_namespace(blue, name)
    deleted, wild, pairs = (create_topic(blue, f"{name}/{topic}") for topic in ("deleted", "wild", "pairs"))
    for fields in ("a", "ab", "abc"):
        blue.schemas.add(deleted, "AVRO", record(*fields))
    blue.schemas.delete(deleted)
    blue.schemas.add(deleted, "JSON", record("z"))
    blue.namespaces.set_schema_compatibility(name, "ALWAYS_COMPATIBLE")
    for number, kind in enumerate(("string", "int", "string")):
        fields = [{"name": "f" if number < 2 else "g", "type": kind}]
        blue.schemas.add(wild, "AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))
    blue.namespaces.set_schema_compatibility(name, "FULL")
    encoding = {
        "key.schema.name": "k",
        "key.schema.type": "STRING",
        "key.schema.properties": "{}",
        "value.schema.name": "v",
        "value.schema.type": "AVRO",
        "value.schema.properties": "{}",
        "kv.encoding.type": "SEPARATED",
    }
    blue.schemas.add(pairs, "KEY_VALUE", json.dumps({"key": "", "value": json.loads(record("a"))}), encoding)

    assert provision(clusters, name).differences == ()
    for topic, numbers in ((deleted, [4]), (wild, [0, 1, 2]), (pairs, [0])):
        there, here = schema_versions(clusters, topic)
        assert here == there
        assert [number for number, *_ in here] == numbers
    # The rule that was lifted for a moment holds again.
    assert clusters.green_admin.topic_policies.read(wild) == {}
    assert clusters.green_admin.topics.properties(wild) == {}
    assert provision(clusters, name).created == {}


def test_a_late_attempt_changes_nothing(clusters: Clusters) -> None:
    """The fence is asked before each change; from the moment on that it refuses nothing more is created."""
    name = "late/space"
    create_namespace(clusters.blue_admin, name)
    for number in range(4):
        create_topic(clusters.blue_admin, f"{name}/t{number}")
    calls_before_the_fence = [3]

    def fence() -> None:
        calls_before_the_fence[0] -= 1
        if calls_before_the_fence[0] < 0:
            raise Superseded("another attempt continues")

    with pytest.raises(Superseded):
        provision(clusters, name, fence=fence)
    assert clusters.green_admin.namespaces.names("late") == [name]
    assert len(clusters.green_admin.topics.names(name)) == 1
    assert provision(clusters, name).differences == ()


def test_clusters_that_green_does_not_know(clusters: Clusters) -> None:
    """A namespace that is replicated to a third cluster is not created, and green's error is reported."""
    blue, name = clusters.blue_admin, "far/space"
    blue.clusters.create("far", clusters.green_urls)
    create_namespace(blue, "far/near")
    tenant = blue.tenants.get("far")
    blue.tenants.update("far", tenant.model_copy(update={"allowed_clusters": (BLUE, "far")}))
    blue.namespaces.create(name, {"replication_clusters": [BLUE, "far"]})
    far, near = provision(clusters, name), provision(clusters, "far/near")
    assert kinds(far) == {"tenant far: allowedClusters": DIFFERS, f"namespace {name}": MISSING}
    assert all("far" in difference.green for difference in far.differences if difference.kind is MISSING)
    assert far.blocking == far.differences
    assert kinds(near) == {"tenant far: allowedClusters": DIFFERS}
    # Other modules know of one cluster.
    blue.namespaces.set_policy(name, ("replication_clusters",), [BLUE])
    blue.tenants.update("far", tenant)
    blue.clusters.delete("far")


def test_messages_on_green(clusters: Clusters) -> None:
    """A topic of green that is not empty is a difference of its own, since subscriptions there begin at its start."""
    name = "busy/space"
    create_namespace(clusters.blue_admin, name)
    topic = create_topic(clusters.blue_admin, f"{name}/t")
    clusters.blue_admin.subscriptions.create(topic, "s")
    assert provision(clusters, name).differences == ()
    send_to(clusters.green.broker_url, [str(topic)])
    result = provision(clusters, name)
    assert kinds(result) == {f"topic {topic}": DifferenceKind.GREEN_HAS_MESSAGES}
    assert result.blocking == result.differences
    assert result.differences[0].green == "backlogs: s 1"


def test_a_subscription_that_is_on_some_partitions_only(clusters: Clusters) -> None:
    """A subscription that a failed attempt made on one partition only is completed."""
    name = "partly/space"
    create_namespace(clusters.blue_admin, name)
    topic = create_topic(clusters.blue_admin, f"{name}/t", 3)
    clusters.blue_admin.subscriptions.create(topic, "s")
    create_namespace(clusters.green_admin, name)
    create_topic(clusters.green_admin, f"{name}/t", 3)
    clusters.green_admin.subscriptions.create(topic.of_partition(1), "s")
    done = provision(clusters, name)
    assert (done.created, done.differences) == ({"subscription": 1}, ())
    green = read_namespace(clusters.green_admin, name)
    assert green
    assert len(green.topics[topic].subscriptions["s"].parts) == 3

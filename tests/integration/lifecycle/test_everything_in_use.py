"""A cluster that uses all that can be set up with one broker, in the dry run of each migration."""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator
from typing import Any

import httpx
import pytest

from models.blue_green.input import BlueGreenInput
from models.bookie_cluster.input import BookieClusterInput
from models.coverage.results import FeatureUse
from models.coverage.table import coverage
from models.lifecycle.input import MigrationInput
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from models.releases import Behaviour, parse_release
from models.scalable_topic.input import ScalableTopicInput
from pulsar_devstack.servers.server_releases import chosen_release
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.policies import POLICIES, make_namespace
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exhaustive

CLUSTER, NAMESPACE = "everything", "public/used"
TOPIC = f"persistent://{NAMESPACE}/orders"
_BROKER = {
    "transactionCoordinatorEnabled": "true",
    "autoSkipNonRecoverableData": "true",
    "webSocketServiceEnabled": "true",
    "brokerDeduplicationEnabled": "true",
    "configurationMetadataSyncEventTopic": "persistent://public/default/sync",
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "maxMessageSize": "1000000",
    "delayedDeliveryTrackerFactoryClassName": "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
}
_USED = {
    "TRANSACTIONS",
    "SKIPPED_LEDGERS",
    "WEBSOCKET",
    "DEDUPLICATION",
    "METADATA_SYNC",
    "ENTRY_METADATA",
    "DELAYED_DELIVERY",
    "RETENTION",
    "PERSISTENCE",
    "LIMITS_AND_RATES",
    "AUTO_CREATION",
    "PROPERTIES",
    "ISOLATION",
    "PERMISSIONS",
    "SCHEMAS",
    "OFFLOAD",
    "BOOKIE_AFFINITY",
    "METADATA_STORE",
    "CLUSTERS_AND_TENANTS",
    "LEDGERS",
}
_OF_TOPICS: set[str] = {"CHUNKED_MESSAGES", "COMPACTION", "CLIENT_VERSIONS"}


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A cluster with all of it, by its broker's settings, its policies, and one topic."""
    made = make_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, cluster=CLUSTER))
    broker = made.reconfigure("broker-1", **_BROKER)
    broker.restart()
    base = f"{made.admin_urls[0]}/admin/v2"
    make_namespace(made, NAMESPACE, POLICIES)
    with httpx.Client(timeout=60, trust_env=False) as client:
        client.put(f"{base}/persistent/{NAMESPACE}/orders").raise_for_status()
        threshold = f"{base}/persistent/{NAMESPACE}/orders/compactionThreshold"
        wait_for("policies of topics", lambda: client.post(threshold, json=1_000_000).is_success, 60)
    return made


@pytest.fixture(scope="module")
def clients(stack: Stack) -> Generator[None]:
    """A producer of chunks and a consumer, of the real client library, connected to the topic."""
    # The library has no types.
    pulsar: Any = importlib.import_module("pulsar")
    client = pulsar.Client(stack.broker_url)
    consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(TOPIC, chunking_enabled=True, batching_enabled=False)
    producer.send(b"x" * 2_500_000)
    consumer.receive(timeout_millis=30_000)
    with httpx.Client(base_url=stack.admin_urls[0], timeout=60, trust_env=False) as admin:
        stats = f"/admin/v2/persistent/{NAMESPACE}/orders/stats"
        wait_for("statistics of chunks", lambda: admin.get(stats).json()["msgChunkPublished"], 120)
    yield
    client.close()


def inputs(stack: Stack) -> dict[str, MigrationInput]:
    """Return a dry run of each migration; missing targets are blockers of their own."""
    elsewhere = "127.0.0.1:9"
    cluster = {"metadata_url": stack.zk_url, "admin_urls": stack.admin_urls}
    green = {
        "metadata_url": f"zk:{elsewhere}",
        "admin_urls": [f"http://{elsewhere}"],
        "service_url": f"http://{elsewhere}",
        "broker_service_url": f"pulsar://{elsewhere}",
    }
    blue = {**cluster, "service_url": stack.admin_urls[0], "broker_service_url": stack.broker_url}
    plan: dict[str, Any] = {"cluster": CLUSTER, "dry_run": True}
    bookies = {"name": "a", "metadataServiceUri": stack.bookkeeper_uri}
    target = {"name": "b", "metadataServiceUri": f"zk://{elsewhere}/ledgers"}
    return {
        "metadata-store": MetadataStoreInput.model_validate(
            {"hold_before_cutover": False, **plan, "source": stack.zk_url, "target": f"oxia://{elsewhere}"}
        ),
        "bookie-cluster": BookieClusterInput.model_validate(
            {
                "hold_before_cutover": False,
                **plan,
                "metadata_url": stack.zk_url,
                "source": bookies,
                "target": target,
                "routing": "restart",
            }
        ),
        "blue-green": BlueGreenInput.model_validate(
            {
                "hold_before_cutover": False,
                **plan,
                "green_cluster": "green",
                "blue": blue,
                "green": green,
                "namespaces": [NAMESPACE],
            }
        ),
        "scalable-topic": ScalableTopicInput.model_validate({**plan, **cluster, "topic": TOPIC}),
    }


@pytest.mark.parametrize("kind", ["metadata-store", "bookie-cluster", "blue-green", "scalable-topic"])
@pytest.mark.usefixtures("clients")
def test_each_dry_run_names_all_that_is_in_use(stack: Stack, environment: Environment, kind: str) -> None:
    """The dry run reports each feature with its outcome, and stops for those that it refuses or asks about."""
    report: Report = environment.operator.run(inputs(stack)[kind])
    assert report.outcome is Outcome.PLANNED
    uses: dict[str, FeatureUse] = {use.feature: use for use in report.features}
    with_topics = kind == "scalable-topic" and _has_scalable_topics()
    expected = _USED | _OF_TOPICS if with_topics else _USED
    assert expected - uses.keys() == set()
    rows = {row.id: row for row in coverage().features}
    for name, use in uses.items():
        assert (use.outcome, use.how) == (rows[name].cell(kind).outcome, rows[name].cell(kind).text)
    asked = {name for name in uses if rows[name].cell(kind).by_census}
    assert asked
    assert {name for name in asked if f"[{name}]" not in report.summary} == set()


def test_accepted_decisions_are_reported(stack: Stack, environment: Environment) -> None:
    """An accepted decision is not a blocker any more, and the report says that it was accepted."""
    input = inputs(stack)["bookie-cluster"]
    report: Report = environment.operator.run(input.model_copy(update={"accept": ("BOOKIE_AFFINITY",)}))
    assert "[BOOKIE_AFFINITY]" not in report.summary
    assert [use.feature for use in report.features if use.accepted] == ["BOOKIE_AFFINITY"]


def test_an_unknown_policy_stops_each_dry_run(stack: Stack, environment: Environment) -> None:
    """A field of a namespace's policies that no table knows is a blocker of every migration."""
    path = f"/admin/policies/{NAMESPACE}"
    with stores.kazoo(stack.zk_url) as zookeeper:
        value, _ = zookeeper.get(path)
        zookeeper.set(path, json.dumps({**json.loads(value), "futurePolicy": True}).encode())
        summaries = {kind: environment.operator.run(plan).summary for kind, plan in inputs(stack).items()}
        zookeeper.set(path, value)
    assert {kind for kind, text in summaries.items() if "unknown policy futurePolicy: public/used" not in text} == set()


def _has_scalable_topics() -> bool:
    return parse_release(chosen_release().version).has(Behaviour.SCALABLE_TOPICS)

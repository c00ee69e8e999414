"""Topics become scalable by the migration while V5 clients use them, on two brokers; the audit misses nothing."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from models.lifecycle.status import Outcome
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.layout_watch import LayoutWatch
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan, scalable_topics
from pulsar_devstack.traffic.scalable_traffic import Absence, ScalableTraffic
from tests.support.blue_green.namespaces import create_namespace
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import SharedStack

SPACE = "traffic/space"
TOPICS = 4


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers: who leads a topic need not have its segments."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.fixture
def topics(admin: PulsarAdmin) -> list[ScalableTopicPlan]:
    """Regular topics without and with partitions, and with and without ordered subscriptions."""
    create_namespace(admin, SPACE)
    topics = scalable_topics(SPACE, TOPICS)
    for plan in topics:
        name = TopicName.parse(plan.topic)
        if plan.partitions:
            admin.topics.create_partitioned(name, plan.partitions)
        else:
            admin.topics.create(name)
    return topics


@pytest.fixture
def traffic(
    stack: Stack, admin: PulsarAdmin, topics: list[ScalableTopicPlan], toolchain: Toolchain, tmp_path: Path
) -> Generator[ScalableTraffic]:
    """Their clients."""
    with ScalableTraffic(
        stack.broker_url,
        admin,
        topics,
        tmp_path,
        with_scalable_clients(toolchain),
        absence=Absence(returns=2, waits=10),
    ) as traffic:
        yield traffic


@pytest.fixture
def watch(store: CasStore, admin: PulsarAdmin, topics: list[ScalableTopicPlan]) -> Generator[LayoutWatch]:
    """Yield a watch of the topics' layouts."""
    with LayoutWatch(store, admin, topics) as watch:
        yield watch


def test_nothing_is_lost_doubled_or_late(
    stack: Stack, admin: PulsarAdmin, environment: Environment, traffic: ScalableTraffic, watch: LayoutWatch
) -> None:
    """Subscriptions of all types get every message in order, also after an absence, and every parent is read."""
    traffic.wait_for_more(20)
    traffic.step_aside()
    report = environment.operator.run(_input(stack, admin))
    # Clients may make a broker the leader of a topic before the migration has marked its parents.
    failed = [item for items in report.failed_items for item in items.items]
    assert report.outcome is (Outcome.DONE_WITH_FAILURES if failed else Outcome.DONE), report
    assert [item for item in failed if "before its regular topic could be marked" not in item.reason] == []
    assert watch.merged == 0
    assert traffic.wait_until_all_are_back() == {}
    traffic.wait_for_more(20)
    assert traffic.stop().faults() == []
    assert watch.pruned_unread == 0


def _input(stack: Stack, admin: PulsarAdmin) -> ScalableNamespaceInput:
    return ScalableNamespaceInput.model_validate(
        {
            "cluster": admin.brokers.runtime_configuration()["clusterName"],
            "metadata_url": stack.metadata_url,
            "admin_urls": stack.admin_urls,
            "topics": [f"{SPACE}/*"],
            "hold_before_cutover": False,
            "grace_window": "PT0S",
            "waves": {"gate": "none", "deadline": "P2D"},
        }
    )

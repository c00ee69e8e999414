"""Consumers that acknowledge cumulatively, sent to a cluster with lower or with higher ledger ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from activities.blue_green.provisioning.ledger_ids import compare_ids, raise_ids, renew_ledgers
from clients.bookkeeper.idgen import raise_generator
from clients.stores import Access
from clients.zookeeper.coordination import Coordination
from models.store_url import parse_store_url
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.audit import DeliveryAudit
from pulsar_devstack.traffic.plan import MOVABLE, ConsumerPlan, Language, ProducerPlan, Subscribed, TopicPlan
from pulsar_devstack.traffic.runner import Traffic
from pulsar_devstack.traffic.two_clusters import TwoClusters, flip_when_idle, pieces
from tests.support.blue_green.environment import Clusters

_MESSAGES = 100


@pytest.mark.exhaustive
def test_cumulative_consumers_follow_when_ids_are_above(
    clusters: Clusters, toolchain: Toolchain, tmp_path: Path
) -> None:
    """A Python consumer that acknowledges cumulatively gets nothing from green while its ids are lower than blue's.

    The Java one does. After green's ids were raised, which is harmless when done twice, nothing is lost.
    """
    input, access = clusters.input(), Access()
    before = compare_ids(input, access, access)
    assert before is not None
    with Coordination(parse_store_url(f"{clusters.blue.metadata_url}/ledgers")) as generator:
        raise_generator(generator, before.green)
    low = _flip(clusters, "ids/low", toolchain, tmp_path)
    assert low.dead_consumers == ("ids-low-python",)

    raised = raise_ids(input, access, access, _counted(calls := []))
    assert raised is not None
    assert raised.enough
    assert raise_ids(input, access, access, _counted(calls)) is not None
    assert len(calls) == 1
    # The topics of the first flip have ledgers below; those of a namespace that is not there are none.
    names, admin = ["ids/low", "ids/none"], clusters.green_admin
    assert renew_ledgers(admin, clusters.change_green, names, raised, _counted(calls)) >= len(MOVABLE)
    assert _flip(clusters, "ids/high", toolchain, tmp_path).faults() == []


def _counted(calls: list[None]) -> Callable[[], None]:
    return lambda: calls.append(None)


def _flip(clusters: Clusters, namespace: str, tools: Toolchain, folder: Path) -> DeliveryAudit:
    two = TwoClusters(clusters.blue_admin, clusters.green_admin, clusters.blue.broker_url, clusters.green_urls)
    plans = [_plan(namespace, language) for language in MOVABLE]
    two.prepare(namespace, plans)
    with Traffic.in_programs(two.blue_url, plans, folder, tools) as traffic:
        traffic.wait_for_more(_MESSAGES)
        flip_when_idle(two, namespace, [piece for plan in plans for piece in pieces(plan)])
        traffic.wait_for_more(_MESSAGES)
        return traffic.stop(limit=20)


def _plan(namespace: str, reader: Language) -> TopicPlan:
    topic = f"persistent://{namespace}/{reader.value}"
    producer = ProducerPlan(f"{namespace}/to-{reader.value}", topic, Language.JAVA)
    name = f"{namespace.replace('/', '-')}-{reader.value}"
    return TopicPlan(topic, 0, (producer,), (ConsumerPlan(name, topic, reader, Subscribed.EXCLUSIVE, cumulative=True),))

"""Topics whose use a flip would break are refused: in PRECHECK, in LOAD, and while writes are held back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from activities.blue_green import cluster
from activities.blue_green.batch import flip
from activities.blue_green.checks.use import await_movable
from activities.blue_green.precheck import precheck
from clients.errors import StoreConflict
from clients.pulsar.admin.clusters import ClusterUrls
from clients.pulsar.admin.tenants import Tenant
from models.blue_green.results import Precheck
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client, send_to
from tests.support.blue_green.environment import BLUE, BLUE_SPEC, GREEN_SPEC, Clusters, open_clusters
from tests.support.blue_green.steps import Steps, make_namespace, take
from tests.support.clients.java_messages import JavaMessages
from tests.support.stacks import MakeStack, SharedStack
from tests.support.waiting import wait_for

LARGE = b"x" * 2_500_000
NOWHERE = ClusterUrls(service_url="http://127.0.0.1:1", broker_service_url="pulsar://127.0.0.1:1")


def causes(result: Precheck) -> dict[str, str]:
    """Return causes of blockers by their codes."""
    return {blocker.code: blocker.cause for blocker in result.blockers}


@pytest.mark.exhaustive
def test_messages_in_chunks(clusters: Clusters) -> None:
    """A topic that takes chunks is refused until its broker loads it again, and again before writes are held back."""
    namespace = "cut/chunks"
    large, plain = make_namespace(clusters, namespace, "large", "plain")
    steps = Steps(clusters, namespace)
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        producer = client.create_producer(str(large), chunking_enabled=True, batching_enabled=False)
        client.create_producer(str(plain)).send(b"plain")
        producer.send(b"small")
        assert causes(steps.whole(precheck)) == {}
        producer.send(LARGE)
        # Brokers notice chunks when they count rates, once a minute.
        wait_for("the broker to notice it", lambda: clusters.blue_admin.topics.stats(large).msg_chunk_published, 90)
        blockers = causes(steps.whole(precheck))
        assert blockers.keys() == {"BLUE_CHUNKED_MESSAGES"}
        assert (str(large) in blockers["BLUE_CHUNKED_MESSAGES"], str(plain) in blockers["BLUE_CHUNKED_MESSAGES"]) == (
            True,
            False,
        )
        with pytest.raises(StoreConflict, match="in chunks"):
            steps.begin()
        clusters.blue_admin.topics.unload(large)
        assert causes(steps.whole(precheck)) == {}
        steps.begin()
        producer.send(LARGE)
        wait_for("the broker to notice it", lambda: clusters.blue_admin.topics.stats(large).msg_chunk_published, 90)
        with pytest.raises(StoreConflict, match="in chunks"):
            steps.quiesce()
        steps.end()


def test_a_message_that_the_flip_would_cut_in_two(clusters: Clusters) -> None:
    """While a message is incomplete nothing is flipped; when writes continue, all its chunks arrive on blue."""
    namespace = "cut/in-two"
    (topic,) = make_namespace(clusters, namespace, "topic")
    clusters.blue_admin.subscriptions.create(topic, "s")
    steps = Steps(clusters, namespace)
    steps.begin()
    sent: list[object] = []

    def note(result: object, _: object) -> None:
        sent.append(result)

    with closing(quiet_client(clusters.blue.broker_url)) as client:
        producer = client.create_producer(
            str(topic), chunking_enabled=True, batching_enabled=False, send_timeout_millis=120_000
        )
        assert not steps.quiesce().busy
        producer.send_async(LARGE, note)
        wait_for("the first chunk", lambda: clusters.blue_admin.topics.stats(topic).msg_in_counter, 20)
        with pytest.raises(StoreConflict, match=r"1 of 3 by blue-"):
            steps.batch(flip.flip)
        assert sent == []
        steps.end()
        wait_for("the other chunks", lambda: sent, 60)
    assert {*sent} == {pulsar.Result.Ok}
    # More if the connection was closed, which the broker did not read for so long: then the client sends again.
    assert clusters.blue_admin.topics.internal_stats(topic).number_of_entries >= 3


@pytest.mark.exhaustive
def test_replication_to_a_cluster_that_is_down(clusters: Clusters) -> None:
    """Replication to a cluster that is down is refused before a topic is terminated; so are copies."""
    namespace = "cut-off/replicated"
    blue, green = clusters.blue_admin, clusters.green_admin
    blue.clusters.create("nowhere", NOWHERE)
    (topic,) = make_namespace(clusters, namespace, "topic")
    blue.tenants.update("cut-off", Tenant(allowed_clusters=(BLUE, "nowhere")))
    steps = Steps(clusters, namespace, idle_subscriptions="copy", quiesce_timeout="PT1S")
    try:
        blue.namespaces.set_policy(namespace, ("replication_clusters",), [BLUE, "nowhere"])
        wait_for("a replicator", lambda: "nowhere" in blue.topics.stats(topic).replication, 20)
        send_to(clusters.blue.broker_url, [str(topic)])
        wait_for("a backlog", lambda: blue.topics.stats(topic).replication["nowhere"].replication_backlog, 20)
        green.clusters.create("nowhere", ClusterUrls())
        result = steps.whole(precheck)
        blockers = causes(result)
        assert {"BLUE_REPLICATOR_DOWN", "COPY_REPLICATED", "GREEN_LACKS_CLUSTER"} <= blockers.keys()
        assert f"{topic} (nowhere)" in blockers["BLUE_REPLICATOR_DOWN"]
        assert "has no address of nowhere" in blockers["GREEN_LACKS_CLUSTER"]
        assert result.replicated_to == ("nowhere",)
        steps.whole(cluster.register)
        with steps.task() as task, task.blue.store() as store:
            guards = take(task, store, [namespace])
            with pytest.raises(StoreConflict, match="nowhere is not connected"):
                await_movable(task, guards, drained=False)
        steps.end()
    finally:
        blue.namespaces.set_policy(namespace, ("replication_clusters",), [BLUE])
        blue.namespaces.delete(namespace, force=True)
        blue.tenants.update("cut-off", Tenant(allowed_clusters=(BLUE,)))
        for admin in (blue, green):
            admin.clusters.delete("nowhere")


@pytest.fixture(scope="module")
def with_transactions(make_stack: MakeStack, shared_stack: SharedStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """Blue with coordinators of transactions."""
    settings = {**BLUE_SPEC.broker_settings, "transactionCoordinatorEnabled": "true"}
    spec = BLUE_SPEC.model_copy(update={"brokers": 1, "broker_settings": settings})
    with open_clusters(make_stack(spec, tools=blue_tools), shared_stack(GREEN_SPEC)) as both:
        yield both


@pytest.mark.exhaustive
def test_transactions(with_transactions: Clusters, toolchain: Toolchain, tmp_path: Path) -> None:
    """A topic that transactions use is refused; once its broker has loaded it again, their traces are a question."""
    clusters, namespace = with_transactions, "cut/transactions"
    used, plain = make_namespace(clusters, namespace, "used", "plain")
    steps = Steps(clusters, namespace)
    with closing(quiet_client(clusters.blue.broker_url)) as client:
        client.subscribe(str(plain), "s")
        client.create_producer(str(plain)).send(b"plain")
    before = steps.whole(precheck)
    assert (causes(before), before.questions) == ({}, ())
    with JavaMessages(toolchain, tmp_path) as java:
        java.transact(clusters.blue.broker_url, str(plain), [], subscription="s", acknowledge=[b"plain"], commit=True)
        acknowledged = steps.whole(precheck)
        assert causes(acknowledged) == {}
        assert "transactions were used" in acknowledged.questions[0]
        assert acknowledged.questions[0].endswith(f"{plain}-s__transaction_pending_ack")
        for commit in (True, False):
            java.transact(clusters.blue.broker_url, str(used), [b"in"], subscription="s", acknowledge=[], commit=commit)
    blockers = causes(steps.whole(precheck))
    assert blockers.keys() == {"BLUE_TRANSACTIONS"}
    assert f"{used} (1 committed, 1 aborted)" in blockers["BLUE_TRANSACTIONS"]
    with pytest.raises(StoreConflict, match="used in transactions"):
        steps.begin()
    clusters.blue_admin.topics.unload(used)
    after = steps.whole(precheck)
    assert causes(after) == {}
    (question,) = after.questions
    assert "transactions were used" in question
    steps.end()

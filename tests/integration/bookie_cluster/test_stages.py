"""The stages of PIP-477, "Rollout Plan", with routing `attribution`: P2 to P6, named so, on real servers.

The tests share one cluster and run in their order: each starts where the one before left the cluster. The plugin's
double says what is not real: new ledgers are not stamped, and a broker reads the one cluster that it is started on.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from temporalio.client import WorkflowUpdateFailedError

from clients.pulsar.attribution import set_schema_attribution
from clients.pulsar.names import TopicName
from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CleanupTargets
from models.bookie_cluster.updates import CleanupOrder, ClientClosing, Concurrency, ReadModeChange
from models.bookie_registry import ReadMode
from models.lifecycle.failures import failed_lines
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import Speed, Verb, VerbRequest
from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from pulsar_devstack.traffic.runner import Traffic
from tests.support.bookie_cluster import cursor_node
from tests.support.bookie_cluster.attributed import NEW, OLD, Attributed, ledgers, stamps, without_stamps
from tests.support.bookie_cluster.plugin_double import announce_doubles
from tests.support.clients.java_ledgers import JavaLedgers
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.operator import Run
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

SECOND = ("second-bookie-1", "second-bookie-2")
REGISTRY = "/admin/bookie-clusters"
SCHEMAS = {"orders": 3, "plain": 2}
"""Topics with a schema, and how many versions it has; `orders` names the old cluster, `plain` names none."""
CURSOR = "/managed-ledgers/public/default/persistent/held/sub"
LIMIT = 240.0
GONE = "BKNoSuchLedgerExistsOnMetadataServerException"
SLOW = 0.0001
"""Megabytes per second: at this pace a few schemas take many seconds."""


class Positions(NamedTuple):
    """Ledger positions in the metadata: the nodes of schemas by topic, and the node of the cursor."""

    schemas: dict[str, bytes]
    cursor: bytes


class Scene(Attributed):
    """The cluster of this module, with the switch that runs."""

    run: Run

    def switch(self, **more: object) -> BookieClusterInput:
        """Return the plan from the old cluster to the new one."""
        input = self.input.model_dump(mode="json")
        return BookieClusterInput.model_validate(
            {"hold_before_cutover": False, **input, "advance_ids": True, "cleanup": "remove", **more}
        )

    def positions(self) -> Positions:
        """Return the positions that are watched."""
        return Positions({topic: self.locator(topic) for topic in SCHEMAS}, self.zookeeper.get(CURSOR)[0])

    def moved(self) -> list[int]:
        """Return the ledgers of these positions."""
        positions = self.positions()
        return [
            *(ledger for node in positions.schemas.values() for ledger in ledgers(node)),
            cursor_ledger(positions.cursor),
        ]

    def registry(self, name: str) -> dict[str, Any]:
        """Return a node of the registry."""
        return json.loads(self.zookeeper.get(f"{REGISTRY}/{name}")[0])

    def statuses(self) -> dict[str, str]:
        """Return the status of each registered cluster."""
        return {name: self.registry(name)["status"] for name in (OLD, NEW)}

    def versions(self) -> dict[str, list[int]]:
        """Return the number of fields in each version of each schema, as a broker reads them."""
        return {topic: self.schemas(topic) for topic in SCHEMAS}

    @contextmanager
    def traffic(self) -> Generator[Traffic]:
        """Run producers and consumers that must not notice anything."""
        with Traffic.here(self.stack.broker_url, ["flow-0", "flow-1"]) as traffic:
            traffic.wait_for_more(10)
            yield traffic
            traffic.wait_for_more(10)
            assert traffic.verify() > 0


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two bookie clusters of two bookies each, and a broker."""
    return make_stack(
        StackSpec(zookeepers=1, bookies=2, second_bookies=2, brokers=1, cluster="stages"), announce_doubles
    )


@pytest.fixture(scope="module")
def scene(stack: Stack) -> Generator[Scene]:
    """Schemas of several versions, and a cursor with a closed ledger, which a crash of its broker leaves."""
    with Scene(stack) as scene:
        for topic, versions in SCHEMAS.items():
            for number in range(1, versions + 1):
                scene.put_schema(topic, number)
        acknowledge_some(scene)
        scene.crash_brokers(lambda: name_the_old(scene))
        scene.admin.topics.internal_stats(TopicName.parse("held"))
        yield scene
        assert scene.double.violations == []


@pytest.fixture(scope="module")
def java(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[JavaLedgers]:
    """BookKeeper's own client."""
    with JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as java:
        yield java


def acknowledge_some(scene: Scene) -> None:
    """Leave a cursor with an open ledger."""
    client = quiet_client(scene.stack.broker_url)
    consumer = client.subscribe(topic_url("held"), "sub", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic_url("held"))
    for number in range(10):
        producer.send(str(number).encode())
    for _ in range(4):
        consumer.acknowledge(consumer.receive(30_000))
    wait_for("the cursor's ledger", lambda: cursor_ledger(scene.zookeeper.get(CURSOR)[0]) >= 0, 30)
    client.close()


def name_the_old(scene: Scene) -> None:
    """Give `orders` and the cursor their attribution, as brokers with the plugin do."""
    scene.set_node("/schemas/public/default/orders", set_schema_attribution(scene.locator("orders"), None, OLD) or b"")
    node = scene.zookeeper.get(CURSOR)[0]
    scene.set_node(CURSOR, cursor_node.attributed(node, OLD))


def cursor_ledger(node: bytes) -> int:
    """Return the ledger of a cursor, -1 for none."""
    return cursor_node.ledger_of(node)


def cursor_stamp(node: bytes) -> str | None:
    """Return the attribution of a cursor."""
    return cursor_node.properties(node).get(cursor_node.ATTRIBUTION)


def unattributed(positions: Positions) -> tuple[object, bytes]:
    """Return all bytes except the attributions."""
    schemas = {topic: without_stamps(node) for topic, node in positions.schemas.items()}
    return schemas, cursor_node.without_properties(positions.cursor)


def attributions(positions: Positions) -> set[str | None]:
    """Return every cluster that a watched position names."""
    return {cursor_stamp(positions.cursor), *(stamp for node in positions.schemas.values() for stamp in stamps(node))}


def contents(java: JavaLedgers, uri: str, ids: list[int]) -> list[tuple[object, ...]]:
    """Return what BookKeeper's client reads of ledgers, without the bookies that have them."""
    contents = java.read(uri, ids)
    assert [content.error for content in contents] == [None] * len(ids)
    return [content._replace(segments={}) for content in contents]


def errors(java: JavaLedgers, uri: str, ids: list[int]) -> set[str | None]:
    """Return the errors of reading these ledgers."""
    return {content.error for content in java.read(uri, ids)}


def refusal(run: Run, name: str, argument: object) -> str:
    """Return why an update is refused."""
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        run.update(name, argument, dict)
    return str(refused.value.cause)


def wait_for_census(run: Run) -> Status:
    """Wait until the window is open and its first census done."""
    return run.wait_until(
        "the census",
        lambda status: status.phase == Phase.ROLLBACK_WINDOW and "misrouted_ledgers" in status.facts,
        LIMIT,
    )


def test_p2_standby_and_precheck_change_nothing(scene: Scene, environment: Environment, java: JavaLedgers) -> None:
    """P2: a cluster is prechecked; traffic, business nodes and target do not notice, and a refusal leaves nothing."""
    before = scene.positions()
    with scene.traffic():
        refused = environment.operator.refusal(scene.switch(advance_ids=False))
        dry = environment.operator.run(scene.switch(dry_run=True))

    assert refused.type == "PrecheckFailed"
    assert "TARGET_IDS_TOO_LOW" in refused.message
    assert dry.outcome is Outcome.PLANNED
    assert dry.summary.startswith("ready:"), dry.summary
    assert scene.zookeeper.exists(REGISTRY) is None
    assert scene.positions() == before
    assert errors(java, scene.stack.second_bookkeeper_uri, scene.moved()) == {GONE}


def test_p3_switch_leaves_positions_as_they_are(scene: Scene, environment: Environment, java: JavaLedgers) -> None:
    """P3: brokers are directed to the target, and ledger and entry ids of all positions keep their bytes."""
    before = scene.positions()
    with scene.traffic():
        scene.run = environment.operator.start(scene.switch(deletion_delay="PT24H"))
        status = wait_for_census(scene.run)

        target = scene.registry("switch-target")
        assert (target["target"], target["epoch"]) == (NEW, 1)
        assert target["origin"].startswith("temporal:bookie-cluster/stages/")
        assert scene.statuses() == {OLD: "ACTIVE", NEW: "STANDBY"}
        assert scene.registry(NEW)["metadataServiceUri"] == scene.stack.second_bookkeeper_uri
        after = scene.positions()
        assert unattributed(after) == unattributed(before)
        assert attributions(after) == {NEW}
        assert status.failed_items == []
        assert scene.versions() == {topic: list(range(1, count + 1)) for topic, count in SCHEMAS.items()}
    ids = scene.moved()
    assert contents(java, scene.stack.second_bookkeeper_uri, ids) == contents(java, scene.stack.bookkeeper_uri, ids)


def test_operator_verbs_in_the_window(scene: Scene) -> None:
    """Brokers get the read mode; verbs that make no sense or do harm in the window are refused with the reason."""
    run = scene.run
    run.update("set_read_mode", ReadModeChange(mode=ReadMode.NEW_CLUSTER_ONLY), ReadModeChange)
    assert scene.double.read_modes == {"broker-1": "NEW_CLUSTER_ONLY"}
    assert scene.registry("read-mode")["mode"] == "NEW_CLUSTER_ONLY"

    assert "is not the cluster that this switch leaves" in refusal(run, "close_client", ClientClosing(cluster=NEW))
    assert "are still needed" in refusal(run, "close_client", ClientClosing(cluster=OLD))
    assert scene.double.closed == []
    assert "no ledgers are copied" in refusal(run, "set_throttle", Speed(megabytes_per_second=1))
    assert "no ledgers are copied" in refusal(run, "set_concurrency", Concurrency(batches=2))
    assert "is not the cluster that this switch leaves" in refusal(run, "clean_up", CleanupOrder(src_cluster=NEW))

    listed = run.update("clean_up", CleanupOrder(src_cluster=OLD, dry_run=True), CleanupTargets)
    assert set(scene.moved()) <= set(listed.examples)
    assert listed.retained > 0
    assert run.query("list_cleanup_targets", CleanupTargets) == listed
    assert run.status().phase == Phase.ROLLBACK_WINDOW


def test_p6_rollback_within_window(scene: Scene, java: JavaLedgers) -> None:
    """P6: positions name the old cluster again and differ in nothing else; copies go after their delay."""
    run, ids = scene.run, scene.moved()
    promoted = scene.positions()
    with scene.traffic():
        run.signal(Verb.ROLLBACK, "the new disks are slow")
        run.wait_until_it_waits_for(WaitKind.WINDOW, phase=Phase.ROLLED_BACK)

        target = scene.registry("switch-target")
        assert (target["target"], target["epoch"]) == (OLD, 2)
        back = scene.positions()
        assert unattributed(back) == unattributed(promoted)
        assert attributions(back) == {OLD}
        assert scene.double.read_modes == {"broker-1": "DUAL_READ"}
        contents(java, scene.stack.second_bookkeeper_uri, ids)
        run.signal(Verb.CLEANUP)
        report = run.result(LIMIT)

        assert report.outcome is Outcome.ROLLED_BACK, report.summary
        assert report.figures["copies_removed"] >= len(ids)
        assert scene.versions()["orders"] == [1, 2, 3]
    assert errors(java, scene.stack.second_bookkeeper_uri, ids) == {GONE}
    contents(java, scene.stack.bookkeeper_uri, ids)
    assert scene.statuses() == {OLD: "ACTIVE", NEW: "STANDBY"}


def test_p4_scenario_b_old_cluster_alive(scene: Scene, environment: Environment, java: JavaLedgers) -> None:
    """P4: ledgers have the same ids in both clusters, reads continue, and the cleanup deletes the old copies."""
    old, new = scene.stack.bookkeeper_uri, scene.stack.second_bookkeeper_uri
    ids, before = scene.moved(), scene.positions()
    expected = contents(java, old, ids)
    with scene.traffic():
        run = environment.operator.start(scene.switch())
        wait_for_census(run)
        assert contents(java, new, ids) == expected
        assert scene.versions()["orders"] == [1, 2, 3]
        refused = rollback_in_cleanup(scene, run)
        report = run.result(LIMIT)

    assert "the window is over" in refused
    assert "source and target swapped" in refused
    assert report.outcome is Outcome.DONE, report.failed_items
    assert report.figures["deleted_from_source"] >= len(ids)
    assert unattributed(scene.positions()) == unattributed(before)
    assert attributions(scene.positions()) == {NEW}
    assert scene.statuses() == {OLD: "DEPRECATED", NEW: "ACTIVE"}
    assert errors(java, old, ids) == {GONE}
    assert contents(java, new, ids) == expected
    scene.stack.use_bookies(new)
    assert scene.versions() == {topic: list(range(1, count + 1)) for topic, count in SCHEMAS.items()}


def rollback_in_cleanup(scene: Scene, run: Run) -> str:
    """End the window, and ask for a rollback while the cleanup waits for its metadata store; returns the refusal."""
    zookeeper = scene.stack["zookeeper-1"]
    zookeeper.pause()
    try:
        run.signal(Verb.CLEANUP)
        run.wait_for_phase(Phase.CLEANUP)
        return refusal(run, "steer", VerbRequest(verb=Verb.ROLLBACK))
    finally:
        zookeeper.resume()


def leave_the_new(scene: Scene, **more: object) -> BookieClusterInput:
    """Return the plan of a separate switch, with source and target swapped."""
    return scene.switch(source=scene.input.target, target=scene.input.source, cleanup="leave", **more)


@pytest.mark.exhaustive
def test_p5_scenario_a_old_cluster_down_from_the_start(
    scene: Scene, environment: Environment, java: JavaLedgers
) -> None:
    """P5: a switch that finds no bookie of the old cluster names every ledger, promotes none, and can be undone."""
    ids, before = scene.moved(), scene.positions()
    for name in SECOND:
        scene.stack[name].kill()
    run = environment.operator.start(leave_the_new(scene))
    status = wait_for_census(run)

    assert scene.registry("switch-target")["target"] == OLD
    assert {f"ledger {id_}" for id_ in ids} <= {item.partition(":")[0] for item in failed_lines(status.failed_items)}
    assert scene.positions() == before
    assert errors(java, scene.stack.bookkeeper_uri, ids) == {GONE}
    run.signal(Verb.ROLLBACK, "bookies of the old cluster can be started")
    run.wait_until_it_waits_for(WaitKind.WINDOW, phase=Phase.ROLLED_BACK)
    run.signal(Verb.CLEANUP)
    report = run.result(LIMIT)
    assert report.outcome is Outcome.ROLLED_BACK, report.summary
    assert scene.registry("switch-target")["target"] == NEW
    assert scene.positions() == before
    for name in SECOND:
        scene.stack[name].start()


def test_p5_scenario_a_old_cluster_down(scene: Scene, environment: Environment, java: JavaLedgers) -> None:
    """P5: when the last bookie of the old cluster dies in BUILD, what was copied is promoted; the rest is named.

    The cluster goes back to the one where it came from, by a switch with source and target swapped.
    """
    scene.put_schema("early", 1)
    ids = [*scene.moved(), *ledgers(scene.locator("early"))]
    expected = contents(java, scene.stack.second_bookkeeper_uri, ids)
    run = environment.operator.start(leave_the_new(scene, throttle=SLOW))
    run.wait_for_progress(Phase.BUILD)
    run.update("set_concurrency", Concurrency(batches=2), Concurrency)
    run.steer(Verb.PAUSE)
    run.set_throttle(None)
    run.wait_until_it_waits_for(WaitKind.PAUSE)
    scene.put_schema("late", 1)
    (late,) = ledgers(scene.locator("late"))
    for name in SECOND:
        scene.stack[name].kill()

    run.steer(Verb.RESUME)
    status = wait_for_census(run)

    assert [
        item
        for item in failed_lines(status.failed_items)
        if item.startswith(f"ledger {late}: ") and "cannot be read" in item
    ]
    assert attributions(scene.positions()) == {OLD}
    assert stamps(scene.locator("early")) == [OLD, OLD]
    assert set(stamps(scene.locator("late"))) <= {NEW, None}
    assert contents(java, scene.stack.bookkeeper_uri, ids) == expected
    assert errors(java, scene.stack.bookkeeper_uri, [late]) == {GONE}
    run.signal(Verb.PROCEED)
    report = run.result(LIMIT)
    assert report.outcome is Outcome.DONE_WITH_FAILURES, report.summary
    assert any(f"ledger {late}" in item for item in failed_lines(report.failed_items))
    assert scene.statuses() == {OLD: "ACTIVE", NEW: "DEPRECATED"}
    scene.stack[SECOND[0]].start()
    contents(java, scene.stack.second_bookkeeper_uri, [late])

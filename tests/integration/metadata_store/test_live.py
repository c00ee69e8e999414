"""A live migration from ZooKeeper to Oxia under traffic, from its dry run to the removal of the source.

The tests share one cluster and run in their order: each starts where the one before left the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import WorkflowAlreadyStartedError

from models.lifecycle.input import SourceCleanup
from models.lifecycle.status import Outcome, Status
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from pulsar_devstack.servers import configs
from pulsar_devstack.servers.admin import StackAdmin, refusal
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import send_to
from pulsar_devstack.traffic.runner import Traffic
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.operator import Run
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

CLUSTER = "live"
NEW_TOPICS = [f"new-{number}" for number in range(60)]


@dataclass
class Cluster:
    """The cluster that all tests of this module move.

    Attributes:
        ledgers: ids of all ledgers that were ever seen.
        run: the live migration, once it is started.
        tree: what ZooKeeper held when it was committed.
    """

    stack: Stack
    admin: StackAdmin
    ledgers: set[int] = field(default_factory=set[int])
    run: Run | None = None
    tree: stores.Tree = field(default_factory=stores.Tree)

    def input(self, **more: object) -> MetadataStoreInput:
        """Return the plan from ZooKeeper to Oxia."""
        return MetadataStoreInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": CLUSTER,
                "accept": stores.OTHER_ROOTS,
                "source": self.stack.zk_url,
                "target": self.stack.oxia_url,
                **more,
            }
        )

    @property
    def migration(self) -> Run:
        """The live migration."""
        assert self.run is not None, "an earlier test of this module must start it"
        return self.run


@pytest.fixture(scope="module")
def cluster(make_stack: MakeStack, environment: Environment) -> Generator[Cluster]:
    """Two brokers and two bookies on ZooKeeper, an empty Oxia, and some ledgers that came and went."""
    # One copy of each message, so that bookies can go to the other store one by one.
    single = configs.broker_quorum(1)
    stack = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=2, brokers=2, cluster=CLUSTER, broker_settings=single))
    admin = StackAdmin(stack.admin_urls[0])
    cluster = Cluster(stack, admin)
    names = [f"old-{number}" for number in range(8)]
    send_to(stack.broker_url, names)
    cluster.ledgers |= _all_ledgers(admin, names)
    for name in names[4:]:
        admin.delete_topic(name)
    yield cluster
    admin.close()


@pytest.fixture(scope="module")
def traffic(cluster: Cluster) -> Generator[Traffic]:
    """Numbered messages on three topics, from before the migration until after the restarts."""
    with Traffic.here(cluster.stack.broker_url, ["flow-0", "flow-1", "flow-2"]) as running:
        running.wait_for_more(20)
        yield running


def test_dry_run_writes_nothing(cluster: Cluster, environment: Environment) -> None:
    """A dry run ends with the plan, and neither store counts a write: not in the source, not in the target."""
    stack = cluster.stack
    zxid = stores.last_zxid(stack.zk_url)
    first = stores.put_oxia(stack.oxia_url, "/mark", b"1")
    before = stores.read_oxia(stack.oxia_url)

    report = environment.operator.run(cluster.input(dry_run=True))

    assert (report.outcome, report.summary.split(":")[0]) == (Outcome.PLANNED, "not ready"), "the mark is there"
    assert "TARGET_NOT_EMPTY" in report.summary
    assert stores.last_zxid(stack.zk_url) == zxid
    assert stores.read_oxia(stack.oxia_url) == before
    assert stores.put_oxia(stack.oxia_url, "/mark", b"2") == first + 1
    stores.delete_oxia(stack.oxia_url, "/mark")
    assert stores.read_oxia(stack.oxia_url, without_coordinator=False) == {}
    ready = environment.operator.run(cluster.input(dry_run=True))
    assert ready.summary.startswith("ready:"), ready.summary
    assert any("known defect BATCH_ACKS_UNSAVED (#26498)" in note for note in ready.notes)


def test_a_receipt_binds_a_start_to_the_servers(cluster: Cluster, environment: Environment) -> None:
    """A receipt names the servers, fits while nothing changes, and refuses the start once a cluster was added."""
    stack = cluster.stack
    receipt = environment.operator.run(cluster.input(dry_run=True)).receipt
    assert receipt is not None
    named = [f"broker {url.removeprefix('http://')}" for url in stack.admin_urls]
    assert all(receipt.facts[name].startswith("Pulsar ") for name in named)
    assert any(name.startswith("ZooKeeper ") for name in receipt.facts)
    assert any(fact.startswith("instance ") for fact in receipt.facts.values())
    bound = cluster.input(receipt=receipt.model_dump(mode="json"))
    again = environment.operator.run(bound.model_copy(update={"dry_run": True}))
    assert again.summary.startswith("ready:"), again.summary
    with stores.kazoo(stack.zk_url) as source:
        source.create("/admin/clusters/other", b"{}")
        try:
            refusal = str(environment.operator.refusal(bound))
        finally:
            source.delete("/admin/clusters/other")
    assert "[RECEIPT_DRIFT] 1 facts differ" in refusal
    assert f"clusters in {stack.zk_url}" in refusal
    assert ", other" in refusal


def test_live_migration_under_traffic(cluster: Cluster, environment: Environment, traffic: Traffic) -> None:
    """The migration commits while messages flow, every record is in the target as promised, and no message is lost."""
    stack = cluster.stack
    input = cluster.input(cleanup=SourceCleanup.REMOVE, cleanup_limit=30)
    cluster.run = environment.operator.start(input)
    with pytest.raises(WorkflowAlreadyStartedError):
        environment.operator.start(input)
    status = cluster.migration.wait_for_phase("VALIDATION")
    traffic.wait_for_more(20)
    flag = stores.read_zookeeper(stack.zk_url, without_coordinator=False)[stores.FLAG]
    cluster.tree = stores.read_zookeeper(stack.zk_url)
    assert b'"COMPLETED"' in flag.value
    target = stores.read_oxia(stack.oxia_url, without_coordinator=False)
    assert not [path for path in target if path.startswith(stores.COORDINATOR)]
    assert stores.assert_equal(cluster.tree, target, until_ms=stores.committed_ms(stack.zk_url)) > 50
    assert [entry.outcome for entry in status.history[:-1]] == [Outcome.DONE] * (len(status.history) - 1)
    assert 0 < status.figures["blocked_seconds"] < input.blocked_deadline.total_seconds()


def test_new_topics_get_new_ledgers(cluster: Cluster, traffic: Traffic) -> None:
    """Sixty topics are created after the commit without one error, and none of their ledgers had an earlier id."""
    stack, admin = cluster.stack, cluster.admin
    flows = [topic.topic for topic in traffic.plan.topics]
    cluster.ledgers |= stores.ledger_ids(set(cluster.tree)) | _all_ledgers(admin, flows)
    refused = {name: why for name in NEW_TOPICS if (why := refusal(admin.create_topic, name))}
    assert refused == {}
    send_to(stack.broker_url, NEW_TOPICS)
    each = [admin.ledgers(name) for name in NEW_TOPICS]
    fresh = {ledger for ledgers in each for ledger in ledgers}
    assert all(each)
    assert len(fresh) == sum(map(len, each)), "two topics share a ledger"
    assert fresh & cluster.ledgers == set()
    assert min(fresh) > max(cluster.ledgers)
    assert fresh <= stores.ledger_ids(set(stores.read_oxia(stack.oxia_url)))
    traffic.wait_for_more(5)


def test_cleanup_waits_for_services(cluster: Cluster) -> None:
    """While services use the source, status names them all, and a cleanup is refused and removes nothing."""
    run, stack = cluster.migration, cluster.stack
    run.change_window(timedelta(hours=1))
    status = run.wait_until("a census", _census(lambda services: len(services) == 4))
    named = " ".join(status.facts["still_on_source"])
    assert all(kind in named for kind in ("bookie bookie-1", "bookie bookie-2", "broker 127.0.0.1:")), named
    run.signal(Verb.CLEANUP)
    run.wait_until("the refusal", lambda seen: any("cleanup refused" in note for note in seen.notes))
    assert stores.persistent(stores.read_zookeeper(stack.zk_url)) == stores.persistent(cluster.tree)
    with pytest.raises(WorkflowUpdateFailedError):
        run.steer(Verb.ROLLBACK)


def test_services_restart_on_the_target(cluster: Cluster, traffic: Traffic) -> None:
    """Services restart on the target one by one, messages continue, and then the census names none."""
    stack = cluster.stack
    for name in ("bookie-1", "bookie-2", "broker-1", "broker-2"):
        stack.use_metadata(stack.oxia_url, [name])
        traffic.wait_for_more(10, 180)
    cluster.migration.change_window(timedelta(hours=1))
    wait_for("an empty source", lambda: not _ephemerals(stack.zk_url), 120)
    cluster.migration.change_window(timedelta(hours=1))
    status = cluster.migration.wait_until("a census without services", _census(lambda services: not services))
    assert status.facts["not_known"] == []
    assert traffic.verify() > 300
    send_to(stack.broker_url, ["last"])


def test_cleanup_removes_the_source(cluster: Cluster) -> None:
    """The cleanup removes the migrated tree in bounded steps, and leaves the flag that redirects late clients."""
    stack, run = cluster.stack, cluster.migration
    assert len(stores.persistent(cluster.tree)) > 2 * 30
    assert run.steer(Verb.CLEANUP).accepted
    report = run.result()
    assert report.outcome is Outcome.DONE
    remaining = stores.read_zookeeper(stack.zk_url, without_coordinator=False)
    assert {path for path in remaining if not path.startswith(stores.COORDINATOR)} == {"/pulsar"}
    assert b'"COMPLETED"' in remaining[stores.FLAG].value
    assert cluster.admin.can_write(CLUSTER)


def _census(fits: Callable[[list[str]], bool]) -> Callable[[Status], bool]:
    def holds(status: Status) -> bool:
        return "still_on_source" in status.facts and fits(status.facts["still_on_source"])

    return holds


def _ephemerals(zk_url: str) -> set[str]:
    tree = stores.read_zookeeper(zk_url)
    return set(tree) - stores.persistent(tree)


def _all_ledgers(admin: StackAdmin, names: Iterable[str]) -> set[int]:
    return {ledger for name in names for ledger in admin.ledgers(name)}

"""Switches by restart, with everything that Pulsar keeps in ledgers: there, back, and there again.

The tests share one cluster and run in their order: each starts where the one before left the cluster.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CleanupTargets
from models.bookie_cluster.updates import CleanupOrder
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.runner import Traffic
from tests.support.bookie_cluster.broker_operator import BrokerOperator
from tests.support.bookie_cluster.dataset import DATASET_SETTINGS, Dataset
from tests.support.bookie_cluster.environment import ledgers
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.operator import Run
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack

CLUSTER = "switch"
LIMIT = 240.0
A, B = ("bookie-1", "bookie-2"), ("second-bookie-1", "second-bookie-2")


@dataclass
class Cluster:
    """The cluster that all tests of this module move.

    Attributes:
        run: the switch, once it is started.
    """

    stack: Stack
    dataset: Dataset
    run: Run | None = None

    def input(self, **more: object) -> BookieClusterInput:
        """Return the plan from the first bookies to the second ones."""
        input = {
            # The data have delayed messages in buckets, of which brokers before 5.0 may lose some at a restart.
            "accept_defects": ["DELAYED_MERGE_LOSS"],
            "cluster": CLUSTER,
            "metadata_url": self.stack.zk_url,
            "source": {"name": "a", "metadataServiceUri": self.stack.bookkeeper_uri},
            "target": {"name": "b", "metadataServiceUri": self.stack.second_bookkeeper_uri},
            "routing": "restart",
            "advance_ids": True,
            "cleanup": "remove",
        }
        return BookieClusterInput.model_validate({"hold_before_cutover": False, **input, **more})

    @contextmanager
    def without(self, bookies: tuple[str, ...]) -> Generator[None]:
        """Stop bookies, and start them again at the end."""
        for name in bookies:
            self.stack[name].stop()
        yield
        for name in bookies:
            self.stack[name].start()

    def open_ledgers(self) -> set[int]:
        """List the first bookies' ledgers that are not closed."""
        return {number for number, ledger in ledgers(self.stack.bookkeeper_uri).items() if not ledger.metadata.closed}

    @property
    def addresses(self) -> tuple[str, str]:
        """Addresses for clients and administrators."""
        return self.stack.broker_url, self.stack.admin_urls[0]

    def verify(self) -> None:
        """Prove that every message, position and schema is there."""
        self.dataset.verify(*self.addresses)

    @property
    def switch(self) -> Run:
        """The running switch."""
        assert self.run is not None, "an earlier test of this module must start it"
        return self.run


@pytest.fixture(scope="module")
def cluster(
    make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Cluster]:
    """Two bookie clusters of two bookies each, two brokers, and a dataset of every kind of ledger."""
    spec = StackSpec(
        zookeepers=1, bookies=2, second_bookies=2, brokers=2, cluster=CLUSTER, broker_settings=DATASET_SETTINGS
    )
    stack = make_stack(spec)
    with Dataset(toolchain, tmp_path_factory.mktemp("dataset")) as dataset:
        dataset.fill(stack.broker_url, stack.admin_urls[0])
        yield Cluster(stack, dataset)


def test_low_ids_are_refused(cluster: Cluster, environment: Environment) -> None:
    """Without a choice about ids the switch is refused: the target would hand out ids that are in use."""
    failure = environment.operator.refusal(cluster.input(advance_ids=False))

    assert failure.type == "PrecheckFailed"
    assert "TARGET_IDS_TOO_LOW" in failure.message
    assert "HOB-0000000001" in failure.message


def test_dry_run_writes_nothing(cluster: Cluster, environment: Environment) -> None:
    """A dry run ends with the plan, and no node of ZooKeeper changes but those that brokers change by themselves."""
    before = stores.read_zookeeper(cluster.stack.zk_url)

    report = environment.operator.run(cluster.input(dry_run=True))

    assert report.outcome is Outcome.PLANNED, report.summary
    assert report.summary.startswith("ready:"), report.summary
    changed = stores.changes(before, stores.read_zookeeper(cluster.stack.zk_url))
    assert not [path for path in changed if not path.startswith("/loadbalance/")]


def test_switch_after_a_crash_of_all_brokers(cluster: Cluster, environment: Environment) -> None:
    """Brokers that were killed leave open ledgers; all is on the target, and the old bookies can be stopped."""
    opened = cluster.open_ledgers()
    cluster.run = environment.operator.start(cluster.input())
    with BrokerOperator(cluster.stack, cluster.switch, kill=True) as broker_operator:
        status = cluster.switch.wait_for_phase(Phase.ROLLBACK_WINDOW, LIMIT)
    assert broker_operator.asked == [WaitKind.BROKERS_STOP, WaitKind.BROKERS_START]
    assert status.failed_items == []
    # Not the tail's counts: it begins again, with new ones, if ZooKeeper deletes the brokers' empty container.
    assert opened - cluster.open_ledgers()
    with cluster.without(A):
        cluster.verify()
        cluster.dataset.add_more(*cluster.addresses)
        cluster.verify()


@pytest.mark.exhaustive
def test_rollback_copies_back_what_the_target_gained(cluster: Cluster, environment: Environment) -> None:
    """Messages, acknowledgements and schemas of the window are on the source after a rollback, without the target."""
    with BrokerOperator(cluster.stack, cluster.switch):
        cluster.switch.signal(Verb.ROLLBACK, "the new disks are slow")
        report = cluster.switch.result(LIMIT)
    assert report.outcome is Outcome.ROLLED_BACK, report.summary
    assert report.certificate["copied_back"] > 0
    with cluster.without(B):
        cluster.verify()
        cluster.dataset.add_more(*cluster.addresses)
        cluster.verify()


@pytest.mark.exhaustive
def test_ids_of_the_rollback_are_refused_too(cluster: Cluster, environment: Environment) -> None:
    """After the rollback the target's ids are too low again, and a second switch is refused until they are raised."""
    failure = environment.operator.refusal(cluster.input(advance_ids=False))

    assert failure.type == "PrecheckFailed"
    assert "TARGET_IDS_TOO_LOW" in failure.message
    assert "HOB-0000000003" in failure.message


@pytest.mark.exhaustive
def test_second_switch_under_traffic_and_cleanup(cluster: Cluster, environment: Environment) -> None:
    """A switch with producers running ends on the target; the cleanup deletes what it listed, and nothing is lost."""
    with Traffic.here(cluster.stack.broker_url, ["flow-0", "flow-1"]) as traffic:
        traffic.wait_for_more(20)
        cluster.run = environment.operator.start(cluster.input())
        with BrokerOperator(cluster.stack, cluster.switch):
            cluster.switch.wait_for_phase(Phase.ROLLBACK_WINDOW, LIMIT)
        traffic.wait_for_more(20)
        assert traffic.verify() > 0
    # Terminated, as no operator should do: a new start continues after the commit.
    cluster.switch.terminate()
    cluster.run = environment.operator.start(cluster.input())
    resumed = cluster.switch.wait_for_phase(Phase.ROLLBACK_WINDOW, LIMIT)
    assert [entry.phase for entry in resumed.history] == ["REGISTER", "PRECHECK", "PROMOTE", "ROLLBACK_WINDOW"]
    listed = cluster.switch.update("clean_up", CleanupOrder(src_cluster="a", dry_run=True), CleanupTargets)
    assert listed.ledgers > 0
    cluster.switch.signal(Verb.CLEANUP)
    report = cluster.switch.result(LIMIT)

    assert report.outcome is Outcome.DONE, report.failed_items
    assert report.figures["deleted_from_source"] == listed.ledgers
    with cluster.without(A):
        cluster.verify()

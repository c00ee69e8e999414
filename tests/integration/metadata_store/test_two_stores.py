"""Brokers and BookKeeper with a metadata store each: the stores move one after the other, and both move back.

The tests share one cluster and run in their order: each starts where the one before left the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from pulsar_devstack.servers import configs
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import read_from, send_to
from pulsar_devstack.traffic.runner import Traffic
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.releases import live_migrations
from tests.support.stacks import MakeStack

pytestmark = [pytest.mark.exhaustive, live_migrations]

CLUSTER = "two-stores"
TOPIC = "eras"


@dataclass
class Cluster:
    """The cluster that all tests of this module move.

    Attributes:
        bodies: bodies of the messages that were sent to `TOPIC`.
        used: ids of all ledgers that were seen.
    """

    stack: Stack
    bodies: list[bytes]
    used: set[int]

    @property
    def zookeepers(self) -> tuple[str, str]:
        """Return the brokers' store and BookKeeper's, in ZooKeeper."""
        return self.stack.zk_url, self.stack.second_zk_url

    @property
    def oxias(self) -> tuple[str, str]:
        """Return the brokers' store and BookKeeper's, in Oxia."""
        first, second = self.stack.oxia_urls
        return first, second

    def send(self, body: bytes) -> None:
        """Send a message, and read every message that was ever sent; new ledgers have new ids."""
        send_to(self.stack.broker_url, [TOPIC, f"topic-{len(self.bodies)}"], body)
        self.bodies.append(body)
        assert read_from(self.stack.broker_url, TOPIC, len(self.bodies)) == self.bodies
        with StackAdmin(self.stack.admin_urls[0]) as admin:
            fresh = admin.ledgers(f"topic-{len(self.bodies) - 1}")
            assert min(fresh) > max(self.used, default=-1)
            self.used |= fresh | admin.ledgers(TOPIC)

    def stop(self) -> None:
        """Stop the broker, and then the bookie."""
        for name in ("broker-1", "bookie-1"):
            self.stack[name].stop()
        stores.wait_until_unused(*self.zookeepers, *self.oxias)

    def start(self, brokers_store: str, ledgers_store: str) -> None:
        """Start the bookie and the broker, or restart them, with these stores."""
        self.stack.reconfigure("bookie-1", **configs.bookie_metadata(ledgers_store))
        self.stack["bookie-1"].start()
        self.stack.reconfigure("broker-1", **configs.broker_metadata(brokers_store, ledgers_store))
        self.stack["broker-1"].start()


@pytest.fixture(scope="module")
def cluster(make_stack: MakeStack) -> Cluster:
    """One broker and one bookie on a ZooKeeper each, two empty Oxias, and a message of the first era."""
    spec = StackSpec(
        zookeepers=1,
        second_zookeepers=1,
        oxias=2,
        bookies=1,
        brokers=1,
        cluster=CLUSTER,
        ledgers_apart=True,
        # A broker deletes topics that no client has used for a minute, and a migration may take longer.
        broker_settings={"brokerDeleteInactiveTopicsEnabled": "false"},
    )
    made = Cluster(make_stack(spec), [], set())
    made.send(b"before")
    return made


def plan(source: str, target: str, **more: object) -> MetadataStoreInput:
    """Return a plan without a window."""
    return MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "validation_window": "PT0S",
            "accept": stores.OTHER_ROOTS,
            "source": source,
            "target": target,
            **more,
        }
    )


def test_records_that_a_live_run_cannot_move_are_refused(cluster: Cluster, environment: Environment) -> None:
    """The brokers' store needs a confirmation that ledgers stay; BookKeeper's needs all services to be stopped."""
    (brokers, ledgers), (target, _) = cluster.zookeepers, cluster.oxias
    refused = str(environment.operator.refusal(plan(brokers, target)))
    assert "[LEDGERS_ELSEWHERE]" in refused
    assert 'set "leave_ledgers": true' in refused
    refused = str(environment.operator.refusal(plan(ledgers, target)))
    assert "[LEDGERS_ONLY]" in refused
    assert '"mode": "offline", with all bookies and brokers stopped' in refused
    refused = str(environment.operator.refusal(plan(ledgers, target, mode="offline")))
    assert "[SERVICES_RUNNING]" in refused
    assert "bookie bookie-1, a participant with session" in refused, "the broker's BookKeeper client"


def test_the_brokers_store_moves_live(cluster: Cluster, environment: Environment) -> None:
    """Brokers move to Oxia under traffic; the metadata of ledgers, also of new ones, stay in BookKeeper's ZooKeeper."""
    stack, (source, ledgers), (target, _) = cluster.stack, cluster.zookeepers, cluster.oxias
    with Traffic.here(stack.broker_url, ["flow"]) as traffic:
        traffic.wait_for_more(10)
        report = environment.operator.run(plan(source, target, leave_ledgers=True))
        assert report.outcome is Outcome.DONE
        traffic.wait_for_more(10)
        assert traffic.verify() > 20
    cluster.send(b"between")
    assert stores.ledger_ids(set(stores.read_oxia(target))) == set()
    assert cluster.used <= stores.ledger_ids(set(stores.read_zookeeper(ledgers)))
    cluster.start(target, ledgers)
    cluster.send(b"restarted")


def test_bookkeepers_store_moves_with_all_services_stopped(cluster: Cluster, environment: Environment) -> None:
    """The ledgers arrive whole in an Oxia of their own, and the services start with both new addresses."""
    (_, source), (brokers, target) = cluster.zookeepers, cluster.oxias
    cluster.stop()
    refused = str(environment.operator.refusal(plan(source, brokers, mode="offline", replace_target=True)))
    assert "[TARGET_HAS_CLUSTER]" in refused, "the store that brokers moved to"
    assert environment.operator.run(plan(source, target, mode="offline")).outcome is Outcome.DONE
    assert stores.assert_equal(stores.read_zookeeper(source), stores.read_oxia(target)) > 5
    cluster.start(brokers, target)
    cluster.send(b"after")


def test_failback_of_both_stores(cluster: Cluster, environment: Environment) -> None:
    """Both stores go back in one stop, each over the store that it came from."""
    (brokers, ledgers), (old_brokers, old_ledgers) = cluster.oxias, cluster.zookeepers
    cluster.stop()
    back = {"mode": "offline", "replace_target": True}
    refused = str(environment.operator.refusal(plan(brokers, old_ledgers, leave_ledgers=True, **back)))
    assert "[TARGET_HAS_LEDGERS]" in refused
    assert environment.operator.run(plan(ledgers, old_ledgers, **back)).outcome is Outcome.DONE
    assert environment.operator.run(plan(brokers, old_brokers, leave_ledgers=True, **back)).outcome is Outcome.DONE
    cluster.start(old_brokers, old_ledgers)
    cluster.send(b"back")

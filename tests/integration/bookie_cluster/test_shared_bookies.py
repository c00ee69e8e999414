"""A switch of one Pulsar cluster whose bookies hold ledgers of others too, whose writers continue."""

from __future__ import annotations

import pytest

from activities.bookie_cluster import build as copying
from activities.bookie_cluster import cleanup as cleaning
from activities.bookie_cluster import registry, tail
from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.updates import CleanupOrder
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import StackSpec
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.environment import FORWARD, SwitchEnvironment, codes
from tests.support.clients.java_ledgers import JavaLedgers, Ledger
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

# As another Pulsar cluster's brokers, and DistributedLog (functions' packages), write them.
PULSARS = {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": b"public/default/one"}
COMPACTED = {"application": b"pulsar", "component": b"compacted-ledger", "pulsar/compactedTopic": b"public/default/one"}
PACKAGES = {"application": b"DL", "component": b"distributedlog"}
FORCE = CleanupOrder(src_cluster="a", force=True)


class SharedEnvironment(SwitchEnvironment):
    """Environment whose plans do not declare the source exclusive."""

    def input(self, **more: object) -> BookieClusterInput:
        """Return the plan of an operator who leaves the defaults."""
        return super().input(**{"ledgers": "referenced", "exclusive": False, "advance_ids": True, **more})


@pytest.fixture(scope="module")
def environment(make_stack: MakeStack, engine: SparkEngine) -> SharedEnvironment:
    """One bookie in each cluster, and one broker with topics of some ledgers."""
    settings = {
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=1, broker_settings=settings))
    environment = SharedEnvironment(stack, Steps(engine))
    environment.send()
    return environment


def test_other_users_of_the_target_cause_a_warning_about_ids(
    environment: SharedEnvironment, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Brokers of another Pulsar cluster would continue with small ids in a target whose ids were lifted."""
    uri, jumps = environment.stack.second_bookkeeper_uri, "id generator jumps"
    assert not any(jumps in warning for warning in environment.precheck().warnings)
    with JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as java:
        (other,) = java.create(uri, Ledger(entries=5, custom=PULSARS), ids=[9_000_000])
        (warning,) = [warning for warning in environment.precheck().warnings if jumps in warning]
        java.delete(uri, [other])
    assert "1 of Pulsar's ledgers there are not referred to" in warning


def test_others_ledgers_are_left_alone(
    environment: SharedEnvironment, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A switch with cleanup changes no ledger of others, not even by force, and their writers continue."""
    uri, steps = environment.stack.bookkeeper_uri, environment.steps
    with JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as java:
        kinds = PULSARS, COMPACTED, PACKAGES
        closed = [java.create(uri, Ledger(entries=5, custom=custom))[0] for custom in kinds]
        held = [java.hold(uri, Ledger(entries=5, custom=custom)) for custom in kinds]
        others = {*closed, *(ledger.ledger_id for ledger in held)}
        before = {number: environment.source()[number] for number in others}

        precheck = environment.precheck()
        steps.run(registry.register, environment.input())
        steps.run(copying.advance_ids, environment.input(), FORWARD)
        built = steps.run(copying.build, environment.input(), FORWARD)
        environment.stack["broker-1"].kill()
        opened = _open_ledgers(environment) - others
        done = steps.run(tail.copy_tail, environment.input(), FORWARD)
        recovered = opened - _open_ledgers(environment)
        steps.run(registry.set_target, environment.input(), FORWARD)
        steps.run(registry.flip_statuses, environment.input())
        environment.move_broker(environment.stack.second_bookkeeper_uri)
        environment.assert_all()
        environment.send()
        census = steps.run(cleaning.take_census, environment.input())
        deleted = steps.run(cleaning.delete_ledgers, environment.input(), FORCE)

        assert codes(precheck) == []
        warned = next(warning for warning in precheck.warnings if "are not referred to by" in warning)
        assert "(4 are Pulsar's, 2 of these open)" in warned
        # Not as the tail counts them: it begins again if ZooKeeper deletes the brokers' empty container.
        assert recovered, "the broker's own open ledgers were fenced"
        assert built.left_open > 0
        assert built.left_bytes < built.entry_bytes / 4
        assert done.copy_summary.entries <= 2 * len(recovered), "what was confirmed had been copied before"
        assert done.missing.count == done.copy_summary.failed.count == 0
        assert not others & environment.target().keys()
        assert census.misrouted_ledgers == ()
        assert deleted.deleted > 0
        assert environment.source() == before
        for ledger in held:
            assert ledger.add(b"still here") == 5
            ledger.close()
        assert [ledger.entries for ledger in java.read(uri, sorted(others))] == [
            5 if number in closed else 6 for number in sorted(others)
        ]
    environment.assert_all()


def _open_ledgers(environment: SharedEnvironment) -> set[int]:
    return {number for number, ledger in environment.source().items() if not ledger.metadata.closed}

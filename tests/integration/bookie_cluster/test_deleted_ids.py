"""Switches there and back while bookies collect what was deleted: they refuse ids for days that they have deleted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from activities.bookie_cluster import build as copying
from activities.bookie_cluster import registry, tail
from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.context import ActivityContext
from clients.bookkeeper.cluster import open_cluster
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.reader import LedgerReader
from clients.errors import LedgerUnreadable, RetryableError
from clients.stores import Access
from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.results import CopySummary
from models.ledger_store import parse_ledger_store_uri
from pulsar_devstack.servers.stack import StackSpec
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.environment import FORWARD, SwitchEnvironment
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for, wait_for

pytestmark = pytest.mark.exhaustive


class Round(SwitchEnvironment):
    """A switch and the one back."""

    def back(self) -> BookieClusterInput:
        """Return the switch from `b` to `a`, once the first one is done."""
        a, b = self.input().source, self.input().target
        return self.input(source=b.model_dump(), target=a.model_dump())

    def input(self, **more: object) -> BookieClusterInput:
        """Return a plan for the ledgers that the broker refers to."""
        return super().input(**{"ledgers": "referenced", "exclusive": False, "advance_ids": True, **more})

    def begin(self, input: BookieClusterInput, run_id: str) -> CopySummary:
        """Run the first steps of a switch, up to BUILD."""
        self.steps.run_id = run_id
        self.steps.run(registry.register, input)
        self.steps.run(copying.advance_ids, input, FORWARD)
        return self.steps.run(copying.build, input, FORWARD)

    def holds(self, uri: str, record: LedgerRecord) -> bool:
        """Return whether bookies have the first entry of a ledger."""
        with open_cluster(parse_ledger_store_uri(uri).url, Access(), 5.0) as cluster:
            try:
                LedgerReader(cluster.bookies).read_entry(record.ledger_id, record.metadata, 0)
            except LedgerUnreadable:
                return False
        return True


@pytest.fixture(scope="module")
def environment(make_stack: MakeStack, engine: SparkEngine) -> Round:
    """One bookie in each cluster, which collects garbage every second, and one broker with topics of some ledgers."""
    settings = {
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    collecting = {"gcWaitTime": "1000", "gcOverreplicatedLedgerWaitTime": "1000", "flushInterval": "1000"}
    spec = StackSpec(
        zookeepers=1, bookies=1, second_bookies=1, brokers=1, broker_settings=settings, bookie_settings=collecting
    )
    environment = Round(make_stack(spec), Steps(engine))
    environment.send()
    return environment


def test_start_after_a_rollback_uses_the_copies(environment: Round) -> None:
    """The next start knows what a switch copied before its rollback, and copies nothing twice."""
    first = environment.begin(environment.input(), "run-1")
    environment.steps.run(registry.release, environment.input())
    second = environment.begin(environment.input(), "run-2")

    assert first.copied > 0
    assert (second.copied, second.equal, second.already_verified) == (0, 0, first.copied)


def test_deleted_ids_are_used_again(environment: Round) -> None:
    """After a cleanup the switch back asks for a restart of the old bookies, then continues, and loses nothing."""
    old, new = environment.stack.bookkeeper_uri, environment.stack.second_bookkeeper_uri
    environment.stop_broker()
    assert environment.copy_tail().missing.count == 0
    environment.steps.run(registry.set_target, environment.input(), FORWARD)
    environment.steps.run(registry.flip_statuses, environment.input())
    environment.move_broker(new)
    environment.send()
    filled = [ledger for ledger in environment.source().values() if ledger.metadata.last_entry >= 0]
    assert environment.delete().remaining == 0
    environment.steps.run(registry.release, environment.input())
    wait_for("the old bookie to collect all", lambda: not any(environment.holds(old, ledger) for ledger in filled), 60)

    back = environment.back()
    precheck = environment.precheck(**back.model_dump(mode="json", include={"source", "target"}))
    environment.steps.run_id = "run-3"
    environment.steps.run(registry.register, back)
    environment.steps.run(copying.advance_ids, back, FORWARD)
    with ThreadPoolExecutor(1) as pool:
        tasks = [environment.steps.task(back)]
        building = pool.submit(_build, environment, tasks)
        action = wait_for("BUILD to ask for a restart", lambda: _asked(tasks[-1].context), 60)
        environment.stack["bookie-1"].stop()
        environment.stack["bookie-1"].start()
        built = building.result(timeout_for(120))
    environment.stop_broker()
    done = environment.steps.run(tail.copy_tail, back, FORWARD)
    environment.move_broker(old)

    assert any("were deleted from a" in warning for warning in precheck.warnings)
    assert action.startswith("restart the bookies of a")
    assert built.failed.count == done.copy_summary.failed.count == done.missing.count == 0
    assert built.copied > len(filled) / 2
    environment.assert_all()
    # What was written before a collection must not vanish with it.
    for number, record in environment.target().items():
        if number in environment.source() and record.metadata.last_entry >= 0:
            assert environment.holds(old, environment.source()[number])


def _build(environment: Round, tasks: list[BookieClusterTask]) -> CopySummary:
    """Run BUILD, repeated as Temporal does; each attempt is the last of `tasks`."""
    while True:
        try:
            return copying.build(tasks[-1], FORWARD)
        except RetryableError:
            tasks[-1].context.pause(1)
            tasks.append(environment.steps.task(tasks[-1].input))


def _asked(context: ActivityContext) -> str:
    waiting = context.report().waiting
    return waiting.action if waiting else ""

"""Brokers that start at a bad moment of a migration, on a real cluster; the steps are called one by one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.metadata_store import cutover, pre_copy, preparation, rollback
from activities.metadata_store.precheck import PrecheckRun
from activities.pulsar.registrations import brokers, participants
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access, open_reader, write_marks
from models.lifecycle.failures import FailureKind
from models.migration_flag import FLAG, FlagPhase
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import send_to
from tests.support.metadata_store.steps import Place, open_place
from tests.support.releases import SAMPLED_ON_ANOTHER, live_migrations
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for, wait_for, wait_until_equal

pytestmark = [live_migrations, *SAMPLED_ON_ANOTHER]


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A bookie and two brokers, one of which is stopped."""
    made = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=2, cluster="steps"))
    send_to(made.broker_url, ["one"])
    made["broker-2"].stop()
    # Where it was killed in the end, its session lasts for longer.
    with open_reader(parse_store_url(made.zk_url), Access()) as source:
        wait_until_equal("the number of brokers", lambda: len(brokers(source)), 1, 60)
    return made


@pytest.fixture
def place(stack: Stack) -> Iterator[Place]:
    """The stack's ZooKeeper and Oxia."""
    with open_place(stack, "", []) as opened:
        yield opened


def blockers(place: Place, *, leave_ledgers: bool = False) -> list[str]:
    """Return the codes of what PRECHECK finds; nothing is written."""
    task = place.task(dry_run=True, leave_ledgers=leave_ledgers)
    check = PrecheckRun(task.input, task.workflow_id, Access(), AdminAccess(), lambda: None)
    return [blocker.code for blocker in check.run(task.engine, task.pair, tag="precheck").blockers]


def test_a_broker_that_restarts_with_other_settings(stack: Stack, place: Place) -> None:
    """A broker is checked again before writes are blocked; another name of the source is not another store.

    BookKeeper's own driver takes no part: after a commit, bookies would delete what this broker writes. The
    configuration store is the source. (With metadataSyncEventTopic brokers of 5.0.1 do not start.)
    """
    place.run(pre_copy.pre_copy, 0)
    assert blockers(place) == []
    alias = stack.zk_url.replace("zk:127.0.0.1", "zk+hierarchical://localhost") + "/ledgers"
    stack.reconfigure(
        "broker-1",
        bookkeeperMetadataServiceUri=alias,
        configurationMetadataStoreUrl=stack.zk_url.replace("127.0.0.1", "localhost"),
    )
    assert blockers(place, leave_ledgers=True) == ["BOOKKEEPER_STAYS"]
    with pytest.raises(ApplicationError, match="BOOKKEEPER_STAYS") as refused:
        place.run(preparation.prepare, leave_ledgers=True)
    assert refused.value.type == FailureKind.NOT_READY
    assert place.zookeeper.exists(FLAG) is None
    stack.reconfigure("broker-1", configurationMetadataStoreUrl=stack.zk_url, bookkeeperMetadataServiceUri="")
    place.run(rollback.clear_target)
    assert blockers(place) == []


def test_a_second_attempt_waits_for_each_broker_again(
    stack: Stack, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's registration in the target from a failed attempt does not count as its answer to the next one.

    A broker that has not seen the flag would write to the source after the commit.
    """
    place.run(pre_copy.pre_copy, 0)
    ready = place.run(preparation.prepare).ephemerals
    _roll_back(place)
    place.run(pre_copy.pre_copy, 0, run=2)
    task = place.task(run=2)

    def freeze(url: StoreUrl, access: Access) -> dict[int, int]:
        """Freeze the broker right before the flag is set, when it has been asked."""
        stack["broker-1"].pause()
        return write_marks(url, access)

    monkeypatch.setattr(preparation, "write_marks", freeze)
    try:
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(preparation.prepare, task)
            name = f"broker 127.0.0.1:{stack['broker-1'].ports['http']}"
            wait_for(
                "the wait for the broker",
                lambda: f"ephemerals of {name}: " in _said(task.context) or pending.done(),
                30,
            )
            assert not pending.done()
            stack["broker-1"].resume()
            assert pending.result(timeout_for(60)).ephemerals == ready
    finally:
        stack["broker-1"].resume()
    _roll_back(place, run=2)


def test_a_broker_that_starts_during_a_migration(stack: Stack, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new broker is refused its registration and ends; the commit waits for its end, and it starts again later.

    Without the wait a broker 4.2 would follow the flag without a target, and serve nothing until a restart (#25989).
    """
    # A busy machine takes longer from the start of a broker to its end than services should wait.
    monkeypatch.setattr(cutover, "LATE_PARTICIPANTS_SECONDS", 90.0)
    late = stack["broker-2"]
    pre = place.run(pre_copy.pre_copy, 0, run=3)
    assert not place.run(preparation.prepare, run=3).gap
    place.run(cutover.copy_changes, pre, run=3)
    late.launch()
    wait_for("the late broker's store", lambda: _participants(place), 60)

    floor = place.run(cutover.verify, pre, run=3).version_floor
    place.run(cutover.complete, pre.model_copy(update={"version_floor": floor}), run=3)

    wait_for("the end of the late broker", lambda: not late.alive, 60)
    assert _participants(place) == set()
    late.start()
    names = {f"broker 127.0.0.1:{stack[name].ports['http']}" for name in ("broker-1", "broker-2")}
    with open_reader(parse_store_url(place.target), Access()) as target:
        assert {broker.name for broker in brokers(target)} == names
    send_to(stack.broker_url, ["one", "two", "three"])


def _roll_back(place: Place, run: int = 1) -> None:
    assert rollback.unblock_writes(place.task(run=run), "a test").flag is FlagPhase.FAILED
    place.run(rollback.clear_target, run=run)


def _said(context: ActivityContext) -> str:
    """Return what a step waits for."""
    reason = context.report().waiting
    return reason.why if reason else ""


def _participants(place: Place) -> set[int]:
    with open_reader(parse_store_url(place.source), Access()) as source:
        return participants(source)

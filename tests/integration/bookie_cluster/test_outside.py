"""Events from outside: autorecovery closes or moves copies, the target dies, a run ends, a deletion freezes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, cast

import pytest

from activities.bookie_cluster import build as copying
from activities.bookie_cluster import cleanup, registry, rollback, tail
from activities.bookie_cluster.ledgers import progress_path
from activities.bookie_cluster.progress import SwitchProgress, read_verified
from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import StoreConflict, Superseded
from clients.stores import Access
from models.bookie_cluster.input import BookieClusterInput
from models.ledger_store import parse_ledger_store_uri
from models.lifecycle.claim import CLAIM
from pulsar_devstack.servers.stack import StackSpec
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.environment import (
    BACK,
    DELETE_ALL,
    FORWARD,
    SwitchEnvironment,
    delete_ledger,
    write_ledger,
)
from tests.support.bookie_cluster.records import move
from tests.support.clients.bookies import Cluster, pack, recover_ledger
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.in_process import in_process
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for


@pytest.fixture(scope="module")
def environment(make_stack: MakeStack) -> SwitchEnvironment:
    """A bookie in each cluster, and no broker."""
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, second_bookies=1))
    return SwitchEnvironment(stack, Steps(in_process()))


@contextmanager
def cluster(uri: str) -> Generator[Cluster]:
    """Open a cluster's ledgers and bookies."""
    root = parse_ledger_store_uri(uri).url
    with LedgerDirectoryWriter(root, Access()) as directory, Bookies(directory.bookies) as bookies:
        yield Cluster(directory, bookies)


@pytest.mark.exhaustive
def test_a_target_that_dies_before_brokers_were_directed_there(environment: SwitchEnvironment) -> None:
    """The source's ids are lifted without the target's ZooKeeper, so that brokers start on the source again."""
    stack, steps = environment.stack, environment.steps
    server = stack["zookeeper-1"].address
    with Proxy(server) as proxy:
        uri = stack.second_bookkeeper_uri.replace(server, proxy.address)
        plan = environment.input(target={"name": "b", "metadataServiceUri": uri}, registry_path="/admin/other")
        steps.run(registry.register, plan)
        proxy.cut()
        assert steps.run(copying.advance_ids, plan, BACK).safe
        assert steps.run(copying.check_ids, plan, BACK).safe
    steps.run(registry.release, plan)


def test_a_late_attempt_at_doing_without_the_target(environment: SwitchEnvironment) -> None:
    """A late attempt raises no ids, and leaves the list of what is missing to the newer attempt."""
    plan, steps = environment.input(), environment.steps
    steps.run(registry.register, plan)
    late = steps.task(plan, BACK)
    steps.run(rollback.do_without_target, plan)
    with pytest.raises(Superseded):
        rollback.do_without_target(late)
    steps.run(registry.release, plan)


def test_copies_that_autorecovery_has_moved(environment: SwitchEnvironment) -> None:
    """Verified copies are not compared again if only their bookies changed, in neither direction."""
    plan, steps = environment.input(registry_path="/admin/moved"), environment.steps
    number = write_ledger(environment.stack.bookkeeper_uri, [b"data"] * 5)
    steps.run(registry.register, plan)
    steps.run(copying.build, plan, FORWARD)
    record = environment.target()[number]
    with cluster(environment.stack.second_bookkeeper_uri) as target:
        move(target.directory, [number])
    assert environment.target()[number].mzxid > record.mzxid
    for direction in (FORWARD, BACK):
        done = steps.run(tail.copy_tail, plan, direction)
        assert (done.copy_summary.copied, done.copy_summary.equal) == (0, 0), direction
    steps.run(registry.release, plan)


def test_copies_that_autorecovery_has_closed(environment: SwitchEnvironment) -> None:
    """An open copy that was closed before it was complete is completed, and is not treated as another ledger."""
    plan, steps = environment.input(advance_ids=True), environment.steps
    with cluster(environment.stack.bookkeeper_uri) as source:
        writing = source.fill(source.open([(0, source.bookies.writable())], (1, 1)), [b"data"] * 20)
        number = writing.ledger_id
        steps.run(registry.register, plan)
        steps.run(copying.build, plan, FORWARD)
        assert not environment.target()[number].metadata.closed
        with cluster(environment.stack.second_bookkeeper_uri) as target:
            # As autorecovery does where a bookie of an open ledger is away.
            closed = recover_ledger(target.directory, target.bookies, number)
        assert 0 < closed.metadata.last_entry < 22
        writer = LedgerWriter(source.bookies)
        writer.add(number, writing.metadata, 20, pack(writing, [b"later"] * 3, 20, 80))
        writer.flush()
        done = steps.run(tail.copy_tail, plan, FORWARD)
    assert not done.copy_summary.failed.count
    assert environment.target()[number].metadata.same_content(environment.source()[number].metadata)
    assert environment.source()[number].metadata.last_entry == 22


def test_runs_that_end_keep_the_commit(environment: SwitchEnvironment) -> None:
    """Brokers were directed to the target by a terminated run: the next runs know of that, whatever their end.

    Each is rolled back, or cancelled, while it registers; a plan for another target is refused in between.
    """
    plan, steps = environment.input(), environment.steps
    steps.run(registry.set_target, plan, FORWARD)
    for run in ("run-2", "run-3"):
        steps.run_id = run
        assert steps.run(registry.register, plan).committed
        steps.run(registry.release, plan)
    uri = environment.stack.second_bookkeeper_uri.replace("second-ledgers", "third-ledgers")
    with pytest.raises(StoreConflict, match="has directed brokers to b"):
        steps.run(registry.register, environment.input(target={"name": "c", "metadataServiceUri": uri}))
    steps.run(registry.set_target, plan, BACK)
    steps.run(registry.release, plan)
    with environment.task().reading_store() as store:
        assert store.get(CLAIM) is None


def test_a_frozen_deletion_deletes_nothing_after_a_switch_back(
    environment: SwitchEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen cleanup that continues after a switch back does not delete ledgers whose ids were used again."""
    plan, steps = environment.input(), environment.steps
    with cluster(environment.stack.bookkeeper_uri) as source:
        source.close(source.open([(0, source.bookies.writable())], (1, 1)), [b"data"])
    _switch(steps, plan, "run-4")
    steps.run(registry.flip_statuses, plan)
    frozen, thawed, delete = Event(), Event(), LedgerDirectoryWriter.delete

    def freeze_once(*args: Any) -> int:
        if not frozen.is_set():
            frozen.set()
            assert thawed.wait(300)
        return delete(*args)

    monkeypatch.setattr(LedgerDirectoryWriter, "delete", freeze_once)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(cleanup.delete_ledgers, steps.task(plan), DELETE_ALL)
        assert frozen.wait(timeout_for(60))
        try:
            environment.delete()
            assert not environment.source()
            steps.run(registry.release, plan)
            _switch(steps, environment.input(source=plan.target, target=plan.source), "run-5")
            recreated = environment.source()
        finally:
            thawed.set()
        with pytest.raises(Superseded):
            late.result(timeout_for(60))
    assert recreated
    assert environment.source() == recreated


def test_a_run_that_ends_in_its_cleanup(environment: SwitchEnvironment) -> None:
    """If the target is ACTIVE already, the next run continues the cleanup; a start after its end is refused."""
    plan, steps = environment.input(registry_path="/admin/third"), environment.steps
    _switch(steps, plan, "run-6")
    assert not steps.run(registry.register, plan).flipped
    steps.run(registry.flip_statuses, plan)
    steps.run_id = "run-7"
    assert steps.run(registry.register, plan).flipped
    steps.run(registry.flip_statuses, plan)
    steps.run(registry.release, plan)
    with pytest.raises(StoreConflict, match="b is ACTIVE"):
        steps.run(registry.register, plan)


def test_a_later_comparison_that_fails_decides(environment: SwitchEnvironment) -> None:
    """A copy that was equal once, and is not any more, is forgotten: a cleanup would delete the good ledger."""
    plan, steps, stack = environment.input(registry_path="/admin/fourth"), environment.steps, environment.stack
    number = write_ledger(stack.bookkeeper_uri, [b"data"])
    write_ledger(stack.second_bookkeeper_uri, [b"DATA"], number)
    steps.run(registry.register, plan)
    task = steps.task(plan)
    with task.registry() as registered:
        registered.claim.renew()
        SwitchProgress(task, registered).add_verified({number: environment.target()[number].mzxid})
    done = steps.run(tail.copy_tail, plan.model_copy(update={"full_verify": True}), FORWARD)
    assert [item.ledger_id for item in done.copy_summary.failed.items] == [number]
    with task.broker_store() as store:
        assert number not in read_verified(store, progress_path(task, FORWARD))
    steps.run(registry.release, plan)
    for uri in (stack.bookkeeper_uri, stack.second_bookkeeper_uri):
        delete_ledger(uri, number)


def _switch(steps: Steps, plan: BookieClusterInput, run: str) -> None:
    """Run the steps of a switch up to the directive."""
    steps.run_id = run
    steps.run(registry.register, plan)
    steps.run(copying.advance_ids, plan, FORWARD)
    for step in (copying.build, tail.copy_tail, registry.set_target):
        steps.run(cast("Callable[..., object]", step), plan, FORWARD)

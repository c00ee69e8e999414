"""Checks that keep a migration from deleting foreign records, on real stores without Temporal."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.metadata_store import census as taking
from activities.metadata_store import cleanup, context, convergence, cutover, pre_copy, preparation, rollback
from activities.metadata_store.background_tasks import BackgroundTasks
from activities.metadata_store.census import census, require_unused_source
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.occupied import ledgers_only_in
from activities.metadata_store.precheck import PrecheckRun
from clients.cas.claims import read_claim
from clients.errors import StoreConflict, Superseded
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access, open_cas
from clients.zookeeper.coordination import four_letter
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import FailureKind
from models.metadata_store.claims import TargetClaim
from models.metadata_store.results import Precheck, PreCopy
from models.migration_flag import FLAG, Flag, FlagPhase
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from spark.metadata_store import jobs
from tests.support.metadata_store import stores
from tests.support.metadata_store.steps import Place, open_place
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

FEW = ["/tenants/a", "/tenants/b", "/tenants/c"]
OTHERS = "/foreign/root"
# Records that are not Pulsar's may differ at the commit.
POLICIES = "/admin/policies/a"


class Died(Exception):
    """A worker's end in the middle of a step."""


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A source, and a target."""
    return make_stack(StackSpec(zookeepers=1, oxias=1))


@pytest.fixture
def place(stack: Stack, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A source with some records, and an empty target."""
    monkeypatch.setattr(convergence, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)
    with open_place(stack, request.node.name.replace("[", "-").replace("]", ""), FEW) as opened:
        yield opened


def verified(place: Place) -> PreCopy:
    """Run every step before the commit."""
    pre = place.run(pre_copy.pre_copy, 0)
    assert not place.run(preparation.prepare).gap
    place.run(cutover.copy_changes, pre)
    return pre.model_copy(update={"version_floor": place.run(cutover.verify, pre).version_floor})


def committed(place: Place) -> PreCopy:
    """Run every step up to the commit."""
    pre = verified(place)
    place.run(cutover.complete, pre)
    return pre


@contextmanager
def concurrent_writes(place: Place, monkeypatch: pytest.MonkeyPatch, rounds: int) -> Generator[None]:
    """Write once from a service's cache after each of so many rounds in which the commit copies."""
    values = [b"%d" % number for number in range(rounds)]

    def converge(*arguments: Any, **options: Any) -> convergence.Converged:
        done = convergence.converge(*arguments, **options)
        if values:
            place.zookeeper.set(POLICIES, values.pop())
        return done

    with monkeypatch.context() as patch:
        patch.setattr(cutover, "converge", converge)
        place.zookeeper.create(POLICIES, b"first", makepath=True)
        yield


def test_nothing_is_known_to_differ_at_the_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes during the commit's copy are copied before it as well, not after it, where they may be contested."""
    pre = verified(place)
    with concurrent_writes(place, monkeypatch, rounds=3):
        done = place.run(cutover.complete, pre)
    assert (done.late_copied, done.contested) == (0, ())
    assert stores.read_oxia(place.target)[POLICIES].value == b"0"


def test_a_source_that_always_changes_is_not_committed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If services write all the time, the commit is refused in bounded time, and writes can be unblocked."""
    monkeypatch.setattr(cutover, "_FINAL_COPY_SECONDS", 0.5)
    pre = verified(place)
    with concurrent_writes(place, monkeypatch, rounds=10_000), pytest.raises(ApplicationError) as failed:
        place.run(cutover.complete, pre)
    assert failed.value.type == FailureKind.VERIFICATION_FAILED
    assert f"1 records are not copied yet: {POLICIES}" in str(failed.value)
    assert rollback.unblock_writes(place.task(), "a test").flag is FlagPhase.FAILED


def precheck(place: Place, **more: object) -> Precheck:
    """Return the result of the precheck of a later run."""
    task = place.task(run=9, allow_no_brokers=True, **more)
    check = PrecheckRun(task.input, task.workflow_id, Access(), AdminAccess(), partial(rollback.release, task))
    return check.run(task.engine, task.pair, tag="precheck")


def codes(result: Precheck) -> list[str]:
    """Return the codes of the blockers."""
    return [blocker.code for blocker in result.blockers]


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "scanned"])
def test_deletions_after_the_last_service_do_not_reach_the_target(place: Place, watched: bool) -> None:
    """Records that are deleted in the source after the last service has left stay in the target, and are reported."""
    pre = committed(place)
    before = place.copied()
    place.zookeeper.delete("/tenants", recursive=True)
    if not watched:
        place.lose_the_watch()
    late = place.run(cutover.follow, pre)
    assert place.copied() == before
    assert (late.copied, late.not_deleted) == (0, len(FEW))


def test_a_late_service_may_delete_few_records(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a service is in the source its deletions are followed, unless they are too many for one."""
    monkeypatch.setattr(convergence, "_MOST_DELETIONS", 1)
    pre = committed(place)
    place.zookeeper.create("/loadbalance/brokers/late:8080", b"{}", ephemeral=True, makepath=True)
    place.zookeeper.delete("/tenants/a")
    assert place.run(cutover.follow, pre).not_deleted == 0
    assert "/tenants/a" not in place.copied()
    place.zookeeper.delete("/tenants/b")
    place.zookeeper.delete("/tenants/c")
    assert place.run(cutover.follow, pre).not_deleted == 2
    assert {"/tenants/b", "/tenants/c"} < set(place.copied())


def test_unknown_clients_end_a_preparation_early(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """If only unknown clients are missing, writes are unblocked before the time limit."""
    monkeypatch.setattr(preparation, "_UNKNOWN_CLIENTS_TIMEOUT", 0.5)
    with stores.kazoo(stack.zk_url) as zookeeper:
        place = Place(stack.zk_url, stack.oxia_url, zookeeper)
        place.empty_target()
        zookeeper.create("/tool", b"", ephemeral=True)
        place.run(pre_copy.pre_copy, 0)
        with pytest.raises(ApplicationError, match=r"not recreated in the target: 1 ephemerals of session .*/tool"):
            place.run(preparation.prepare)
        assert rollback.unblock_writes(place.task(), "a test").flag is FlagPhase.FAILED
        place.run(rollback.clear_target)
        place.lose_the_watch()
        zookeeper.delete(FLAG)


def test_an_offline_start_unblocks_writes_of_a_live_run(place: Place) -> None:
    """An offline start unblocks writes of a live run and reports it: flag and claim go together, in any mode."""
    place.run(pre_copy.pre_copy, 0)
    assert not place.run(preparation.prepare).gap
    result = precheck(place, mode="offline")
    assert any("unblocked now" in warning for warning in result.warnings)
    assert FlagPhase.FAILED.encode() in place.zookeeper.get(FLAG)[0]
    assert place.zookeeper.exists(CLAIM) is None


def test_an_old_flag_in_the_target_is_deleted_before_the_commit(place: Place, stack: Stack) -> None:
    """A ZooKeeper that was migrated once can take over again: no service that restarts on it is redirected."""
    flag = json.dumps({"phase": "COMPLETED", "targetUrl": place.source}).encode()
    place.target = f"{stack.zk_url}/left-once"
    with stores.kazoo(place.target.replace("/left-once", "")) as zookeeper:
        zookeeper.create(f"/left-once{FLAG}", flag, makepath=True)
        committed(place)
        assert zookeeper.exists(f"/left-once{FLAG}") is None
    assert FlagPhase.COMPLETED.encode() in place.zookeeper.get(FLAG)[0]


def test_a_late_end_leaves_the_flag_of_the_next_migration(place: Place, stack: Stack) -> None:
    """An offline run that continues when its target is already a source does not remove the flag there."""
    place.target = f"{stack.zk_url}/next-source"
    pre = place.run(pre_copy.copy_whole, 0, mode="offline")
    late = place.task(mode="offline")
    place.run(cutover.complete, pre, mode="offline")
    with stores.kazoo(stack.zk_url) as zookeeper:
        zookeeper.create(f"/next-source{FLAG}", b'{"phase":"COMPLETED","targetUrl":"oxia://x:1"}', makepath=True)
        with pytest.raises(StoreConflict):
            cutover.complete(late, pre)
        assert zookeeper.exists(f"/next-source{FLAG}") is not None


def test_a_source_that_was_migrated_is_refused_offline(place: Place) -> None:
    """An operator who forgets to swap the stores for the failback does not empty the store that the cluster uses."""
    committed(place)
    assert codes(precheck(place, mode="offline", replace_target=True)) == ["ALREADY_COMPLETED"]


def test_services_in_the_target_count_despite_a_claim(place: Place, stack: Stack) -> None:
    """A claim that a commit did not release does not hide the services that use the target."""
    place.target = f"{stack.zk_url}/not-released"
    place.run(pre_copy.pre_copy, 0)
    with stores.kazoo(stack.zk_url) as zookeeper:
        zookeeper.create("/not-released/loadbalance/brokers/b:8080", b"{}", ephemeral=True, makepath=True)
        assert "TARGET_IN_USE" in codes(precheck(place))


def test_a_target_that_was_taken_after_the_precheck_is_not_changed(place: Place) -> None:
    """Records that were written between the precheck and the claim are neither overwritten nor deleted."""
    assert codes(precheck(place)) == []
    place.service_writes(OTHERS)
    with pytest.raises(ApplicationError, match=OTHERS):
        place.run(pre_copy.pre_copy, 0, run=9)
    assert place.run(rollback.clear_target, run=9) == 0
    assert list(place.copied()) == [OTHERS]


def test_an_unchecked_target_is_not_cleared(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a worker dies between the claim and the check, the target is kept: it may belong to another cluster."""
    place.service_writes(OTHERS)

    def die(*_: object) -> str:
        raise Died

    monkeypatch.setattr(pre_copy, "_in_the_way", die)
    with pytest.raises(Died):
        place.run(pre_copy.pre_copy, 0)
    with open_cas(parse_store_url(place.target), Access()) as store:
        held = read_claim(store, TargetClaim)
    assert held is not None
    assert not held.claim.ours
    assert place.run(rollback.clear_target) == 0
    assert list(place.copied()) == [OTHERS]


@pytest.mark.parametrize("phase", [FlagPhase.COPYING, FlagPhase.COMPLETED])
def test_a_target_that_another_command_migrates_to_is_not_cleared(place: Place, phase: FlagPhase) -> None:
    """A migration that fails because Pulsar's own command moved the flag leaves the target that the command uses."""
    place.run(pre_copy.pre_copy, 0)
    place.zookeeper.create(FLAG, Flag(phase=phase, targetUrl=place.target).encode())
    place.service_writes(OTHERS)
    with pytest.raises(ApplicationError, match=f"services may use the target: .* is {phase}"):
        place.run(rollback.clear_target)
    assert place.copied().keys() == {*place.wanted(), OTHERS}
    assert place.zookeeper.exists(CLAIM) is None


def test_a_target_in_which_services_run_is_not_cleared(place: Place, stack: Stack) -> None:
    """An offline migration that fails because services were started on the target too early leaves them their store."""
    place.target = f"{stack.zk_url}/too-early"
    place.run(pre_copy.copy_whole, 0, mode="offline")
    with stores.kazoo(stack.zk_url) as zookeeper:
        zookeeper.create("/too-early/loadbalance/brokers/b:8080", b"{}", ephemeral=True, makepath=True)
        with pytest.raises(ApplicationError, match="services use the target: broker b:8080"):
            place.run(rollback.clear_target, mode="offline")
        assert zookeeper.exists(f"/too-early{FEW[0]}")
        zookeeper.delete("/too-early", recursive=True)


def test_bulk_jobs_end_when_another_command_moves_the_flag(place: Place) -> None:
    """Bulk jobs end, because they would overwrite or delete records that services write to the target."""
    place.run(pre_copy.pre_copy, 0)
    task = place.task()
    with task.target_claim() as claim:
        claim.renew()
    place.zookeeper.create(FLAG, Flag(phase=FlagPhase.COPYING, targetUrl=place.target).encode())
    with pytest.raises(Superseded, match="is COPYING"):
        jobs.clear(task.engine, task.fenced_pair, "target", tag="clear")
    place.zookeeper.set(FLAG, Flag(phase=FlagPhase.COMPLETED, targetUrl=place.target).encode())
    place.service_deletes(FEW[0])
    place.service_writes(OTHERS)
    comparison = jobs.compare(task.engine, task.fenced_pair, records=3, tag="compare")
    with pytest.raises(Superseded, match="is COMPLETED"):
        jobs.copy(task.engine, task.fenced_pair, tag="copy")
    with pytest.raises(Superseded, match="is COMPLETED"):
        jobs.repair(task.engine, task.fenced_pair, comparison, tag="repair")
    assert FEW[0] not in place.copied()
    assert OTHERS in place.copied()


@pytest.mark.parametrize("step", [cutover.verify, cutover.complete])
def test_a_worker_that_takes_over_keeps_the_deadline(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: Callable[..., object]
) -> None:
    """If another worker continues with writes blocked, and Temporal goes away then, that worker unblocks them."""

    def die(*_: object) -> None:
        raise Died

    pre = place.run(pre_copy.pre_copy, 0)
    assert not place.run(preparation.prepare).gap
    place.run(cutover.copy_changes, pre)
    place.runtime.shared(BackgroundTasks).close()
    monkeypatch.setattr(context, "_GRACE", 0.0)
    monkeypatch.setattr(cutover, "all_changes", die)
    # The deadline passed before this worker took over, so that it may unblock them before the step dies.
    with pytest.raises((Died, StoreConflict)):
        place.run(step, pre, blocked_deadline="PT0.2S", preparation_timeout="PT0.2S")
    wait_for("writes to be unblocked", lambda: FlagPhase.FAILED.encode() in place.zookeeper.get(FLAG)[0], 3)


def test_late_writers_are_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After bulk jobs that did not end, and where Spark may lose a task, what is on its way is over before services."""
    waits: list[float] = []

    def note(_: MetadataStoreTask, since: float) -> None:
        waits.append(since)

    def die(*_: object, **__: object) -> None:
        raise Died

    monkeypatch.setattr(MetadataStoreTask, "await_late_writers", note)
    for _ in range(2):
        place.run(pre_copy.pre_copy, 0)
    assert waits == []
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "compare", die)
        with pytest.raises(Died):
            place.run(pre_copy.pre_copy, 0)
    place.run(pre_copy.pre_copy, 0)
    assert len(waits) == 1
    monkeypatch.setattr(type(place.runtime.engine), "may_lose_tasks", True)
    assert not place.run(preparation.prepare).gap
    assert len(waits) == 2


def test_new_transactions_are_refused_before_writes_are_blocked(place: Place) -> None:
    """Records that a copy would lose are searched for again before the flag is set, and no write is blocked for it."""
    place.run(pre_copy.pre_copy, 0)
    place.zookeeper.create("/txn/id/1", b"{}", makepath=True)
    with pytest.raises(ApplicationError, match=r"since PRECHECK the source has changed: \[TRANSACTIONS\]") as failed:
        place.run(preparation.prepare)
    assert failed.value.type == FailureKind.NOT_READY
    assert not place.zookeeper.exists(FLAG)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("/txn/id/1", b"{}", "TRANSACTIONS"),
        ("/topics/public/default/orders", b'{"properties":{"team":"a"}}', "TOPIC_PROPERTIES"),
    ],
)
def test_records_of_an_index_at_the_commit_fail_it(place: Place, path: str, value: bytes, code: str) -> None:
    """Records that came after the flag was set, for example through the caches of brokers, keep it from COMPLETED."""
    pre = verified(place)
    place.zookeeper.create(path, value, makepath=True)
    with pytest.raises(ApplicationError, match=code) as failed:
        place.run(cutover.complete, pre)
    assert failed.value.type == FailureKind.NOT_READY
    assert b"COPYING" in place.zookeeper.get(FLAG)[0]


def test_a_late_service_that_does_not_take_part_fails_the_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie with BookKeeper's own driver, or a broker of 4.0, registers although writes are blocked."""
    monkeypatch.setattr(cutover, "LATE_PARTICIPANTS_SECONDS", 0.3)
    pre = verified(place)
    place.zookeeper.create("/ledgers/available/b:3181", b"", ephemeral=True, makepath=True)
    with pytest.raises(ApplicationError, match=r"did not join the migration: bookie b:3181\.") as failed:
        place.run(cutover.complete, pre)
    assert failed.value.type == FailureKind.NOT_READY
    assert b"COPYING" in place.zookeeper.get(FLAG)[0]
    place.zookeeper.delete("/ledgers/available/b:3181")
    place.run(cutover.complete, pre)


def test_the_end_of_autorecovery_is_reported(place: Place) -> None:
    """If an auditor runs, the precheck warns that autorecovery ends with PREPARATION, and needs restarts."""
    assert not any("autorecovery ends" in warning for warning in precheck(place).warnings)
    place.zookeeper.create("/ledgers/underreplication/leader", b"b", ephemeral=True, makepath=True)
    assert any("autorecovery ends in all bookies" in warning for warning in precheck(place).warnings)


def test_an_unregistered_bookie_prevents_the_cleanup(place: Place) -> None:
    """A bookie without a connection to both stores would return to the source, and delete the ledgers that it lacks."""
    place.set("/ledgers/cookies/b:3181")
    committed(place)
    input, access = place.task().input, Access()
    absent = "bookie b:3181 is not registered, and may be cut off from both stores"
    assert any(absent in reason for reason in census(place.task()).unknown)
    with pytest.raises(ApplicationError, match=r"both stores: bookie b:3181\.") as refused:
        require_unused_source(input, access, {})
    assert refused.value.type == FailureKind.IN_USE
    place.service_deletes("/ledgers/cookies/b:3181")
    assert not any(absent in reason for reason in census(place.task()).unknown)
    require_unused_source(input, access, {})


def test_a_cleanup_leaves_what_is_not_pulsars(place: Place) -> None:
    """Another cluster below the same root is not deleted, and need not stop; the precheck lists what stays."""
    place.set("/admin/clusters/ours")
    place.set("/other/admin/clusters/theirs")
    result = precheck(place, mode="offline", cleanup="remove")
    assert any("/other, /tenants in the source are not Pulsar's" in warning for warning in result.warnings)
    pre = place.run(pre_copy.copy_whole, 0, mode="offline")
    place.run(cutover.complete, pre, mode="offline")
    task = place.task(mode="offline")
    cleanup.take_source(task)
    assert jobs.clear(task.engine, task.fenced_pair, "source", limit=1_000, tag="clear") == (3, 0)
    # Of ours the parent of the claim stays, as long as that does.
    theirs = {"/other", "/other/admin", "/other/admin/clusters", "/other/admin/clusters/theirs"}
    assert set(place.wanted()) == {"/pulsar", "/tenants", *FEW} | theirs


def test_ledgers_that_only_one_store_has_are_seen(place: Place) -> None:
    """A copy gives no more ids than its source; a store that gave ids to ledgers after it is identified."""

    def give_ids(count: int) -> None:
        for _ in range(count):
            place.zookeeper.create("/ledgers/idgen/ID-", sequence=True, makepath=True)

    give_ids(5)
    place.run(pre_copy.copy_whole, 0, mode="offline")
    source, target = parse_store_url(place.source), parse_store_url(place.target)
    assert ledgers_only_in(source, target, Access()) == ledgers_only_in(target, source, Access()) == ""
    give_ids(3)
    assert ledgers_only_in(source, target, Access()).startswith(f"{place.source} has given 8 ids to ledgers, and ")
    assert ledgers_only_in(target, source, Access()) == ""


def test_an_offline_start_waits_for_every_session(place: Place) -> None:
    """A client with an ephemeral has not stopped, even one of another cluster in a chroot of the same ZooKeeper."""
    place.zookeeper.create("/other/loadbalance/brokers/b:8080", b"{}", ephemeral=True, makepath=True)
    assert codes(precheck(place, mode="offline")) == ["FOREIGN_EPHEMERALS"]


def test_the_flag_is_repeated_at_each_check(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writes of a service that missed it are refused, so the source does not show that any service did."""

    def nothing(_: MetadataStoreTask) -> None:
        """Skip the repetition of the flag in the background."""

    monkeypatch.setattr(MetadataStoreTask, "repeat_flag", nothing)
    pre = committed(place)
    before = place.zookeeper.get(FLAG)[1].version
    for count in (1, 2):
        assert place.run(cutover.follow, pre).copied == 0
        assert place.zookeeper.get(FLAG)[1].version == before + count


def test_a_session_that_ends_is_no_client(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that stays connected to the source is reported, and a session that a server still lists is not."""
    address = place.source.removeprefix("zk:").partition("/")[0]
    committed(place)
    (services,) = census(place.task()).services
    assert services == "other clients: connected to the source from 127.0.0.1"

    def close(_: float) -> None:
        session = f"sid=0x{place.zookeeper.client_id[0]:x},"
        place.zookeeper.stop()
        # It answers the end of a session before it closes the connection.
        wait_for("the server to list it no more", lambda: session not in (four_letter(address, "cons") or ""), 30)

    monkeypatch.setattr(taking, "time", SimpleNamespace(sleep=close))
    services = census(place.task()).services
    place.zookeeper.start()
    assert services == ()

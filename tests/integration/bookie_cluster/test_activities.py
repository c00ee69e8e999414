"""The steps of a bookie cluster migration by restart on real servers, one after the other, without workflows.

The tests share one cluster and run in their order: each starts where the one before left the cluster.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from activities.bookie_cluster import build as copying
from activities.bookie_cluster import cleanup as cleaning
from activities.bookie_cluster import precheck, registry, tail
from activities.bookie_cluster.cluster_inspection import ClusterInspection, inspect
from activities.bookie_cluster.ledgers import progress_path
from activities.bookie_cluster.progress import NOT_COPIED_LEDGERS, SwitchProgress, read_failed
from activities.lifecycle.context import ActivityContext
from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.cluster import open_clusters
from clients.bookkeeper.layout import ledger_path
from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import COPY_TOKEN
from clients.errors import StoreConflict, Superseded
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.stores import Access
from clients.zookeeper.coordination import CoordinationReader
from models.bookie_cluster.results import SwitchPrecheck
from models.bookie_cluster.updates import CleanupOrder
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.status import WaitKind
from models.releases import Behaviour
from pulsar_devstack.servers.stack import StackSpec
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.environment import (
    BACK,
    DELETE_ALL,
    FORWARD,
    TOPICS,
    SwitchEnvironment,
    codes,
    delete_ledger,
    write_ledger,
)
from tests.support.metadata_store.stores import kazoo
from tests.support.releases import RELEASE
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

# The library has no types.
security: Any = importlib.import_module("kazoo.security")

DATA = [b"some data"] * 3
OTHER_DATA = [b"other data"] * 3


def _with_bookies(result: SwitchPrecheck, count: int) -> SwitchPrecheck | None:
    return result if len(result.bookies) == count else None


def _down(result: SwitchPrecheck) -> str:
    return next((warning for warning in result.warnings if "are down" in warning), "")


@pytest.fixture(scope="module")
def environment(make_stack: MakeStack, engine: SparkEngine) -> SwitchEnvironment:
    """Two bookies in each cluster, and one broker with topics of some ledgers."""
    settings = {
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        # What is acknowledged stays, so that readers can count.
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    stack = make_stack(StackSpec(zookeepers=1, bookies=2, second_bookies=2, brokers=1, broker_settings=settings))
    environment = SwitchEnvironment(stack, Steps(engine))
    environment.send()
    # Brokers write positions some time after an acknowledgement, and the first one of each makes a ledger.
    wait_until_equal("ledgers of positions", lambda: len(_positions(environment.source())), len(TOPICS), 30)
    return environment


def _positions(ledgers: Mapping[int, LedgerRecord]) -> list[int]:
    """Return the ledgers of the subscriptions' positions."""
    return [number for number, ledger in ledgers.items() if ledger.metadata.custom_map.get("pulsar/cursor") == b"half"]


def test_precheck_finds_low_ids_and_writes_nothing(environment: SwitchEnvironment) -> None:
    """PRECHECK counts what moves, names the node that raises ids that are too low, and creates no node."""
    result = environment.precheck()

    assert codes(result) == ["TARGET_IDS_TOO_LOW"]
    assert "/second-ledgers/idgen-long/HOB-0000000001" in result.blockers[0].cure
    assert result.survey is not None
    assert result.survey.ledgers == len(environment.source())
    assert result.survey.kinds["schema"] >= len(TOPICS)
    assert result.survey.references > 0
    assert result.survey.dangling_count == 0
    assert result.needed_bytes > result.survey.entry_bytes > 0
    assert result.free_bytes > result.needed_bytes
    assert len(result.bookies) == 2
    assert "5." in result.brokers[0]
    with CoordinationReader(environment.input().store) as zookeeper:
        assert zookeeper.exists("/admin/bookie-clusters") is None
        assert zookeeper.exists("/second-ledgers/idgen-long") is None


def test_a_ledger_that_is_created_during_the_precheck_is_not_lost(
    environment: SwitchEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that a broker creates after all were listed, and then refers to, does not count as lost."""
    made = _positions(environment.source())[0]

    def listed(*given: Any) -> ClusterInspection | None:
        inspection = inspect(*given)
        return inspection and replace(
            inspection, ledgers=inspection.ledgers.where(lambda ledger: ledger.ledger_id != made)
        )

    monkeypatch.setattr(precheck, "inspect", listed)
    result = environment.precheck()
    assert result.survey is not None
    assert result.survey.dangling_count == 0


def test_precheck_plans_the_cure(environment: SwitchEnvironment) -> None:
    """With `advance_ids` nothing blocks, and the plan names the node; without a check of ids there is a red warning."""
    cured, careless = environment.precheck(advance_ids=True), environment.precheck(skip_idgen_precheck=True)

    assert codes(cured) == codes(careless) == []
    assert any("HOB-0000000001" in step for step in cured.steps)
    assert any("LAB ONLY" in warning for warning in careless.warnings)


def test_precheck_names_every_blocker(environment: SwitchEnvironment) -> None:
    """Each reason why the switch would fail later has its own blocker, and all are reported together."""
    a = {"name": "a", "metadataServiceUri": environment.stack.bookkeeper_uri}
    b = {"name": "b", "metadataServiceUri": environment.stack.second_bookkeeper_uri}
    nowhere = b["metadataServiceUri"].replace("/second-ledgers", "/nothing")
    silent = "zk+hierarchical://127.0.0.1:1/ledgers"
    ids = {"advance_ids": True}

    assert codes(environment.precheck(source=b, target=a, **ids)) == ["BROKERS_ELSEWHERE"]
    assert codes(environment.precheck(target={"name": "b", "metadataServiceUri": nowhere})) == ["NOT_INITIALIZED"]
    assert codes(environment.precheck(target={"name": "b", "metadataServiceUri": silent})) == ["UNREACHABLE"]
    lacking = [] if RELEASE.has(Behaviour.LEDGER_PROPERTIES) else ["NO_LEDGER_PROPERTIES"]
    attributed = environment.precheck(routing="attribution", ledgers="referenced", **ids)
    assert codes(attributed) == [*lacking, "PLUGIN_MISSING"]
    assert codes(environment.precheck(broker_control="command")) == ["BROKER_CONTROL_UNSET", "TARGET_IDS_TOO_LOW"]
    long_form = b["metadataServiceUri"].replace("zk+hierarchical", "zk+longhierarchical")
    assert codes(environment.precheck(target={"name": "b", "metadataServiceUri": long_form})) == ["LAYOUT_UNSUPPORTED"]
    with kazoo(environment.stack.zk_url) as zookeeper:
        zookeeper.create("/loadbalance/brokers/gone:8080", b"{}")
        assert codes(environment.precheck(**ids)) == ["PERSISTENT_REGISTRATION"]
        zookeeper.delete("/loadbalance/brokers/gone:8080")
        zookeeper.create("/second-ledgers/available/gone:3181", b"")
        result = environment.precheck(**ids)
        assert codes(result) == ["PERSISTENT_REGISTRATION"]
        assert "in b, no session owns /available/gone:3181" in result.blockers[0].cause
        zookeeper.delete("/second-ledgers/available/gone:3181")


def test_precheck_ignores_foreign_nodes_without_references(environment: SwitchEnvironment) -> None:
    """A ledger of another format blocks the switch only if a topic refers to it; a parent's value never blocks."""
    ids = {"advance_ids": True}
    first = b"BookieMetadataFormatVersion\t1\n2\n3\n1234\n0\tb1:3181\tb2:3181\tb3:3181\n41\tCLOSED"
    topic = "/managed-ledgers/public/default/persistent/of-a-lost-format"
    with kazoo(environment.stack.zk_url) as zookeeper:
        zookeeper.set("/managed-ledgers/public", b"10.42.0.17")
        zookeeper.create(f"/ledgers{ledger_path(888_888)}", first, makepath=True)
        alone = environment.precheck(**ids)
        info = ManagedLedgerInfo()
        info.ledgerInfo.add(ledgerId=888_888)
        zookeeper.create(topic, info.SerializeToString())
        referred = environment.precheck(**ids)
        zookeeper.delete(topic)
        zookeeper.delete(f"/ledgers{ledger_path(888_888)}")
        zookeeper.set("/managed-ledgers/public", b"")
    assert codes(alone) == []
    assert any("1 ledgers of a cannot be decoded" in warning for warning in alone.warnings)
    assert codes(referred) == ["UNDECODABLE_LEDGERS"]
    assert "ledger 888888: the ledger's metadata has format version '1'" in referred.blockers[0].cause


def test_precheck_warns_of_ledgers_that_are_not_open_to_everyone(environment: SwitchEnvironment) -> None:
    """Copies have the open ACL: a ledger with another one is named, and where to set it; without one nothing is."""
    ids = {"advance_ids": True}
    number = min(environment.source())
    path = f"/ledgers{ledger_path(number)}"
    own = [security.make_digest_acl("broker", "secret", all=True), security.make_acl("world", "anyone", read=True)]
    with kazoo(environment.stack.zk_url) as zookeeper:
        zookeeper.add_auth("digest", "broker:secret")
        zookeeper.set_acls(path, own)
        protected = environment.precheck(**ids)
        zookeeper.set_acls(path, security.OPEN_ACL_UNSAFE)
    assert codes(protected) == []
    (warning,) = (warning for warning in protected.warnings if "ACL" in warning)
    assert f"1 do not give everyone all permissions (ledger {number} for example)" in warning
    assert "setAcl -R /second-ledgers ACL" in warning
    assert not any("ACL" in warning for warning in environment.precheck(**ids).warnings)


def test_precheck_reads_the_registry(environment: SwitchEnvironment) -> None:
    """Once clusters are registered, the plan is compared with their addresses, the ACTIVE one and an open switch."""
    environment.steps.run(registry.register, environment.input())
    a = {"name": "a", "metadataServiceUri": environment.stack.bookkeeper_uri}
    b = {"name": "b", "metadataServiceUri": environment.stack.second_bookkeeper_uri}

    assert codes(environment.precheck()) == ["TARGET_IDS_TOO_LOW"], "our own switch does not block"
    for elsewhere in ({}, {"registry_path": "/admin/other"}):
        assert codes(environment.precheck(cluster="else", advance_ids=True, **elsewhere)) == [
            "SWITCH_OPEN",
            "CLUSTER_NAME",
        ]
    assert codes(environment.precheck(target={**b, "name": "c"}, advance_ids=True)) == ["ADDRESS_IN_USE"]
    assert codes(environment.precheck(source=b, target=a, advance_ids=True)) == ["ANOTHER_ACTIVE", "BROKERS_ELSEWHERE"]


def test_ids_are_advanced_once(environment: SwitchEnvironment) -> None:
    """The target's generator is raised above all ids in use, and a second call changes nothing."""
    before = environment.steps.run(copying.check_ids, environment.input(), FORWARD)
    advanced = environment.steps.run(copying.advance_ids, environment.input(), FORWARD)

    assert not before.safe
    assert before.cure == 1
    assert before.highest >= max(environment.source())
    assert advanced.safe
    assert advanced.next_id == 1 << 32
    assert environment.steps.run(copying.advance_ids, environment.input(), FORWARD) == advanced


def test_build_copies_closed_ledgers(environment: SwitchEnvironment) -> None:
    """BUILD copies every closed ledger while the broker serves, and names one whose id another ledger has."""
    environment.clash = write_ledger(environment.stack.bookkeeper_uri, DATA)
    write_ledger(environment.stack.second_bookkeeper_uri, OTHER_DATA, environment.clash)
    opened = [record for record in environment.source().values() if not record.metadata.closed]

    built = environment.build()

    assert built.copied == len(environment.source()) - len(opened) - 1
    assert built.left_open == len(opened) > 0
    assert built.failed.count == 1
    assert str(built.failed.items[0]).startswith(f"ledger {environment.clash}: another ledger has this id in b")
    assert built.compared >= built.entries > 0
    target = environment.target()
    for number, mzxid in environment.verified().items():
        assert environment.source()[number].metadata.same_content(target[number].metadata)
        assert target[number].mzxid == mzxid
    with environment.task().broker_store() as store:
        assert list(read_failed(store, progress_path(environment.task(), FORWARD))) == [environment.clash]


def test_build_again_copies_nothing(environment: SwitchEnvironment) -> None:
    """A second BUILD knows what was verified, and retries what failed."""
    verified = len(environment.verified())
    again = environment.build()

    assert (again.copied, again.equal, again.already_verified, again.failed.count) == (0, 0, verified, 1)


def test_copy_with_another_znode_is_compared_again(environment: SwitchEnvironment) -> None:
    """A copy that was deleted and created again is compared in full again."""
    number = next(iter(environment.verified()))
    metadata = environment.target()[number].metadata
    delete_ledger(environment.stack.second_bookkeeper_uri, number)
    with LedgerDirectoryWriter(environment.input().target.root, Access()) as directory:
        assert directory.create([(number, metadata)]) == [True]

    again = environment.build()

    assert (again.copied, again.equal) == (0, 1)


def test_earlier_attempt_cannot_write(environment: SwitchEnvironment) -> None:
    """Results of a superseded attempt are not recorded."""
    first = environment.task()
    second = environment.steps.task(environment.input(), epoch=first.attempt.epoch, attempt=2)
    with first.registry() as mine, second.registry() as theirs:
        mine.claim.renew()
        late, current = SwitchProgress(first, mine), SwitchProgress(second, theirs)
        theirs.claim.renew()
        with pytest.raises(Superseded, match=r"attempt 1 was superseded by .* attempt 2"):
            late.add_verified({7_000_001: 1})
        current.add_verified({7_000_002: 1})

    assert 7_000_001 not in environment.verified()
    assert environment.verified()[7_000_002] == 1


def test_copies_are_removed(environment: SwitchEnvironment) -> None:
    """A rollback before the switch removes the copies and nothing else, whatever state they are in."""
    with LedgerDirectoryWriter(environment.input().target.root, Access()) as directory:
        # The state in which an interrupted copy remains.
        (record,) = directory.read([next(iter(environment.verified()))])
        assert record is not None
        (source,) = [ledger for number, ledger in environment.source().items() if number == record.ledger_id]
        segments = record.metadata.segments
        begun = replace(source.metadata, state=1, length=0, last_entry=-1, segments=segments, token=COPY_TOKEN)
        directory.update([(record.ledger_id, begun, record.version)])

    removed = environment.steps.run(cleaning.remove_copies, environment.input())

    assert removed.deleted > 0
    assert removed.remaining == 0
    assert list(environment.target()) == [environment.clash]
    assert environment.steps.run(cleaning.remove_copies, environment.input()).deleted == 0
    assert environment.build().copied > 0


def _waits_for(context: ActivityContext) -> WaitKind | None:
    reason = context.report().waiting
    return reason.kind if reason else None


def test_tail_waits_for_brokers_and_holds_everything(environment: SwitchEnvironment) -> None:
    """The tail waits while a broker is registered; after its crash, open ledgers are closed and everything is there.

    The throttle of the copies before it does not count: each entry would take a minute.
    """
    environment.send()
    task = environment.task()
    with environment.task().registry() as registry:
        assert registry.claim.change(throttle=1e-6)
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(tail.copy_tail, task, FORWARD)
        wait_for("the tail to wait for the broker", lambda: _waits_for(task.context) is WaitKind.BROKERS_RETURNED, 20)
        assert any(not record.metadata.closed for record in environment.source().values())
        environment.stack["broker-1"].kill()
        done = pending.result(240)

    # The copy restarts, with new counts, if ZooKeeper deletes the brokers' empty container before its last check. All
    # ledgers may be verified by then, so the counts do not tell that open ledgers were closed; their metadata does.
    assert done.copy_summary.already_verified > 0
    assert done.copy_summary.failed.count == 1
    assert done.missing.count == 0
    assert done.references > 0
    source, target = environment.source(), environment.target()
    assert done.checked == len(source)
    for number, record in source.items():
        assert record.metadata.closed
        assert record.metadata.same_content(target[number].metadata) == (number != environment.clash)
    with environment.task().registry() as registry:
        registry.claim.change(throttle=None)


def test_tail_again_follows_deletions(environment: SwitchEnvironment) -> None:
    """A copy whose source was deleted is removed, one that is referred to is kept, and full_verify reads all again."""
    orphan = write_ledger(environment.stack.bookkeeper_uri, DATA)
    copies = environment.target().keys()
    first = environment.copy_tail()
    copies_with_orphan = environment.target().keys()
    delete_ledger(environment.stack.bookkeeper_uri, orphan)

    again = environment.copy_tail(full_verify=True)

    # As above, a tail may have begun again: the target shows what it did, its counts may not.
    assert first.removed == 0
    assert copies_with_orphan - copies == {orphan}
    assert again.copy_summary.copied == 0
    assert environment.target().keys() == copies
    assert (
        again.copy_summary.compared
        >= sum(record.metadata.last_entry + 1 for record in environment.source().values()) - 3
    )


def test_tail_names_what_is_missing(environment: SwitchEnvironment) -> None:
    """A position whose ledger cannot be copied is named; one that dangles at the source already is not."""
    schemas = sorted(number for number, record in environment.source().items() if record.metadata.component == "schema")
    with LedgerDirectoryWriter(environment.input().target.root, Access()) as directory:
        (copy,) = directory.read([schemas[0]])
        assert copy is not None
        directory.delete([(schemas[0], None)])
        write_ledger(environment.stack.second_bookkeeper_uri, OTHER_DATA, schemas[0])

        tail = environment.copy_tail()

        (missing,) = tail.missing.items
        assert (missing.ledger_id, missing.reason) == (schemas[0], "its schema ledger is not in b")
        directory.delete([(schemas[0], None)])
    assert environment.copy_tail().missing.count == 0


def test_nothing_is_deleted_before_the_target_is_active(environment: SwitchEnvironment) -> None:
    """A cleanup is refused while the source is ACTIVE, or for another cluster; copies stay once brokers use them."""
    environment.steps.run(registry.set_target, environment.input(), FORWARD)

    with pytest.raises(StoreConflict, match="b is not ACTIVE"):
        environment.delete()
    with pytest.raises(StoreConflict, match="not the cluster that this switch left"):
        environment.steps.run(cleaning.list_targets, environment.input(), CleanupOrder(src_cluster="b"))
    with pytest.raises(StoreConflict, match="directed to b"):
        environment.steps.run(cleaning.remove_copies, environment.input())


def test_census_counts_new_and_misrouted_ledgers(environment: SwitchEnvironment) -> None:
    """In the window, all messages are on the new bookies; new ledgers are counted, and misrouted ones named."""
    environment.move_broker(environment.stack.second_bookkeeper_uri)
    environment.assert_all()
    environment.send()
    # The census and this test list ledgers one after the other: none may come in between.
    wait_until_equal("ledgers of positions", lambda: len(_new_positions(environment)), len(TOPICS), 30)
    misrouted = write_ledger(environment.stack.bookkeeper_uri, DATA)

    census = environment.steps.run(cleaning.take_census, environment.input())

    assert "second-ledgers" in census.brokers[0]
    assert [name.partition(":")[0] for name in census.misrouted_ledgers] == [f"ledger {misrouted}"]
    assert census.target_only == len(environment.target().keys() - environment.source().keys()) > 0
    assert census.target_only_bytes > 0
    assert census.targets.ledgers == len(environment.verified().keys() & environment.source().keys())
    assert census.targets.retained == 2, "the misrouted ledger, and the one that could not be copied"
    delete_ledger(environment.stack.bookkeeper_uri, misrouted)


def _new_positions(environment: SwitchEnvironment) -> set[int]:
    """Return the ledgers of positions that brokers have created in the target."""
    return {*_positions(environment.target())} - environment.source().keys()


def test_rollback_copies_new_ledgers_back(environment: SwitchEnvironment) -> None:
    """A rollback copies back only the ledgers that the new bookies gained, and raises the old ids above theirs."""
    environment.stop_broker()
    half = _half_made_copy(environment)
    before = environment.source().keys()
    gained = environment.target().keys() - before

    ids = environment.steps.run(copying.advance_ids, environment.input(), BACK)
    tail = environment.copy_tail(BACK)

    assert ids.next_id == 2 << 32
    assert tail.copy_summary.compared < sum(record.metadata.last_entry + 1 for record in environment.target().values())
    assert tail.missing.count == 0
    assert environment.source().keys() - before == gained
    assert half not in [item.ledger_id for item in tail.copy_summary.failed.items]
    assert environment.target()[half].metadata.is_copy
    assert not environment.target()[half].metadata.closed
    for uri in (environment.stack.bookkeeper_uri, environment.stack.second_bookkeeper_uri):
        delete_ledger(uri, half)
    environment.steps.run(registry.set_target, environment.input(), BACK)
    environment.steps.run(registry.release, environment.input())
    environment.stack.reconfigure("broker-1", autoSkipNonRecoverableData="true")
    environment.move_broker(environment.stack.bookkeeper_uri)
    environment.assert_all()
    environment.send()
    environment.assert_all()


def _half_made_copy(environment: SwitchEnvironment) -> int:
    """End the copy of a ledger of the source in its middle, before anything is recorded; returns its id."""

    def die(size: int) -> None:
        if size:
            raise StoreConflict("a broker has started too early")

    number = write_ledger(environment.stack.bookkeeper_uri, DATA)
    ends = environment.input().ends(FORWARD)
    with (
        open_clusters(ends.source.root, ends.target.root, Access(), 5.0) as clusters,
        pytest.raises(StoreConflict, match="too early"),
    ):
        copy_batch(*clusters, [number], check=die)
    return number


def test_precheck_checks_brokers_and_bookies(environment: SwitchEnvironment) -> None:
    """Brokers that would skip unreadable entries are blockers, and so are bookies that are down."""
    ids = {"advance_ids": True}
    skips = environment.precheck(**ids)
    environment.stack["second-bookie-1"].stop()
    one_bookie = wait_for("one bookie to be gone", lambda: _with_bookies(environment.precheck(**ids), 1), 30)
    environment.stack["second-bookie-2"].stop()
    no_bookie = wait_for("both bookies to be gone", lambda: _with_bookies(environment.precheck(**ids), 0), 30)
    for number in (1, 2):
        environment.stack[f"second-bookie-{number}"].start()
    environment.stack["bookie-1"].stop()
    warned = wait_for("the source's bookie to be missed", lambda: _down(environment.precheck(**ids)), 30)
    environment.stack["bookie-1"].start()

    assert codes(skips) == ["AUTO_SKIP"]
    assert codes(one_bookie) == ["AUTO_SKIP", "ENSEMBLE_TOO_LARGE", "ENSEMBLE_TOO_LARGE"]
    assert "NO_WRITABLE_BOOKIES" in codes(no_bookie)
    assert "bookies of a are down" in warned


def test_second_switch_finds_earlier_copies(environment: SwitchEnvironment) -> None:
    """A switch after a rollback knows what the first one copied, and compares the other ledgers of the target."""
    environment.steps.run_id = "run-2"
    environment.steps.run(registry.register, environment.input())
    closed = {number for number, record in environment.source().items() if record.metadata.closed}
    copied = closed & environment.target().keys()

    ids = environment.steps.run(copying.advance_ids, environment.input(), FORWARD)
    built = environment.build()

    assert ids.next_id == 3 << 32
    assert built.copied == len(closed - copied)
    assert built.equal + built.already_verified == len(copied) - 1
    environment.stop_broker()
    assert environment.copy_tail().missing.count == 0
    environment.steps.run(registry.set_target, environment.input(), FORWARD)
    environment.stack.reconfigure("broker-1", autoSkipNonRecoverableData="false")
    environment.move_broker(environment.stack.second_bookkeeper_uri)


def test_cleanup_deletes_what_was_verified(environment: SwitchEnvironment) -> None:
    """After the flip the verified ledgers are deleted within the limit, and the broker serves all messages."""
    environment.steps.run(registry.flip_statuses, environment.input())
    targets = environment.steps.run(cleaning.list_targets, environment.input(), DELETE_ALL)

    # Ledgers that were verified before the rollback are still known, and some of them are gone from the source.
    verified = len(environment.verified().keys() & environment.source().keys())

    few = CleanupOrder(src_cluster="a", max_deletions=2)

    step = environment.task().attempt.epoch
    first = environment.delete(few, epoch=step)
    repeated = environment.delete(few, epoch=step, attempt=2)
    rest = environment.delete()

    assert targets.ledgers == verified
    assert (first.deleted, first.remaining) == (2, targets.ledgers - 2)
    assert repeated == first, "a step that is repeated keeps to the limit of the whole step"
    assert (rest.deleted, rest.remaining) == (targets.ledgers - 2, 0)
    assert list(environment.source()) == [environment.clash]
    for name in ("bookie-1", "bookie-2"):
        environment.stack[name].stop()
    environment.assert_all()


def test_force_deletes_unreferenced_ledgers(environment: SwitchEnvironment) -> None:
    """By force, a ledger that nothing refers to and that was never verified is deleted too."""
    assert environment.delete(CleanupOrder(src_cluster="a", force=True)).deleted == 1
    assert not environment.source()


def test_lists_of_failures_outlive_the_switch(environment: SwitchEnvironment) -> None:
    """A list that is too long for the report remains after the switch; a later, shorter one replaces it."""
    task = environment.task()
    failures = [FailedItem(ledger_id=number, reason="lost") for number in range(NAMED + 1)]
    with task.registry() as opened:
        opened.claim.renew()
        progress = SwitchProgress(task, opened)
        long = progress.report(NOT_COPIED_LEDGERS, "ledger(s)", failures)
        assert progress.report(NOT_COPIED_LEDGERS, "ledger(s)", failures[1:]).listed_in == ""
        assert not opened.store.children(long.listed_in)
        reported = progress.report(NOT_COPIED_LEDGERS, "ledger(s)", failures)
    environment.steps.run(registry.release, environment.input())

    assert (len(reported.items), reported.count) == (NAMED, NAMED + 1)
    with task.reading_store() as store:
        (node,) = (store.get(f"{reported.listed_in}/{child}") for child in store.children(reported.listed_in))
        assert node is not None
        assert json.loads(node.value) == [["", item.ledger_id, "lost"] for item in failures]
        assert store.children(reported.listed_in.rpartition("/")[0]) == [NOT_COPIED_LEDGERS]

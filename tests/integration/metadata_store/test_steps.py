"""Single steps of the migration on a real ZooKeeper and a real Oxia, without Temporal, Spark and brokers.

So each test chooses what is written between two steps, and what a step finds that comes too late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from unittest import mock

import pytest

from activities.lifecycle.context import ActivityContext, Cancelled
from activities.metadata_store import catch_up as catching_up
from activities.metadata_store import convergence, cutover, pre_copy, preparation, rollback
from activities.metadata_store.catch_up import catch_up
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.flag import FlagKeeper
from clients.errors import StoreConflict, StoreContention, StoreUnreachable, Superseded
from clients.stores import Access, last_transaction, open_cas
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import NAMED
from models.metadata_store.results import PreCopy
from models.migration_flag import FLAG, FlagPhase
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from spark.metadata_store.replica import Applied, CommitPoint, Followed, Replica
from spark.metadata_store.spec import Differences, Pair
from tests.support.metadata_store import stores
from tests.support.metadata_store.steps import Place, highest, open_place
from tests.support.stacks import MakeStack

MARGIN = 5
FEW = ["/tenants/a", "/tenants/b", "/tenants/c"]


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A source, and a target."""
    return make_stack(StackSpec(zookeepers=1, oxias=1))


@pytest.fixture
def place(stack: Stack, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A source with some records, and an empty target; a small margin is outrun by few writes."""
    monkeypatch.setattr(pre_copy, "_VERSION_MARGIN", MARGIN)
    monkeypatch.setattr(convergence, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)
    with open_place(stack, request.node.originalname, FEW) as opened:
        yield opened


def new_version(place: Place) -> int:
    """Return the version that a write of a service gets now."""
    return place.service_writes("/scratch")


def ahead(place: Place, path: str = "/tenants/a") -> None:
    """Give a record a version above all that the target has numbered."""
    place.zookeeper.ensure_path(path)
    version = place.zookeeper.get(path)[1].version
    place.set(path, max(0, new_version(place) - version) + MARGIN + 20)
    place.service_deletes("/scratch")


def pair_of(place: Place) -> Pair:
    """Return the pair of both stores."""
    return Pair(parse_store_url(place.source), parse_store_url(place.target), Access(), parts=1)


def to_the_commit(place: Place, pre: PreCopy) -> PreCopy:
    """Run the steps from PREPARATION to VERIFY."""
    assert not place.run(preparation.prepare).gap
    place.run(cutover.copy_changes, pre)
    verified = place.run(cutover.verify, pre)
    return pre.model_copy(update={"version_floor": verified.version_floor})


def test_no_version_is_given_twice(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any step that copies a version above the line, services get higher versions."""
    ahead(place)
    copy = pre_copy._copy_and_compare  # pyright: ignore[reportPrivateUsage] - what changes during the bulk copy

    def copy_then_write(task: MetadataStoreTask, records: int) -> object:
        done = copy(task, records)
        # Above the line that the bulk copy alone draws.
        place.set("/tenants/b", done.copied.highest + 2 * MARGIN)
        return done

    monkeypatch.setattr(pre_copy, "_copy_and_compare", copy_then_write)
    seen: list[int] = []

    def check(name: str) -> None:
        # Before anything else is written there, which would move the line too.
        seen.append(new_version(place))
        place.service_deletes("/scratch")
        assert seen[-1] > highest(place.wanted().values()), name

    pre = place.run(pre_copy.pre_copy, 0)
    check("PRE_COPY")
    ahead(place)
    caught = place.run(catch_up, pre, 0.0)
    check("CATCH_UP")
    pre = pre.model_copy(update={"since_zxid": caught.since_zxid, "version_floor": caught.version_floor})
    assert not place.run(preparation.prepare).gap
    ahead(place)
    place.run(cutover.copy_changes, pre)
    verified = place.run(cutover.verify, pre)
    check("VERIFY")
    pre = pre.model_copy(update={"version_floor": verified.version_floor})
    ahead(place)
    ahead(place, "/tenants/c")
    for number in range(60):
        place.set(f"/tenants/many-{number:02d}")
    place.run(cutover.complete, pre)
    check("COMPLETED")


def test_no_copied_version_is_given_twice(place: Place) -> None:
    """If nothing changes during the bulk copy, its own highest version counts."""
    ahead(place)
    place.run(pre_copy.pre_copy, 0)
    assert new_version(place) > highest(place.wanted().values())


def test_an_offline_copy_gives_no_version_twice(place: Place) -> None:
    """The line is drawn offline too, where no client holds an old version, and old positions stay distinct."""
    place.set("/tenants/a", new_version(place) + 50)
    place.service_deletes("/scratch")
    place.run(pre_copy.copy_whole, 0, mode="offline")
    assert new_version(place) > highest(place.wanted().values())


def test_changes_are_found_without_the_watch(place: Place) -> None:
    """A worker that takes over a watch finds by a scan what was created, set and deleted, and says why it scanned."""
    pre = place.run(pre_copy.pre_copy, 0)
    assert place.copied() == place.wanted()
    place.lose_the_watch()
    place.set("/tenants/a", 3)
    place.set("/namespaces/new")
    place.zookeeper.delete("/tenants/c")
    caught = place.run(catch_up, pre, 0.0)
    assert caught.gap
    assert caught.since_zxid > pre.since_zxid
    assert place.copied() == place.wanted()


@pytest.mark.parametrize("rounds", [1, 20], ids=["out of rounds", "one more round"])
def test_differences_of_the_bulk_copy_are_not_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """A difference that is still there after its repair is repaired by another round, or in CATCH_UP."""
    copy, apply = pre_copy._copy_and_compare, Replica.apply  # pyright: ignore[reportPrivateUsage]
    applied: list[int] = []

    def copy_and_differ(task: MetadataStoreTask, records: int) -> object:
        done = copy(task, records)
        return done._replace(comparison=done.comparison._replace(different=Differences(1, (b"/tenants/b",))))

    def apply_and_write(self: Replica, paths: Iterable[bytes]) -> Applied:
        done = apply(self, paths)
        if not applied:
            place.service_writes("/tenants/b")
        applied.append(done.written)
        return done

    monkeypatch.setattr(pre_copy, "_copy_and_compare", copy_and_differ)
    monkeypatch.setattr(Replica, "apply", apply_and_write)
    monkeypatch.setattr(convergence, "_MOST_ROUNDS", rounds)
    pre = place.run(pre_copy.pre_copy, 0, run=rounds)
    if rounds == 1:
        assert place.copied() != place.wanted()
        place.run(catch_up, pre, 0.0, run=rounds)
    assert place.copied() == place.wanted()


def test_a_few_changes_do_not_wait_for_the_end_of_a_long_hold(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round may last an hour; a verification takes a change that was not copied by then for a difference."""
    monkeypatch.setattr(catching_up, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(catching_up, "_LONGEST_LAG", 0.2)

    class Watching(ActivityContext):
        pauses = 0

        def pause(self, seconds: float) -> None:
            self.pauses += 1
            if self.pauses == 1:
                place.set("/tenants/a", 3)
            elif place.copied() == place.wanted():
                raise Cancelled
            super().pause(seconds)

    pre = place.run(pre_copy.pre_copy, 0)
    task = place.task()
    task.context = Watching()
    with pytest.raises(Cancelled):
        catch_up(task, pre, 60.0)


def test_nothing_is_blocked_before_all_is_caught_up(place: Place) -> None:
    """A worker without the watch sets no flag: it would need to scan with writes blocked."""
    place.run(pre_copy.pre_copy, 0)
    place.lose_the_watch()
    assert place.run(preparation.prepare).gap
    assert place.zookeeper.exists(FLAG) is None


def test_a_difference_at_the_end_is_repaired(place: Place) -> None:
    """VERIFY finds a record of the target that was changed, counts it, and writes it again."""
    pre = place.run(pre_copy.pre_copy, 0)
    place.set("/tenants/b")
    assert not place.run(preparation.prepare).gap
    assert place.run(cutover.copy_changes, pre).written >= 1
    assert place.copied() == place.wanted()
    place.service_writes("/tenants/b")
    assert place.run(cutover.verify, pre).repaired == 1
    assert place.copied() == place.wanted()


def test_a_deletion_after_the_commit_is_not_undone(place: Place) -> None:
    """A record that was copied with writes blocked, and deleted by a service since, stays deleted without the watch."""
    pre = place.run(pre_copy.pre_copy, 0)
    place.set("/tenants/kept")
    pre = to_the_commit(place, pre)
    assert place.run(cutover.complete, pre).late_copied == 0
    place.lose_the_watch()
    place.service_deletes("/tenants/kept")
    place.set("/tenants/late")
    followed = place.run(cutover.follow, pre)
    assert "/tenants/kept" not in place.copied()
    assert place.copied()["/tenants/late"] == (b"0", 1)
    assert followed.copied >= 1


def test_records_written_after_the_commit_are_kept(place: Place) -> None:
    """A late write to the source does not replace what a service wrote to the target since; it is named."""
    pre = to_the_commit(place, place.run(pre_copy.pre_copy, 0))
    done = place.run(cutover.complete, pre)
    assert (done.late_copied, done.contested) == (0, ())
    place.service_writes("/tenants/a")
    place.set("/tenants/a", 2)
    place.set("/tenants/b", 2)
    followed = place.run(cutover.follow, pre)
    assert followed.contested == ("/tenants/a",)
    assert place.copied()["/tenants/a"][0] == b"service"
    assert place.copied()["/tenants/b"] == place.wanted()["/tenants/b"]


def test_the_fence_is_asked_between_reading_and_writing(place: Place) -> None:
    """An attempt that passed the fence a moment ago, and reads what a service wrote, does not write over it."""
    mine = True

    def fence() -> None:
        if not mine:
            raise Superseded("this attempt comes too late")

    with Replica(pair_of(place), fence) as replica:
        assert replica.apply([b"/tenants/a"]).written == 1
        mine = False
        place.service_writes("/tenants/a")
        with pytest.raises(Superseded):
            replica.apply([b"/tenants/a"])
        late = CommitPoint(0, 1 << 40)
        with pytest.raises(Superseded):
            replica.apply_untouched([b"/tenants/b"], late)
    copied = place.copied()
    assert copied["/tenants/a"][0] == b"service"
    assert "/tenants/b" not in copied


def test_records_changed_since_the_read_are_kept(place: Place) -> None:
    """A copy replaces the version that it has read, and no other one."""

    def write_as_service() -> None:
        place.service_writes("/tenants/a")

    place.run(pre_copy.pre_copy, 0)
    place.set("/tenants/a")
    with Replica(pair_of(place), write_as_service) as replica, pytest.raises(StoreContention):
        replica.apply([b"/tenants/a"])
    assert place.copied()["/tenants/a"][0] == b"service"


def test_many_contested_records_fit_into_a_result(place: Place) -> None:
    """A look that finds very many records written on both sides counts all of them, and names the first."""
    paths = [f"/tenants/many-{number:03}" for number in range(NAMED + 20)]
    for path in paths:
        place.set(path)
    pre = to_the_commit(place, place.run(pre_copy.pre_copy, 0))
    place.run(cutover.complete, pre)
    for path in paths:
        place.service_writes(path)
        place.set(path, 2)
    followed = place.run(cutover.follow, pre)
    assert (followed.contested_count, followed.contested) == (len(paths), tuple(paths[:NAMED]))


def test_a_deleted_copy_is_not_created_again(place: Place) -> None:
    """A record copied before the commit and missing in the target was deleted by a service; a newer one is new."""
    commit = CommitPoint(last_transaction(parse_store_url(place.source), Access()), 0)
    with Replica(pair_of(place), lambda: None) as replica:
        assert replica.apply_untouched([b"/tenants/a"], commit) == Followed(0, 0, frozenset(), frozenset())
        assert "/tenants/a" not in place.copied()
        place.set("/tenants/a")
        assert replica.apply_untouched([b"/tenants/a"], commit).written == 1


def test_only_late_writes_are_contested(place: Place) -> None:
    """The parent of sessions' records is not contested while they end, except if the source gave more numbers."""
    parents = ["/counters/first", "/counters/second", "/counters/third"]
    with stores.kazoo(place.source.partition("/")[0]) as broker:
        broker.chroot = place.zookeeper.chroot
        for parent in parents:
            place.zookeeper.ensure_path(parent)
            broker.create(f"{parent}/-", b"", ephemeral=True, sequence=True)
        pre = to_the_commit(place, place.run(pre_copy.pre_copy, 0))
        place.run(cutover.complete, pre)
        for parent in parents:
            # Pulsar sets the parent in Oxia when it creates a sequential record.
            place.service_writes(parent, b"")
    # ZooKeeper removes an empty container after a while.
    place.zookeeper.delete("/counters/second")
    for _ in range(2):
        place.zookeeper.create("/counters/third/-", b"", sequence=True)
    followed = place.run(cutover.follow, pre)
    assert followed.contested == ("/counters/third",)


def test_a_repeated_check_reports_contested_records_again(place: Place) -> None:
    """A record that a lost attempt found contested is reported by the next one."""
    pre = to_the_commit(place, place.run(pre_copy.pre_copy, 0))
    place.run(cutover.complete, pre)
    place.service_writes("/tenants/a")
    place.set("/tenants/a", 2)
    for _ in range(2):
        assert place.run(cutover.follow, pre).contested == ("/tenants/a",)
    assert place.run(cutover.complete, pre).contested == ("/tenants/a",)


def test_late_writes_are_left_to_the_attempt_that_took_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that is overtaken between its check and its write fails, and the next one copies the record."""
    pre = to_the_commit(place, place.run(pre_copy.pre_copy, 0))
    place.run(cutover.complete, pre)
    place.set("/tenants/a", 2)
    require = FlagKeeper.require

    def require_once(keeper: FlagKeeper, *phases: FlagPhase) -> None:
        require(keeper, *phases)
        monkeypatch.setattr(FlagKeeper, "require", require)
        with place.task().flag() as newer:
            newer.renew()

    monkeypatch.setattr(FlagKeeper, "require", require_once)
    with pytest.raises(Superseded):
        place.run(cutover.follow, pre)
    followed = place.run(cutover.follow, pre)
    assert (followed.copied, followed.contested) == (1, ())


def test_a_commit_is_refused_once_the_rollback_started(place: Place) -> None:
    """The late commit of an attempt finds FAILED, and neither copies nor commits."""
    pre = to_the_commit(place, place.run(pre_copy.pre_copy, 0))
    restored = rollback.unblock_writes(place.task(), "a test")
    assert (restored.committed, restored.flag) == (False, FlagPhase.FAILED)
    place.set("/tenants/a")
    with pytest.raises(StoreConflict):
        place.run(cutover.complete, pre)
    with open_cas(parse_store_url(place.source), Access()) as store:
        assert FlagKeeper(store, place.task().attempt).state().flag.phase is FlagPhase.FAILED


def test_a_late_rollback_does_not_change_the_next_copy(place: Place) -> None:
    """Copies of a later run are neither removed nor released by the clearing of an earlier one."""
    place.run(pre_copy.pre_copy, 0)
    place.run(pre_copy.pre_copy, 0, run=2)
    assert place.run(rollback.clear_target) == 0
    assert place.copied() == place.wanted()
    assert place.zookeeper.exists(CLAIM) is not None
    assert place.run(rollback.clear_target, run=2) >= len(place.wanted())
    assert place.copied() == {}
    assert place.zookeeper.exists(CLAIM) is None


@pytest.mark.parametrize("lost", [False, True])
def test_writes_that_a_terminated_run_left_blocked_are_unblocked(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    """The next start unblocks them, reports it once, and leaves no claim, also if its first attempt is lost."""
    place.run(pre_copy.pre_copy, 0)
    assert not place.run(preparation.prepare).gap
    if lost:
        with monkeypatch.context() as patch:
            patch.setattr(FlagKeeper, "release", mock.Mock(side_effect=StoreUnreachable("a test")))
            with pytest.raises(StoreUnreachable):
                rollback.unblock_leftover(place.task(run=2))
    assert rollback.unblock_leftover(place.task(run=2))
    assert place.zookeeper.exists(CLAIM) is None
    assert not rollback.unblock_leftover(place.task(run=2))
    assert FlagPhase.FAILED.encode() in place.zookeeper.get(FLAG)[0]


def test_the_transaction_id_of_a_round_covers_its_changes(place: Place) -> None:
    """A scan does not find changes again that were caught up with, and finds later ones."""
    pre = place.run(pre_copy.pre_copy, 0)
    place.set("/tenants/a", 2)
    first = place.run(catch_up, pre, 0.0)
    place.lose_the_watch()
    place.set("/tenants/b", 2)
    later = pre.model_copy(update={"since_zxid": first.since_zxid})
    second = place.run(catch_up, later, 0.0)
    assert second.gap
    assert second.changed == 1
    now = last_transaction(parse_store_url(place.source), Access())
    assert pre.since_zxid < first.since_zxid < second.since_zxid <= now
    assert place.copied() == place.wanted()

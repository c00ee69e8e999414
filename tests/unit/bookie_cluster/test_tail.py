"""Events between two scans of the tail: brokers, deletions, newer attempts. Stores and bookies are doubles here.

No real server can be brought to do these things at just these moments; the tail as a whole is under test on real ones
in tests/integration/bookie_cluster/test_activities.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from activities.bookie_cluster.ledgers import Ledgers, Verified
from activities.bookie_cluster.progress import SwitchProgress
from activities.bookie_cluster.tail import copy_tail_of
from activities.lifecycle.context import Cancelled
from activities.pulsar.registrations import Service
from clients.bookkeeper.copy_result import Begun
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.metadata import LedgerState
from clients.errors import StoreConflict, StoreUnsupported, Superseded
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference
from models.bookie_cluster.input import BookieCluster, Direction
from models.bookie_cluster.results import CopySummary, TailCopy
from tests.support.bookie_cluster.in_memory import MemorySwitch
from tests.support.bookie_cluster.records import by_id, ledger, reference

BROKER = Service("broker one", 1, b"{}")


class Scene(MemorySwitch):
    """Two clusters and the brokers that are registered, as the tail reads them.

    Attributes:
        source: ledgers of the cluster that is left.
        target: those of the other one.
        named: what Pulsar's metadata refer to.
        verified: what was compared before.
        running: brokers that are registered.
        mark: changes whenever one comes or goes.
        deleted: ids that were deleted from the target.
        full_verify: whether all is compared again.
        direction: of the switch; in a rollback `b` is left.
        undecodable: ledgers of the source that cannot be decoded.
        begun: how often the copy began.
        copies: how often something was copied.
    """

    def __init__(self, source: Iterable[LedgerFacts], target: Iterable[LedgerFacts]) -> None:
        super().__init__()
        self.source, self.target = dict(by_id(source)), dict(by_id(target))
        self.named: list[LedgerReference] = [reference(number) for number in self.source]
        self.verified = Verified({number: facts.mzxid for number, facts in self.target.items()})
        self.running: list[Service] = []
        self.mark = 1
        self.deleted: list[int] = []
        self.full_verify = False
        self.direction = Direction.FORWARD
        self.begun = self.copies = 0
        self.looked = 0
        self.undecodable: dict[int, str] = {}

    def come_and_go(self) -> None:
        """Register a broker that is gone again at the next scan."""
        self.mark += 1

    def run(self) -> TailCopy:
        """Copy the tail."""
        task = self.task(self.direction, ledgers="all", full_verify=self.full_verify)
        return copy_tail_of(task, self)

    def scan(self, cluster: BookieCluster, earlier: Ledgers) -> Ledgers:
        """Return the ledgers of `a` or `b`."""
        del earlier
        self.happens("scanned")
        is_left = cluster.name == ("a" if self.direction is Direction.FORWARD else "b")
        ledgers = by_id((self.source if is_left else self.target).values())
        if is_left:
            ledgers.undecodable = self.undecodable
        return ledgers

    def references(self) -> ReferenceTable:
        """Return the references in Pulsar's metadata."""
        self.happens("referred")
        return ReferenceTable(self.named)

    def compacted(self, ledgers: Ledgers, named: Iterable[LedgerReference], *, strict: bool) -> list[LedgerReference]:
        """Return nothing: no topic is compacted."""
        del ledgers, named
        assert strict
        return []

    def read_verified(self) -> Verified:
        """Return the ledgers that were compared before."""
        return self.verified

    def brokers(self) -> list[Service]:
        """Return the brokers that are registered."""
        return self.running

    def brokers_mark(self) -> int:
        """Return a mark that changes whenever a broker comes or goes."""
        self.looked += 1
        mark = self.mark
        if self.looked == 1:
            self.happens("marked")
        return mark

    def copier(
        self, progress: SwitchProgress, verified: Verified, *, guard: Callable[[], None], urgent: bool
    ) -> _Copier:
        """Return a copier that copies everything at once."""
        del progress, verified
        assert urgent
        return _Copier(self, guard)

    def delete(self, items: Sequence[tuple[int, int | None]], fence: Callable[[], object]) -> int:
        """Delete ledgers of the target."""
        self.happens("connected")
        fence()
        self.happens("removed")
        self.deleted += [number for number, _ in items]
        return len(items)


@pytest.fixture
def scene() -> Scene:
    """Two ledgers that both sides have, and a copy of one that Pulsar has deleted since."""
    return Scene([ledger(1), ledger(2)], [ledger(1), ledger(2), ledger(3)])


class _Copier:
    """Copies everything at once, as `LedgerCopier` would."""

    def __init__(self, scene: Scene, guard: Callable[[], None]) -> None:
        self._scene, self._guard = scene, guard
        self.failed: dict[int, str] = {}
        scene.begun += 1

    def copy(self, records: Ledgers) -> None:
        """Recover, copy and compare."""
        scene = self._scene
        scene.copies += 1
        for record in records.values():
            done = ledger(record.ledger_id, mzxid=record.mzxid + 100 * scene.copies)
            scene.source[record.ledger_id] = done._replace(mzxid=scene.source[record.ledger_id].mzxid)
            scene.target[record.ledger_id] = done
            scene.verified.copies[record.ledger_id] = done.mzxid
        scene.happens("copied")
        self._guard()

    def compare(self, records: Ledgers) -> None:
        """Compare in full."""
        del records
        self._scene.happens("compared")

    def summary(self, *, already_verified: int) -> CopySummary:
        """Return the summary of the copy."""
        return CopySummary(already_verified=already_verified)


def test_equal_ledgers_are_not_copied_and_orphans_are_deleted(scene: Scene) -> None:
    """Equal ledgers are not copied again; a copy is deleted if its ledger is gone and nothing refers to it."""
    scene.named = [reference(1)]
    done = scene.run()
    assert (scene.copies, done.checked, done.references, done.missing.count) == (0, 2, 1, 0)
    assert (done.removed, scene.deleted, done.mark) == (1, [3], 1)


def test_a_copy_that_is_still_referred_to_is_kept(scene: Scene) -> None:
    """The last copy of a ledger that the source has lost stays while something names it."""
    scene.named.append(reference(3))
    assert scene.run().removed == 0
    assert scene.deleted == []


def test_only_the_compared_copy_is_an_orphan(scene: Scene) -> None:
    """A ledger with the id of a copy that is not the compared node belongs to another client, and stays."""
    scene.target[3] = ledger(3, mzxid=77)
    assert scene.run().removed == 0
    assert scene.deleted == []


@pytest.mark.parametrize("direction", list(Direction))
def test_copies_that_autorecovery_keeps_moving_are_still_equal(scene: Scene, direction: Direction) -> None:
    """A ledger of the new cluster whose bookies change before each scan is not compared again, only copied once."""
    scene.direction = direction
    moving = scene.target
    if direction is Direction.BACK:
        moving, scene.verified = scene.source, Verified(originals=dict(scene.verified.copies))
    scene.source[4] = ledger(4)
    scene.named = [reference(1), reference(4)]

    def move() -> None:
        moving.update({number: facts._replace(mzxid=facts.mzxid + 1) for number, facts in moving.items()})
        scene.at["scanned"] = move

    move()
    done = scene.run()

    assert (scene.copies, done.copy_summary.already_verified, done.missing.count) == (1, 2, 0)
    assert scene.deleted == ([3] if direction is Direction.FORWARD else [])


def test_a_copy_whose_original_cannot_be_decoded_is_kept(scene: Scene) -> None:
    """A ledger that a newer BookKeeper wrote is not taken for a deleted one, whose copy would be deleted."""
    scene.undecodable = {3: "ledger 3: it has format version '4'"}
    assert scene.run().removed == 0
    assert scene.deleted == []


def test_a_rollback_does_not_bring_back_what_brokers_on_the_source_deleted() -> None:
    """Ledgers that the source had, lacks now, and that nothing names are not copied back; all others are."""
    scene = Scene([ledger(number) for number in (1, 2, 3, 4, 5)], [ledger(1)])
    scene.direction = Direction.BACK
    scene.named = [reference(1), reference(4)]
    # 2 came from the source, 3 and 4 were copied back before; 5 was created in the target.
    scene.verified = Verified(copies={3: 7, 4: 7}, originals={number: ledger(number).mzxid for number in (1, 2)})
    assert scene.run().checked == 3
    assert sorted(scene.target) == [1, 4, 5]


def test_a_rollback_leaves_out_what_an_earlier_switch_left_in_the_target() -> None:
    """Brokers deleted 2 in the source before this switch, which never copied it; 8 was created in the window."""
    scene = Scene([ledger(number) for number in (1, 2, 3, 8)], [ledger(1), ledger(4)])
    scene.direction = Direction.BACK
    scene.named = [reference(1), reference(3), reference(4)]
    scene.verified = Verified(originals={1: ledger(1).mzxid}, cutover=4)
    assert scene.run().checked == 3
    assert sorted(scene.target) == [1, 3, 4, 8]


def test_a_rollback_before_the_directive_leaves_originals_as_they_are() -> None:
    """A broker that was killed left 2 open in the source; one that started on the target too early closed its copy."""
    scene = Scene([ledger(number) for number in (1, 2, 9)], [ledger(1), ledger(2, state=LedgerState.OPEN)])
    scene.direction = Direction.BACK
    scene.named = [reference(number) for number in (1, 2, 9)]
    scene.verified = Verified(originals={1: ledger(1).mzxid}, unfinished={2: Begun(8, 40, 5)})
    done = scene.run()
    # 1 has not changed since it was compared.
    assert (done.checked, done.missing.count) == (2, 0)
    assert scene.target[2].state is LedgerState.OPEN
    assert 9 in scene.target


def test_a_rollback_leaves_out_copies_that_were_not_finished() -> None:
    """The source has all of a closed ledger that was copied in part; one that it may have in part is compared."""
    scene = Scene(
        [ledger(number, length=50) for number in (1, 2, 3, 4, 5)],
        [ledger(1), ledger(2, state=LedgerState.OPEN), ledger(3), ledger(4)],
    )
    scene.direction = Direction.BACK
    scene.named = [reference(number) for number in (1, 2, 3, 4)]
    # 3 was finished later; 4 has lost entries in the source, 5 was deleted there.
    scene.verified = Verified(originals={3: 5}, unfinished={number: Begun(8, 40, 5) for number in (1, 2, 3, 5)})
    scene.verified.unfinished = {**scene.verified.unfinished, 4: Begun(10, 60, 5)}
    scene.verified.cutover = 5
    scene.run()
    assert sorted(number for number in scene.target if scene.target[number].mzxid > 100) == [2, 3, 4]


def test_a_rollback_leaves_out_copies_that_were_not_recorded() -> None:
    """Copies of a batch that ended early are open, and the source has all of their ledgers, or has deleted them."""
    copies = [ledger(number, state=LedgerState.OPEN, is_copy=True) for number in (1, 2, 3, 4, 5, 6)]
    scene = Scene(
        [*copies, ledger(9)],
        [
            ledger(1),
            ledger(2, state=LedgerState.OPEN),
            ledger(4, state=LedgerState.OPEN, is_copy=True),
            ledger(5),
            ledger(6),
        ],
    )
    scene.direction = Direction.BACK
    scene.named = [reference(number) for number in (1, 2, 4, 5, 6, 9)]
    # Neither side is the original of 4; 3 was deleted in the source, and 5 has lost entries there. An earlier copy of
    # 6 was compared, and went with the target, which was emptied.
    scene.verified = Verified(originals={6: 3}, unfinished={5: Begun(10, 60, 5)}, cutover=2)
    done = scene.run()
    assert (done.checked, done.missing.count) == (3, 0)
    assert sorted(number for number in scene.target if scene.target[number].mzxid > 100) == [4, 5, 9]


def test_a_copy_that_was_lost_is_copied_again(scene: Scene) -> None:
    """Forward, what was verified and is gone in the target is copied again: only the source knows what is deleted."""
    scene.named = []
    del scene.target[2]
    assert scene.run().checked == 2
    assert 2 in scene.target


@pytest.mark.parametrize("moment", ["copied", "compared", "referred", "removed"])
def test_a_broker_that_registered_and_left_restarts_the_copy(scene: Scene, moment: str) -> None:
    """Even at the very end, a broker that came and went makes the tail copy the ledger that it created."""
    scene.source[2] = ledger(2, state=LedgerState.OPEN)
    scene.full_verify = True

    def create() -> None:
        scene.come_and_go()
        scene.source[4] = ledger(4, state=LedgerState.OPEN)
        scene.named.append(reference(4))

    if moment == "referred":
        # The second reading, at the end.
        scene.at["referred"] = lambda: scene.at.update(referred=create)
    else:
        scene.at[moment] = create
    done = scene.run()
    assert 4 in scene.target
    assert done.mark == scene.mark > 1
    assert done.missing.count == 0


def test_a_reference_without_a_broker_restarts_the_copy(scene: Scene) -> None:
    """A broker that is not registered any more may still create a ledger while it unloads its topics."""

    def create() -> None:
        scene.source[4] = ledger(4, state=LedgerState.OPEN)
        scene.named.append(reference(4))

    scene.at["referred"] = lambda: scene.at.update(referred=create)
    done = scene.run()
    assert 4 in scene.target
    assert done.checked == 3


def test_nothing_begins_while_a_broker_is_registered(scene: Scene) -> None:
    """No ledger is recovered before the last broker is gone, since that would stop its writers."""
    scene.source[2] = ledger(2, state=LedgerState.OPEN)
    scene.running = [BROKER]

    def leave() -> None:
        assert scene.copies == 0
        scene.running = []
        scene.come_and_go()

    scene.at["waiting"] = leave
    assert scene.run().mark == 2
    assert scene.copies == 1


def test_earlier_attempts_delete_nothing_during_the_tail(scene: Scene) -> None:
    """Before anything is copied, the server is made to refuse deletions of earlier attempts."""
    stopped: list[int] = []
    scene.at["permits"] = lambda: stopped.append(scene.begun)
    scene.run()
    assert stopped == [0]


def test_a_ledger_that_cannot_be_decoded_is_not_taken_for_lost(scene: Scene) -> None:
    """A reference to a ledger that a newer BookKeeper wrote ends the tail; another program's ledger does not."""
    scene.undecodable = {7: "ledger 7: it has format version '4'"}
    assert scene.run().missing.count == 0
    scene.named.append(reference(7))
    with pytest.raises(StoreUnsupported, match="ledger 7: it has format version '4'"):
        scene.run()


def test_the_last_broker_may_leave_between_the_mark_and_the_check(scene: Scene) -> None:
    """The copy does not start again where the last broker goes right after its mark was read: none came since."""
    scene.source[2] = ledger(2, state=LedgerState.OPEN)
    scene.at["marked"] = scene.come_and_go
    assert scene.run().mark == scene.mark == 2
    assert scene.begun == 1


@pytest.mark.parametrize("moment", ["compared", "referred", "connected"])
def test_a_late_attempt_deletes_nothing(scene: Scene, moment: str) -> None:
    """An attempt that was superseded while it compared, in its last look, or right before, removes no orphan."""
    scene.full_verify = True
    scene.at[moment] = scene.newest
    if moment == "referred":
        scene.at[moment] = lambda: scene.at.update(referred=scene.newest)
    with pytest.raises(Superseded):
        scene.run()
    assert scene.deleted == []


def test_a_late_attempt_does_not_begin_again(scene: Scene) -> None:
    """If both a broker and a newer attempt appear, the late attempt ends and does not start again."""
    scene.source[2] = ledger(2, state=LedgerState.OPEN)

    def both() -> None:
        scene.come_and_go()
        scene.newest()

    scene.at["copied"] = both
    with pytest.raises(Superseded):
        scene.run()
    assert scene.copies == 1


def test_ledgers_that_keep_changing_are_an_error(scene: Scene) -> None:
    """A client other than a broker that keeps writing to the source causes an error after a few rounds."""

    def again() -> None:
        scene.source[2] = ledger(2, state=LedgerState.OPEN)
        scene.at["copied"] = again

    again()
    with pytest.raises(StoreConflict, match="keep changing"):
        scene.run()


def test_a_cancelled_tail_ends(scene: Scene) -> None:
    """A cancelled tail copies nothing more."""
    scene.source[2] = ledger(2, state=LedgerState.OPEN)
    scene.context.cancel()
    with pytest.raises(Cancelled):
        scene.run()
    assert scene.copies == 0

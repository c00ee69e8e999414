"""The rules for deleting ledgers: by whom, when, and how many. Stores and clusters are doubles.

Which ledgers may go is judged in test_cleanup_targets.py; real ones go in tests/integration/bookie_cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from activities.bookie_cluster import cleanup
from activities.bookie_cluster.progress import SwitchProgress
from activities.pulsar.brokers import SeenCluster
from activities.pulsar.registrations import Service
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.errors import LedgerUnreadable, StoreConflict, StoreUnreachable, Superseded
from models.bookie_cluster.results import LedgersDeleted
from models.bookie_cluster.updates import CleanupOrder
from models.store_url import parse_store_url
from tests.support.bookie_cluster.in_memory import MemorySwitch, answering, opened
from tests.support.bookie_cluster.records import by_id, ledger

ORDER = CleanupOrder(src_cluster="a")
METADATA = LedgerMetadata(1, 1, 1, LedgerState.CLOSED, 100, 9, (Segment(0, ("one",)),), DigestType.CRC32C)
ON_A, ON_B = (parse_store_url(f"zk:127.0.0.1:2181/{name}") for name in ("ledgers", "ledgersB"))


class Scene(MemorySwitch):
    """Two clusters with the same ledgers, each of which was compared; both, and what brokers answer, are this object.

    Attributes:
        ledgers: of both.
        deleted: ids, with the versions that were expected.
        changed: ledgers that another client writes before they are deleted.
        members: the bookies that copies lie on; `one` is registered.
        damaged: ledgers of which a replica cannot be read.
    """

    def __init__(self, count: int = 5) -> None:
        super().__init__()
        self.ledgers = dict(by_id(ledger(number) for number in range(1, count + 1)))
        self.deleted: list[tuple[int, int | None]] = []
        self.changed: set[int] = set()
        self.members: set[str] = set()
        self.damaged: set[int] = set()
        self.undecodable: dict[int, str] = {}
        self.directory = self
        self._clusters: dict[str, SeenCluster] = {}
        SwitchProgress(self.task(), self.newest()).add_verified(dict.fromkeys(self.ledgers, 5))

    def task(self, *arguments: Any, **more: Any) -> Any:
        """Return a step's view of the switch."""
        task = super().task(*arguments, **more)
        task.ledgers = task.bookkeeper = task.broker_view = answering(lambda: opened(self))
        return task

    def clean(self, order: CleanupOrder = ORDER, **more: Any) -> LedgersDeleted:
        """Delete in the source."""
        return cleanup.delete_ledgers(self.task(**more), order)

    def remove_copies(self) -> LedgersDeleted:
        """Delete in the target."""
        return cleanup.remove_copies(self.task())

    def flip(self) -> None:
        """Make the target ACTIVE."""
        self.newest().flip(new="b", old="a")

    def run(self, **clusters: SeenCluster) -> None:
        """Run exactly these brokers."""
        self.register(*(Service(f"broker {name}", session, b"{}") for session, name in enumerate(clusters, 1)))
        self._clusters = clusters

    def bookie_cluster(self, broker: Service) -> SeenCluster:
        """Return the cluster that a broker reports."""
        return self._clusters[broker.name.removeprefix("broker ")]

    def facts(self, *_: object) -> list[LedgerFacts]:
        """Return all ledgers."""
        self.happens("scanned")
        return [*self.ledgers.values()]

    def read(self, numbers: Sequence[int]) -> list[LedgerRecord | None]:
        """Return the ledgers that are there."""
        return [LedgerRecord(number, METADATA, 1, 5, 5) if number in self.ledgers else None for number in numbers]

    def bookies(self) -> dict[str, None]:
        """Return the registered bookies."""
        return {"one": None}

    def underreplicated(self) -> Iterator[int]:
        """Return the ledgers that the auditor has marked."""
        return iter(())

    def require_replicas(self, ledger_id: int, _: LedgerMetadata) -> None:
        """Read each replica."""
        if ledger_id in self.damaged:
            raise LedgerUnreadable(f"entry 0 of ledger {ledger_id} cannot be read", ledger_id=ledger_id)

    def delete(self, items: Sequence[tuple[int, int | None]], fence: Callable[[], object]) -> int:
        """Delete those ledgers of either cluster that have not changed."""
        self.happens("connected")
        fence()
        self.happens("deleted")
        self.deleted += items
        gone = {number for number, _ in items} - self.changed
        for number in gone:
            del self.ledgers[number]
        if len(gone) < len(items):
            raise StoreConflict("another version")
        return len(items)


@pytest.fixture
def scene() -> Scene:
    """Five ledgers; `a` is ACTIVE, and no broker runs."""
    return Scene()


def ids(records: Sequence[tuple[int, int | None]]) -> list[int]:
    """Return the ids without their versions."""
    return [number for number, _ in records]


def test_nothing_is_deleted_until_the_target_is_active(scene: Scene) -> None:
    """While the source is ACTIVE a rollback may need its ledgers; afterwards they go at the versions that were read."""
    with pytest.raises(StoreConflict, match="b is not ACTIVE"):
        scene.clean()
    assert scene.deleted == []
    scene.flip()
    assert scene.clean() == LedgersDeleted(deleted=5, remaining=0)
    assert scene.deleted == [(number, 1) for number in range(1, 6)]


def test_nothing_is_deleted_while_copies_may_lack_replicas(scene: Scene) -> None:
    """While a bookie of the target is away its copies are not whole, and the originals stay, unless that is forced."""
    scene.flip()
    # Seen once all ledgers are read, and not in a sample of them.
    scene.at["scanned"] = lambda: scene.members.add("second-bookie-1")
    with pytest.raises(StoreUnreachable, match="second-bookie-1 is not registered"):
        scene.clean()
    assert scene.deleted == []
    assert scene.clean(CleanupOrder(src_cluster="a", force=True)).deleted == 5


def test_nothing_is_deleted_while_a_replica_cannot_be_read(scene: Scene) -> None:
    """Copies are read from each of their replicas before anything is deleted."""
    scene.flip()
    scene.damaged = {4}
    # The step is repeated: the replica may be made again.
    with pytest.raises(StoreUnreachable, match=r"nothing more is deleted: in b, entry 0 of ledger 4.*`proceed` ends"):
        scene.clean()
    assert scene.deleted == []
    scene.damaged = set()
    assert scene.clean().deleted == 5


def test_a_cleanup_that_waits_scans_nothing(scene: Scene) -> None:
    """While a few copies show that a bookie is away, the step is refused before all ledgers are read."""
    scene.flip()
    scene.members = {"second-bookie-1"}
    scene.at["scanned"] = lambda: None
    with pytest.raises(StoreUnreachable, match=r"second-bookie-1 is not registered.*`proceed` ends the cleanup"):
        scene.clean()
    assert "scanned" in scene.at


def test_a_listing_says_what_a_cleanup_waits_for(scene: Scene) -> None:
    """A dry run names missing replicas, unless the order overrides them."""
    scene.members = {"second-bookie-1"}
    listed = cleanup.list_targets(scene.task(), ORDER)
    assert "second-bookie-1 is not registered" in listed.reasons[-1]
    assert "`proceed` ends the cleanup" in listed.reasons[-1]
    assert cleanup.list_targets(scene.task(), CleanupOrder(src_cluster="a", force=True)).reasons == ()


@pytest.mark.parametrize(
    ("members", "marked", "lacking"),
    [
        ({"one"}, (), ()),
        ({"one", "two"}, (), ("two is not registered",)),
        ({"one"}, (8, 7), ("BookKeeper's auditor has marked ledger 7 and perhaps others",)),
        # A ledger of another cluster.
        ({"one"}, (8,), ()),
    ],
)
def test_signs_of_missing_replicas(members: set[str], marked: tuple[int, ...], lacking: tuple[str, ...]) -> None:
    """A bookie that holds ledgers and is not registered tells of missing replicas, and so does the auditor's mark."""
    directory: Any = SimpleNamespace(
        members=members, bookies=lambda: {"one": None}, underreplicated=lambda: iter(marked)
    )
    assert cleanup.lacking_replicas(directory, {7}) == lacking


@pytest.mark.parametrize("moment", ["scanned", "connected", "deleted"])
def test_a_late_attempt_deletes_no_more(moment: str) -> None:
    """An attempt that is superseded while it reads or connects deletes nothing, and between two chunks it ends."""
    scene = Scene(1_200)
    scene.flip()
    scene.at[moment] = scene.newest
    with pytest.raises(Superseded):
        scene.clean()
    assert len(scene.deleted) == (500 if moment == "deleted" else 0)


@pytest.mark.parametrize("what", ["clean", "remove_copies"])
def test_an_earlier_attempt_is_stopped_by_a_later_one(scene: Scene, what: str) -> None:
    """Each step moves the claim before it reads: one that was given up cannot continue next to it."""
    acts = {"clean": scene.clean, "remove_copies": scene.remove_copies}
    if what == "clean":
        scene.flip()
    early = scene.registry(scene.task().attempt)
    early.claim.renew()

    def be_refused() -> None:
        with pytest.raises(Superseded):
            early.claim.require()

    scene.at["scanned"] = be_refused
    acts[what]()
    assert "scanned" not in scene.at


def test_a_limit_holds_for_all_attempts_at_a_step(scene: Scene) -> None:
    """A step that is repeated after its answer was lost deletes no more than the step may."""
    scene.flip()
    few = CleanupOrder(src_cluster="a", max_deletions=2)
    step = scene.task().attempt.epoch + 1
    assert scene.clean(few, epoch=step).deleted == 2
    assert scene.clean(few, epoch=step, attempt=2).deleted == 2
    assert ids(scene.deleted) == [1, 2]
    assert scene.clean(few, epoch=step + 1).deleted == 2
    assert ids(scene.deleted) == [1, 2, 3, 4]


def test_a_ledger_that_gets_a_reference_during_the_check_stays(scene: Scene) -> None:
    """References are read again after the ledgers, so that a reference that was added in between is found."""
    scene.flip()
    lost = ledger(3, mzxid=77, length=7)

    def refer() -> None:
        scene.refer(3)
        scene.ledgers[3] = lost

    scene.at["scanned"] = refer
    assert scene.clean(routing="attribution", ledgers="referenced").deleted == 4
    assert ids(scene.deleted) == [1, 2, 4, 5]


def test_a_ledger_that_changed_after_the_decision_stays(scene: Scene) -> None:
    """A ledger that was written after it was judged conflicts, and is counted as remaining."""
    scene.flip()

    scene.changed = {2}
    assert scene.clean() == LedgersDeleted(deleted=4, remaining=1)


def test_copies_stay_where_brokers_may_use_them(scene: Scene) -> None:
    """Copies go only while brokers are directed to the source, and each says that it is there."""
    for broker, error in (
        (SeenCluster(ON_B, "b", ""), StoreConflict),
        (SeenCluster(None, "", "it does not answer"), StoreUnreachable),
    ):
        scene.run(one=SeenCluster(ON_A, "a", ""), two=broker)
        with pytest.raises(error, match="two"):
            scene.remove_copies()
    scene.run()
    scene.newest().set_target("b", "switch/one/run-1/forward")
    with pytest.raises(StoreConflict, match="directed to b"):
        scene.remove_copies()
    assert scene.deleted == []
    scene.newest().set_target("a", "switch/one/run-1/back")
    scene.run(one=SeenCluster(ON_A, "a", ""))
    assert scene.remove_copies().deleted == 5


def test_an_order_for_another_cluster_is_refused(scene: Scene) -> None:
    """A cleanup deletes from the cluster that was left, whatever else is asked."""
    scene.flip()
    with pytest.raises(StoreConflict, match="not the cluster that this switch left"):
        scene.clean(CleanupOrder(src_cluster="b"))
    assert scene.deleted == []

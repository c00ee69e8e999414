"""Verifications of real stores by request, without Temporal and brokers: what they find, and how they continue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from kazoo.security import make_digest_acl  # pyright: ignore[reportUnknownVariableType] - the library has no types

from activities.lifecycle.context import ActivityContext
from activities.metadata_store import pre_copy
from activities.verification.context import Comparison, MigrationGate
from activities.verification.stores import StoreComparison, StoreRules
from clients.oxia.client import OxiaClient
from clients.stores import Access, open_writer
from clients.verification.kazoo_records import KazooRecords
from clients.verification.oxia_records import OxiaRecords
from clients.verification.records import Answer, RecordReader
from models.lifecycle.status import ProgressUnit
from models.metadata_store.input import KIND
from models.store_url import parse_store_url
from models.verification.input import VerificationInput
from models.verification.results import Tally
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.metadata_store.steps import Place, open_place
from tests.support.stacks import MakeStack

TENANTS = [f"/admin/policies/tenant-{number}" for number in range(30)]
COUNTED = 3 + len(TENANTS)
"""The tenants with their two parents, and the parent of the coordination."""


class Killed(Exception):
    """The worker dies."""


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A source, and a target."""
    return make_stack(StackSpec(zookeepers=1, oxias=1))


@pytest.fixture
def place(stack: Stack, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A source with some tenants, and its copy; readers take few paths at once."""
    monkeypatch.setattr("clients.verification.kazoo_records.PATHS_AT_ONCE", 4)
    monkeypatch.setattr("clients.verification.oxia_records._PAGE", 4)
    with open_place(stack, request.node.originalname, TENANTS) as opened:
        opened.run(pre_copy.pre_copy, COUNTED)
        yield opened


def verify(
    place: Place,
    *paths: str,
    phase: str = "CATCH_UP",
    noted: dict[str, str] | None = None,
    context: ActivityContext | None = None,
    source: RecordReader | None = None,
    **more: object,
) -> Tally:
    """Compare both stores of a place, as one attempt at the step does."""
    input = VerificationInput.model_validate(
        {
            "cluster": "steps",
            "migration": "metadata-store/steps",
            "migration_run": "run",
            "migration_kind": KIND,
            "migration_input": {},
            "paths": paths,
            "recheck_after": "PT0.1S",
            **more,
        }
    )
    task, context = place.task(), context or ActivityContext(noted)
    urls = parse_store_url(place.source), parse_store_url(place.target)
    accesses = [task.access.to(url) for url in urls]
    gate = MigrationGate(lambda: (phase, True), KIND, context)
    with (
        KazooRecords(urls[0], access=accesses[0].zookeeper, timeout=10) as zookeeper,
        OxiaRecords(urls[1], access=accesses[1].oxia, timeout=10) as oxia,
    ):
        comparison = Comparison(context, input, gate, ProgressUnit.RECORDS)
        gate.check()
        reader = source or zookeeper
        StoreComparison(comparison, StoreRules(*urls), reader, oxia, input.paths or ("",)).run()
    return comparison.tally


def damage(place: Place, path: str, *, value: bytes | None) -> None:
    """Change the copy of a record under its version, or delete it."""
    url = parse_store_url(place.target)
    with OxiaClient(url) as oxia, open_writer(url, Access(), keep_versions=True) as writer:
        stored = oxia.get(path.encode())
        assert stored is not None
        if value is None:
            oxia.delete(path.encode(), None)
        else:
            writer.put(stored._replace(value=value), over=None)
            writer.flush()


def test_equal_stores_have_one_digest(place: Place) -> None:
    """Two verifications of equal stores count every record, and have the same digest."""
    first, second = verify(place), verify(place)
    assert (first.equal, first.differing.count, first.unreadable.count) == (COUNTED, 0, 0)
    assert first.digest == second.digest != ""
    assert (
        sum(named.count for named in first.excluded.values())
        == first.excluded["of the migration's own coordination"].count
    )


def test_one_changed_byte_is_found(place: Place) -> None:
    """A copy with one other byte under the same version is named, with the place of the byte."""
    damage(place, TENANTS[7], value=b"1")
    tally = verify(place)
    assert tally.differing.items == [f"{TENANTS[7]}: other value (from byte 0)"]
    assert tally.equal == COUNTED - 1


def test_missing_and_extra_records_are_found(place: Place) -> None:
    """A record that the target lacks is named, and so is one that only the target has."""
    damage(place, TENANTS[3], value=None)
    place.service_writes("/admin/extra")
    assert verify(place).differing.items == [
        f"{TENANTS[3]}: not in the target",
        "/admin/extra: only in the target",
    ]


def test_a_scope_is_kept(place: Place) -> None:
    """Only what is beneath the paths is compared."""
    damage(place, TENANTS[3], value=None)
    place.set("/admin/policies/tenant-30x", 1)
    scoped = verify(place, TENANTS[4], TENANTS[5])
    assert (scoped.equal, scoped.differing.count) == (2, 0)
    assert verify(place, "/admin/policies/tenant-3").differing.items == [f"{TENANTS[3]}: not in the target"]


def test_changes_on_their_way_do_not_count(place: Place) -> None:
    """A record that brokers change during the comparison is not a difference, and is counted apart."""

    class Busy(ActivityContext):
        def pause(self, seconds: float) -> None:
            place.set(TENANTS[0], 1)
            super().pause(seconds)

    place.set(TENANTS[0], 1)
    tally = verify(place, context=Busy())
    assert tally.differing.count == 0
    assert tally.excluded["changed in the source while it was compared"].items == [TENANTS[0]]


def test_a_killed_attempt_is_continued(place: Place) -> None:
    """The next attempt reads only what the killed one had not compared, and has the digest of a whole run."""
    damage(place, TENANTS[20], value=None)
    whole = verify(place)

    class Dying(KazooRecords):
        def __init__(self, place: Place, reads: int) -> None:
            super().__init__(parse_store_url(place.source))
            self.reads, self.paths_read = reads, list[str]()

        def read(self, paths: Sequence[str]) -> list[Answer]:
            self.reads -= 1
            if not self.reads:
                raise Killed
            self.paths_read += paths
            return super().read(paths)

    context = ActivityContext()
    with Dying(place, 6) as dying, pytest.raises(Killed):
        verify(place, context=context, source=dying)
    with Dying(place, 0) as other:
        continued = verify(place, noted=dict(context.noted), source=other)
    assert len(dying.paths_read) > 10
    assert not {*dying.paths_read} & {*other.paths_read[: COUNTED - len(dying.paths_read)]}
    assert continued.model_dump() == whole.model_dump()


def test_other_shards_start_a_verification_again(place: Place) -> None:
    """A position in shards that are not there any more is not used: everything is compared again."""
    whole = verify(place)
    old = whole.model_copy(update={"position": [*whole.position[:3], "other shards"]})
    assert verify(place, noted={"tally": old.model_dump_json()}) == whole


def test_a_record_that_its_acl_hides_is_unreadable(place: Place) -> None:
    """A record whose value the source refuses is named, and not taken for a difference."""
    place.zookeeper.set_acls(TENANTS[9], [make_digest_acl("u", "p", all=True)])
    tally = verify(place)
    assert (tally.unreadable.count, tally.differing.count, tally.equal) == (1, 0, COUNTED - 1)
    assert "its ACL denies it" in tally.unreadable.items[0]


def test_after_the_commit_only_what_services_left_alone_is_compared(place: Place) -> None:
    """Records that services wrote, created or deleted in the target are counted apart; damage is still found."""
    place.service_writes(TENANTS[1])
    place.service_writes("/admin/new")
    place.service_deletes(TENANTS[2])
    damage(place, TENANTS[5], value=b"damaged")
    tally = verify(place, phase="VALIDATION")
    assert [item.partition(":")[0] for item in tally.differing.items] == [TENANTS[5]]
    excluded = {reason: named.items for reason, named in tally.excluded.items()}
    assert excluded["written in the target since the commit"] == [TENANTS[1]]
    assert excluded["created in the target since the commit"] == ["/admin/new"]
    assert excluded["not in the target after the commit: deleted there since, or never copied"] == [TENANTS[2]]
    assert tally.equal == COUNTED - 3


def test_a_throttle_slows_reading_down(place: Place) -> None:
    """A verification with a throttle rests in proportion to what it reads."""

    class Counting(ActivityContext):
        rested = 0.0

        def pause(self, seconds: float) -> None:
            self.rested += seconds

    place.zookeeper.set(TENANTS[0], b"x" * 10_000)
    context = Counting()
    verify(place, TENANTS[0], context=context, throttle=0.1, phase="VALIDATION")
    assert context.rested >= 0.09

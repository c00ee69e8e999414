"""The window of a switch with routing `attribution`, and its cleanup, on real servers with the plugin's double."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from activities.bookie_cluster import cleanup as cleaning
from activities.bookie_cluster import registry
from activities.bookie_cluster.precheck import SwitchPrecheckRun
from clients.bookkeeper.ledgers import LedgerDirectory
from clients.errors import StoreConflict
from clients.stores import Access
from models.bookie_cluster.updates import CleanupOrder
from pulsar_devstack.servers.stack import StackSpec
from spark.engine import SparkEngine
from tests.support.bookie_cluster.attributed import NEW, OLD, Place, ledgers, stamps
from tests.support.bookie_cluster.plugin_double import announce_doubles
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def place(make_stack: MakeStack, engine: SparkEngine) -> Generator[Place]:
    """A bookie in each cluster, and a broker that always writes to the old one."""
    stack = make_stack(
        StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=1, cluster="window"), announce_doubles
    )
    with Place(stack, engine) as place:
        place.put_schema("topic", 1)
        place.put_schema("topic", 2)
        yield place
        assert place.double.violations == []


def in_source(place: Place) -> set[int]:
    """Return the ids of the ledgers of the old cluster."""
    with LedgerDirectory(place.input.source.root, Access()) as directory:
        return {record.ledger_id for batch in directory.scan() for record in batch}


def test_precheck_finds_the_plugin(place: Place) -> None:
    """Brokers that answer for the plugin are not in the way; the plan says what moves and what stays."""
    precheck = place.steps.run(
        lambda task: SwitchPrecheckRun(task).run(),
        place.input.model_copy(update={"advance_ids": True}),
    )

    assert precheck.blockers == ()
    assert precheck.survey is not None
    assert precheck.survey.kinds.keys() <= {"schema", "managed-ledger"}
    assert precheck.estimated_pause_seconds == 0
    assert any("topics' data stay in old" in step for step in precheck.steps)


def test_census_sets_dropped_attributions_again(place: Place) -> None:
    """The census restores attributions that a broker drops, and names the ledger that it wrote to the old cluster.

    Brokers 4.2 and 5.0 drop a schema's attributions with the next version, and know nothing of the new cluster.
    """
    place.direct()
    place.build()
    place.promote()
    assert stamps(place.locator("topic")) == [NEW] * 3
    place.put_schema("topic", 3)
    assert stamps(place.locator("topic")) == [None] * 4
    third = ledgers(place.locator("topic"))[2]

    census = place.steps.run(cleaning.take_census, place.input)

    assert census.attributions_set_again >= 3
    assert stamps(place.locator("topic")) == [OLD, NEW, NEW, OLD]
    assert f"ledger {third}" in [name.partition(":")[0] for name in census.misrouted_ledgers]
    assert census.targets.ledgers >= 2


def test_promoted_copies_are_not_removed(place: Place) -> None:
    """While brokers are directed to the new cluster its copies stay."""
    with pytest.raises(StoreConflict, match="directed to new"):
        place.steps.run(cleaning.remove_copies, place.input)


def test_cleanup_keeps_what_is_attributed_to_the_old_cluster(place: Place) -> None:
    """Even by force a cleanup deletes promoted ledgers only, and keeps what is attributed to the old cluster."""
    order = CleanupOrder(src_cluster=OLD, force=True)
    first, second, third = ledgers(place.locator("topic"))
    before = in_source(place)
    place.steps.run(registry.flip_statuses, place.input)

    listed = place.steps.run(cleaning.list_targets, place.input, order)
    done = place.steps.run(cleaning.delete_ledgers, place.input, order)

    assert (done.deleted, done.remaining) == (listed.ledgers, 0)
    assert before - in_source(place) >= {first, second}
    assert third in in_source(place)
    assert any("are referred to as ledgers of old" in reason for reason in listed.reasons)

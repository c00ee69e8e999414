"""Attributions of schemas in a switch of bookie clusters: promoted, set back, contested, dropped and set again."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from temporalio.exceptions import ApplicationError

from activities.bookie_cluster.attribution import close_client, reconcile
from activities.bookie_cluster.precheck import SwitchPrecheckRun
from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.errors import StoreConflict
from clients.pulsar.attribution import ATTRIBUTION, attribution, set_schema_attribution
from clients.pulsar.formats_pb2 import ManagedLedgerInfo
from clients.pulsar.names import TopicName
from clients.stores import Access
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import Promotion
from models.bookie_cluster.updates import ClientClosing
from models.bookie_registry import BOOTSTRAP, SWITCH_TARGET
from models.defects import has_defect
from models.lifecycle.failures import FailureKind
from models.releases import parse_release
from pulsar_devstack.servers.server_releases import chosen_release
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.pulsar_client import send_to
from spark.engine import SparkEngine
from tests.support.bookie_cluster.attributed import NEW, OLD, Place, ledgers, promote_against, stamps, without_stamps
from tests.support.bookie_cluster.plugin_double import announce_doubles, bootstrap_marker
from tests.support.bookie_cluster.records import move
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def cluster(make_stack: MakeStack, engine: SparkEngine) -> Generator[Place]:
    """A bookie in each cluster, and a broker that is directed to the new one."""
    stack = make_stack(
        StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=1, cluster="attributed"), announce_doubles
    )
    with Place(stack, engine) as place:
        place.direct()
        place.put_schema("first", 1)
        # The broker stores one of its own when it first serves a namespace; tests should not count it.
        system = "/schemas/public/default/__change_events"
        wait_for("the broker's own schema", lambda: place.zookeeper.exists(system), 60)
        yield place


@pytest.fixture
def place(cluster: Place) -> Generator[Place]:
    """The cluster after a promotion of all that exists, so that a test counts its own; it ends without a violation."""
    cluster.build()
    cluster.promote()
    yield cluster
    assert cluster.double.violations == []


def schema_of(place: Place, topic: str, versions: int) -> bytes:
    """Store this many versions of a schema; returns its node."""
    for number in range(1, versions + 1):
        place.put_schema(topic, number)
    return place.locator(topic)


def counts(promotion: Promotion) -> tuple[int, int, int, int]:
    """Return the numbers of rewritten, contested, deferred and failed attributions."""
    return promotion.schemas, promotion.contested, promotion.deferred_count, promotion.failed.count


def test_brokers_are_asked_again_before_the_directive(place: Place) -> None:
    """A broker that was restarted since PRECHECK, and would skip messages, is not directed to the new cluster."""
    node = f"{place.input.registry_path}/{SWITCH_TARGET}"
    before = place.zookeeper.get(node)[0]
    place.stack.reconfigure("broker-1", autoSkipNonRecoverableData="true")
    try:
        with pytest.raises(ApplicationError, match="AUTO_SKIP") as refused:
            place.direct()
    finally:
        place.stack.reconfigure("broker-1", autoSkipNonRecoverableData="false")
    assert refused.value.type == FailureKind.NOT_READY
    assert place.zookeeper.get(node)[0] == before
    place.direct()
    assert place.zookeeper.get(node)[0] != before


def test_all_versions_are_promoted_and_set_back(place: Place) -> None:
    """Only the attribution of each version changes (I10), a broker reads them all, and a rollback restores bytes.

    It does so also for versions whose copies autorecovery has moved in the meantime.
    """
    bare = schema_of(place, "bare", 3)
    named = set_schema_attribution(schema_of(place, "named", 2), None, OLD)
    assert named is not None
    place.set_node("/schemas/public/default/named", named)

    place.build()
    there = place.promote()

    assert counts(there) == (2, 0, 0, 0)
    for topic, before, versions in (("bare", bare, 3), ("named", named, 2)):
        after = place.locator(topic)
        assert stamps(after) == [NEW] * (versions + 1)
        assert without_stamps(after) == without_stamps(before)
    place.crash_brokers()
    assert (place.schemas("bare"), place.schemas("named")) == ([1, 2, 3], [1, 2])
    assert counts(place.promote()) == (0, 0, 0, 0)

    with LedgerDirectoryWriter(place.input.target.root, Access()) as target:
        move(target, ledgers(named))
    place.direct(Direction.BACK)
    back = place.promote(Direction.BACK)
    place.direct()

    assert back.failed.count == 0
    assert place.locator("named") == named
    assert stamps(place.locator("bare")) == [OLD] * 4
    assert without_stamps(place.locator("bare")) == without_stamps(bare)


def test_a_version_that_was_not_copied_stays(place: Place) -> None:
    """A version whose ledger differs in the target keeps its attribution and is named; the others are promoted."""
    locator = schema_of(place, "partly", 3)
    odd = ledgers(locator)[1]
    with (
        LedgerDirectoryWriter(place.input.source.root, Access()) as source,
        LedgerDirectoryWriter(place.input.target.root, Access()) as target,
    ):
        (record,) = source.read([odd])
        (other,) = target.read([ledgers(place.locator("bare"))[0]])
        assert record is not None
        assert other is not None
        target.create([(odd, other.metadata)])

        place.build()
        promotion = place.promote()

        assert stamps(place.locator("partly")) == [NEW, NEW, None, NEW]
        assert counts(promotion) == (1, 0, 0, 1)
        assert "schema /schemas/public/default/partly: ledger" in str(promotion.failed.items[0])
        assert place.schemas("partly") == [1, 2, 3]
        target.delete([(odd, None)])
    place.build()
    assert counts(place.promote()) == (1, 0, 0, 0)
    assert stamps(place.locator("partly")) == [NEW] * 4


def test_a_schema_that_is_stored_during_the_promotion_is_kept(place: Place) -> None:
    """A version that a broker stores between reading and compare-and-set stays, and moves with the next build."""
    schema_of(place, "growing", 2)
    place.build()
    more = [3]

    def store_the_next() -> None:
        while more:
            place.put_schema("growing", more.pop())

    first = promote_against(place, store_the_next)

    assert counts(first) == (1, 0, 0, 0)
    assert stamps(place.locator("growing")) == [None, NEW, NEW, None]
    place.build()
    assert counts(place.promote()) == (1, 0, 0, 0)
    assert stamps(place.locator("growing")) == [NEW] * 4
    assert place.schemas("growing") == [1, 2, 3]


def test_a_schema_that_others_keep_changing_is_contested(place: Place) -> None:
    """After five compare-and-sets that came too late the locator is left as it is, and the next promotion takes it."""
    locator = schema_of(place, "contested", 2)
    path = "/schemas/public/default/contested"
    place.build()
    version = place.zookeeper.get(path)[1].version

    contested = promote_against(place, lambda: place.set_node(path, locator))

    assert counts(contested) == (0, 1, 0, 0)
    assert place.locator("contested") == locator
    assert place.zookeeper.get(path)[1].version == version + 5
    assert counts(place.promote()) == (1, 0, 0, 0)
    assert stamps(place.locator("contested")) == [NEW] * 3


def test_attributions_that_a_broker_drops_are_set_again(place: Place) -> None:
    """Brokers 4.2 and 5.0 drop them with the next version; each gets the cluster again that has its ledger."""
    schema_of(place, "dropped", 2)
    place.build()
    place.promote()
    place.put_schema("dropped", 3)
    dropped = place.locator("dropped")
    assert stamps(dropped) == [None] * 4

    assert reconcile(place.steps.task(place.input)) == 3

    assert stamps(place.locator("dropped")) == [OLD, NEW, NEW, OLD]
    assert without_stamps(place.locator("dropped")) == without_stamps(dropped)
    assert reconcile(place.steps.task(place.input)) == 0
    assert place.schemas("dropped") == [1, 2, 3]


@pytest.mark.parametrize("named", [NEW, "third"])
def test_a_ledger_that_the_bootstrap_marker_misplaces_is_refused(place: Place, named: str) -> None:
    """Ledgers without a mark that only the source has, while the marker names another cluster, are reported.

    The precheck refuses the switch, and a promotion that finds them counts them as failed; each names the ledgers.
    """
    topic = f"bootstrap-{named}"
    bare = schema_of(place, topic, 2)
    first, second = ledgers(bare)
    marker = f"{place.input.registry_path}/{BOOTSTRAP}"
    try:
        place.set_node(marker, bootstrap_marker(named))
        place.build()

        precheck = place.steps.run(lambda task: SwitchPrecheckRun(task).run(), place.input)
        promotion = place.promote()
    finally:
        place.set_node(marker, bootstrap_marker(OLD))

    (blocker,) = (candidate for candidate in precheck.blockers if candidate.code == "UNATTRIBUTED_LEDGERS")
    assert f"ledgers that are not in {named}, where {marker} says that they are" in blocker.cause
    # Topics' ledgers without a mark are refused as well: nothing moves those.
    for kind, ledger in (("schema", first), ("schema", second), ("data", "")):
        assert f"{kind} ledger {ledger}" in blocker.cause
    assert {item.reason for item in promotion.failed.items if topic in str(item.path)} == {
        f"ledger {ledger} has no attribution, and is not in {named}, which the bootstrap marker names"
        for ledger in (first, second)
    }
    assert promotion.schemas == 0
    assert place.locator(topic) == bare

    place.build()
    assert counts(place.promote()) == (1, 0, 0, 0)
    assert stamps(place.locator(topic)) == [NEW] * 3


def test_a_marker_of_another_form_is_refused(place: Place) -> None:
    """The marker must name the cluster of ledgers without a mark before one of them moves."""
    marker = f"{place.input.registry_path}/{BOOTSTRAP}"
    try:
        place.set_node(marker, b"old")
        with pytest.raises(StoreConflict, match=f"invalid marker b'old' in {marker}; expected"):
            place.promote()
    finally:
        place.set_node(marker, bootstrap_marker(OLD))


def test_properties_of_a_ledger_survive_as_the_table_of_releases_says(place: Place) -> None:
    """The last ledger's attribution is there after the topic was loaded again, on releases that keep it (#26509)."""
    topic = TopicName.parse("properties")
    path = "/managed-ledgers/public/default/persistent/properties"
    send_to(place.stack.broker_url, ["properties"])
    place.admin.topics.unload(topic)
    info = ManagedLedgerInfo.FromString(place.zookeeper.get(path)[0])
    ledger = info.ledgerInfo[-1]
    ledger.properties.add(key=ATTRIBUTION, value=OLD)
    place.set_node(path, info.SerializeToString())

    send_to(place.stack.broker_url, ["properties"])

    after = ManagedLedgerInfo.FromString(place.zookeeper.get(path)[0])
    assert len(after.ledgerInfo) > len(info.ledgerInfo)
    (same,) = (info for info in after.ledgerInfo if info.ledgerId == ledger.ledgerId)
    release = parse_release(chosen_release().version)
    assert attribution(same.properties) == (None if has_defect(release, "PROPERTIES_LOST_ON_OPEN") else OLD)


def test_the_client_of_a_cluster_in_use_is_not_closed(place: Place) -> None:
    """Refused are a cluster that brokers write to, one that is referred to, and one of another switch (I5)."""
    task = place.steps.task(place.input)
    # The broker's own topics have their messages in the old cluster, and no attribution.
    for name, why in (
        (NEW, "brokers write to new"),
        (OLD, "still need old"),
        ("else", "is not a cluster of this switch"),
    ):
        with pytest.raises(StoreConflict, match=why):
            close_client(task, ClientClosing(cluster=name))
    assert place.double.closed == []

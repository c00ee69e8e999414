"""Known defects: whose they are, what prechecks say of them, and the page that is generated from them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product as pairs

import pytest

from activities.lifecycle.precheck import Findings
from activities.pulsar.releases import SeenBroker, check_releases, check_zookeepers
from deploy.generated_pages import PAGES, ROOT
from models.defects import Product, defects_of, has_defect, known_defects, unknown_ids
from models.lifecycle.input import Accepted
from models.metadata_store.input import MetadataStoreInput
from models.releases import Behaviour, parse_release
from models.scalable_topic.input import ScalableTopicInput
from models.topic_controller.input import ControllerInput
from worker.catalog import ALL

_TRACKER = "delayedDeliveryTrackerFactoryClassName"
_BUCKETS = {_TRACKER: "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"}
_RESTART = "bookie-cluster/restart"


def affected(name: str, version: str, **settings: str) -> bool:
    """Return whether brokers of a version have a defect."""
    (defect,) = [defect for defect in known_defects() if defect.id == name]
    return defect.affects(parse_release(version), settings)


def check(
    migration: str, *versions: str, accepted: Iterable[str] = (), settings: dict[str, str] | None = None
) -> Findings:
    """Return what a precheck says of brokers of some versions."""
    brokers = [SeenBroker(f"broker {number}", version, settings or {}) for number, version in enumerate(versions)]
    findings = Findings()
    check_releases(findings, migration, brokers, accepted=Accepted(tuple(accepted), untested_versions=True))
    return findings


@pytest.mark.parametrize(
    ("name", "affected_versions", "repaired_versions"),
    [
        ("TERMINATE_REOPENS", ["4.0.13", "4.2.4"], ["4.0.14", "4.2.5", "5.0.0", "5.0.1"]),
        ("TRIM_RACE", ["4.0.7"], ["4.0.8", "4.2.0", "4.2.4", "5.0.1"]),
        ("SYSTEM_TOPICS_FLAGGED", ["4.0.1"], ["4.0.2", "4.2.0", "5.0.1"]),
        ("PIP454_RETRY", ["4.2.0", "4.2.5"], ["4.0.8", "5.0.0", "5.0.1"]),
        ("BATCH_ACKS_UNSAVED", ["4.0.8", "4.2.4", "5.0.1"], []),
        ("BADVERSION_FOREVER", ["4.0.8", "4.0.99"], ["4.2.0", "5.0.1"]),
        ("BK_REPLACED_BOOKIE", [], ["4.0.8", "4.2.4", "5.0.1"]),
    ],
)
def test_releases_that_have_a_defect(name: str, affected_versions: list[str], repaired_versions: list[str]) -> None:
    """A release has a defect from the first affected release of its line up to the first repaired one."""
    assert all(affected(name, version) for version in affected_versions)
    assert not any(affected(name, version) for version in repaired_versions)


def test_a_defect_of_a_setting() -> None:
    """A defect of a setting affects brokers that have it, and those whose settings are not known."""
    assert not affected("DELAYED_MERGE_LOSS", "4.2.4")
    assert affected("DELAYED_MERGE_LOSS", "4.2.4", **_BUCKETS)
    assert has_defect(parse_release("4.2.4"), "DELAYED_MERGE_LOSS")
    with pytest.raises(ValueError, match="unknown defect 'NO_SUCH'"):
        has_defect(parse_release("4.2.4"), "NO_SUCH")


@pytest.mark.parametrize(("compression", "expected"), [("NONE", False), ("LZ4", True), ("ZSTD", True), ("", False)])
def test_a_defect_of_several_values(compression: str, expected: bool) -> None:
    """Compressed cursors are a defect of 4.2 alone, with any compression, and not of the default of 5.0."""
    assert affected("COMPRESSED_CURSOR", "4.2.4", managedCursorInfoCompressionType=compression) is expected
    assert not affected("COMPRESSED_CURSOR", "5.0.1", managedCursorInfoCompressionType=compression)
    assert not affected("COMPRESSED_CURSOR", "4.0.8", managedCursorInfoCompressionType=compression)


def test_the_data_name_migrations_and_releases_that_there_are() -> None:
    """Each kind is one of the catalog, each refusal concerns it, and each release can be read."""
    kinds = {name.partition("/")[0] for defect in known_defects() for name in defect.migrations}
    assert kinds <= set(ALL)
    for defect in known_defects():
        assert set(defect.refused) <= pairs_of(defect.migrations), defect.id
        assert all(len(version.split(".")) == 3 for version in (*defect.since, *defect.fixed_in)), defect.id
        assert bool(defect.setting) == bool(defect.values), defect.id


def pairs_of(migrations: Iterable[str]) -> set[str]:
    """Return kinds, and each with its modes."""
    modes = ("live", "offline", "restart", "attribution")
    return {name for kind, mode in pairs(migrations, modes) for name in (kind, f"{kind}/{mode}")}


def test_inputs_name_their_kind() -> None:
    """Every kind whose servers matter is that of an input, with its mode."""
    store, admin, topic = "zk:a:1", ("http://a:1",), "persistent://a/b/c"
    cluster = {"cluster": "a", "metadata_url": store, "admin_urls": admin}
    assert ControllerInput.model_validate({**cluster, "topic": topic}).kind == "topic-controller"
    assert ScalableTopicInput.model_validate({**cluster, "topic": topic}).kind == "scalable-topic"
    stores = {"cluster": "a", "source": store, "target": "oxia://b:1", "mode": "offline"}
    assert MetadataStoreInput.model_validate(stores).kind == "metadata-store/offline"


@pytest.mark.parametrize("version", ["4.0.8", "4.2.4", "5.0.1"])
@pytest.mark.parametrize("migration", ["metadata-store/live", "metadata-store/offline", _RESTART, "blue-green"])
def test_supported_releases_are_warned_of_and_not_refused(version: str, migration: str) -> None:
    """With default settings no defect of a supported release is a blocker; each is a warning with number and advice."""
    findings = check(migration, version)
    assert findings.blockers == []
    release = parse_release(version)
    expected = [defect for defect in defects_of(migration, Product.PULSAR) if defect.affects(release, {})]
    assert expected
    for defect in expected:
        (warning,) = [text for text in findings.warnings if f"{defect.id} (" in text]
        assert defect.reference.partition(";")[0] in warning
        assert defect.advice in warning


def test_a_defect_that_loses_data_is_refused_until_it_is_accepted() -> None:
    """It is a blocker with the brokers, the reference, the advice and how to accept it; accepted, it is a warning."""
    (blocker,) = check(_RESTART, "4.2.4", settings=_BUCKETS).blockers
    assert blocker.code == "DEFECT_DELAYED_MERGE_LOSS"
    assert "broker 0" in blocker.cause
    assert "#26251" in blocker.cause
    assert '"accept_defects": ["DELAYED_MERGE_LOSS"]' in blocker.cure
    accepted = check(_RESTART, "4.2.4", settings=_BUCKETS, accepted=["DELAYED_MERGE_LOSS"])
    assert accepted.blockers == []
    assert any("accepted defect DELAYED_MERGE_LOSS" in text for text in accepted.warnings)
    assert check("bookie-cluster/attribution", "4.2.4", settings=_BUCKETS).blockers == []
    assert check(_RESTART, "5.0.1", settings=_BUCKETS).blockers == []
    # All brokers are restarted after a metadata migration.
    (blocker,) = check("metadata-store/live", "4.2.4", settings=_BUCKETS).blockers
    assert blocker.code == "DEFECT_DELAYED_MERGE_LOSS"


def test_an_accepted_id_that_is_not_known_is_refused() -> None:
    """A typing error in accept_defects accepts nothing silently."""
    (blocker,) = check(_RESTART, "5.0.1", accepted=["NO_SUCH"]).blockers
    assert (blocker.code, unknown_ids(["NO_SUCH", "TWO_OWNERS"])) == ("UNKNOWN_DEFECT", ["NO_SUCH"])


def test_an_unsupported_release_is_refused() -> None:
    """A milestone, and a line that is not supported, are blockers, each once, with a cure."""
    findings = check("blue-green", "5.0.0-M1", "5.0.0-M1", "3.3.9")
    assert [blocker.code for blocker in findings.blockers] == ["UNSUPPORTED_RELEASE"] * 2
    assert "5.0.0-M1 was built before the first release of line 5.0" in findings.blockers[0].cause
    assert "upgrade all brokers" in findings.blockers[0].cure


def test_different_releases_in_one_cluster() -> None:
    """The oldest decides, which is said; what only the newest does is named, and so are the defects of each."""
    brokers = [SeenBroker("broker a", "5.0.1", {}), SeenBroker("broker b", "4.2.4", {})]
    findings = Findings()
    oldest = check_releases(findings, "metadata-store/live", brokers)
    assert str(oldest) == "4.2.4"
    (blocker,) = findings.blockers
    assert blocker.code == "MIXED_RELEASES"
    assert blocker.cause == (
        "brokers have different releases: broker a 5.0.1, broker b 4.2.4; the oldest, 4.2.4, decides what the "
        "migration relies on"
    )
    assert '"allow_untested_versions": true' in blocker.cure
    findings = Findings()
    check_releases(findings, "metadata-store/live", brokers, accepted=Accepted(untested_versions=True))
    assert (findings.blockers, findings.warnings[0]) == ([], blocker.cause)
    assert any("PIP454_RETRY" in text for text in findings.warnings)
    assert not any(text.startswith("brokers differ: ") for text in findings.warnings)
    check_releases(findings, "scalable-topic", brokers, accepted=Accepted(untested_versions=True))
    named = [text for text in findings.warnings if text.startswith("brokers differ: only 5.0.1: ")]
    assert len(named) == len([row for row in Behaviour if "scalable-topic" in row.migrations])


def test_broker_whose_release_is_unknown() -> None:
    """A broker that did not answer may have another release: it alone is named, and the operator can accept that."""
    brokers = [SeenBroker("broker a", "5.0.1", {}), SeenBroker("broker b", "", None, "timed out")]
    findings = Findings()
    check_releases(findings, "metadata-store/live", brokers)
    (blocker,) = findings.blockers
    assert (blocker.code, blocker.cause) == (
        "MIXED_RELEASES",
        "the release of broker b is not known, and may differ from 5.0.1, which the others have",
    )
    assert blocker.cure.startswith("let the worker reach its admin interface, or set")


@pytest.mark.parametrize("version", ["4.0.9", "4.2.5", "5.0.2", "4.0.8.2", "4.2.4-vendor-3"])
def test_a_release_that_was_not_tested(version: str) -> None:
    """A patch release or a vendor's build that was not tested is refused, unless the operator allows it."""
    findings = Findings()
    check_releases(findings, "blue-green", [SeenBroker("broker a", version, {})])
    assert [blocker.code for blocker in findings.blockers] == ["UNTESTED_RELEASE"]
    assert version in findings.blockers[0].cause
    assert check("blue-green", version).blockers == []


def test_releases_of_zookeeper() -> None:
    """A release of another line than 3.9 is refused until it is allowed; a server that does not tell is a warning."""
    servers = {"a:1": "3.9.6", "b:1": "3.8.4", "c:1": "", "d:1": "3.90.1"}
    findings, allowed = Findings(), Findings()
    check_zookeepers(findings, servers, Accepted())
    (blocker,) = findings.blockers
    assert (blocker.code, blocker.cause.partition(": ")[2]) == ("UNTESTED_RELEASE", "b:1 (3.8.4), d:1 (3.90.1)")
    assert findings.warnings[0].startswith("c:1 do not report their release of ZooKeeper")
    check_zookeepers(allowed, servers, Accepted(untested_versions=True))
    assert (allowed.blockers, len(allowed.warnings)) == ([], 2)


@pytest.mark.parametrize(("version", "codes"), [("4.0.8", ["STORE_PARAMETERS"]), ("4.2.4", []), ("5.0.1", [])])
def test_parameters_that_a_release_takes_for_a_name(version: str, codes: list[str]) -> None:
    """An address of the ledgers' store with parameters is a blocker on brokers that do not read these."""
    uri = {"bookkeeperMetadataServiceUri": "metadata-store:zk:a:1/pulsar?batchingMaxDelayMillis=10"}
    assert [blocker.code for blocker in check("metadata-store/offline", version, settings=uri).blockers] == codes


def test_a_release_that_cannot_be_read() -> None:
    """A broker that does not answer is a warning with the reason, and decides nothing."""
    findings = Findings()
    brokers = [SeenBroker("broker a", "", None, "connection refused")]
    assert check_releases(findings, "blue-green", brokers) is None
    assert findings.warnings == ["the release of broker a is not known, nor are its defects (connection refused)"]


def test_servers_that_do_not_report_their_release() -> None:
    """Servers without a known release, and a cluster without brokers, are reported with the defects to check for."""
    findings = Findings()
    check_releases(findings, _RESTART, [], unseen=[Product.BOOKKEEPER, Product.OXIA])
    unregistered, unknown = findings.warnings
    assert unregistered.startswith("no broker is registered, so no release is known")
    assert unknown.startswith(
        "servers of BookKeeper do not report their release; check yours for BK_REPLACED_BOOKIE (no"
    )
    assert "BK_GC_LIVE_LOGS (repaired in 4.17.2, 4.16.7)" in unknown


@pytest.mark.parametrize("path", PAGES)
def test_generated_pages_are_fresh(path: str) -> None:
    """A page that is generated from a table is what the table says; else run `python -m deploy.generated_pages`."""
    assert (ROOT / path).read_text() == PAGES[path]()

"""The coverage table, and the census that compares a cluster with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.coverage import covered, require_covered
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.releases import SeenBroker
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from clients.errors import StoreUnreachable
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from clients.store import Record
from clients.stores import Access
from models.coverage.table import COLUMNS, PAGE, UNKNOWN_FEATURE, ItemKind, Outcome, column_of, coverage
from models.lifecycle.failures import Blocker
from models.lifecycle.report import PrecheckResult
from models.metadata_store.input import MetadataStoreInput
from models.store_url import parse_store_url
from worker.catalog import ALL, KINDS, Registered

ROOT = Path(__file__).parents[3]
_TOPIC = TopicName.parse("persistent://public/default/orders")
_INPUT = MetadataStoreInput(cluster="c", source="zk:a:1", target="oxia://b:1")
_NAMES = st.from_regex(r"[a-z][a-zA-Z]{3,20}Xyz", fullmatch=True)
_SET = st.one_of(st.just(True), st.integers(1, 10**9), st.text("abc", min_size=1), st.just(["x"]), st.just({"a": 1}))
# Where no release of ZooKeeper is asked for.
_OXIA: Any = {"store": parse_store_url("oxia://a:1"), "access": Access()}
_TRACKER = "delayedDeliveryTrackerFactoryClassName"
_FOLDERS = {
    "metadata-store": "metadata_store",
    "bookie-cluster": "bookie_cluster",
    "blue-green": "blue_green",
    "scalable-topic": "scalable_topic",
    "topic-controller": "topic_controller",
}


class Store:
    """A metadata store in memory, as far as the census reads one."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = {path.encode(): json.dumps(value).encode() if value else b"" for path, value in values.items()}
        self.reads = 0

    def children(self, path: bytes) -> list[bytes]:
        """Return the direct children of a path."""
        start = path.rstrip(b"/") + b"/"
        names = {key.removeprefix(start).partition(b"/")[0] for key in self._values if key.startswith(start)}
        return sorted(start + name for name in names)

    def read(self, paths: Sequence[bytes]) -> list[Record | None]:
        """Return the records of some paths."""
        self.reads += 1
        return [Record(path, self._values[path], 0, 0, 0, 0, 0) if path in self._values else None for path in paths]


def census(
    *, settings: dict[str, str] | None = None, store: dict[str, Any] | None = None, stats: dict[str, Any] | None = None
) -> FeatureCensus:
    """Return a census of a cluster with one broker, one namespace and one topic."""
    features = FeatureCensus("c")
    features.add_brokers([SeenBroker("broker 1", "5.0.1", {"metadataStoreUrl": "zk:a:1", **(settings or {})})])
    features.add_store(Store({"/admin/policies/public": {}, **(store or {})}))  # pyright: ignore[reportArgumentType] - a double
    features.add_topic(TopicInventory(_TOPIC, parts=(TopicPartition(_TOPIC, TopicStats.model_validate(stats or {})),)))
    return features


def blockers(features: FeatureCensus, migration: str = "metadata-store/live", *accepted: str) -> list[Blocker]:
    """Return the blockers of a census."""
    findings = Findings()
    features.check(findings, migration, accepted)
    return findings.blockers


def test_every_row_says_what_becomes_of_it() -> None:
    """Each feature has an outcome with a reason in each migration, and something that shows it, or a reason why not."""
    features = coverage().features
    assert len(features) > 40
    for feature in features:
        assert set(feature.cells) == set(COLUMNS)
        assert bool(feature.items) != bool(feature.unseen), feature.id
        assert all(cell.text for cell in feature.cells.values())
    assert {column_of(name) for name in ALL} == set(COLUMNS)


def _codes() -> Iterator[tuple[str, str, str]]:
    for feature in coverage().features:
        for kind, cell in feature.cells.items():
            for code in cell.codes:
                yield kind, feature.id, code


@pytest.mark.parametrize(("kind", "feature", "code"), list(_codes()))
def test_codes_are_those_of_the_checks(kind: str, feature: str, code: str) -> None:
    """A code in capitals is that of a blocker in the migration's own checks; one in small letters is an input field."""
    if not code.isupper():
        assert code in KINDS[kind].input.model_fields, feature
        return
    folders = [ROOT / "activities" / _FOLDERS[kind], ROOT / "activities/lifecycle", ROOT / "activities/pulsar"]
    texts = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    ending = code.partition("_")[2]
    composed = rf'"{code}"|f"{{[^}}]*}}_{re.escape(ending)}"' if ending else f'"{code}"'
    assert any(re.search(composed, text) for text in texts), f"{feature}: no check of {kind} has the code {code}"


@pytest.mark.parametrize("kind", [*ALL.values()], ids=lambda kind: kind.name)
def test_each_page_leads_to_its_table(kind: Registered) -> None:
    """The page of each kind names the table with what becomes of each feature."""
    page = KINDS[kind.name].page if kind.name in KINDS else "docs/topic_controller.md"
    column = column_of(kind.name)
    if kind.name != "scalable-operation":  # Operations work on topics that are scalable already.
        assert f"(coverage.md#{column})" in (ROOT / page).read_text()
    assert f"\n## {column}\n" in (ROOT / PAGE).read_text()


def test_a_cluster_with_default_settings_is_covered() -> None:
    """A cluster with defaults, with those of the Helm chart, and with common policies passes without `accept`."""
    chart = {
        "metadataStoreUrl": "",
        "zookeeperServers": "pulsar-zookeeper:2181",
        "configurationStoreServers": "pulsar-zookeeper:2181",
        "functionsWorkerEnabled": "false",
        "exposeTopicLevelMetricsInPrometheus": "true",
        "statusFilePath": "/pulsar/logs/status",
        "subscriptionTypesEnabled": "[Shared, Failover, Exclusive, Key_Shared]",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "managedLedgerOffloadDriver": "",
    }
    policies = {"replication_clusters": ["c"], "bundles": {"numBundles": 4}, "deleted": False, "migrated": False}
    for settings in ({}, chart):
        features = census(settings=settings, store={"/admin/policies/public/default": policies, "/bookies": None})
        for migration in COLUMNS:
            assert blockers(features, migration) == [], migration


def test_function_workers_are_asked_about() -> None:
    """Their packages go past the brokers' store, so migrations of metadata or ledgers ask about them; others do not."""
    features = census(settings={"functionsWorkerEnabled": "true"})
    asked = {migration for migration in COLUMNS if blockers(features, migration)}
    assert asked == {"metadata-store", "bookie-cluster"}
    assert not any(blockers(features, migration, "FUNCTIONS") for migration in asked)


@pytest.mark.parametrize(
    "path", ["/pulsar/functions/public", "/pulsar/packages/function", "/stream/servers/available/x"]
)
def test_writers_of_ledgers_other_than_brokers_need_a_decision(path: str) -> None:
    """Packages and the table service stay on the source of the metadata, where ids of ledgers would be used twice."""
    assert len(blockers(census(store={path: None}))) == 1


@given(_NAMES, _SET)
def test_an_unknown_policy_is_refused(name: str, value: object) -> None:
    """A field of a namespace's policies that the table does not know is refused, with the namespace's name."""
    features = census(store={"/admin/policies/public/default": {name: value}})
    (blocker,) = blockers(features)
    assert blocker.code == UNKNOWN_FEATURE
    assert f"unknown policy {name}: public/default" in blocker.cause
    item = f"policy:{name}"
    assert blockers(features, "metadata-store/live", item) == []
    assert [(use.feature, use.objects) for use in features.uses("blue-green", [item]) if use.accepted] == [
        (item, ("public/default",))
    ]


@given(_NAMES, st.text("abc", min_size=1))
def test_an_unknown_setting_is_refused(name: str, value: str) -> None:
    """A setting of a broker that the table does not know is refused, without its value, which may be a secret."""
    (blocker,) = blockers(census(settings={name: value}))
    assert (blocker.code, f"unknown setting {name}: broker 1" in blocker.cause) == (UNKNOWN_FEATURE, True)
    assert f"{name}={value}" not in str(blocker)


@given(_NAMES)
def test_an_unknown_path_is_refused(name: str) -> None:
    """A family of paths that the table does not know is refused, also below `/admin` and `/pulsar`."""
    for path in (f"/{name}", f"/admin/{name}", f"/pulsar/{name}"):
        (blocker,) = blockers(census(store={f"{path}/x": {"a": 1}}))
        assert (blocker.code, f"unknown path {path}" in blocker.cause) == (UNKNOWN_FEATURE, True)


@given(_NAMES, _SET, st.sampled_from(["topic", "subscription", "producer", "consumer"]))
def test_an_unknown_flag_is_refused(name: str, value: object, where: str) -> None:
    """A field of a topic's statistics that the table does not know is refused, wherever it is."""
    stats: dict[str, Any] = {
        "topic": {name: value},
        "subscription": {"subscriptions": {"s": {name: value}}},
        "producer": {"publishers": [{name: value}]},
        "consumer": {"subscriptions": {"s": {"consumers": [{name: value}]}}},
    }[where]
    (blocker,) = blockers(census(stats=stats))
    assert (blocker.code, f"unknown {where} {name}" in blocker.cause) == (UNKNOWN_FEATURE, True)


@pytest.mark.parametrize("value", [None, False, 0, -1, "", [], {}])
def test_an_unknown_field_that_is_not_set_does_no_harm(value: object) -> None:
    """A field that the table does not know stops nothing while it has no value."""
    assert blockers(census(store={"/admin/policies/public/default": {"newPolicy": value}})) == []


def test_policies_that_cannot_be_read_are_unknown() -> None:
    """Policies that are not a JSON object are refused until the operator accepts them."""
    features = census(store={"/admin/policies/public/default": ["x"]})
    (blocker,) = blockers(features)
    assert (blocker.code, "the policies of public/default cannot be read" in blocker.cause) == (UNKNOWN_FEATURE, True)
    assert blockers(features, "metadata-store", "unread:public/default") == []


def test_settings_that_cannot_be_read_are_refused() -> None:
    """A broker that does not answer is a blocker, and one only where the migration's own checks have it already."""
    features = FeatureCensus("c")
    features.add_brokers([SeenBroker("broker 1", "", None, "connection refused")])
    (blocker,) = blockers(features)
    assert (blocker.code, "broker 1 (connection refused)" in blocker.cause) == (BROKERS_UNKNOWN, True)
    findings = Findings()
    features.check(findings, "metadata-store", (), [BROKERS_UNKNOWN])
    assert findings.blockers == []


@pytest.mark.parametrize(
    ("settings", "feature"),
    [
        ({"metadataSyncEventTopic": "persistent://a/b/c"}, "METADATA_SYNC"),
        ({"messagingProtocols": "[kafka]"}, "BROKER_PLUGINS"),
        ({"webSocketServiceEnabled": "true"}, "WEBSOCKET"),
        (
            {"loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"},
            "EXTENSIBLE_LOAD_MANAGER",
        ),
    ],
)
def test_blockers_and_questions_of_the_census(settings: dict[str, str], feature: str) -> None:
    """A setting that changes where data goes is refused, or asked about; only a question can be accepted."""
    features = census(settings=settings)
    (blocker,) = blockers(features, "blue-green")
    assert blocker.code == feature
    row = next(row for row in coverage().features if row.id == feature)
    asked = row.cell("blue-green").outcome is Outcome.DECISION
    assert (f'"accept": ["{feature}"]' in blocker.cure) == asked
    assert bool(blockers(features, "blue-green", feature)) != asked
    assert [use.accepted for use in features.uses("blue-green", [feature]) if use.feature == feature] == [asked]


def test_the_cure_of_the_extensible_load_manager_helps() -> None:
    """Remains of this load manager in the metadata store are accepted once the brokers' settings name another one."""
    remains = {"/service_unit_state/public/default/0x00000000_0xffffffff": {"state": "Owned"}}
    for migration in COLUMNS:
        assert blockers(census(store=remains), migration) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"configurationMetadataStoreUrl": "zk:a:1"},
        {"configurationStoreServers": "a:1"},
        {"bookkeeperMetadataServiceUri": "metadata-store:zk:a:1"},
        {"subscriptionTypesEnabled": "[Exclusive, Failover, Key_Shared, Shared]"},
        {_TRACKER: "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"},
    ],
)
def test_a_setting_that_equals_the_default_is_not_in_use(settings: dict[str, str]) -> None:
    """A setting that has no effect does not count as a feature."""
    items = {ItemKind.SETTING.item(name) for name in settings}
    used = {use.feature for use in census(settings=settings).uses("blue-green")}
    assert used.isdisjoint(coverage().of_item[item].id for item in items)


def test_features_in_use_are_listed_with_their_objects() -> None:
    """A census names what uses each feature, ten at most, with the whole count."""
    features = FeatureCensus("c")
    for number in range(25):
        name = TopicName.parse(f"persistent://public/default/t{number}")
        stats = TopicStats.model_validate({"msgChunkPublished": True, "publishers": [{"clientVersion": "x"}] * 3})
        features.add_topic(
            TopicInventory(name, policies={"global/retention": {"a": 1}}, parts=(TopicPartition(name, stats),))
        )
    uses = {use.feature: use for use in features.uses("blue-green")}
    assert (uses["CHUNKED_MESSAGES"].count, len(uses["CHUNKED_MESSAGES"].objects)) == (25, 10)
    assert uses["CLIENT_VERSIONS"].count == 25
    assert uses["RETENTION"].outcome is Outcome.CARRIED


def test_namespaces_of_pulsar_1_are_seen() -> None:
    """A namespace below a cluster's name is reported as one of Pulsar 1."""
    features = census(
        store={"/admin/policies/sample/standalone": None, "/admin/policies/sample/standalone/ns1": {"a": 0}}
    )
    assert [use.objects for use in features.uses("blue-green") if use.feature == "V1_NAMESPACES"] == [
        ("sample/standalone/ns1",)
    ]


def test_only_the_namespaces_that_move_count() -> None:
    """Policies of a namespace that a migration does not concern are not checked."""
    features = FeatureCensus("c")
    store = Store({"/admin/policies/a/b": {"newPolicy": 1}, "/admin/policies/a/c": {"deleted": True}})
    features.add_store(store, lambda name: name == "a/c")  # pyright: ignore[reportArgumentType] - a double
    assert blockers(features) == []
    assert "NAMESPACE_BEING_DELETED" in {use.feature for use in features.uses("metadata-store")}


def test_paths_of_the_plan_are_known() -> None:
    """Roots that a migration's plan names, such as the ledgers of its own clusters, are known under any name."""
    store = Store({"/second-ledgers/LAYOUT": {}, "/third-ledgers/LAYOUT": {}})
    features = FeatureCensus("c")
    features.add_store(store, own=["/second-ledgers"])  # pyright: ignore[reportArgumentType] - a double
    assert [blocker.cause for blocker in blockers(features)] == ["unknown path /third-ledgers: /third-ledgers"]


def test_a_namespace_costs_a_share_of_one_read() -> None:
    """A thousand namespaces of one tenant are read in four requests, and in two for tenants and racks."""
    store = Store({f"/admin/policies/t/n{number}": {"deleted": False} for number in range(1000)})
    FeatureCensus("c").add_store(store)  # pyright: ignore[reportArgumentType] - a double
    assert store.reads == 6


def test_a_precheck_takes_blockers_and_features() -> None:
    """The result of a precheck gets what the census found, after what its own checks found."""
    own = PrecheckResult(blockers=(Blocker(code="OWN", cause="x", cure="y"),), warnings=("w",))
    settings = {"messagingProtocols": "[kafka]"}
    broker = SeenBroker("broker 1", "5.0.1", settings)
    result = covered(own, _INPUT, FeatureCensus("c"), lambda features: features.add_brokers([broker]), **_OXIA)
    assert [blocker.code for blocker in result.blockers] == ["OWN", "BROKER_PLUGINS"]
    assert [use.feature for use in result.features] == ["BROKER_PLUGINS"]


def test_a_store_that_cannot_be_read_is_a_blocker() -> None:
    """A census that cannot be made keeps the migration from starting."""

    def fail(_: FeatureCensus) -> None:
        raise StoreUnreachable("no answer", server="zk:a:1")

    (blocker,) = covered(PrecheckResult(), _INPUT, FeatureCensus("c"), fail, **_OXIA).blockers
    assert blocker.code == "CENSUS_UNREACHABLE"


def test_settings_that_change_after_the_precheck_are_refused() -> None:
    """A broker that was restarted with another setting stops the migration before its point of no return."""

    def check(settings: dict[str, str]) -> None:
        require_covered(_INPUT, lambda features: features.add_brokers([SeenBroker("broker 1", "5.0.1", settings)]))

    check({"numIOThreads": "4"})
    with pytest.raises(ApplicationError, match=r"since PRECHECK the cluster has changed: \[BROKER_PLUGINS\]"):
        check({"brokerInterceptors": "[mine]"})

"""Settings with which green refuses clients that blue serves, or delivers otherwise; both clusters are doubles here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.checks.clusters import check_stricter
from activities.blue_green.checks.quotas import broker_differences, effects
from activities.blue_green.checks.settings import SETTINGS, BothSides, both_sides, check_settings, read_brokers
from activities.blue_green.context import BlueGreenTask
from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from clients.pulsar.admin.errors import AdminUnreachable
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.admin.topics import Client, ReplicationStats, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from tests.unit.blue_green.test_differences import TOPIC, namespace

_REFUSED = ["GREEN_BROKERS_DIFFER"]
_PASSING = TopicName.parse(str(TOPIC).replace("persistent", "non-persistent"))
_CLIENT = Client(metadata={"name": "ü" * 48 + "😀"})
_DELAYS = "delayed_delivery_policies"


def sub(name: str = "s", **fields: Any) -> TopicInventory:
    """Return a topic with a durable subscription."""
    return topic(TopicStats(subscriptions={name: SubscriptionStats.model_validate({"isDurable": True, **fields})}))


def topic(stats: TopicStats | None = None, name: TopicName = TOPIC, **fields: Any) -> TopicInventory:
    """Return a topic without partitions."""
    return TopicInventory(name, parts=(TopicPartition(name, stats or TopicStats()),), **fields)


UNUSED = topic()
WITH_SCHEMA = topic(schemas=(Schema(version=0, type="STRING"),))
DELAYED = sub(msgDelayed=3, type="Shared")
REPLICATED = topic(
    TopicStats(
        subscriptions={"s": SubscriptionStats.model_validate({"isDurable": True, "isReplicated": True})},
        replication={"west": ReplicationStats()},
    )
)
METADATA = topic(TopicStats(subscriptions={"s": SubscriptionStats(consumers=(_CLIENT,))}))


def check(
    setting: str,
    values: tuple[str, str],
    used: TopicInventory,
    *,
    here: dict[str, Any] | None = None,
    there: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
) -> Findings:
    """Return what is found of a namespace of one topic.

    Args:
        setting: that differs between the brokers of blue and of green.
        values: of it.
        used: the topic.
        here: policies of the namespace of blue, which green has as well.
        there: policies that only green's namespace has; None if green does not have the namespace.
        own: policies that only green's topic has.
    """
    findings, both = Findings(), here or {}
    task = cast("BlueGreenTask", SimpleNamespace(input=SimpleNamespace(cluster="blue", green_cluster="green")))
    green = None if there is None and own is None else namespace(topic(policies=own), **both, **(there or {}))
    brokers = BothSides(*({"a": {setting: value}} for value in values))
    check_settings(task, findings, namespace(used, **both), green, brokers)
    return findings


def codes(*of: Any, **more: Any) -> list[str]:
    """Return the codes of the blockers of `check`."""
    return [blocker.code for blocker in check(*of, **more).blockers]


def is_clean(findings: Findings) -> bool:
    """Return whether there are neither blockers nor warnings."""
    return not (findings.blockers or findings.warnings)


@pytest.mark.parametrize(
    ("setting", "blue", "green", "used", "policy"),
    [
        ("isSchemaValidationEnforced", "false", "true", WITH_SCHEMA, {"schema_validation_enforced": True}),
        (
            "schemaCompatibilityStrategy",
            "ALWAYS_COMPATIBLE",
            "FULL",
            WITH_SCHEMA,
            {"schema_compatibility_strategy": "FULL"},
        ),
        (
            "schemaCompatibilityStrategy",
            "BACKWARD",
            "FULL",
            WITH_SCHEMA,
            {"schema_compatibility_strategy": "UNDEFINED", "schema_auto_update_compatibility_strategy": "Backward"},
        ),
        ("delayedDeliveryEnabled", "true", "false", DELAYED, {_DELAYS: {"active": True}}),
        ("delayedDeliveryMaxDelayInMillis", "0", "9", DELAYED, {_DELAYS: {"maxDeliveryDelayInMillis": 0}}),
        ("delayedDeliveryMaxDelayInMillis", "9", "8", DELAYED, {_DELAYS: {"maxDeliveryDelayInMillis": 9}}),
        ("brokerDeduplicationEnabled", "true", "false", UNUSED, {"deduplicationEnabled": True}),
        ("enableReplicatedSubscriptions", "true", "false", REPLICATED, None),
        (
            "allowAutoTopicCreation",
            "true",
            "false",
            topic(name=_PASSING),
            {"autoTopicCreationOverride": {"allowAutoTopicCreation": True}},
        ),
        ("enableNonPersistentTopics", "true", "false", topic(name=_PASSING), None),
        ("subscriptionRedeliveryTrackerEnabled", "true", "false", sub(type="Key_Shared"), None),
        ("strictlyVerifySubscriptionName", "false", "true", sub("a b"), None),
        ("maxConsumerMetadataSize", "54", "53", METADATA, None),
        ("maxConsumerMetadataSize", "54", "0", METADATA, None),
    ],
)
def test_settings_that_topics_use(
    setting: str, blue: str, green: str, used: TopicInventory, policy: dict[str, Any] | None
) -> None:
    """A stricter setting of green is a blocker where a topic of blue uses it and no policy of blue says otherwise."""
    assert codes(setting, (blue, green), used) == _REFUSED
    assert codes(setting, (blue, green), used, there={}) == _REFUSED
    assert codes(setting, (green, blue), used) == codes(setting, (blue, blue), used) == []
    if policy is not None:
        assert codes(setting, (blue, green), used, here=policy) == []
    if used is not UNUSED:
        assert is_clean(check(setting, (blue, green), topic(), there={}))
    # Brokers' settings are warnings as well, since clients may use them later.
    (difference,) = broker_differences({setting: blue}, {setting: green})
    assert not difference.blocks


@pytest.mark.parametrize(
    ("setting", "blue", "green", "expected"),
    [
        ("delayedDeliveryEnabled", "true", "false", ["green delivers"]),
        ("delayedDeliveryEnabled", "false", "true", ["a later failback may be refused, because blue delivers"]),
        ("maxMessageSize", "1", "2", ["a later failback may be refused, because blue refuses"]),
        ("brokerMaxConnections", "1", "2", []),
        ("systemTopicEnabled", "true", "false", []),
    ],
)
def test_effects_of_a_difference(setting: str, blue: str, green: str, expected: list[str]) -> None:
    """A warning says what clients notice on green, and where blue would refuse a failback."""
    (difference,) = broker_differences({setting: blue}, {setting: green})
    texts = effects("blue", "green", difference)
    assert [text.startswith(start) for text, start in zip(texts, expected, strict=True)] == [True] * len(expected)


def test_cures() -> None:
    """A policy on blue is a cure where policies take precedence over brokers; they do not turn off validation."""

    def cures(*of: Any) -> list[bool]:
        return ["set a policy on blue" in blocker.cure for blocker in check(*of).blockers]

    assert cures("delayedDeliveryEnabled", ("true", "false"), DELAYED) == [True]
    assert cures("isSchemaValidationEnforced", ("false", "true"), WITH_SCHEMA) == [False]
    assert cures("enableReplicatedSubscriptions", ("true", "false"), REPLICATED) == [False]


def test_characters_of_properties() -> None:
    """Brokers count properties in Java's characters, as which an emoji is two."""
    assert codes("maxConsumerMetadataSize", ("100", "54"), METADATA) == []


def test_replicated_subscriptions_of_topics_that_are_not() -> None:
    """Subscriptions are replicated only with their topics."""
    assert is_clean(check("enableReplicatedSubscriptions", ("true", "false"), sub(isReplicated=True)))


@pytest.mark.parametrize(
    ("setting", "value", "policy", "used"),
    [
        ("delayedDeliveryEnabled", "true", {_DELAYS: {"active": False, "tickTime": 1000}}, DELAYED),
        ("delayedDeliveryMaxDelayInMillis", "0", {_DELAYS: {"active": True, "maxDeliveryDelayInMillis": 9}}, DELAYED),
        ("allowAutoTopicCreation", "true", {"autoTopicCreationOverride": {"allowAutoTopicCreation": False}}, None),
        (
            "allowAutoSubscriptionCreation",
            "true",
            {"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}},
            None,
        ),
        ("brokerDeduplicationEnabled", "true", {"deduplicationEnabled": False}, UNUSED),
    ],
)
def test_policies_that_green_alone_has(
    setting: str, value: str, policy: dict[str, Any], used: TopicInventory | None
) -> None:
    """A policy of green's namespace alone is compared like the brokers' setting; one that is not used is named."""
    equal = value, value
    if used is not None:
        assert codes(setting, equal, used, there=policy) == _REFUSED
    if used is not UNUSED:
        (warning,) = check(setting, equal, topic(), there=policy).warnings
        assert (str(TOPIC) in warning, setting in warning) == (True, True)
        assert codes(setting, equal, topic(), there=policy) == []
    assert is_clean(check(setting, equal, topic(), here=policy, there={}))


@pytest.mark.parametrize(
    ("setting", "value", "policy"),
    [
        ("isSchemaValidationEnforced", "false", {"schema_validation_enforced": True}),
        ("schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE", {"schema_compatibility_strategy": "FULL"}),
        ("isAllowAutoUpdateSchemaEnabled", "true", {"is_allow_auto_update_schema": False}),
    ],
)
def test_policies_that_blue_always_has(setting: str, value: str, policy: dict[str, Any]) -> None:
    """A policy of green's namespace that PROVISION sets as on blue, or that differs by another blocker, is blue's."""
    assert is_clean(check(setting, (value, value), WITH_SCHEMA, there=policy))
    strategy = {"schema_auto_update_compatibility_strategy": "Full"}
    assert codes("schemaCompatibilityStrategy", ("BACKWARD", "BACKWARD"), WITH_SCHEMA, there=strategy) == _REFUSED


def test_policies_of_a_topic_of_green() -> None:
    """A topic's own policy goes before its namespace's; green's alone must not be stricter."""
    sizes = "maxMessageSize", ("100", "100")
    assert codes(*sizes, topic(), own={"maxMessageSize": 99}) == _REFUSED
    assert codes(*sizes, topic(), own={"global/maxMessageSize": 100}) == []
    assert codes(*sizes, topic(policies={"maxMessageSize": 50}), own={"maxMessageSize": 50}) == []
    # A blocker of the brokers says so.
    assert codes("maxMessageSize", ("100", "50"), topic()) == []
    delays = "delayedDeliveryEnabled", ("true", "true"), DELAYED
    assert codes(*delays, there={_DELAYS: {"active": False}}, own={"delayedDelivery": {"active": True}}) == []
    assert codes(*delays, here={_DELAYS: {"active": True}}, own={"delayedDelivery": {"active": False}}) == _REFUSED


@pytest.mark.parametrize(
    ("blue", "green", "blocks"),
    [
        ("ALWAYS_COMPATIBLE", "BACKWARD", True),
        ("BACKWARD", "ALWAYS_COMPATIBLE", False),
        ("BACKWARD", "FULL", True),
        ("FULL", "BACKWARD", False),
        ("FULL", "UNDEFINED", False),
        ("FULL", "FORWARD_TRANSITIVE", True),
        ("FULL_TRANSITIVE", "FORWARD_TRANSITIVE", False),
        ("FULL_TRANSITIVE", "ALWAYS_INCOMPATIBLE", True),
        ("ALWAYS_INCOMPATIBLE", "FULL_TRANSITIVE", False),
    ],
)
def test_strategies_of_schemas(blue: str, green: str, *, blocks: bool) -> None:
    """A strategy is stricter if it makes a check that the other one does not make."""
    assert codes("schemaCompatibilityStrategy", (blue, green), WITH_SCHEMA) == _REFUSED * blocks


def test_settings_are_compared() -> None:
    """Each setting that may be stricter is in the lists of what is compared between brokers."""
    compared = {name for name in {setting.name for setting in SETTINGS} if broker_differences({name: "1"}, {name: "2"})}
    assert compared == {setting.name for setting in SETTINGS}


def mixed(*values: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return brokers of one cluster, each with its settings."""
    return {f"b{number}": settings for number, settings in enumerate(values)}


def clusters(here: list[tuple[str, SimpleNamespace]], there: list[tuple[str, SimpleNamespace]]) -> BlueGreenTask:
    """Return a task on two clusters with these brokers."""
    address = SimpleNamespace(admin_urls=("http://a",))
    needed = SimpleNamespace(cluster="blue", green_cluster="green", blue=address, green=address)
    blue, green = SimpleNamespace(brokers=lambda: here), SimpleNamespace(brokers=lambda: there)
    return cast("BlueGreenTask", SimpleNamespace(input=needed, blue=blue, green=green))


def blockers_between(
    blue: dict[str, dict[str, str]], green: dict[str, dict[str, str]], used: TopicInventory = UNUSED
) -> int:
    """Return the number of blockers between the brokers of two clusters, and of a namespace of one topic."""
    findings, task = Findings(), clusters([], [])
    brokers = both_sides(task, blue, green)
    check_stricter(findings, brokers)
    check_settings(task, findings, namespace(used), None, brokers)
    return len(findings.blockers)


def test_clusters_with_brokers_of_several_kinds() -> None:
    """Clusters of the same kinds of brokers do not differ, and each kind of topics needs one broker of green."""
    kinds = {"enablePersistentTopics": "true", "enableNonPersistentTopics": "false"}
    others = {"enablePersistentTopics": "false", "enableNonPersistentTopics": "true"}
    both = {"enablePersistentTopics": "true", "enableNonPersistentTopics": "true"}
    passing = topic(name=_PASSING)
    for blue in (mixed(kinds, others), mixed(both)):
        for green in (mixed(others, kinds), mixed(both)):
            assert blockers_between(blue, green, passing) == 0
        assert (blockers_between(blue, mixed(kinds), passing), blockers_between(blue, mixed(others), passing)) == (1, 1)
    high, low = {"maxMessageSize": "2"}, {"maxMessageSize": "1"}
    assert (
        blockers_between(mixed(high, low), mixed(low, high)),
        blockers_between(mixed(high, low), mixed(low, low)),
    ) == (0, 2)
    on, off = {"delayedDeliveryEnabled": "true"}, {"delayedDeliveryEnabled": "false"}
    assert (
        blockers_between(mixed(on, off), mixed(off, on), DELAYED),
        blockers_between(mixed(on, off), mixed(off), DELAYED),
    ) == (0, 1)


def test_brokers_that_answer() -> None:
    """The settings of each broker that answers are read once."""
    asked: list[str] = []

    def broker(name: str, **settings: str) -> tuple[str, SimpleNamespace]:
        def read() -> dict[str, str]:
            asked.append(name)
            if not settings:
                raise AdminUnreachable("refused", method="GET", url="http://c")
            return settings

        return name, SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=read))

    low, high = {"maxMessageSize": "1"}, {"maxMessageSize": "2"}
    here, there = [broker("a", **high), broker("silent")], [broker("b", **high), broker("c", **low)]
    assert read_brokers(clusters(here, there)) == ({"a": high}, {"b": high, "c": low})
    assert asked == ["a", "silent", "b", "c"]
    with pytest.raises(AdminUnreachable, match="no broker of blue answers"):
        read_brokers(clusters(here[1:], there))
    for silent in (here[1:], []):
        with pytest.raises(AdminUnreachable, match="no broker of green answers"):
            read_brokers(clusters(here, silent))

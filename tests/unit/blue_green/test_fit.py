"""Features in use that green would refuse, and brokers that serve namespaces; both clusters are doubles here."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.checks import clusters
from activities.blue_green.checks.clusters import check_running
from activities.blue_green.checks.green import check_deletion, check_isolation, check_resource_group
from activities.blue_green.checks.quotas import green_quotas
from activities.blue_green.context import BlueGreenTask
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.lifecycle.precheck import Findings
from activities.pulsar.releases import SeenBroker
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.topics import Client, SubscriptionStats, TopicStats
from models.blue_green.input import BlueGreenInput
from tests.support.blue_green.sides import side
from tests.unit.blue_green.test_differences import SPACE, TOPIC, namespace

_CLIENTS = (Client(), Client())
_USED = TopicStats(
    publishers=_CLIENTS,
    subscriptions={
        "a": SubscriptionStats(type="Key_Shared", consumers=_CLIENTS),
        "b": SubscriptionStats(type="Exclusive", consumers=_CLIENTS[:1]),
        "idle": SubscriptionStats(type="Shared"),
    },
)

CAUGHT_UP = {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "deleteWhileInactive": True}
_KEPT = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "deleteWhileInactive": True}
_DELETES = {
    "brokerDeleteInactiveTopicsEnabled": "true",
    "brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up",
}


def green(**settings: str) -> PulsarAdminReader:
    """Return a cluster whose brokers are configured like this, and that has no topics."""

    def no_topics(_: str) -> list[str]:
        return []

    return cast(
        "PulsarAdminReader",
        SimpleNamespace(
            brokers=SimpleNamespace(runtime_configuration=lambda: settings), topics=SimpleNamespace(names=no_topics)
        ),
    )


def codes(
    policies: dict[str, Any], own: dict[str, Any], there: NamespaceInventory | None = None, /, **settings: str
) -> list[str]:
    """Return the codes of blockers of a namespace with one topic that is used; `there` is the namespace on green."""
    topic = TopicInventory(TOPIC, parts=(TopicPartition(TOPIC, _USED),), policies=own)
    return [blocker.code for blocker in green_quotas(green(**settings), namespace(topic, **policies), there)]


def on_green(own: dict[str, Any], **policies: Any) -> NamespaceInventory:
    """Return the namespace as green has it, with its policies and those of its topic."""
    return namespace(TopicInventory(TOPIC, policies=own), **policies)


@pytest.mark.parametrize(
    ("limit", "enough", "policy", "own"),
    [
        ("maxProducersPerTopic", 2, "max_producers_per_topic", "maxProducers"),
        ("maxConsumersPerTopic", 3, "max_consumers_per_topic", "maxConsumers"),
        ("maxConsumersPerSubscription", 2, "max_consumers_per_subscription", "maxConsumersPerSubscription"),
    ],
)
def test_limits_on_clients(limit: str, enough: int, policy: str, own: str) -> None:
    """Green's brokers must take as many clients as there are, unless a policy says how many, which is copied."""
    few = {limit: str(enough - 1)}
    assert codes({}, {}, **few) == ["GREEN_QUOTA"]
    assert codes({}, {}, **{limit: str(enough)}) == []
    assert codes({}, {}, **{limit: "0"}) == []
    assert codes({policy: 0}, {}, **few) == []
    assert codes({}, {own: 5}, **few) == []
    assert codes({}, {f"global/{own}": 5}, **few) == []


@pytest.mark.parametrize(
    ("limit", "enough", "policy", "own"),
    [
        ("maxProducersPerTopic", 2, "max_producers_per_topic", "maxProducers"),
        ("maxConsumersPerTopic", 3, "max_consumers_per_topic", "maxConsumers"),
        ("maxConsumersPerSubscription", 2, "max_consumers_per_subscription", "maxConsumersPerSubscription"),
        ("maxSubscriptionsPerTopic", 3, "max_subscriptions_per_topic", "maxSubscriptionsPerTopic"),
    ],
)
def test_limits_that_green_alone_has(limit: str, enough: int, policy: str, own: str) -> None:
    """A limit of green's namespace goes before that of its brokers, and a topic's own before both."""
    few = {limit: str(enough - 1)}
    assert codes({}, {}, on_green({}, **{policy: enough - 1})) == ["GREEN_QUOTA"]
    assert codes({}, {}, on_green({}, **{policy: enough}), **few) == []
    assert codes({}, {}, on_green({}, **{policy: 0}), **few) == []
    assert codes({}, {}, on_green({own: enough - 1}, **{policy: enough})) == ["GREEN_QUOTA"]
    assert codes({policy: 9}, {}, on_green({f"global/{own}": enough - 1}, **{policy: 9})) == ["GREEN_QUOTA"]
    assert codes({}, {}, on_green({own: enough}, **{policy: enough - 1})) == []
    # Those of blue are copied, and a difference is a blocker of its own.
    assert codes({policy: 9}, {}, on_green({}, **{policy: 9}), **few) == []
    assert codes({}, {own: 9}, on_green({own: 9}, **{policy: enough - 1})) == []


@pytest.mark.parametrize(
    ("limit", "most"), [("maxSameAddressProducersPerTopic", 2), ("maxSameAddressConsumersPerTopic", 3)]
)
def test_limits_on_clients_of_one_address(limit: str, most: int) -> None:
    """Green's brokers must take all clients that a topic has from one address, whatever their ports."""
    h, other = (tuple(Client(address=f"/{host}:{port}") for port in (1, 2)) for host in ("h", "[0:0:0:0:0:0:0:1]"))
    subs = {name: SubscriptionStats(consumers=clients) for name, clients in (("a", h), ("b", (h[0], *other)))}
    topic = TopicInventory(
        TOPIC, parts=(TopicPartition(TOPIC, TopicStats(publishers=(*h, *other), subscriptions=subs)),)
    )

    def refusals(value: int) -> list[str]:
        return [blocker.code for blocker in green_quotas(green(**{limit: str(value)}), namespace(topic), None)]

    assert [refusals(value) for value in (most - 1, most, 0)] == [["GREEN_QUOTA"], [], []]


def test_types_of_subscriptions() -> None:
    """Green's brokers must allow each type that has consumers, unless a policy says which are allowed."""
    allowed = {"subscriptionTypesEnabled": "[Exclusive, Shared, Failover]"}
    assert codes({}, {}, **allowed) == ["GREEN_SUBSCRIPTION_TYPES"]
    assert codes({}, {}, subscriptionTypesEnabled="[Key_Shared, Exclusive]") == []
    assert codes({"subscription_types_enabled": ["Key_Shared"]}, {}, **allowed) == []
    assert codes({}, {"subscriptionTypesEnabled": ["Key_Shared", "Exclusive"]}, **allowed) == []


@pytest.mark.parametrize(
    ("brokers", "here", "there", "own", "refused"),
    [
        (_DELETES, None, None, {}, True),
        ({**_DELETES, "brokerDeleteInactiveTopicsEnabled": "false"}, None, None, {}, False),
        ({**_DELETES, "brokerDeleteInactiveTopicsMode": "delete_when_no_subscriptions"}, None, None, {}, False),
        (_DELETES, _KEPT, None, {}, False),
        (_DELETES, None, _KEPT, {}, False),
        (_DELETES, None, None, {"inactiveTopicPolicies": {**CAUGHT_UP, "deleteWhileInactive": False}}, False),
        ({}, CAUGHT_UP, _KEPT, {}, True),
        ({}, None, CAUGHT_UP, {}, True),
        ({}, _KEPT, CAUGHT_UP, {}, False),
        ({}, _KEPT, None, {"global/inactiveTopicPolicies": CAUGHT_UP}, True),
    ],
)
def test_topics_that_green_deletes(
    brokers: dict[str, str],
    here: dict[str, Any] | None,
    there: dict[str, Any] | None,
    own: dict[str, Any],
    *,
    refused: bool,
) -> None:
    """Green must keep consumed topics with subscriptions; the policy next to the topic counts, and blue's is copied."""

    def check(stats: TopicStats) -> Findings:
        findings = Findings()
        task = SimpleNamespace(input=SimpleNamespace(cluster="b", green_cluster="g"))
        topic = TopicInventory(TOPIC, parts=(TopicPartition(TOPIC, stats),), policies=own)
        blue, green = namespace(topic, inactive_topic_policies=here), namespace(inactive_topic_policies=there).policies
        check_deletion(cast("BlueGreenTask", task), findings, blue, green if there else None, brokers)
        return findings

    assert [blocker.code for blocker in check(_USED).blockers] == ["GREEN_DELETES_TOPICS"] * refused
    # A client creates a topic without subscriptions again.
    assert check(TopicStats(publishers=_CLIENTS)).blockers == []


def placed(here: dict[str, tuple[str, ...]], there: dict[str, tuple[str, ...]], *groups: str) -> Findings:
    """Return what is found of one namespace, where blue and green isolate these; `groups` are its groups on both."""

    def side(policies: dict[str, tuple[str, ...]], group: str) -> SimpleNamespace:
        def isolated(_: str) -> dict[str, tuple[str, ...]]:
            return policies

        def group_of(_: str) -> str:
            return group

        return SimpleNamespace(
            clusters=SimpleNamespace(isolated_namespaces=isolated),
            namespaces=SimpleNamespace(anti_affinity_group=group_of),
        )

    findings, (blue, green) = Findings(), groups or ("", "")
    task = SimpleNamespace(
        input=SimpleNamespace(cluster="b", green_cluster="g"),
        blue=SimpleNamespace(admin=side(here, blue)),
        green=SimpleNamespace(admin=side(there, green)),
    )
    check_isolation(cast("BlueGreenTask", task), findings, [SPACE])
    return findings


def test_isolated_namespaces() -> None:
    """A namespace with brokers of its own has some on green as well."""
    tenant = {"p": ("acme/.*",)}
    assert placed({}, {}).blockers == []
    assert placed({"p": ("other/.*", "acme/ord")}, {}).blockers == []
    assert placed(tenant, {"q": (SPACE,)}).blockers == []
    (blocker,) = placed(tenant, {"q": ("other/.*",)}).blockers
    assert (blocker.code, SPACE in blocker.cause) == ("GREEN_LACKS_ISOLATION", True)


def test_limits_of_resource_groups() -> None:
    """A group of the same name may allow less on green."""

    def side(**limits: int) -> SimpleNamespace:
        def limits_of(_: str) -> dict[str, int]:
            return limits

        return SimpleNamespace(namespaces=SimpleNamespace(resource_groups=lambda: ["g"], resource_group=limits_of))

    here, there = side(publishRateInMsgs=10, publishRateInBytes=5), side(publishRateInMsgs=9, publishRateInBytes=5)
    for group, green, expected in (("g", there, 1), ("g", here, 0), ("absent", there, 0), (None, there, 0)):
        findings = Findings()
        task = SimpleNamespace(
            input=SimpleNamespace(green_cluster="green"),
            blue=SimpleNamespace(admin=here),
            green=SimpleNamespace(admin=green),
        )
        check_resource_group(cast("BlueGreenTask", task), findings, namespace(resource_group_name=group))
        assert ["publishRateInMsgs 10 and 9" in warning for warning in findings.warnings] == [True] * expected


def test_anti_affinity_groups() -> None:
    """Anti-affinity groups are not copied, so a differing one is named."""
    assert placed({}, {}, "g", "g").warnings == []
    (warning,) = placed({}, {}, "g", "").warnings
    assert f"{SPACE} (g)" in warning


def test_each_broker_of_green_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right before the flags a broker of green that has become stricter than blue's is named, if it answers.

    Writes are held back then, so each broker is asked once.
    """
    encryption = {"a": "false", "b": "true", "blue": "false", "silent": None}
    asked: list[str] = []

    def read(name: str, _: object) -> SeenBroker:
        asked.append(name)
        value = encryption[name]
        return SeenBroker(name, "5.0.1", {"encryptionRequireOnProducer": value} if value else None)

    def brokers(code: str, *names: str) -> SimpleNamespace:
        services = [SimpleNamespace(name=name, data=b"") for name in names]
        cluster = SimpleNamespace(access=None, registrations=lambda: services)
        return SimpleNamespace(code=code, name=code, cluster=cluster)

    def ignore(*_: object, **__: object) -> None:
        return None

    def sides(_: object) -> tuple[SimpleNamespace, SimpleNamespace]:
        return brokers("BLUE", "blue"), brokers("GREEN", "a", "b", "silent")

    def session(_: object) -> nullcontext[SimpleNamespace]:
        return nullcontext(SimpleNamespace(access=None))

    for name, double in {"_sides": sides, "HttpSession": session, "read_broker": read}.items():
        monkeypatch.setattr(clusters, name, double)
    for name in ("check_broker", "check_flip_timeout", "check_releases", "registered_urls", "PulsarAdminReader"):
        monkeypatch.setattr(clusters, name, ignore)
    needed: dict[str, object] = {"cluster": "b", "blue": side("blue"), "green_cluster": "g", "green": side("green")}
    task = SimpleNamespace(input=BlueGreenInput.model_validate(needed))
    findings = Findings()
    check_running(cast("BlueGreenTask", task), findings)
    (blocker,) = findings.blockers
    assert (blocker.code, blocker.cause.startswith("b: brokers: encryptionRequireOnProducer")) == (
        "GREEN_BROKERS_DIFFER",
        True,
    )
    assert asked == ["blue", "a", "b", "silent"]

"""The checks that PRECHECK made of a namespace are repeated before its batch moves; blue's namespace is a double."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from temporalio.exceptions import ApplicationError

from activities.blue_green.checks import readiness
from activities.blue_green.checks.readiness import recheck_namespaces
from activities.blue_green.provisioning.inventory import NamespaceInventory
from clients.pulsar.admin.namespaces import Policies
from clients.pulsar.admin.topics import InternalInfo, Position, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from tests.unit.blue_green.test_differences import namespace
from tests.unit.blue_green.test_fit import CAUGHT_UP
from tests.unit.blue_green.test_topic_use import IN_USE, READY, TOPIC, guards, task, topic


@pytest.mark.parametrize(
    ("inventory", "code"),
    [
        (namespace(topic(READY), replication_clusters=["b", "g"]), "REPLICATED_TO_GREEN"),
        (namespace(topic(READY, shadowTopics=["x"])), "BLUE_SHADOW_TOPICS"),
        (namespace(topic(IN_USE), subscription_expiration_time_minutes=5), "GREEN_EXPIRES_SUBSCRIPTIONS"),
        (namespace(topic(IN_USE, inactiveTopicPolicies=CAUGHT_UP)), "GREEN_DELETES_TOPICS"),
        (namespace(topic(READY, entryFilters={"entryFilterNames": "f"})), "ENTRY_FILTERS"),
        (namespace(topic(TopicStats.model_validate({"newFlag": True}))), "UNKNOWN_FEATURE"),
    ],
)
def test_what_came_into_use_after_the_precheck(
    monkeypatch: pytest.MonkeyPatch, inventory: NamespaceInventory, code: str
) -> None:
    """Days after PRECHECK a batch is refused for what PRECHECK would have refused, unless it is accepted."""
    current = inventory

    def read(*_: object) -> NamespaceInventory:
        return current

    monkeypatch.setattr(readiness, "read_namespace", read)
    with pytest.raises(ApplicationError, match=rf"since PRECHECK the cluster has changed: \[{code}\]"):
        recheck_namespaces(task(), guards())
    current = namespace(topic(READY), replication_clusters=["b"])
    recheck_namespaces(task(), guards())


@pytest.mark.parametrize("marked", [False, True])
def test_a_topic_that_clients_have_terminated(monkeypatch: pytest.MonkeyPatch, *, marked: bool) -> None:
    """Brokers never mark it as migrated, so its batch does not start; one that a flip has terminated is marked."""

    def read(*_: object) -> NamespaceInventory:
        return namespace(topic(READY))

    monkeypatch.setattr(readiness, "read_namespace", read)
    properties = {"migrated": "true"} if marked else {}
    end = InternalInfo(terminated_position=Position(ledger_id=1, entry_id=0), properties=properties)
    with nullcontext() if marked else pytest.raises(ApplicationError, match=r"\[BLUE_TERMINATED_TOPICS\]"):
        recheck_namespaces(task(info=end), guards())


def test_a_policy_that_came_to_green(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that an operator has set on green since PRECHECK, by which its topics go, stops the batch."""

    def read(*_: object) -> NamespaceInventory:
        return namespace(topic(IN_USE))

    def policies(_: str) -> Policies:
        return namespace(inactive_topic_policies=CAUGHT_UP).policies

    monkeypatch.setattr(readiness, "read_namespace", read)
    batch = task()
    monkeypatch.setattr(batch.green.admin.namespaces, "policies", policies)
    with pytest.raises(ApplicationError, match=r"\[GREEN_DELETES_TOPICS\]"):
        recheck_namespaces(batch, guards())


def test_settings_that_topics_use_since_the_precheck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that came to green since PRECHECK, and is stricter than blue's brokers, stops the batch."""
    batch, of_green = task(), namespace(topic(READY), deduplicationEnabled=False)

    def read(admin: object, *_: object, **__: object) -> NamespaceInventory:
        return namespace(topic(IN_USE)) if admin is batch.blue.admin else of_green

    def policies(_: str) -> Policies:
        return of_green.policies

    def brokers() -> list[tuple[str, SimpleNamespace]]:
        settings = {"brokerDeduplicationEnabled": "true"}
        return [("b", SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=lambda: settings)))]

    monkeypatch.setattr(readiness, "read_namespace", read)
    for cluster in (batch.blue, batch.green):
        monkeypatch.setattr(cluster, "brokers", brokers)
    recheck_namespaces(batch, guards())
    monkeypatch.setattr(batch.green.admin.namespaces, "policies", policies)
    with pytest.raises(ApplicationError, match=r"\[GREEN_BROKERS_DIFFER\]"):
        recheck_namespaces(batch, guards())


def test_policies_of_topics_of_green(monkeypatch: pytest.MonkeyPatch) -> None:
    """Green's topics are read for their own policies only where a batch would be refused without these."""
    delayed = SubscriptionStats.model_validate({"msgDelayed": 3, "type": "Shared"})
    used = topic(TopicStats(subscriptions={"s": delayed}))
    batch, values, active = task(), {"blue": "true", "green": "true"}, True
    asked: list[Collection[TopicName]] = []

    def read(admin: object, *_: object, only: Collection[TopicName] | None = None) -> NamespaceInventory:
        if admin is batch.blue.admin:
            return namespace(used)
        asked.append(only or ())
        return namespace(topic(TopicStats(), delayedDelivery={"active": active}))

    def policies(_: str) -> Policies:
        return namespace().policies

    def cluster(name: str) -> Callable[[], list[tuple[str, SimpleNamespace]]]:
        brokers = SimpleNamespace(runtime_configuration=lambda: {"delayedDeliveryEnabled": values[name]})
        return lambda: [(name, SimpleNamespace(brokers=brokers))]

    monkeypatch.setattr(readiness, "read_namespace", read)
    monkeypatch.setattr(batch.green.admin.namespaces, "policies", policies)
    monkeypatch.setattr(batch.blue, "brokers", cluster("blue"))
    monkeypatch.setattr(batch.green, "brokers", cluster("green"))
    recheck_namespaces(batch, guards())
    assert asked == []
    values["green"] = "false"
    recheck_namespaces(batch, guards())
    active = False
    with pytest.raises(ApplicationError, match=r"\[GREEN_BROKERS_DIFFER\]"):
        recheck_namespaces(batch, guards())
    assert asked == [{TOPIC}, {TOPIC}]


def test_accepted_decisions_hold_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that the operator has accepted in the input holds for topics that come later as well."""

    def read(*_: object) -> NamespaceInventory:
        return namespace(topic(READY, entryFilters={"entryFilterNames": "f"}))

    monkeypatch.setattr(readiness, "read_namespace", read)
    recheck_namespaces(task(accept=["ENTRY_FILTERS"]), guards())

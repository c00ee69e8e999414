"""Settings with which brokers of green refuse clients that blue serves, or deliver their messages otherwise.

Most are defaults: a policy of the topic or of its namespace takes precedence. Policies of blue are copied, and green
may have more. So what counts is the value that a topic has on each side, and whether blue uses what differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.provisioning.translation import comparable
from activities.lifecycle.precheck import Findings
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.pulsar.topic_inventory import TopicInventory
from clients.pulsar.admin.errors import AdminUnreachable
from clients.pulsar.admin.namespace_policies import PolicyPath
from clients.pulsar.names import TopicName
from models.lifecycle.failures import summarize

Comparison = Callable[[str, str], bool]
"""Returns whether green's value is stricter than blue's."""
SettingsByBroker = Mapping[str, Mapping[str, str]]
"""Settings of the brokers of a cluster that answer, by their names: they may differ."""
Use = Callable[[TopicInventory, str], bool]
"""Returns whether a topic of blue uses what brokers with a value of green refuse, or do otherwise."""

# A cluster may have brokers for either kind of topics.
_OF_SOME_BROKERS = ("enablePersistentTopics", "enableNonPersistentTopics")
_Topics = dict[str, dict[str, None]]
"""Names of topics by the values of both sides."""
_REDELIVERING = ("Shared", "Key_Shared")
# Names that brokers accept with strictlyVerifySubscriptionName (NamedEntity in 4.0.8 and 5.0.1).
_PLAIN_NAME = re.compile(r"[-=:.\w]*", re.ASCII)
# Checks of each strategy, in both of the spellings that policies have; UNDEFINED is FULL.
_BACKWARD, _FORWARD = {"backward"}, {"forward"}
_ALL_BACKWARD, _ALL_FORWARD = {"backward", "all backward"}, {"forward", "all forward"}
_FULL = _BACKWARD | _FORWARD
_NO_NEW_VERSIONS = _ALL_BACKWARD | _ALL_FORWARD | {"no new versions"}
_CHECKS: Mapping[str, set[str]] = {
    "ALWAYSCOMPATIBLE": set(),
    "BACKWARD": _BACKWARD,
    "FORWARD": _FORWARD,
    "FULL": _FULL,
    "BACKWARDTRANSITIVE": _ALL_BACKWARD,
    "FORWARDTRANSITIVE": _ALL_FORWARD,
    "FULLTRANSITIVE": _ALL_BACKWARD | _ALL_FORWARD,
    "ALWAYSINCOMPATIBLE": _NO_NEW_VERSIONS,
    "AUTOUPDATEDISABLED": _NO_NEW_VERSIONS,
}


def elements(value: str) -> list[str]:
    """Return the elements of a setting in one order, since brokers report sets in any order."""
    return sorted(value.strip("[]").split(", "))


def _turned_on(blue: str, green: str) -> bool:
    return (blue, green) == ("false", "true")


def _turned_off(blue: str, green: str) -> bool:
    return (blue, green) == ("true", "false")


def _lower(blue: str, green: str) -> bool:
    # 0 means unlimited.
    return int(green) > 0 and (int(blue) <= 0 or int(green) < int(blue))


def _less(blue: str, green: str) -> bool:
    return int(green) < int(blue)


def _filters(blue: str, green: str) -> bool:
    # If green has no filters, the feature census asks the operator.
    return any(elements(green)) and elements(green) != elements(blue)


def _checks_more(blue: str, green: str) -> bool:
    checks_of_blue, checks_of_green = (_CHECKS.get(value.replace("_", "").upper(), _FULL) for value in (blue, green))
    return bool(checks_of_green - checks_of_blue)


def _is_missing(blue: str, green: str) -> bool:
    return not green and bool(blue)


def _is_not_reported(*_: object) -> bool:
    """Return False: brokers do not report whether clients use it."""
    return False


def _is_persistent(topic: TopicInventory, _: str) -> bool:
    return topic.persistent


def _is_not_persistent(topic: TopicInventory, _: str) -> bool:
    return not topic.persistent


def _is_made_by_clients(topic: TopicInventory, _: str) -> bool:
    return not topic.lasting


def _has_schemas(topic: TopicInventory, _: str) -> bool:
    return bool(topic.schemas)


def _has_delayed(topic: TopicInventory, _: str) -> bool:
    return any(sub.delayed for sub in topic.subscriptions.values())


def _has_replicated(topic: TopicInventory, _: str) -> bool:
    # The flag has no effect in topics that are not replicated.
    return any(sub.replicated for sub in topic.durable) and any(stats.replication for stats in topic.stats)


def _redelivers(topic: TopicInventory, _: str) -> bool:
    return any(sub.type in _REDELIVERING for sub in topic.subscriptions.values())


def _has_odd_names(topic: TopicInventory, _: str) -> bool:
    return any(not _PLAIN_NAME.fullmatch(sub.name) for sub in topic.durable)


def _has_large_metadata(topic: TopicInventory, limit: str) -> bool:
    return any(
        # Brokers count Java's characters: two bytes each in UTF-16.
        sum(len(text.encode("utf-16-le")) for entry in (client.metadata or {}).items() for text in entry) // 2
        > int(limit)
        for sub in topic.subscriptions.values()
        for client in sub.consumers
    )


class Setting(NamedTuple):
    """A setting with which brokers of green may be stricter than those of blue.

    Attributes:
        name: in `broker.conf`.
        effect: what stricter brokers do.
        is_stricter: compares the values of both sides.
        uses: whether a topic uses it; None if all clients do.
        of_namespace: where policies of a namespace have it; empty if they do not.
        of_topic: likewise for policies of a topic.
        unset: values of policies that mean the same as none.
    """

    name: str
    effect: str
    is_stricter: Comparison
    uses: Use | None
    of_namespace: tuple[tuple[str, ...], ...] = ()
    of_topic: tuple[str, ...] = ()
    unset: tuple[str, ...] = ("UNDEFINED",)

    @property
    def can_block(self) -> bool:
        """True if brokers report whether topics use it, so that its use is a blocker."""
        return self.uses is not _is_not_reported

    def own(
        self, namespace: NamespaceInventory | None, topic: TopicInventory | None, replaced: Container[PolicyPath] = ()
    ) -> tuple[str | None, str | None]:
        """Return the values that policies of a topic and of its namespace give it; None for no policy.

        Args:
            namespace: None where the cluster does not have it.
            topic: likewise.
            replaced: policies of the namespace that do not count, since they become others.
        """
        own = _within(topic.own_policy(self.of_topic[0]), self.of_topic[1:]) if topic and self.of_topic else None
        raw = namespace.policies.raw if namespace else {}
        inherited = (self._text(_within(raw, path)) for path in self.of_namespace if path[:1] not in replaced)
        return self._text(own), _first(*inherited)

    def _text(self, value: Any) -> str | None:
        text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return None if text in self.unset else text


_DELAYS = "delayed_delivery_policies"
SETTINGS: Sequence[Setting] = (
    Setting("maxMessageSize", "refuses larger messages", _lower, None, of_topic=("maxMessageSize",)),
    Setting("encryptionRequireOnProducer", "refuses producers that do not encrypt", _turned_on, None),
    Setting("subscriptionKeySharedEnable", "refuses Key_Shared subscriptions", _turned_off, None),
    Setting("entryFilterNames", "filters entries", _filters, None),
    Setting("enablePersistentTopics", "refuses persistent topics", _turned_off, None),
    Setting("enableNonPersistentTopics", "refuses non-persistent topics", _turned_off, _is_not_persistent),
    Setting(
        "isSchemaValidationEnforced",
        "refuses producers without a schema where a topic has one",
        _turned_on,
        _has_schemas,
        (("schema_validation_enforced",),),
        ("schemaValidationEnforced",),
        # Policies cannot turn off what brokers enforce.
        unset=("false",),
    ),
    Setting(
        "schemaCompatibilityStrategy",
        "refuses schemas of consumers, and new ones of producers, that blue accepts",
        _checks_more,
        _has_schemas,
        (("schema_compatibility_strategy",), ("schema_auto_update_compatibility_strategy",)),
        ("schemaCompatibilityStrategy",),
    ),
    Setting(
        "isAllowAutoUpdateSchemaEnabled",
        "refuses producers with a new schema",
        _turned_off,
        _is_not_reported,
        (("is_allow_auto_update_schema",),),
    ),
    Setting(
        "delayedDeliveryEnabled",
        "delivers delayed messages at once",
        _turned_off,
        _has_delayed,
        ((_DELAYS, "active"),),
        ("delayedDelivery", "active"),
    ),
    Setting(
        "delayedDeliveryMaxDelayInMillis",
        "refuses messages with a longer delay",
        _lower,
        _has_delayed,
        ((_DELAYS, "maxDeliveryDelayInMillis"),),
        ("delayedDelivery", "maxDeliveryDelayInMillis"),
    ),
    Setting(
        "brokerDeduplicationEnabled",
        "stores messages twice that producers send again",
        _turned_off,
        _is_persistent,
        (("deduplicationEnabled",),),
        ("deduplicationEnabled",),
    ),
    Setting(
        "brokerDeduplicationEnabled",
        "drops messages of producers whose own sequence ids do not increase",
        _turned_on,
        _is_not_reported,
        (("deduplicationEnabled",),),
        ("deduplicationEnabled",),
    ),
    Setting("enableReplicatedSubscriptions", "does not replicate subscriptions", _turned_off, _has_replicated),
    Setting(
        "allowAutoTopicCreation",
        "does not create topics for clients",
        _turned_off,
        _is_made_by_clients,
        (("autoTopicCreationOverride", "allowAutoTopicCreation"),),
    ),
    Setting(
        "allowAutoSubscriptionCreation",
        "refuses new durable subscriptions",
        _turned_off,
        _is_not_reported,
        (("autoSubscriptionCreationOverride", "allowAutoSubscriptionCreation"),),
        ("autoSubscriptionCreation", "allowAutoSubscriptionCreation"),
    ),
    Setting(
        "subscriptionRedeliveryTrackerEnabled",
        "does not count redeliveries, so that no message goes to a dead-letter topic",
        _turned_off,
        _redelivers,
    ),
    Setting(
        "strictlyVerifySubscriptionName",
        "refuses new subscriptions whose names have other characters than letters, digits and -=:._",
        _turned_on,
        _has_odd_names,
    ),
    Setting("maxConsumerMetadataSize", "refuses consumers with more properties", _less, _has_large_metadata),
    Setting("brokerMaxConnections", "refuses more connections to a broker", _lower, _is_not_reported),
    Setting(
        "brokerMaxConnectionsPerIp", "refuses more connections from an address to a broker", _lower, _is_not_reported
    ),
    Setting("authenticationEnabled", "refuses clients without credentials", _turned_on, _is_not_reported),
    Setting("anonymousUserRole", "refuses clients without credentials", _is_missing, _is_not_reported),
    Setting("transactionCoordinatorEnabled", "refuses transactions", _turned_off, _is_not_reported),
)
"""What is in neither list of `quotas` is not compared: no client is refused because of it."""


def stricter_settings(name: str, blue: str, green: str) -> list[Setting]:
    """Return what green's value of a setting refuses, or does otherwise, in comparison to blue's."""
    return [setting for setting in SETTINGS if setting.name == name and setting.is_stricter(blue, green)]


class BothSides(NamedTuple):
    """Settings of the brokers of both clusters.

    Attributes:
        blue: those of blue.
        green: those of green.
    """

    blue: SettingsByBroker
    green: SettingsByBroker

    def agree(self, name: str) -> bool:
        """Return whether the brokers of both sides have the same values of a setting, be it one or several."""
        here, there = ({tuple(elements(broker[name])) for broker in side.values() if name in broker} for side in self)
        return here == there

    def pairs(self, name: str) -> list[tuple[str | None, str | None]]:
        """Return the values of a setting on both sides, in each combination."""
        here, there = ({broker.get(name): None for broker in side.values()} for side in self)
        return [(blue, green) for blue in here for green in there]


def both_sides(task: AnyBlueGreenTask, blue: SettingsByBroker, green: SettingsByBroker) -> BothSides:
    """Return the settings of both sides, without differences between brokers that serve different kinds of topics.

    Raises:
        AdminUnreachable: no broker of a side has answered.
    """
    input = task.input
    for name, addresses, brokers in ((input.cluster, input.blue, blue), (input.green_cluster, input.green, green)):
        if not brokers:  # mutant: blue-green/settings-of-silent-brokers-pass
            reason = f"no broker of {name} answers, so its settings cannot be compared"
            raise AdminUnreachable(reason, method="GET", url=addresses.admin_urls[0])
    return BothSides(_with_common(blue), _with_common(green))


def read_brokers(task: AnyBlueGreenTask) -> BothSides:
    """Return the settings of the brokers of both sides that answer, with a request to each; errors as `both_sides`."""
    return both_sides(task, _settings_by_broker(task.blue), _settings_by_broker(task.green))


def _with_common(brokers: SettingsByBroker) -> SettingsByBroker:
    served = {name: "true" for name in _OF_SOME_BROKERS if any(own.get(name) == "true" for own in brokers.values())}
    return {broker: {**own, **served} for broker, own in brokers.items()}


def _settings_by_broker(cluster: PulsarCluster) -> SettingsByBroker:
    settings: dict[str, Mapping[str, str]] = {}
    for name, admin in cluster.brokers():
        with suppress(AdminUnreachable):
            settings[name] = admin.brokers.runtime_configuration()
    return settings


def check_settings(
    task: AnyBlueGreenTask,
    findings: Findings,
    blue: NamespaceInventory,
    green: NamespaceInventory | None,
    brokers: BothSides,
) -> None:
    """Note a blocker where topics use what green refuses, or does otherwise, and blue does not.

    Args:
        task: the step.
        findings: receives blockers, and warnings of policies that are not seen in use.
        blue: namespace of blue.
        green: the same namespace on green; None if green does not have it.
        brokers: settings of the brokers of both sides.
    """
    by_setting: dict[Setting, tuple[_Topics, _Topics]] = {}
    for case in _stricter(blue, green, brokers):
        used, unused = by_setting.setdefault(case.setting, ({}, {}))
        values = f"{case.setting.name}: {case.green}, on {task.input.cluster}: {case.blue}"
        (used if case.is_used else unused).setdefault(values, {})[str(case.topic)] = None
    for setting, (used, unused) in by_setting.items():
        for values, topics in used.items():
            cause = f"{task.input.green_cluster} {setting.effect} ({values}): {summarize([*topics])}"
            findings.block("GREEN_BROKERS_DIFFER", cause, _cure(task, setting))
        for values, topics in unused.items():
            findings.warn(
                f"by a policy that only it has, {task.input.green_cluster} {setting.effect} ({values}): "
                f"{summarize([*topics])}"
            )


def refused_topics(blue: NamespaceInventory, green: NamespaceInventory, brokers: BothSides) -> set[TopicName]:
    """Return the topics for which `check_settings` notes a blocker; arguments as there."""
    return {case.topic for case in _stricter(blue, green, brokers) if case.is_used}


class _Stricter(NamedTuple):
    """A topic for which green is stricter.

    Attributes:
        setting: whose values differ.
        topic: its name.
        blue: value of blue.
        green: value of green.
        is_used: the topic uses what green refuses, or does otherwise.
    """

    setting: Setting
    topic: TopicName
    blue: str
    green: str
    is_used: bool


def _stricter(blue: NamespaceInventory, green: NamespaceInventory | None, brokers: BothSides) -> Iterator[_Stricter]:
    """Yield the topics that use what green refuses, or for which green has a stricter policy of its own."""
    theirs: Mapping[TopicName, TopicInventory] = green.topics if green else {}
    # PROVISION makes these equal, or another blocker says that they differ.
    copied, with_policies = comparable(blue.policies.raw), [topic for topic in theirs.values() if topic.policies]
    for setting in SETTINGS:
        agree, pairs = brokers.agree(setting.name), brokers.pairs(setting.name)
        brokers_differ = not agree and any(
            here is not None and there is not None and setting.is_stricter(here, there) for here, there in pairs
        )
        has_policy = setting.own(green, None, copied)[1] is not None or any(
            setting.own(None, topic)[0] is not None for topic in with_policies
        )
        if not (brokers_differ or has_policy):
            # There may be many topics, and none differs.
            continue
        for name, topic in sorted(blue.topics.items()):
            here, there = setting.own(blue, topic), setting.own(green, theirs.get(name), copied)
            # Policies of blue are copied.
            policy = _first(here[0], there[0], here[1], there[1])
            if policy is None and agree:
                continue
            for of_blue, of_green in pairs:
                value, greens = _first(*here, of_blue), _first(policy, of_green)
                if value is None or greens is None or not setting.is_stricter(value, greens):
                    continue
                # mutant: blue-green/settings-that-topics-use-pass
                is_used = policy is not None if setting.uses is None else setting.uses(topic, greens)
                if is_used or policy is not None:
                    yield _Stricter(setting, name, value, greens, is_used)


def _cure(task: AnyBlueGreenTask, setting: Setting) -> str:
    cure = "set green's brokers as blue's"
    if not (setting.of_namespace or setting.of_topic):
        return cure
    cure += ", and remove a policy that only green has"
    # A policy that counts as none cannot make green less strict.
    return cure if "false" in setting.unset else f"{cure}; or set a policy on {task.input.cluster}, which is copied"


def _within(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if value else None
    return value


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value is not None), None)

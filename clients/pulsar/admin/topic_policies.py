"""Policies that are set on a topic itself, which win over its namespace's.

`admin.topic_policies.read(topic)` gives all that are set, by name; `set` takes such a name and value. A name is the
last part of the policy's path; with `SUBSCRIPTION` before it where it is one subscription's, and with `GLOBAL` before
that where it holds in every cluster that has the topic: `retention`, `global/retention`, `subscription/s/dispatchRate`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from clients.pulsar.admin.errors import AdminUnsupported
from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.admin.policy_calls import BACKLOG_QUOTAS, PolicyCall, read_policy, remove_policy, set_policy
from clients.pulsar.names import TopicName, encoded

GLOBAL = "global/"
SUBSCRIPTION = "subscription/"

_CALLS = (
    PolicyCall("retention"),
    PolicyCall(BACKLOG_QUOTAS, read="backlogQuotaMap", unset=({},)),
    PolicyCall("messageTTL", query="messageTTL"),
    PolicyCall("subscriptionExpirationTime", query="subscriptionExpirationTime"),
    PolicyCall("persistence"),
    PolicyCall("deduplicationEnabled"),
    PolicyCall("deduplicationSnapshotInterval"),
    PolicyCall("delayedDelivery"),
    PolicyCall("inactiveTopicPolicies"),
    PolicyCall("maxProducers"),
    PolicyCall("maxConsumers"),
    PolicyCall("maxConsumersPerSubscription"),
    PolicyCall("maxUnackedMessagesOnConsumer"),
    PolicyCall("maxUnackedMessagesOnSubscription"),
    PolicyCall("maxMessageSize"),
    PolicyCall("maxSubscriptionsPerTopic"),
    PolicyCall("dispatchRate"),
    PolicyCall("subscriptionDispatchRate"),
    PolicyCall("replicatorDispatchRate"),
    PolicyCall("publishRate"),
    PolicyCall("subscribeRate"),
    PolicyCall("compactionThreshold"),
    PolicyCall("subscriptionTypesEnabled", unset=([],), unordered=True),
    PolicyCall("replication", unset=([],), unordered=True),
    PolicyCall("schemaCompatibilityStrategy", method="PUT", unset=("UNDEFINED",), of_one_cluster=True),
    # Whether false is set or not cannot be distinguished.
    PolicyCall("schemaValidationEnforced", unset=(False,), of_one_cluster=True),
    PolicyCall("entryFilters"),
    PolicyCall("autoSubscriptionCreation"),
    PolicyCall("offloadPolicies"),
    PolicyCall("dispatcherPauseOnAckStatePersistent", unset=(False,), switch=True),
    PolicyCall("shadowTopics", method="PUT", unset=([],), unordered=True, of_one_cluster=True),
)
_BY_NAME = {call.name: call for call in _CALLS}
_OF_SUBSCRIPTION = PolicyCall("dispatchRate")
_EMPTY_LIST = "subscriptionTypesEnabled"

TOPIC_POLICIES = tuple(_BY_NAME)
"""All names, without those of subscriptions."""


class _Place(NamedTuple):
    base: str
    call: PolicyCall
    params: dict[str, str | int | bool]


def _place(topic: TopicName, name: str) -> _Place:
    plain = name.removeprefix(GLOBAL)
    params: dict[str, str | int | bool] = {"isGlobal": name != plain}
    if plain.startswith(SUBSCRIPTION):
        subscription = plain.removeprefix(SUBSCRIPTION).rpartition("/")[0]
        return _Place(f"/{topic.rest_path}/{encoded(subscription)}", _OF_SUBSCRIPTION, params)
    return _Place(f"/{topic.rest_path}", _BY_NAME[plain], params)


class TopicPoliciesReader:
    """Policies of topics; a partitioned topic has them as a whole."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def get(self, topic: TopicName, name: str) -> Any:
        """Return one policy as the broker's JSON; None where the topic itself does not say.

        Raises:
            AdminNotFound: there is no such topic.
        """
        base, call, params = _place(topic, name)
        return read_policy(self._endpoint, base, call, {**params, "applied": False})

    def read(self, topic: TopicName, subscriptions: Iterable[str] = ()) -> dict[str, Any]:
        """Return all that are set on the topic itself and on these subscriptions.

        Two calls for a topic without any; else one more for each that there could be.

        Raises:
            AdminNotFound: there is no such topic.
        """
        own = [f"{SUBSCRIPTION}{name}/{_OF_SUBSCRIPTION.name}" for name in subscriptions]
        names: list[str] = []
        if self._says_anything(topic, ""):
            names += [*_BY_NAME, *own]
        if self._says_anything(topic, GLOBAL):
            both = [name for name, call in _BY_NAME.items() if not call.of_one_cluster]
            names += [f"{GLOBAL}{name}" for name in (*both, *own)]
        policies = ((name, self.get(topic, name)) for name in names)
        return {name: value for name, value in policies if value is not None}

    def _says_anything(self, topic: TopicName, scope: str) -> bool:
        # The one policy that is an empty list, and not nothing, as soon as any policy of the topic was ever set.
        base, call, params = _place(topic, f"{scope}{_EMPTY_LIST}")
        try:
            return bool(self._endpoint.get(f"{base}/{call.name}", params).content)
        except AdminUnsupported:
            return False


class TopicPolicies(TopicPoliciesReader):
    """Policies of topics, and what changes them; brokers need a moment until they read what was set."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def set(self, topic: TopicName, name: str, value: Any) -> None:
        """Set a policy on the topic itself.

        Raises:
            AdminPreconditionFailed: it contradicts another policy.
            AdminNotFound: there is no such topic.
        """
        base, call, params = _place(topic, name)
        set_policy(self._calls, base, call, value, params)

    def remove(self, topic: TopicName, name: str) -> None:
        """Remove the topic's own policy, so that the namespace's applies again; harmless where nothing is set."""
        base, call, params = _place(topic, name)
        parts: list[str] = list(self.get(topic, name) or ()) if call.name == BACKLOG_QUOTAS else []
        remove_policy(self._calls, base, call, params, parts=parts)

"""Topics without clients and backlog, which brokers of green delete with their subscriptions by a policy."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from temporalio.exceptions import ApplicationError

from activities.blue_green.batch import quiesce
from activities.blue_green.checks import readiness
from activities.blue_green.precheck import precheck
from pulsar_devstack.traffic.pulsar_client import send_to
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.namespaces import KEPT, create_namespace, create_topic, set_topic_policies
from tests.support.blue_green.steps import Steps
from tests.support.waiting import wait_for

_STAYS: dict[str, Any] = {**KEPT, "deleteWhileInactive": True}
_GOES = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 1,
    "deleteWhileInactive": True,
}
_REFUSED = ["GREEN_DELETES_TOPICS"]
# Brokers look for such topics once a minute, and the first look only notes that a topic is unused.
_DELETED_WITHIN = 150


@pytest.mark.parametrize(("of_namespace", "of_topic"), [(_GOES, _STAYS), (_STAYS, _GOES)])
def test_a_policy_of_blue(clusters: Clusters, of_namespace: dict[str, Any], of_topic: dict[str, Any]) -> None:
    """A policy that PROVISION copies is refused where a topic has subscriptions; a topic's own takes precedence."""
    name = "vanishing/there" if of_topic is _GOES else "vanishing/everywhere"
    create_namespace(clusters.blue_admin, name, inactive_topic_policies=of_namespace)
    topic = create_topic(clusters.blue_admin, f"{name}/topic")
    send_to(clusters.blue.broker_url, [str(topic)])
    assert _codes(clusters, name) == []
    clusters.blue_admin.subscriptions.create(topic, "s")
    assert _codes(clusters, name) == (_REFUSED if of_namespace is _GOES else [])
    set_topic_policies(clusters.blue_admin, topic, {"inactiveTopicPolicies": of_topic})
    assert _codes(clusters, name) == (_REFUSED if of_topic is _GOES else [])


@pytest.mark.exhaustive
def test_a_policy_of_green_alone(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Green deletes a provisioned topic with its subscription before a client comes, so each batch is refused."""
    name = "vanishing/soon"
    create_namespace(clusters.blue_admin, name, inactive_topic_policies=None)
    topic = create_topic(clusters.blue_admin, f"{name}/topic")
    clusters.blue_admin.subscriptions.create(topic, "s")
    create_namespace(clusters.green_admin, name, inactive_topic_policies=_GOES)
    assert _codes(clusters, name) == _REFUSED
    steps = Steps(clusters, name)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(readiness, "check_deletion", mock.Mock())
            steps.begin()
        assert clusters.green_admin.subscriptions.names(topic) == ["s"]
        wait_for("its deletion", lambda: str(topic) not in clusters.green_admin.topics.names(name), _DELETED_WITHIN)
        assert clusters.blue_admin.subscriptions.names(topic) == ["s"]
        with pytest.raises(ApplicationError, match=r"\[GREEN_DELETES_TOPICS\]"):
            steps.batch(quiesce.catch_up)
    finally:
        steps.end()


def _codes(clusters: Clusters, namespace: str) -> list[str]:
    """Return the codes of PRECHECK's blockers."""
    return [blocker.code for blocker in Steps(clusters, namespace).whole(precheck).blockers]

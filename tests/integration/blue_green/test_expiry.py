"""Subscriptions and messages that green's brokers may delete, on two real clusters."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

import pytest
from temporalio.exceptions import ApplicationError

from activities.blue_green.batch import drain, flip
from activities.blue_green.copy import backlogs
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client, send_to
from tests.support.blue_green.backlogs import received
from tests.support.blue_green.environment import BLUE_SPEC, GREEN_SPEC, Clusters, open_clusters
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.stacks import MakeStack

# Brokers check both once a minute, the shortest time that they take.
_SETTINGS = {
    "subscriptionExpiryCheckIntervalInMinutes": "1",
    "messageExpiryCheckIntervalInMinutes": "1",
    "ttlDurationDefaultInSeconds": "5",
}
_SPEC = GREEN_SPEC.model_copy(update={"broker_settings": {**GREEN_SPEC.broker_settings, **_SETTINGS}})
_EXPIRATION, _TTL = ("subscription_expiration_time_minutes",), ("message_ttl_in_seconds",)
_MINUTES = 2


@pytest.fixture(scope="module")
def strict(make_stack: MakeStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """A green whose brokers drop what is 5 seconds old, unless a namespace says otherwise."""
    # Blue is its own as well: its namespaces stay redirected, and no other test could redirect them elsewhere.
    blue = make_stack(BLUE_SPEC.model_copy(update={"brokers": 1}), tools=blue_tools)
    with open_clusters(blue, make_stack(_SPEC)) as both:
        yield both


@pytest.mark.exhaustive
def test_subscriptions_do_not_expire_since_their_creation(strict: Clusters) -> None:
    """They were created on green before a long hold: they get what is sent there after the flip all the same."""
    namespace = "expiring/subscriptions"
    (topic,) = make_namespace(strict, namespace, "topic")
    blue, green = strict.blue_admin, strict.green_admin
    blue.namespaces.set_policy(namespace, _EXPIRATION, _MINUTES)
    blue.namespaces.set_policy(namespace, _TTL, 0)
    blue.subscriptions.create(topic, "idle")
    steps = Steps(strict, namespace, quiesce_timeout="PT5S", flip_timeout="PT20S", drain_timeout="PT30S")
    with closing(quiet_client(strict.blue.broker_url)) as client:
        # With an open message its consumer stays on blue.
        client.subscribe(str(topic), "slow", consumer_type=pulsar.ConsumerType.KeyShared)
        send_to(strict.blue.broker_url, [str(topic)])
        steps.begin()
        created = time.monotonic()
        time.sleep(60 * _MINUTES - 25)
        assert not steps.quiesce().busy
        steps.batch(flip.flip)
        send_to(strict.green.broker_url, [str(topic)])
        # Brokers have checked both at least once since two minutes after their creation.
        time.sleep(created + 60 * (_MINUTES + 1) + 10 - time.monotonic())
        stats = green.topics.stats(topic).client_subscriptions
    assert {name: (sub.msg_backlog, sub.consumers) for name, sub in stats.items()} == {"idle": (1, ()), "slow": (1, ())}
    steps.end()


@pytest.mark.exhaustive
def test_backlogs_are_not_copied_to_brokers_that_drop_them(strict: Clusters) -> None:
    """Defaults of green would drop the copies, and blue has none: the batch is refused until the namespace says so."""
    namespace = "expiring/messages"
    (topic,) = make_namespace(strict, namespace, "topic")
    strict.blue_admin.subscriptions.create(topic, "idle")
    send_to(strict.blue.broker_url, 3 * [str(topic)])
    refused = Steps(strict, namespace, idle_subscriptions="copy", quiesce_timeout="PT1M")
    with pytest.raises(ApplicationError, match=r"\[GREEN_DROPS_BACKLOGS\].*messageTTL 5"):
        refused.begin()
    refused.end()
    strict.blue_admin.namespaces.set_policy(namespace, _TTL, 0)
    steps = Steps(strict, namespace, run_id="run-2", idle_subscriptions="copy", quiesce_timeout="PT1M")
    steps.begin()
    assert not steps.quiesce().busy
    assert steps.batch(backlogs.final_copy).proof.unacknowledged == 3
    steps.batch(flip.flip)
    assert steps.batch(drain.drain).remaining == ()
    steps.end()
    # Brokers have checked its messages at least once.
    time.sleep(70)
    assert len(received(strict.green.broker_url, str(topic), "idle", least=3)) == 3

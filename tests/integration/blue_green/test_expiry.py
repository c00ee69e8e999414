"""Subscriptions that green's brokers may delete, on two real clusters."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

import pytest

from activities.blue_green.batch import flip
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client, send_to
from tests.support.blue_green.environment import BLUE_SPEC, GREEN_SPEC, Clusters, open_clusters
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.stacks import MakeStack

# The shortest time that brokers take.
_SETTINGS = {"subscriptionExpiryCheckIntervalInMinutes": "1"}
_SPEC = GREEN_SPEC.model_copy(update={"broker_settings": {**GREEN_SPEC.broker_settings, **_SETTINGS}})
_EXPIRATION = ("subscription_expiration_time_minutes",)
_MINUTES = 2


@pytest.fixture(scope="module")
def strict(make_stack: MakeStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """A green whose brokers look for expired subscriptions once a minute."""
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

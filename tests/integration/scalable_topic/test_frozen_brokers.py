"""A broker that freezes with the request to make a topic scalable, and carries it out when it continues."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import httpx
import pytest

from activities.pulsar import pulsar_cluster
from activities.scalable_topic import flip, hold_release
from clients.cas.store import CasStore
from clients.pulsar.admin import scalable_topics
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminServerError
from clients.pulsar.creation_locks import bar_path
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.scalable_topic.steps import TopicSteps
from tests.support.scalable_topic.topics import QUEUE, make_topic, pulsar
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

_LIMIT = 90.0
_FAILED = "Failed to migrate topic to scalable"

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two brokers."""
    return make_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


def test_a_broker_that_froze_with_the_request(
    stack: Stack, admin: PulsarAdmin, store: CasStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rollback it is refused what it was asked for, until the next start finds that it has no request."""
    monkeypatch.setattr(pulsar_cluster, "IDLE_LIMIT", 1.0)
    monkeypatch.setattr(pulsar_cluster, "LONGEST_REQUEST", 1.0)
    monkeypatch.setattr(scalable_topics, "_CREATION", 3.0)
    name = make_topic(stack, admin, "frozen/request")
    frozen, url = stack["broker-1"], stack.admin_urls[0]
    steps = TopicSteps(stack, name)
    steps.run(hold_release.guard)
    with monkeypatch.context() as patch:
        asked = _ask_one_that_freezes(patch, frozen)
        with pytest.raises(AdminServerError):
            steps.run(flip.flip)
        assert asked == [True]
        # The other broker takes over what the frozen one had, and its refusal has segments deleted.
        wait_until_equal("the session to end", lambda: len(store.children("/loadbalance/brokers")), 1, _LIMIT)
        with pytest.raises(AdminServerError):
            steps.run(flip.flip)
    with closing(quiet_client(f"pulsar://{stack['broker-2'].address}")) as client:
        consumer = _subscribed(client, name)
        assert "clients that cannot follow" in steps.run(flip.flip).refused
        (note,) = steps.run(hold_release.undo).notes
        assert "may still have a request" in note
        assert store.get(bar_path(name))
        consumer.close()
    frozen.resume()
    wait_for("the broker to continue", lambda: _answers(url), _LIMIT)
    # Its session has expired, so that a broker of 5.0.1 fails by itself; the node stays until it has answered.
    wait_for("the request", lambda: any(_FAILED in line for line in frozen.tail(2000)), _LIMIT)
    assert read_scalable(store, name).state is RecordState.ABSENT
    # While it gets a session again it fails all requests.
    wait_for("the topic to be open", lambda: _is_open(admin, name), _LIMIT)
    following = TopicSteps(stack, name, run_id="run-2")
    assert following.run(hold_release.guard).notes == ()
    assert store.get(bar_path(name)) is None
    assert following.run(flip.flip).flipped
    following.run(hold_release.complete)


def _ask_one_that_freezes(monkeypatch: pytest.MonkeyPatch, server: Any) -> list[bool]:
    """Freeze a broker when it is about to get the first request; no other broker gets one."""
    migrate, asked = scalable_topics.ScalableTopics.migrate, list[bool]()

    def ask(topics: scalable_topics.ScalableTopics, name: TopicName, *, force: bool = False) -> None:
        if asked:
            raise AdminServerError("no other broker is asked", method="POST", url="", status=500)
        asked.append(True)
        server.pause()
        migrate(topics, name, force=force)

    monkeypatch.setattr(scalable_topics.ScalableTopics, "migrate", ask)
    return asked


def _subscribed(client: Any, name: TopicName) -> Any:
    consumers: list[Any] = []

    def subscribe() -> bool:
        try:
            consumers.append(client.subscribe(str(name), QUEUE, pulsar.ConsumerType.Shared))
        except pulsar.PulsarException:
            return False
        return True

    wait_for("a broker to take the topic over", subscribe, _LIMIT)
    return consumers[0]


def _is_open(admin: PulsarAdmin, name: TopicName) -> bool:
    try:
        return not admin.topics.internal_stats(name).terminated
    except AdminServerError:
        return False


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/admin/v2/clusters", timeout=2.0).is_success
    except httpx.HTTPError:
        return False

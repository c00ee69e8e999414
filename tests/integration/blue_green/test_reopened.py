"""Brokers that open a topic again after it was ended, or fence it: what comes of its messages."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TypeVar

import pytest

from activities.blue_green import namespace_redirect, termination
from activities.blue_green.batch import drain, flip, verify
from activities.blue_green.context import BatchTask, BlueGreenTask, NamespaceGuard
from clients.errors import StoreContention, StoreUnreachable
from clients.pulsar.admin.errors import AdminServerError
from clients.pulsar.names import TopicName
from models.blue_green.results import Flipped
from models.defects import has_defect
from models.releases import parse_release
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client
from tests.support.blue_green.environment import BLUE_SPEC, GREEN_SPEC, Clusters, open_clusters
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.stacks import MakeStack, SharedStack

ResultT = TypeVar("ResultT")

# Each message changes the ledger of its topic, so that many topics are ended during such a change. As many topics are
# loaded at once as have consumers here: each load of a topic that was moved may block a thread of brokers of 4.0.8.
_SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "numExecutorThreadPoolSize": "16",
}
_SPEC = BLUE_SPEC.model_copy(update={"brokers": 1, "broker_settings": {**BLUE_SPEC.broker_settings, **_SETTINGS}})
_TOPICS, _ROUNDS, _ATTEMPTS = 12, 5, 3
# As long as two sweeps, of which the second finds topics that are being ended.
_FREEZE_SECONDS = 2.5


@pytest.fixture(scope="module")
def clusters(make_stack: MakeStack, shared_stack: SharedStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """Return both clusters; blue is one whose ledgers have one entry each."""
    if not has_defect(parse_release(blue_tools.pulsar), "TERMINATE_REOPENS"):
        pytest.skip("brokers of this release do not open topics again (#26680); set PULSAR_MIGRATE_BLUE=4.0")
    with open_clusters(make_stack(_SPEC, tools=blue_tools), shared_stack(GREEN_SPEC)) as both:
        yield both


@pytest.mark.exhaustive
def test_no_acknowledged_message_is_lost_silently(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers open topics again, or fence them: what was acknowledged is received, or its topic is a fault."""
    monkeypatch.setattr(flip, "require_quiet", _quiet_now)
    monkeypatch.setattr(termination, "wait_until_seen", _freeze_zookeeper(clusters))
    for number in range(_ROUNDS):
        if _flip_during_writes(clusters, f"reopened/round-{number}").reopened:
            return
    pytest.fail("no topic was opened again, or fenced")


def _flip_during_writes(clusters: Clusters, namespace: str) -> Flipped:
    """Move topics while producers send, and account for all messages."""
    topics = make_namespace(clusters, namespace, *(f"t{number:02}" for number in range(_TOPICS)))
    for topic in topics:
        clusters.blue_admin.subscriptions.create(topic, "s")
    steps = Steps(clusters, namespace, quiesce_timeout="PT2S", flip_timeout="PT20S", drain_timeout="PT30S")
    # A limit that does not hold writes back, and that no input may have.
    steps.input = steps.input.model_copy(update={"throttle_bytes": 1_000_000_000})
    steps.begin()
    silence, end = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2 * _TOPICS) as pool:
        try:
            sent = [pool.submit(_send_until, silence, clusters.blue.broker_url, topic) for topic in topics]
            assert len(steps.quiesce().busy) > 1
            flipped = _retried(steps, flip.flip)
            silence.set()
            # What a broker holds in memory only is gone then. Those that were fenced may be unloaded already.
            for topic in topics:
                with suppress(AdminServerError):
                    clusters.blue_admin.topics.unload(topic)
            received = [pool.submit(_receive_until, end, clusters, topic) for topic in topics]
            drained = _retried(steps, drain.drain)
            checked = _retried(steps, verify.verify)
        finally:
            silence.set()
            end.set()
    steps.end()
    faulty = {item.path for item in (*drained.remaining, *checked.faults)}
    lost = {
        str(topic): missing
        for topic, sent_to, received_from in zip(topics, sent, received, strict=True)
        if (missing := sent_to.result() - received_from.result())
    }
    assert all(sending.result() for sending in sent)
    assert set(lost) <= faulty
    return flipped


def _retried(steps: Steps, step: Callable[[BatchTask], ResultT]) -> ResultT:
    """Run a step as a worker does, which tries it again."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(StoreUnreachable, StoreContention):
            return steps.batch(step)
    return steps.batch(step)


def _send_until(silence: threading.Event, url: str, topic: TopicName) -> set[bytes]:
    """Send numbers by a client of its own, until a send fails or all is silent; return the acknowledged ones."""
    acknowledged: set[bytes] = set()
    with closing(quiet_client(url)) as client, suppress(pulsar.PulsarException):
        producer = client.create_producer(str(topic), send_timeout_millis=10_000, batching_enabled=False)
        for number in itertools.count():
            if silence.is_set():
                break
            producer.send(b"%d" % number)
            acknowledged.add(b"%d" % number)
    return acknowledged


def _receive_until(end: threading.Event, clusters: Clusters, topic: TopicName) -> set[bytes]:
    """Receive what a subscription has left, on blue until the end, and then on green."""
    received: set[bytes] = set()
    while not end.is_set():
        # Consumers of a topic that is not loaded are sent to green, or refused.
        with suppress(pulsar.PulsarException):
            _receive(clusters.blue.broker_url, topic, received)
    _receive(clusters.green.broker_url, topic, received, silent_ms=20_000)
    return received


def _receive(url: str, topic: TopicName, received: set[bytes], *, silent_ms: int = 2_000) -> None:
    """Receive by a new consumer until nothing comes for some time."""
    with closing(quiet_client(url)) as client:
        consumer = client.subscribe(str(topic), "s")
        with suppress(pulsar.Timeout):
            while True:
                message = consumer.receive(timeout_millis=silent_ms)
                received.add(message.data())
                consumer.acknowledge(message)


def _freeze_zookeeper(clusters: Clusters) -> Callable[..., None]:
    """Return a wait for the flag after which brokers' metadata store is frozen until after the next sweep."""
    zookeeper, wait_until_seen = clusters.blue["zookeeper-1"], namespace_redirect.wait_until_seen

    def wait_then_freeze(task: BlueGreenTask, namespace: str, *, migrated: bool) -> None:
        wait_until_seen(task, namespace, migrated=migrated)
        if migrated:
            zookeeper.pause()
            threading.Timer(_FREEZE_SECONDS, zookeeper.resume).start()

    return wait_then_freeze


def _quiet_now(_task: BlueGreenTask, _guards: Sequence[NamespaceGuard]) -> float:
    return time.monotonic()

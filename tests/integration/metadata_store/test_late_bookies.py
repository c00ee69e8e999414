"""A bookie that was cut off from ZooKeeper at the commit, on a real cluster; the steps are called one by one."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import closing

import pytest

from activities.metadata_store import cutover, pre_copy, preparation
from activities.metadata_store.census import census
from activities.metadata_store.context import MetadataStoreTask
from clients.pulsar.names import TopicName
from models.metadata_store.results import PreCopy
from pulsar_devstack.servers import configs
from pulsar_devstack.servers.admin import StackAdmin, topic_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client, read_from, send_to
from tests.support.clients.proxy import Proxy
from tests.support.metadata_store.steps import Place, open_place
from tests.support.releases import live_migrations
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

pytestmark = live_migrations

TOPIC = "collected"
BOOKIE = "bookie bookie-1"
GC_SECONDS = 4.0
# A bookie opens its store twice, and each has a session of its own.
PREPARED = re.compile(r"\[(pulsar-dual-metadata-store-\d+)-.*=== Migration Preparation Complete ===")
FOLLOWED = re.compile(r"\[(pulsar-dual-metadata-store-\d+)-.*=== Metadata Migration Complete ===")


@pytest.fixture
def stack(make_stack: MakeStack) -> Stack:
    """One broker, and one bookie that collects ledgers every few seconds; a subscription keeps the topic's messages."""
    prompt = {"gcWaitTime": f"{GC_SECONDS * 1000:.0f}", "flushInterval": "1000"}
    made = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=1, cluster="steps", bookie_settings=prompt))
    with closing(quiet_client(made.broker_url)) as client:
        client.subscribe(topic_url(TOPIC), "keep", initial_position=pulsar.InitialPosition.Earliest)
    return made


@pytest.fixture
def link(stack: Stack) -> Generator[Proxy]:
    """Yield the link between the bookie and ZooKeeper."""
    with Proxy(stack["zookeeper-1"].address) as link:
        stack.reconfigure("bookie-1", **configs.bookie_metadata(f"zk:{link.address}"))
        yield link


@pytest.mark.exhaustive
def test_a_bookie_that_missed_the_commit_keeps_ledgers(
    stack: Stack, link: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look in the window reaches a bookie that lost its session at the commit; it deletes no ledger after that.

    Until then it compares its ledgers with the source, which does not know the new ones; the source is not cleaned up
    before it has restarted.
    """

    def nothing(_: MetadataStoreTask) -> None:
        """Leave out what the process of the commit repeats in the background."""

    monkeypatch.setattr(MetadataStoreTask, "repeat_flag", nothing)
    with open_place(stack, "", []) as place, StackAdmin(stack.admin_urls[0]) as admin:
        pre = place.run(pre_copy.pre_copy, 0)
        assert not place.run(preparation.prepare).gap
        place.run(cutover.copy_changes, pre)
        link.cut()
        floor = place.run(cutover.verify, pre).version_floor
        pre = pre.model_copy(update={"version_floor": floor})
        sessions = place.run(cutover.complete, pre).sessions
        wait_for("the end of the bookie's session", lambda: not _has_session(place), 60)
        assert BOOKIE in _still_on_source(place, sessions), "it is not registered there, and has not restarted"
        link.heal()
        wait_for("a look that reaches the bookie", lambda: _looked(place, pre) and _follows(stack), 60)

        bodies = [b"%d" % number for number in range(6)]
        for body in bodies:
            send_to(stack.broker_url, [TOPIC], body)
            # Closes the ledger, so that the next message is in a new one.
            admin.topics.unload(TopicName.parse(TOPIC))
        assert len(admin.ledgers(TOPIC)) >= len(bodies)
        time.sleep(2.5 * GC_SECONDS)
        admin.topics.unload(TopicName.parse(TOPIC))
        assert read_from(stack.broker_url, TOPIC, len(bodies)) == bodies
        stack.use_metadata(stack.oxia_url, ["bookie-1"])
        assert BOOKIE not in _still_on_source(place, sessions)


def _looked(place: Place, pre: PreCopy) -> bool:
    place.run(cutover.follow, pre)
    return True


def _still_on_source(place: Place, sessions: dict[str, int]) -> list[str]:
    """Return who keeps the source from being cleaned up."""
    services = census(place.task(), sessions)
    return [service.partition(": ")[0] for service in services.services]


def _has_session(place: Place) -> bool:
    return place.zookeeper.exists("/ledgers/available/bookie-1") is not None


def _follows(stack: Stack) -> bool:
    log = "\n".join(stack["bookie-1"].tail(2000))
    prepared, followed = (set(line.findall(log)) for line in (PREPARED, FOLLOWED))
    return bool(prepared) and prepared <= followed

"""ZooKeeper's change feed and coordination on real servers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from clients.errors import StoreConflict, StoreDenied, StoreUnreachable
from clients.load import NoReading, Sources
from clients.tls import Tls
from clients.zookeeper import (
    ChangeFeed,
    Check,
    Coordination,
    CoordinationReader,
    Create,
    Delete,
    Set,
    four_letter,
)
from clients.zookeeper.access import ZooKeeperAccess
from models.lifecycle.auto_throttle import AutoThrottle
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.server import Server
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.clients.zookeeper_records import record, write
from tests.support.waiting import wait_until_equal

SILENCE = 3.0
"""Seconds after which a server counts as silent; it must not be so while it only waits for a processor."""
NONSENSE = ZooKeeperAccess(auth=(("nonsense", b"a:b"),), destinations=LOOPBACK_PLAIN)
pytest_plugins = ["tests.support.stacks", "tests.support.clients.zookeeper_stores"]


@pytest.mark.parametrize("chroot", [False, True], ids=["whole server", "chroot"])
def test_feed_reports_every_change(url: StoreUrl, server: Server, kazoo: Any, chroot: bool) -> None:
    """Creations and deletions come with their parent, sets alone, relative to the chroot and without the root."""
    root = url.root
    kazoo.create(root + "/a/set", b"", makepath=True)
    kazoo.create(root + "/gone", b"")
    kazoo.create(root + "-neighbour", b"")
    with ChangeFeed(url if chroot else parse_store_url(server.address)) as feed:
        began = feed.start()
        kazoo.set(root + "/a/set", b"1")
        kazoo.create(root + "/b", b"")
        kazoo.create(root + "/b/ü", b"")
        kazoo.delete(root + "/gone")
        kazoo.set(root + "-neighbour", b"1")
        prefix = b"" if chroot else root.encode()
        expected = {prefix + path for path in (b"/a/set", b"/b", "/b/ü".encode(), b"/gone")}
        if not chroot:
            expected |= {prefix, prefix + b"-neighbour"}
        assert feed.drain(10) == expected
        assert feed.drain(10) == set()
        assert feed.gap is None
        assert kazoo.exists(root + "/a").mzxid <= began < kazoo.exists(root + "/a/set").mzxid


def test_feed_leaves_out_the_servers_own_nodes(server: Server, kazoo: Any) -> None:
    """Changes beneath `/zookeeper` are not reported if there is no chroot."""
    with ChangeFeed(parse_store_url(server.address)) as feed:
        feed.start()
        kazoo.create("/zookeeper/quota/feed", b"")
        kazoo.create("/zookeepers", b"")
        assert feed.drain(10) == {b"/zookeepers"}


def test_drain_holds_all_that_was_committed_before(url: StoreUrl) -> None:
    """Thousands of changes by another session are all handed over by the first drain after the last of them."""
    with ChangeFeed(url) as feed:
        feed.start()
        for round_number in range(3):
            names = [f"/r{round_number}/{number:04d}" for number in range(2_000)]
            write(url, [record(name, b"v") for name in names])
            drained = feed.drain(10)
            assert drained == {name.encode() for name in names} | {f"/r{round_number}".encode()}


def test_feed_stays_alive_when_nothing_changes(url: StoreUrl) -> None:
    """Pings keep a quiet feed complete for longer than its session and its timeout last."""
    with ChangeFeed(url, timeout=SILENCE, session_timeout=SILENCE) as feed:
        feed.start()
        end = time.monotonic() + 1.5 * SILENCE
        while time.monotonic() < end:
            assert feed.drain(SILENCE) == set()
            with pytest.raises(StoreUnreachable):
                feed.start()
        assert feed.gap is None


def test_lost_connection_is_a_gap_for_good(victim: Server) -> None:
    """Once the server was away the feed says so, hands over nothing more, and does not come back by itself."""
    with ChangeFeed(parse_store_url(victim.address)) as feed:
        feed.start()
        victim.kill()
        with pytest.raises(StoreUnreachable):
            feed.drain(10)
        victim.start()
        assert feed.gap
        assert victim.address in feed.gap
        with pytest.raises(StoreUnreachable, match=r"lost the connection|may have been missed"):
            feed.drain(10)


def test_hanging_server_is_a_gap(victim: Server) -> None:
    """A server that does not answer a ping in time is a gap, although the connection is still open."""
    with ChangeFeed(parse_store_url(victim.address), timeout=SILENCE) as feed:
        feed.start()
        victim.pause()
        try:
            with pytest.raises(StoreUnreachable, match="may have been missed"):
                feed.drain(10)
        finally:
            victim.resume()
        assert feed.gap


def test_closed_feed_has_a_gap(url: StoreUrl) -> None:
    """A feed that was closed, or never started, hands over nothing."""
    feed = ChangeFeed(url)
    with pytest.raises(StoreUnreachable, match="not started"):
        feed.drain(1)
    feed.start()
    feed.close()
    feed.close()
    assert feed.gap == "the feed was closed"
    with pytest.raises(StoreUnreachable):
        feed.drain(1)


def test_coordination_round_trip(url: StoreUrl) -> None:
    """Reads give value and statistics or nothing, writes need the right version, in a chroot that did not exist."""
    with Coordination(url) as session:
        assert session.get("/x") is None
        assert session.children("/x") == []
        assert session.exists("/x") is None
        assert session.create("/x/flag", b"1", parents=True) == "/x/flag"
        assert session.set("/x/flag", b"2", 0).version == 1
        node = session.get("/x/flag")
        assert node is not None
        assert (node[0], node[1].version, node[1].ephemeral_owner) == (b"2", 1, 0)
        session.create("/x/member-", ephemeral=True, sequence=True)
        assert session.children("/x") == ["flag", "member-0000000001"]
        member = session.exists("/x/member-0000000001")
        assert member is not None
        assert member.ephemeral_owner == session.session_id
        session.delete("/x/flag", 1)
        assert session.exists("/x/flag") is None
    with CoordinationReader(url) as reader:
        assert reader.children("/x") == []


def test_coordination_conflicts(url: StoreUrl) -> None:
    """A state other than the expected one is a StoreConflict that names the path."""
    with Coordination(url) as session:
        session.create("/x/y", b"1", parents=True)
        with pytest.raises(StoreConflict, match="/x/y"):
            session.create("/x/y")
        with pytest.raises(StoreConflict, match="/none/y"):
            session.create("/none/y")
        with pytest.raises(StoreConflict, match="/x/y"):
            session.set("/x/y", b"2", 5)
        with pytest.raises(StoreConflict, match="/x "):
            session.delete("/x", -1)
        with pytest.raises(ValueError, match="absolute"):
            session.get("x")


def test_commit_is_all_or_nothing(url: StoreUrl) -> None:
    """A commit with one part that does not fit changes nothing and names that part; otherwise all parts happen."""
    with Coordination(url) as session:
        session.create("/flag", b"1", parents=True)
        session.create("/old")
        with pytest.raises(StoreConflict, match="set of /flag"):
            session.commit([Create("/new"), Set("/flag", b"2", 7), Delete("/old", 0)])
        assert session.children("/") == ["flag", "old"]
        session.commit([Check("/flag", 0), Create("/new", b"n"), Set("/flag", b"2", 0), Delete("/old", 0)])
        assert session.children("/") == ["flag", "new"]


def test_reader_cannot_write(url: StoreUrl) -> None:
    """The reading session has no method that writes."""
    public = {name for name in dir(CoordinationReader(url)) if not name.startswith("_")}
    assert public == {"children", "close", "exists", "get", "session_id", "url"}


def test_coordination_without_a_server(victim: Server) -> None:
    """A server out of reach is named within the timeout, when entering as well as later."""
    began = time.monotonic()
    with (
        pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1"),
        Coordination(parse_store_url("127.0.0.1:1"), timeout=1),
    ):
        pass
    with Coordination(parse_store_url(victim.address), timeout=SILENCE) as session:
        victim.pause()
        try:
            with pytest.raises(StoreUnreachable, match="/late"):
                session.create("/late")
            with pytest.raises(StoreUnreachable):
                session.get("/late")
        finally:
            victim.resume()
    assert time.monotonic() - began < 60


def test_coordination_with_a_wrong_scheme(url: StoreUrl) -> None:
    """A credential that the server does not take is a StoreDenied."""
    with (
        pytest.raises(StoreDenied),
        Coordination(url, access=NONSENSE) as session,
    ):
        session.get("/")


def test_coordination_that_is_denied_at_once(url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a StoreDenied as well where the server's answer comes before anybody has seen the session."""
    start: Any = KazooClient.start_async
    states: list[str] = []

    def start_and_be_denied(client: Any) -> Any:
        client.add_listener(states.append)
        connected = start(client)
        wait_until_equal("the session has come and gone", lambda: states, [KazooState.CONNECTED, KazooState.LOST], 30)
        return connected

    monkeypatch.setattr(KazooClient, "start_async", start_and_be_denied)
    with pytest.raises(StoreDenied), Coordination(url, access=NONSENSE):
        pytest.fail("it was let in")


def test_load_of_a_server(server: Server, kazoo: Any) -> None:
    """The automatic throttle reads `mntr`: requests that wait, and the time that requests since the last look took."""
    wanted = AutoThrottle(zookeepers=(server.address, "127.0.0.1:1"))
    with Sources(wanted, admin=Tls()) as sources:
        source, away = sources.all
        (waiting,) = source.read()
        assert waiting.value <= 1
        kazoo.exists("/zookeeper")
        assert [reading.unit for reading in source.read()] == ["", " ms"]
        with pytest.raises(NoReading, match=r"127\.0\.0\.1:1 does not answer `mntr`"):
            away.read()


def test_four_letter(server: Server, kazoo: Any) -> None:
    """A command that is allowed gives its text, and a server that is away is named."""
    srvr = four_letter(server.address, "srvr")
    assert srvr
    assert "Mode: standalone" in srvr
    dump = four_letter(server.address, "dump")
    assert dump
    assert f"{kazoo.client_id[0]:#x}" in dump
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1"):
        four_letter("127.0.0.1:1", "srvr")

"""The registry of bookie clusters on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients.errors import ClaimHeld, StoreConflict, Superseded
from clients.pulsar.records.bookie_registry import BookieRegistry, Entry
from clients.zookeeper.coordination import Coordination
from models.bookie_registry import REGISTRY, ClusterStatus, ReadMode, RegisteredCluster
from models.store_url import StoreUrl
from tests.support.clients.claims import attempt_of, open_registry

pytest_plugins = ["tests.support.stacks", "tests.support.clients.zookeeper_stores"]

URIS = {name: f"zk+hierarchical://zk-1:2181/ledgers-{name}" for name in "abc"}


@pytest.fixture
def zookeeper(url: StoreUrl) -> Iterator[Coordination]:
    """A session with a store of its own."""
    with Coordination(url) as session:
        yield session


@pytest.fixture
def registry(url: StoreUrl) -> Iterator[BookieRegistry]:
    """A registry in which `a` is ACTIVE, and `b` and `c` are STANDBY."""
    with open_registry(url, attempt_of()) as opened:
        opened.claim.take()
        for name, uri in URIS.items():
            opened.register(registration(name, uri, ClusterStatus.ACTIVE if name == "a" else ClusterStatus.STANDBY))
        yield opened


def registration(name: str, uri: str, status: ClusterStatus = ClusterStatus.STANDBY) -> RegisteredCluster:
    """Return a cluster, as it is registered."""
    return RegisteredCluster(name=name, metadataServiceUri=uri, status=status)


def statuses(registry: BookieRegistry) -> dict[str, ClusterStatus]:
    """Return the status of each cluster."""
    return {name: entry.cluster.status for name, entry in registry.clusters().items()}


def test_nodes_are_those_of_the_proposal(registry: BookieRegistry, zookeeper: Coordination) -> None:
    """A registration is the proposal's JSON, and what others add to it survives a change (PIP-477)."""
    path = f"{REGISTRY}/a"
    node = zookeeper.get(path)
    assert node is not None
    assert json.loads(node[0]) == {"name": "a", "metadataServiceUri": URIS["a"], "status": "ACTIVE"}
    zookeeper.set(path, json.dumps({**json.loads(node[0]), "region": "eu"}).encode(), node[1].version)

    registry.flip(new="b", old="a")

    changed = zookeeper.get(path)
    assert changed is not None
    assert json.loads(changed[0]) == {
        "name": "a",
        "metadataServiceUri": URIS["a"],
        "status": "DEPRECATED",
        "region": "eu",
    }


def test_addresses_in_use_are_refused(registry: BookieRegistry) -> None:
    """Used addresses, roots inside them, another address for a name, a second ACTIVE cluster: nothing is registered."""
    assert not registry.register(registration("a", URIS["a"]))
    for name, uri, status in (
        ("d", URIS["b"], ClusterStatus.STANDBY),
        ("d", f"{URIS['b']}/inside", ClusterStatus.STANDBY),
        ("b", "zk+hierarchical://zk-1:2181/ledgers-d", ClusterStatus.STANDBY),
        ("d", "zk+hierarchical://zk-1:2181/ledgers-d", ClusterStatus.ACTIVE),
    ):
        with pytest.raises(StoreConflict):
            registry.register(registration("e", "zk+hierarchical://zk-1:2181/e"), registration(name, uri, status))
    assert statuses(registry) == {"a": "ACTIVE", "b": "STANDBY", "c": "STANDBY"}


def test_statuses_flip_in_one_transaction(registry: BookieRegistry, zookeeper: Coordination) -> None:
    """Both nodes change with one transaction, so that no reader can find two ACTIVE clusters or none (I12)."""
    registry.flip(new="b", old="a")

    assert statuses(registry) == {"a": "DEPRECATED", "b": "ACTIVE", "c": "STANDBY"}
    stats = [zookeeper.exists(f"{REGISTRY}/{name}") for name in "ab"]
    assert all(stats)
    assert len({stat.mzxid for stat in stats if stat}) == 1

    registry.flip(new="b", old="a")
    assert [zookeeper.exists(f"{REGISTRY}/{name}") for name in "ab"] == stats


def test_flips_at_once_leave_one_active(registry: BookieRegistry, url: StoreUrl) -> None:
    """Concurrent flips in both directions leave exactly one ACTIVE cluster, whichever is last (I12)."""

    def flip(pair: tuple[str, str]) -> str:
        with open_registry(url, attempt_of()) as mine:
            for _ in range(10):
                try:
                    mine.flip(new=pair[0], old=pair[1])
                except StoreConflict:
                    continue  # the other one was first, five times
        return pair[0]

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(flip, [("a", "b"), ("b", "a")])) == {"a", "b"}
    assert sorted(statuses(registry).values()) == ["ACTIVE", "DEPRECATED", "STANDBY"]


def test_two_active_clusters_are_noticed(registry: BookieRegistry, zookeeper: Coordination) -> None:
    """A registry that another client left with two ACTIVE clusters, or with none, is an error that names the cure."""
    for status, named in (("ACTIVE", "a, b"), ("STANDBY", "none")):
        for name in "ab":
            path = f"{REGISTRY}/{name}"
            node = zookeeper.get(path)
            assert node is not None
            zookeeper.set(path, json.dumps({**json.loads(node[0]), "status": status}).encode(), node[1].version)
        with pytest.raises(StoreConflict, match=f"holds {named}"):
            registry.active()


def test_directive_is_given_once(registry: BookieRegistry) -> None:
    """A repeated directive changes nothing; another target, or another run, makes the next epoch."""
    first = registry.set_target("b", "run-1")
    assert registry.set_target("b", "run-1") == first
    assert [registry.set_target("a", "run-1").epoch, registry.set_target("b", "run-2").epoch] == [2, 3]
    current = registry.switch_target()
    assert current is not None
    assert (first.epoch, current[0].target) == (1, "b")


def test_changes_need_the_claim(registry: BookieRegistry, url: StoreUrl) -> None:
    """An attempt that lost the claim to a newer one changes nothing in the registry, nor does another migration."""
    with open_registry(url, attempt_of(epoch=2)) as newer:
        newer.claim.renew()
        for change in (
            lambda: registry.register(registration("d", "zk+hierarchical://zk-1:2181/ledgers-d")),
            lambda: registry.set_target("b", "run-1"),
            lambda: registry.flip(new="b", old="a"),
            lambda: registry.set_read_mode(ReadMode.OLD_CLUSTER_ONLY),
            lambda: registry.unregister(["c"]),
        ):
            with pytest.raises(Superseded):
                change()
        with open_registry(url, attempt_of("switch/two")) as foreign, pytest.raises(ClaimHeld, match="switch/one"):
            foreign.flip(new="b", old="a")
        assert statuses(registry) == {"a": "ACTIVE", "b": "STANDBY", "c": "STANDBY"}
        assert registry.switch_target() is None
        assert registry.read_mode() is None
        newer.flip(new="b", old="a")
    assert statuses(registry)["b"] == "ACTIVE"


def test_a_third_active_cluster_blocks_the_flip(registry: BookieRegistry, zookeeper: Coordination) -> None:
    """A flip between two clusters is refused while another one is ACTIVE, or none: there is always one (I12)."""
    registry.flip(new="c", old="a")
    with pytest.raises(StoreConflict, match="c is ACTIVE"):
        registry.flip(new="b", old="a")
    assert statuses(registry) == {"a": "DEPRECATED", "b": "STANDBY", "c": "ACTIVE"}
    zookeeper.set(f"{REGISTRY}/c", registration("c", URIS["c"]).encode(), -1)
    with pytest.raises(StoreConflict, match="no cluster is ACTIVE"):
        registry.flip(new="b", old="a")


def test_a_concurrent_registration_is_not_overlooked(
    registry: BookieRegistry, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that another writer registers between a flip's reads and its transaction makes the flip read again."""
    read, reads = registry.clusters, 0

    def slowly() -> dict[str, Entry]:
        nonlocal reads
        entries = read()
        reads += 1
        if reads == 1:
            # As an attempt of the same run does, whose claim passes.
            with open_registry(url, attempt_of()) as other:
                other.register(registration("d", "zk+hierarchical://zk-1:2181/ledgers-d"))
        return entries

    monkeypatch.setattr(registry, "clusters", slowly)
    registry.flip(new="b", old="a")
    assert reads > 1


def test_registrations_are_taken_back(registry: BookieRegistry, zookeeper: Coordination) -> None:
    """Registrations can be removed, and with the last one the registry is removed too."""
    registry.unregister(["c"])
    assert set(registry.clusters()) == {"a", "b"}
    registry.unregister(["a", "b", "c"])
    assert zookeeper.exists(REGISTRY) is None


def test_the_claim_remembers_the_directive(registry: BookieRegistry) -> None:
    """Directive and claim change together: a run that is started again knows where brokers were directed."""
    registry.set_target("b", "run-1")
    held = registry.claim.read()
    assert held is not None
    assert held.claim.directed == "b"

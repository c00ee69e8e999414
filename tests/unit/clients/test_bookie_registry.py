"""Others who act between a look at the registry of bookie clusters and the write that follows it, in memory.

What a real ZooKeeper does with the registry is shown in tests/integration/clients/test_bookie_registry.py.
"""

from __future__ import annotations

import pytest

from clients.cas.claims import ClaimKeeper
from clients.cas.store import Node
from clients.errors import StoreConflict, Superseded
from clients.pulsar.records.bookie_registry import BookieRegistry
from models.bookie_registry import REGISTRY, ClusterStatus, RegisteredCluster, SwitchClaim
from models.lifecycle.claim import CLAIM
from tests.support.clients.claims import attempt_of
from tests.support.clients.memory_store import MemoryStore

ACTIVE, STANDBY = ClusterStatus.ACTIVE, ClusterStatus.STANDBY
NODE = f"{REGISTRY}/orchestrator/a-to-b/verified/0000000000"


def cluster(name: str, status: ClusterStatus = STANDBY) -> RegisteredCluster:
    """Return a registration."""
    uri = f"zk+hierarchical://zk-1:2181/ledgers-{name}"
    return RegisteredCluster(name=name, metadataServiceUri=uri, status=status)


def registry(store: MemoryStore, *, epoch: int = 1) -> BookieRegistry:
    """Return the registry on behalf of an attempt."""
    return BookieRegistry(store, REGISTRY, ClaimKeeper(store, SwitchClaim, attempt_of(epoch=epoch)))


@pytest.fixture
def store() -> MemoryStore:
    """A registry in which `a` is ACTIVE, and `b` and `c` are STANDBY."""
    made = MemoryStore()
    mine = registry(made)
    mine.claim.take()
    mine.register(cluster("a", ACTIVE), cluster("b"), cluster("c"))
    return made


def set_by_hand(store: MemoryStore, name: str, status: ClusterStatus) -> None:
    """Set a status without the lock, as a client does that does not use it."""
    store.set(f"{REGISTRY}/{name}", cluster(name, status).encode(), -1)


def active(store: MemoryStore) -> list[str]:
    """Return the clusters that are ACTIVE."""
    entries = registry(store).clusters().values()
    return [entry.cluster.name for entry in entries if entry.cluster.status is ACTIVE]


def test_a_third_active_cluster_is_refused(store: MemoryStore) -> None:
    """A flip between two clusters is refused while a third one is ACTIVE too."""
    set_by_hand(store, "c", ACTIVE)
    with pytest.raises(StoreConflict, match="a, c is ACTIVE"):
        registry(store).flip(new="b", old="a")
    set_by_hand(store, "a", STANDBY)
    with pytest.raises(StoreConflict, match="c is ACTIVE"):
        registry(store).flip(new="b", old="a")
    assert active(store) == ["c"]


def test_a_third_cluster_that_becomes_active_before_the_flip_is_seen(store: MemoryStore) -> None:
    """A third cluster that becomes ACTIVE between the read and the flip makes the flip fail, without any lock (I12)."""
    mine = registry(store)
    store.before_next_writes(lambda: set_by_hand(store, "c", ACTIVE))
    with pytest.raises(StoreConflict, match="a, c is ACTIVE"):
        mine.flip(new="b", old="a")
    assert active(store) == ["a", "c"]


def test_a_flip_replaces_only_what_it_read(store: MemoryStore) -> None:
    """A change that another client made to a registration between the read and the flip is not lost."""
    wanted = cluster("a", ACTIVE).changed(region="eu")
    store.before_next_writes(lambda: store.set(f"{REGISTRY}/a", wanted, -1))
    registry(store).flip(new="b", old="a")
    updated = registry(store).clusters()["a"].cluster
    assert (updated.status, updated.model_extra) == (ClusterStatus.DEPRECATED, {"region": "eu"})


def test_of_two_registrations_at_once_one_reads_again(store: MemoryStore) -> None:
    """Of two writers that both saw an empty registry only one makes its cluster ACTIVE."""
    empty = MemoryStore()
    mine, other = registry(empty), registry(empty)
    mine.claim.take()
    # The parents exist, so that the next write is the transaction.
    empty.create("/admin", b"")
    empty.create(REGISTRY, b"")
    empty.before_next_writes(lambda: other.register(cluster("a", ACTIVE)))
    with pytest.raises(StoreConflict, match="a is ACTIVE"):
        mine.register(cluster("b", ACTIVE))
    assert active(empty) == ["a"]


@pytest.mark.parametrize("what", ["put", "remove", "flip", "set_target", "register"])
def test_nothing_is_written_once_the_claim_is_lost(store: MemoryStore, what: str) -> None:
    """A newer attempt that takes the claim between the look at it and the write makes the write fail."""
    mine, newer = registry(store), registry(store, epoch=2)
    mine.put(NODE, b"[1]")
    before = {path: node.value for path, node in store.nodes.items() if path != CLAIM}
    acts = {
        "put": lambda: mine.put(NODE, b"[2]"),
        "remove": lambda: mine.remove(NODE),
        "flip": lambda: mine.flip(new="b", old="a"),
        "set_target": lambda: mine.set_target("b", "switch/one/run-1/forward"),
        "register": lambda: mine.register(cluster("d")),
    }
    store.before_next_writes(newer.claim.renew)
    with pytest.raises(Superseded):
        acts[what]()
    assert {path: node.value for path, node in store.nodes.items() if path != CLAIM} == before


def test_an_equal_value_does_not_replace_the_claim(store: MemoryStore) -> None:
    """A superseded attempt gets an error even if the node already has the wanted value, or has no parent yet."""
    mine, newer = registry(store), registry(store, epoch=2)
    mine.put(NODE, b"[1]")
    newer.claim.renew()
    for path, value in ((NODE, b"[1]"), (f"{REGISTRY}/orchestrator/b-to-a/scope", b"all")):
        with pytest.raises(Superseded):
            mine.put(path, value)
    assert store.get(f"{REGISTRY}/orchestrator/b-to-a") is None


def test_a_claim_that_is_lost_between_two_reads_protects_the_node(store: MemoryStore) -> None:
    """The claim is read before the node: an attempt that takes over and writes in between is not overwritten."""
    mine, newer = registry(store), registry(store, epoch=2)
    mine.put(NODE, b"[1]")
    read, done = store.get, False

    def get(path: str) -> Node | None:
        nonlocal done
        if path == NODE and not done:
            done = True
            newer.claim.renew()
            newer.put(NODE, b"[1, 2]")
        return read(path)

    store.get = get
    with pytest.raises(Superseded):
        mine.put(NODE, b"[1, 3]")
    node = read(NODE)
    assert node is not None
    assert node.value == b"[1, 2]"


def test_parents_are_made_by_the_holder_alone(store: MemoryStore) -> None:
    """Parents are created outside the transaction: an attempt that loses the claim at that moment creates none."""
    mine, newer = registry(store), registry(store, epoch=2)
    read, parent = store.get, f"{REGISTRY}/orchestrator/b-to-a"

    def get(path: str) -> Node | None:
        if path == parent:
            store.get = read
            newer.claim.renew()
        return read(path)

    store.get = get
    with pytest.raises(Superseded):
        mine.put(f"{parent}/scope", b"all")
    assert read(parent) is None


def test_a_run_that_was_rolled_back_sets_no_other_directive(store: MemoryStore) -> None:
    """A late attempt at the directive forward finds the one back, and leaves brokers where they are."""
    mine = registry(store)
    mine.set_target("b", "switch/one/run-1/forward", unless="switch/one/run-1/back")
    mine.set_target("a", "switch/one/run-1/back")
    with pytest.raises(StoreConflict, match="turned back already"):
        mine.set_target("b", "switch/one/run-1/forward", unless="switch/one/run-1/back")
    current = mine.switch_target()
    assert current is not None
    assert (current[0].target, current[0].epoch) == ("a", 2)
    # A later run of the same switch may go forward again.
    assert mine.set_target("b", "switch/one/run-2/forward", unless="switch/one/run-2/back").epoch == 3


def test_two_directives_at_once_have_two_epochs(store: MemoryStore) -> None:
    """A directive of another client between the read and ours is counted, and not overwritten."""
    mine, other = registry(store), registry(store)
    first = mine.set_target("b", "switch/one/run-1/forward")
    assert mine.set_target("b", "switch/one/run-1/forward") == first, "the same one again"
    store.before_next_writes(lambda: other.set_target("a", "switch/one/run-1/back"))
    assert mine.set_target("b", "switch/one/run-1/again").epoch == 3

"""Compare-and-set and claims on a real ZooKeeper and a real Oxia: both behave alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasStore, Check, Create, Delete, Set, retry
from clients.errors import ClaimHeld, StoreConflict, StoreUnsupported, Superseded, VersionConflict
from clients.stores import Access, open_cas, open_cas_reader, open_reader
from models.lifecycle.claim import CLAIM, Attempt, PacedClaim
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.stack import StackSpec
from spark.fence import WriteFence, claim_in
from tests.support.clients.claims import attempt_of
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for

pytest_plugins = ["tests.support.stacks"]

ROUNDS = 20
CONTENDERS = 4


@pytest.fixture(scope="module")
def urls(make_stack: MakeStack) -> dict[str, str]:
    """One store of each kind."""
    stack = make_stack(StackSpec(zookeepers=1, oxias=1, oxia_shards=2))
    return {"zookeeper": stack.zk_url, "oxia": stack.oxia_url}


@pytest.fixture(params=["zookeeper", "oxia"])
def url(request: pytest.FixtureRequest, urls: dict[str, str]) -> StoreUrl:
    """A store."""
    return parse_store_url(urls[request.param])


@pytest.fixture
def store(url: StoreUrl) -> Iterator[CasStore]:
    """A store, opened."""
    with open_cas(url, Access()) as opened:
        yield opened


@pytest.fixture
def top() -> str:
    """A path of one's own."""
    return f"/cas/{random.randrange(1 << 40)}"


def test_records_change_on_their_versions_only(store: CasStore, top: str) -> None:
    """A record is created once, set and deleted at the version that was read, and every other try is a conflict."""
    path = f"{top}/a"
    assert store.get(path) is None
    begun = time.time_ns() // 1_000_000
    store.create(path, b"1")
    with pytest.raises(VersionConflict):
        store.create(path, b"x")
    first = store.get(path)
    assert first is not None
    assert first.value == b"1"
    assert abs(first.modified_ms - begun) < 60_000
    store.set(path, b"2", first.version)
    with pytest.raises(VersionConflict):
        store.set(path, b"x", first.version)
    with pytest.raises(VersionConflict):
        store.delete(path, first.version)
    with pytest.raises(VersionConflict):
        store.set(f"{top}/none", b"x", 0)
    second = store.get(path)
    assert second is not None
    assert (second.value, second.version != first.version) == (b"2", True)
    store.create(f"{top}/b", b"")
    assert store.children(top) == ["a", "b"]
    store.delete(path, second.version)
    with pytest.raises(VersionConflict):
        store.delete(path, second.version)
    assert store.get(path) is None
    assert store.children(top) == ["b"]


def test_readers_see_what_was_written(url: StoreUrl, top: str, store: CasStore) -> None:
    """A reader sees what another session has written."""
    store.create(f"{top}/a", b"1")
    with open_cas_reader(url, Access()) as reader:
        node = reader.get(f"{top}/a")
    assert node is not None
    assert node.value == b"1"


def test_transactions_are_whole(store: CasStore, top: str) -> None:
    """If the store has transactions, one part that fails prevents all other parts."""
    store.create(f"{top}/a", b"1")
    node = store.get(f"{top}/a")
    assert node is not None
    parts = [Set(f"{top}/a", b"2", node.version), Create(f"{top}/b"), Check(f"{top}/a", 99)]
    if store.url.scheme == "oxia":
        with pytest.raises(StoreUnsupported, match="no transactions"):
            store.transaction(parts)
        return
    with pytest.raises(VersionConflict, match=f"check of {top}/a"):
        store.transaction(parts)
    assert store.get(f"{top}/a") == node
    assert store.get(f"{top}/b") is None
    store.transaction(parts[:2])
    store.transaction([Delete(f"{top}/b", 0), Check(f"{top}/a", node.version + 1)])
    assert store.children(top) == ["a"]


def test_no_change_is_lost(url: StoreUrl, top: str) -> None:
    """Changes that several make at the same moment, each from what it read, are all there in the end."""
    path = f"{top}/count"
    start = Barrier(CONTENDERS)
    with open_cas(url, Access()) as store:
        store.create(path, b"0")

    def count(_: int) -> None:
        with open_cas(url, Access()) as store:

            def add() -> None:
                node = store.get(path)
                assert node is not None
                store.set(path, str(int(node.value) + 1).encode(), node.version)

            for _ in range(ROUNDS):
                start.wait(timeout_for(30))
                _until_done(lambda: retry(add, path))

    with ThreadPoolExecutor(CONTENDERS) as pool:
        list(pool.map(count, range(CONTENDERS)))
    with open_cas(url, Access()) as store:
        stored = store.get(path)
    assert stored is not None
    assert int(stored.value) == CONTENDERS * ROUNDS


def _until_done(change: Callable[[], None]) -> None:
    while True:
        try:
            return change()
        except StoreConflict:
            continue  # the others came first each time


def test_of_two_migrations_one_holds_the_claim(url: StoreUrl, top: str) -> None:
    """If migrations claim a store at the same moment, one gets it, and the others learn its name."""
    start = Barrier(CONTENDERS)

    def take(number: int) -> str:
        with open_cas(url, Access()) as store:
            keeper = ClaimKeeper(store, PacedClaim, attempt_of(f"kind/{number}"), path=f"{top}/claim")
            start.wait(timeout_for(30))
            try:
                return keeper.take().workflow_id
            except ClaimHeld as error:
                return error.workflow_id

    with ThreadPoolExecutor(CONTENDERS) as pool:
        assert len(set(pool.map(take, range(CONTENDERS)))) == 1


def test_the_fence_stops_older_attempts(url: StoreUrl, top: str) -> None:
    """Once a newer attempt has taken the claim, an older one neither renews nor passes, on a worker or an executor."""
    path = f"{top}/claim"
    old, new = attempt_of(), attempt_of(epoch=2)
    with open_cas(url, Access()) as store:
        keepers = {me: ClaimKeeper(store, PacedClaim, me, path=path) for me in (old, new)}
        keepers[old].take(throttle=3.0)
        _pass_as_executor(url, path, old)
        keepers[new].renew()
        for act in (keepers[old].require, keepers[old].renew, keepers[old].take, keepers[old].release):
            with pytest.raises(Superseded):
                act()
        with pytest.raises(Superseded):
            _pass_as_executor(url, path, old)
        assert keepers[new].require().throttle == 3.0
        _pass_as_executor(url, path, new)
        keepers[new].release()
        keepers[new].release()
        with pytest.raises(Superseded):
            _pass_as_executor(url, path, new)
        assert store.get(path) is None
        assert store.get(top) is None


def _pass_as_executor(url: StoreUrl, path: str, me: Attempt) -> None:
    reader = open_reader(url, Access())
    try:
        WriteFence(lambda: claim_in(reader, path, PacedClaim), attempt=me, what=str(url), parallelism=1).check(1)
    finally:
        reader.close()


def test_the_claim_is_in_pulsars_own_subtree() -> None:
    """The claim lies where nothing is copied or compared (PIP-454)."""
    assert CLAIM == "/pulsar/migration-coordinator/pulsar-migrate"

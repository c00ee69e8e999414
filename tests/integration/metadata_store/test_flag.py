"""The migration flag and the claim next to it, on a real ZooKeeper: who may move them, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from activities.metadata_store.flag import FlagKeeper, read_state
from clients.cas.store import CasStore
from clients.errors import StoreConflict, Superseded
from clients.stores import Access, open_cas
from models.lifecycle.claim import CLAIM
from models.migration_flag import BLOCKING_PHASES, FLAG, FlagPhase
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.claims import attempt_of
from tests.support.stacks import MakeStack

TARGET = "oxia://127.0.0.1:6648/default"
WORKFLOW = "metadata-store/c"


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """One ZooKeeper."""
    return make_stack(StackSpec(zookeepers=1))


@pytest.fixture
def store(stack: Stack) -> Iterator[CasStore]:
    """An empty store, opened."""
    with open_cas(parse_store_url(stack.zk_url), Access()) as opened:
        yield opened
        for path in (FLAG, CLAIM):
            if node := opened.get(path):
                opened.delete(path, node.version)


@pytest.fixture
def keeper(store: CasStore) -> FlagKeeper:
    """The first run of a migration, which holds the source."""
    first = FlagKeeper(store, attempt_of(WORKFLOW))
    first.take()
    return first


def _second_run(store: CasStore) -> FlagKeeper:
    return FlagKeeper(store, attempt_of(WORKFLOW, run=2))


def _by_hand(store: CasStore, phase: FlagPhase) -> None:
    node = store.get(FLAG)
    assert node is not None
    store.set(FLAG, json.dumps({"phase": phase, "targetUrl": TARGET}).encode(), node.version)


def test_a_flag_can_be_set_again(store: CasStore, keeper: FlagKeeper) -> None:
    """A repeated flag is a new version of the same value; it stays ours, with the same start, and can be advanced."""
    blocked = keeper.advance(FlagPhase.PREPARATION, TARGET)
    value = store.get(FLAG)
    assert value is not None
    keeper.rebroadcast()
    _second_run(store).rebroadcast()
    FlagKeeper(store, attempt_of("another")).rebroadcast()
    again = keeper.state()
    assert (again.version, again.since_ms, again.flag) == (blocked.version + 1, blocked.since_ms, blocked.flag)
    assert again.owned_by(WORKFLOW)
    copying = keeper.advance(FlagPhase.COPYING, TARGET)
    assert copying.claim is not None
    assert copying.claim.blocked_since_ms == blocked.since_ms
    assert copying.since_ms > blocked.since_ms
    node = store.get(FLAG)
    assert node is not None
    assert node.modified_ms == copying.since_ms


def test_the_flag_walks_its_phases_and_each_move_can_be_repeated(store: CasStore, keeper: FlagKeeper) -> None:
    """A repeated move changes nothing, and the claim always names the version of the flag that it set."""
    for version, phase in enumerate((FlagPhase.PREPARATION, FlagPhase.COPYING, FlagPhase.COMPLETED)):
        for _ in range(2):
            state = keeper.advance(phase, TARGET)
            assert (state.flag.phase, state.version) == (phase, version)
            assert state.owned_by(WORKFLOW)
    node = store.get(FLAG)
    assert node is not None
    assert json.loads(node.value) == {"phase": "COMPLETED", "targetUrl": TARGET}
    assert keeper.unblock().flag.phase is FlagPhase.COMPLETED


def test_a_run_blocks_writes_only_once(store: CasStore, keeper: FlagKeeper) -> None:
    """A late step neither blocks writes again after they were unblocked, nor after an operator set FAILED by hand."""
    keeper.advance(FlagPhase.PREPARATION, TARGET)
    assert keeper.unblock().flag.phase is FlagPhase.FAILED
    with pytest.raises(StoreConflict, match="Start the migration again"):
        keeper.advance(FlagPhase.PREPARATION, TARGET)
    second = _second_run(store)
    second.take()
    second.advance(FlagPhase.PREPARATION, TARGET)
    _by_hand(store, FlagPhase.FAILED)
    for phase in BLOCKING_PHASES:
        with pytest.raises(StoreConflict):
            second.advance(phase, TARGET)
    assert read_state(store).flag.phase is FlagPhase.FAILED


def test_the_next_run_unblocks_writes_of_a_terminated_run(store: CasStore, keeper: FlagKeeper) -> None:
    """A new run of the same migration sets FAILED first, and then starts from there; the old run cannot write."""
    keeper.advance(FlagPhase.PREPARATION, TARGET)
    keeper.advance(FlagPhase.COPYING, TARGET)
    second = _second_run(store)
    second.take()
    assert read_state(store).flag.phase is FlagPhase.FAILED
    with pytest.raises(StoreConflict, match="run-2"):
        keeper.advance(FlagPhase.COMPLETED, TARGET)
    assert second.advance(FlagPhase.PREPARATION, TARGET).flag.phase is FlagPhase.PREPARATION


def test_flags_and_claims_of_others_are_not_changed(store: CasStore, keeper: FlagKeeper) -> None:
    """Neither another migration's claim nor a flag of Pulsar's own coordinator is touched, and both are named."""
    with pytest.raises(StoreConflict, match=f"held by the migration '{WORKFLOW}'"):
        FlagKeeper(store, attempt_of("metadata-store/other", run=9)).take()
    store.create(FLAG, json.dumps({"phase": "COPYING", "targetUrl": TARGET}).encode())
    for phase in (FlagPhase.PREPARATION, FlagPhase.COMPLETED, FlagPhase.FAILED):
        with pytest.raises(StoreConflict, match="did not set it"):
            keeper.advance(phase, TARGET)
    assert keeper.unblock().version == 0
    with pytest.raises(StoreConflict, match="too late"):
        keeper.require(FlagPhase.PREPARATION)


def test_a_late_attempt_cannot_block_writes(store: CasStore, keeper: FlagKeeper) -> None:
    """An attempt that continues after the rollback started, or ended, sets no flag: no step would ever clear it."""
    FlagKeeper(store, attempt_of(WORKFLOW, epoch=3)).unblock()
    prepare = FlagKeeper(store, attempt_of(WORKFLOW, epoch=2))
    with pytest.raises(Superseded, match=r"epoch 2, attempt 1 was superseded by .* epoch 3"):
        prepare.advance(FlagPhase.PREPARATION, TARGET)
    FlagKeeper(store, attempt_of(WORKFLOW, epoch=4)).release()
    with pytest.raises(Superseded, match="does not hold"):
        prepare.advance(FlagPhase.PREPARATION, TARGET)
    assert store.get(FLAG) is None
    assert store.get(CLAIM) is None


def test_unknown_fields_survive(store: CasStore, keeper: FlagKeeper) -> None:
    """Fields that a newer version, or a newer Pulsar, wrote into claim and flag are kept when both are changed."""
    keeper.advance(FlagPhase.PREPARATION, TARGET)
    for path in (CLAIM, FLAG):
        node = store.get(path)
        assert node is not None
        store.set(path, json.dumps({**json.loads(node.value), "new": [1]}).encode(), node.version)
    claim = store.get(CLAIM)
    assert claim is not None
    store.set(CLAIM, json.dumps({**json.loads(claim.value), "flag_version": 1}).encode(), claim.version)
    keeper.rebroadcast()
    for path in (CLAIM, FLAG):
        node = store.get(path)
        assert node is not None
        assert json.loads(node.value)["new"] == [1]


def test_a_deadline_expires_without_temporal(store: CasStore, keeper: FlagKeeper) -> None:
    """A run unblocks its own writes, whichever attempt holds the claim; not after a commit, nor another run's."""
    keeper.advance(FlagPhase.PREPARATION, TARGET)
    later = FlagKeeper(store, attempt_of(WORKFLOW, epoch=7))
    later.advance(FlagPhase.COPYING, TARGET)
    assert keeper.expire().flag.phase is FlagPhase.FAILED
    with pytest.raises(StoreConflict):
        later.advance(FlagPhase.COMPLETED, TARGET)
    with pytest.raises(Superseded):
        later.renew()
    second = _second_run(store)
    second.take()
    second.advance(FlagPhase.PREPARATION, TARGET)
    assert keeper.expire().flag.phase is FlagPhase.PREPARATION, "of a later run"
    second.advance(FlagPhase.COPYING, TARGET)
    second.advance(FlagPhase.COMPLETED, TARGET)
    assert second.expire().flag.phase is FlagPhase.COMPLETED


def test_a_reset_run_does_not_change_a_later_run(store: CasStore, keeper: FlagKeeper) -> None:
    """A reset run neither unblocks nor releases what a later run holds, and its rollback does not wait for it."""
    second = _second_run(store)
    second.take()
    second.advance(FlagPhase.PREPARATION, TARGET)
    before = read_state(store)
    late = FlagKeeper(store, attempt_of(WORKFLOW, epoch=9))
    assert late.unblock() == before
    late.release()
    assert read_state(store) == before


def test_failed_is_set_again_without_a_claim(store: CasStore, keeper: FlagKeeper) -> None:
    """A broker that was disconnected gets FAILED even after the rollback released the source; a new run is safe."""
    keeper.advance(FlagPhase.PREPARATION, TARGET)
    keeper.release()
    assert (store.get(CLAIM), read_state(store).flag.phase) == (None, FlagPhase.FAILED)
    version = read_state(store).version
    assert keeper.rebroadcast()
    assert read_state(store).version == version + 1
    second = _second_run(store)
    second.take()
    second.advance(FlagPhase.PREPARATION, TARGET)
    assert not keeper.rebroadcast()
    assert read_state(store).owned_by(WORKFLOW)

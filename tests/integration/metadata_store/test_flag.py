"""The migration flag and the claim beside it, on a real ZooKeeper: who may move them, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from activities.metadata_store.flag import FlagKeeper, read_flag
from clients.errors import StoreConflict
from clients.zookeeper import Coordination
from deploy.devstack.stack import Stack, StackSpec
from models.metadata_store.flag import CLAIM, FLAG, FlagPhase
from models.store_url import parse_store_url
from tests.support.stacks import MakeStack

TARGET = "oxia://127.0.0.1:6648/default"
WORKFLOW = "metadata-store/c"


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """One ZooKeeper."""
    return make_stack(StackSpec(zookeepers=1))


@pytest.fixture
def zookeeper(stack: Stack) -> Iterator[Coordination]:
    """A session on an empty store."""
    with Coordination(parse_store_url(stack.zk_url)) as session:
        yield session
        for path in (FLAG, CLAIM):
            if session.exists(path):
                session.delete(path, -1)


@pytest.fixture
def keeper(zookeeper: Coordination) -> FlagKeeper:
    """The first run of a migration, which holds the source."""
    first = FlagKeeper(zookeeper, WORKFLOW, "run-1")
    first.claim()
    return first


def _by_hand(zookeeper: Coordination, phase: FlagPhase) -> None:
    zookeeper.set(FLAG, json.dumps({"phase": phase, "targetUrl": TARGET}).encode(), -1)


def test_a_flag_can_be_set_again(zookeeper: Coordination, keeper: FlagKeeper) -> None:
    """A repeated flag is a new version of the same value; it stays ours, since the same time, and goes on as before."""
    blocked = keeper.advance(FlagPhase.PREPARATION, TARGET)
    value = zookeeper.get(FLAG)
    assert value is not None
    keeper.repeat()
    FlagKeeper(zookeeper, WORKFLOW, "run-2").repeat()
    FlagKeeper(zookeeper, "another", "run-1").repeat()
    again = keeper.state()
    assert (again.version, again.since_ms, again.flag) == (blocked.version + 1, blocked.since_ms, blocked.flag)
    assert again.owned_by(WORKFLOW)
    copying = keeper.advance(FlagPhase.COPYING, TARGET)
    assert copying.claim is not None
    assert copying.claim.blocked_since_ms == blocked.since_ms
    assert copying.since_ms > blocked.since_ms
    found = zookeeper.get(FLAG)
    assert found is not None
    assert found[1].mtime == copying.since_ms


def test_the_flag_walks_its_phases_and_each_move_can_be_repeated(zookeeper: Coordination, keeper: FlagKeeper) -> None:
    """A repeated move changes nothing, and the claim always names the version of the flag that it set."""
    for version, phase in enumerate((FlagPhase.PREPARATION, FlagPhase.COPYING, FlagPhase.COMPLETED)):
        for _ in range(2):
            state = keeper.advance(phase, TARGET)
            assert (state.flag.phase, state.version) == (phase, version)
            assert state.owned_by(WORKFLOW)
    node = zookeeper.get(FLAG)
    assert node is not None
    assert json.loads(node[0]) == {"phase": "COMPLETED", "targetUrl": TARGET}
    assert keeper.release().flag.phase is FlagPhase.COMPLETED


def test_a_run_blocks_writes_only_once(zookeeper: Coordination, keeper: FlagKeeper) -> None:
    """A late step neither blocks writes again after they were given back, nor after an operator set FAILED by hand."""
    keeper.advance(FlagPhase.PREPARATION, TARGET)
    assert keeper.release().flag.phase is FlagPhase.FAILED
    with pytest.raises(StoreConflict, match="Start the migration anew"):
        keeper.advance(FlagPhase.PREPARATION, TARGET)
    second = FlagKeeper(zookeeper, WORKFLOW, "run-2")
    second.claim()
    second.advance(FlagPhase.PREPARATION, TARGET)
    _by_hand(zookeeper, FlagPhase.FAILED)
    for phase in (FlagPhase.PREPARATION, FlagPhase.COPYING):
        with pytest.raises(StoreConflict):
            second.advance(phase, TARGET)
    assert read_flag(zookeeper).flag.phase is FlagPhase.FAILED


def test_the_next_run_gives_back_what_a_terminated_one_left_blocked(
    zookeeper: Coordination, keeper: FlagKeeper
) -> None:
    """A new run of the same migration sets FAILED first, and then starts from there; the old run can do no more."""
    keeper.advance(FlagPhase.PREPARATION, TARGET)
    keeper.advance(FlagPhase.COPYING, TARGET)
    second = FlagKeeper(zookeeper, WORKFLOW, "run-2")
    second.claim()
    assert read_flag(zookeeper).flag.phase is FlagPhase.FAILED
    with pytest.raises(StoreConflict, match="run-2"):
        keeper.advance(FlagPhase.COMPLETED, TARGET)
    assert second.advance(FlagPhase.PREPARATION, TARGET).flag.phase is FlagPhase.PREPARATION


def test_what_somebody_else_set_is_left_alone(zookeeper: Coordination, keeper: FlagKeeper) -> None:
    """Neither another migration's claim nor a flag of Pulsar's own coordinator is touched, and both are named."""
    with pytest.raises(StoreConflict, match=f"held by the migration '{WORKFLOW}'"):
        FlagKeeper(zookeeper, "metadata-store/other", "run-9").claim()
    zookeeper.create(FLAG, json.dumps({"phase": "COPYING", "targetUrl": TARGET}).encode())
    for phase in (FlagPhase.PREPARATION, FlagPhase.COMPLETED, FlagPhase.FAILED):
        with pytest.raises(StoreConflict, match="did not set it"):
            keeper.advance(phase, TARGET)
    assert keeper.release().version == 0
    with pytest.raises(StoreConflict, match="too late"):
        keeper.require(FlagPhase.PREPARATION)

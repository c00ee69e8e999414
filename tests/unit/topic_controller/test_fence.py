"""No attempt leads a topic while the cluster's metadata are migrated to another store.

The store is in memory: a real flag would keep all brokers of a shared stack from writing.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import cast

import pytest

from activities.topic_controller import lease
from activities.topic_controller.context import ControllerTask
from activities.topic_controller.lease import LeaderLease
from clients.errors import NoServer, StoreConflict, StoreContention, Superseded
from models.lifecycle.claim import Attempt
from models.migration_flag import FLAG, Flag, FlagPhase
from tests.support.clients.memory_store import MemoryStore

PATH = "/pulsar/pulsar-migrate/topics/a/b/c/controller"


def keeper(store: MemoryStore) -> LeaderLease:
    """Return the lease of one attempt."""
    return LeaderLease(store, Attempt("w", "run", 1, 1, 1), path=PATH)


def test_an_attempt_that_was_given_up_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new attempt or run follows one that may continue; the next step follows one that ended."""
    store, clock = MemoryStore(), itertools.count(1)
    # The clock of this module alone: other threads ask theirs too.
    monkeypatch.setattr(lease, "time", SimpleNamespace(time_ns=lambda: next(clock) * 1_000_000))

    def take(run: str, epoch: int, attempt: int) -> int:
        me = Attempt("w", run, 1 if run == "run" else 2, epoch, attempt)
        return LeaderLease(store, me, path=PATH).take().lost_at_ms

    assert [take("run", 1, 1), take("run", 2, 1), take("run", 2, 1)] == [0, 0, 0]
    assert [take("run", 2, 2), take("run", 3, 1)] == [1, 1]
    assert [take("another", 1, 1), take("another", 2, 1)] == [2, 2]
    again = LeaderLease(store, Attempt("w", "another", 2, 3, 1), path=PATH)
    again.take()
    again.note_lost()
    assert take("another", 4, 1) == 3


def test_a_start_that_is_refused_leaves_nothing() -> None:
    """Its lease is deleted with its empty parents, unless it records a lost attempt, or another run holds it."""
    store = MemoryStore()
    refused = keeper(store)
    refused.take()
    refused.release_unused()
    assert store.nodes == {}
    keeper(store).take()
    again = LeaderLease(store, Attempt("w", "another", 2, 1, 1), path=PATH)
    lost_at_ms = again.take().lost_at_ms
    again.release_unused()
    assert again.take().lost_at_ms == lost_at_ms > 0
    with pytest.raises(Superseded):
        keeper(store).release_unused()


def raise_flag(store: MemoryStore, phase: FlagPhase) -> None:
    """Set the flag as a migration does."""
    value = Flag(phase=phase, targetUrl="oxia://elsewhere").encode()
    if node := store.get(FLAG):
        store.set(FLAG, value, node.version)
    else:
        store.create(FLAG, value)


@pytest.mark.parametrize("phase", [FlagPhase.PREPARATION, FlagPhase.COPYING])
def test_nothing_is_written_while_writes_are_blocked(phase: FlagPhase) -> None:
    """No new attempt begins, and the leading one writes nothing; both continue when the migration has failed."""
    store = MemoryStore()
    leads = keeper(store)
    leads.take()
    raise_flag(store, phase)
    written = dict(store.nodes)
    for ask in (leads.require, leads.guard, keeper(store).take):
        with pytest.raises(StoreContention, match="wait until the metadata have moved"):
            ask()
    assert store.nodes == written
    raise_flag(store, FlagPhase.FAILED)
    leads.require()
    assert keeper(store).take().epoch == 1


def test_a_migrated_store_is_not_written() -> None:
    """After the commit no broker reads what is written there; the refusal says what to do."""
    store = MemoryStore()
    raise_flag(store, FlagPhase.COMPLETED)
    with pytest.raises(StoreConflict, match="start it with the metadata_url of the other store"):
        keeper(store).take()
    assert store.get(PATH) is None


def test_a_migrated_store_without_brokers() -> None:
    """A store whose brokers have left it is named as such, although none of them is registered in it any more."""
    store = MemoryStore()
    raise_flag(store, FlagPhase.COMPLETED)

    def no_broker() -> str:
        raise NoServer("no broker is registered", server=str(store.url))

    task = cast("ControllerTask", SimpleNamespace(metadata=store, service_url=no_broker))
    with pytest.raises(StoreConflict, match="start it with the metadata_url of the other store"):
        ControllerTask.take_lease(task)

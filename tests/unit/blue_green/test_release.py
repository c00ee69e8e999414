"""The rollback of a whole migration, if one of both clusters does not answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import cluster, failback
from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from clients.cas.claims import ClaimKeeper, read_claim
from clients.errors import StoreUnreachable, Superseded
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import BlueGreenClaim
from models.blue_green.results import Released
from models.lifecycle.claim import Attempt
from tests.support.clients.memory_store import MemoryStore

_EARLIER, _ME = (Attempt("w", "run", 1, epoch, 1) for epoch in (1, 2))
_NAMESPACES = ("t/first", "t/second")


class _Rollback:
    """A failback that is rolled back after it has taken green's flags off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blue, self.green = MemoryStore(), MemoryStore()
        self.green_is_lost = self.brokers_are_lost = False
        self.blue_failures = self.waits = 0
        for store in (self.blue, self.green):
            self.keeper(store).take()
            for namespace in _NAMESPACES:
                store.create(f"/admin/local-policies/{namespace}", json.dumps({"migrated": False}).encode())
        self.on_wait: Callable[[], None] = lambda: None
        for guard in self.guards():
            guard.take()
            guard.note(green_flag=True)

        def adopt_copies(*_: object) -> None:
            if self.blue_failures:
                self.blue_failures -= 1
                raise StoreUnreachable("the connection to blue was lost")

        def topics_of(*_: object) -> list[object]:
            self._version()
            return []

        monkeypatch.setattr(failback, "adopt_copies", adopt_copies)
        monkeypatch.setattr(failback, "topics_of", topics_of)

    @staticmethod
    def keeper(store: MemoryStore) -> ClaimKeeper[BlueGreenClaim]:
        """Return the keeper of the migration's claim."""
        return ClaimKeeper(store, BlueGreenClaim, _ME)

    def run(self) -> Released:
        """Run the next attempt."""
        brokers = SimpleNamespace(version=self._version)
        green = SimpleNamespace(
            store=self._green_store, admin=SimpleNamespace(brokers=brokers), await_late_requests=self._wait
        )
        task: Any = SimpleNamespace(attempt=_ME, keeper=self.keeper, green=green)
        task.blue = SimpleNamespace(store=lambda: self.blue, brokers=list)
        task.context = None
        task.input = SimpleNamespace(cluster="blue", green_cluster="green")
        task.each = _no_topics
        return cluster.release(cast("BlueGreenTask", task))

    def flags(self) -> list[bool]:
        """Return green's flags."""
        return [read_flag(self.green, namespace) for namespace in _NAMESPACES]

    def guards(self) -> list[NamespaceGuard]:
        """Return the guards of an earlier attempt, which may be frozen."""
        return [NamespaceGuard(self.blue, _EARLIER, namespace) for namespace in _NAMESPACES]

    def _wait(self) -> None:
        self.waits += 1
        self.on_wait()

    def _green_store(self) -> MemoryStore:
        if self.green_is_lost:
            raise StoreUnreachable("green does not answer")
        return self.green

    def _version(self) -> str:
        if self.brokers_are_lost:
            raise StoreUnreachable("no broker of green answers")
        return "4.0.8"


def _no_topics(*_: object) -> list[bool]:
    return []


@pytest.fixture
def rollback(monkeypatch: pytest.MonkeyPatch) -> _Rollback:
    """A rollback of two namespaces."""
    return _Rollback(monkeypatch)


def test_a_failure_of_blue_does_not_give_green_up(rollback: _Rollback) -> None:
    """Green redirects clients again if blue's store failed during the first attempt."""
    rollback.blue_failures = 1
    with pytest.raises(StoreUnreachable, match="blue was lost"):
        rollback.run()
    released = rollback.run()
    assert (released.notes, released.not_released) == ((), "")
    assert rollback.flags() == [True, True]
    assert not any(read_claim(store, BlueGreenClaim) for store in (rollback.blue, rollback.green))


@pytest.mark.parametrize("lost", ["green_is_lost", "brokers_are_lost"])
def test_blue_is_released_if_green_is_lost(rollback: _Rollback, lost: str) -> None:
    """Green's store or all its brokers do not answer: the result says what is not restored there."""
    setattr(rollback, lost, True)
    released = rollback.run()
    assert "the claim on green was not released" in released.not_released
    assert ["both clusters serve its clients" in note for note in released.notes] == [True, True]
    assert read_claim(rollback.blue, BlueGreenClaim) is None


def test_late_deletions_are_awaited_once(rollback: _Rollback) -> None:
    """The records stay until the wait is over; before it, every earlier attempt is superseded."""
    for guard in rollback.guards():
        guard.note(deleting=True)

    def late() -> None:
        for guard in rollback.guards():
            with pytest.raises(Superseded, match="superseded by"):
                guard.require()

    rollback.on_wait = late
    rollback.run()
    assert rollback.waits == 1
    assert not any(guard.read() for guard in rollback.guards())


def test_nothing_is_awaited_without_deletions(rollback: _Rollback) -> None:
    """A rollback of namespaces without terminated topics on green ends at once."""
    rollback.run()
    assert rollback.waits == 0

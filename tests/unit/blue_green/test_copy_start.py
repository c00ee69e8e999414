"""The start of a copy whose record has no entries yet."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from activities.blue_green.copy import subscription_copy
from activities.blue_green.copy.subscription_copy import SubscriptionCopy, has_uncopied_entries
from clients.errors import StoreConflict, StoreContention
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import CursorStats
from clients.pulsar.names import TopicName
from spark.blue_green.copy_record import CopyRecord, copy_record
from spark.blue_green.positions import LedgerLength
from spark.blue_green.tasks import read_record
from tests.support.clients.memory_store import MemoryStore

_TOPIC = TopicName.parse("persistent://t/space/topic")
_PATH = copy_record(str(_TOPIC))
_IDLE = {_TOPIC: ("idle",)}


class _Copies:
    """Copies of one topic with six entries on blue, whose record says that an earlier attempt started in the middle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, on_green: tuple[LedgerLength, ...] | None) -> None:
        self.store = MemoryStore()
        self.store.create(_PATH, CopyRecord(start=(1, 3)).encode())

        def read_managed_ledger(side: str, _topic: TopicName) -> tuple[Any, tuple[LedgerLength, ...]]:
            if side == "blue":
                cursor = CursorStats.model_validate({"markDeletePosition": "1:-1"})
                return SimpleNamespace(cursors={"idle": cursor}, ledgers=()), (LedgerLength(1, 6),)
            if on_green is None:
                raise AdminNotFound("no such topic", method="GET", url="")
            return None, on_green

        def open_cas(*_: object) -> MemoryStore:
            return self.store

        monkeypatch.setattr(subscription_copy, "read_managed_ledger", read_managed_ledger)
        monkeypatch.setattr(subscription_copy, "open_cas", open_cas)

    def attempt(self, fence: Callable[[], None] = lambda: None) -> SubscriptionCopy:
        """Return the copy of an attempt."""
        double: Any = SimpleNamespace(store=None, access=None)
        sides: dict[str, Any] = {"blue": "blue", "green": "green"}
        nothing: Any = None
        return SubscriptionCopy(
            engine=nothing, tag="", ends=double, fence=fence, check=lambda: None, progress=nothing, **sides
        )

    def record(self) -> CopyRecord | None:
        """Return the record."""
        recorded = read_record(self.store, _TOPIC)
        return recorded and recorded.record


@pytest.mark.parametrize("on_green", [(), None])
def test_the_copy_starts_again_if_green_is_empty(
    monkeypatch: pytest.MonkeyPatch, on_green: tuple[LedgerLength, ...] | None
) -> None:
    """It starts where the subscriptions that are idle now need it; if none is idle, nothing is copied."""
    copies = _Copies(monkeypatch, on_green)
    assert has_uncopied_entries(copies.attempt(), _IDLE)
    assert copies.record() == CopyRecord(start=(1, -1))
    assert not has_uncopied_entries(copies.attempt(), {_TOPIC: ()})
    assert copies.record() is None


def test_the_record_stays_if_green_has_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be copies that a lost attempt did not record, which start where the record says."""
    copies = _Copies(monkeypatch, (LedgerLength(5, 2),))
    with pytest.raises(StoreConflict, match="from before the start of the copy"):
        has_uncopied_entries(copies.attempt(), _IDLE)
    assert copies.record() == CopyRecord(start=(1, 3))


def test_a_frozen_attempt_does_not_change_the_next_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It read the record of the copy before, froze before its write, and finds a record that has another version."""
    copies = _Copies(monkeypatch, ())
    recorded = copies.attempt().record(_TOPIC)
    assert recorded is not None

    def start_again() -> None:
        has_uncopied_entries(copies.attempt(), _IDLE)
        if copies.record() is None:
            # As the first task of the copy does.
            copies.store.create(_PATH, CopyRecord(start=(1, -1)).encode())

    with pytest.raises(StoreContention):
        copies.attempt(start_again).note(_TOPIC, recorded, compared=6)
    assert copies.record() == CopyRecord(start=(1, -1))

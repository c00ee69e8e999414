"""The start of a copy whose record has no entries yet."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.copy import subscription_copy
from activities.blue_green.copy.subscription_copy import SubscriptionCopy, has_uncopied_entries
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import CursorStats
from clients.pulsar.names import TopicName
from spark.blue_green.copy_record import CopyRecord
from spark.blue_green.positions import LedgerLength
from spark.blue_green.tasks import Recorded

_TOPIC = TopicName.parse("persistent://t/space/topic")
_IDLE = {_TOPIC: ("idle",)}


def _forgotten(monkeypatch: pytest.MonkeyPatch, on_green: tuple[LedgerLength, ...] | None) -> list[TopicName]:
    """Check a subscription with messages from before the start; return the topics whose records were deleted."""
    forgotten: list[TopicName] = []

    def read_managed_ledger(side: str, _topic: TopicName) -> tuple[Any, tuple[LedgerLength, ...]]:
        if side == "blue":
            cursor = CursorStats.model_validate({"markDeletePosition": "1:-1"})
            return SimpleNamespace(cursors={"idle": cursor}, ledgers=()), (LedgerLength(1, 6),)
        if on_green is None:
            raise AdminNotFound("no such topic", method="GET", url="")
        return None, on_green

    def forget_copy(_store: object, topic: TopicName, _fence: object) -> None:
        forgotten.append(topic)

    def open_cas(*_: object) -> Any:
        return nullcontext()

    def record(_topic: TopicName) -> Recorded:
        return Recorded(CopyRecord(start=(1, 3)), 0)

    for name, double in (
        ("read_managed_ledger", read_managed_ledger),
        ("forget_copy", forget_copy),
        ("open_cas", open_cas),
    ):
        monkeypatch.setattr(subscription_copy, name, double)
    ends = SimpleNamespace(store=None, access=None)
    copy = SimpleNamespace(blue="blue", green="green", ends=ends, fence=None, record=record)
    assert has_uncopied_entries(cast("SubscriptionCopy", copy), _IDLE)
    return forgotten


@pytest.mark.parametrize("on_green", [(), None])
def test_the_record_is_forgotten_if_green_is_empty(
    monkeypatch: pytest.MonkeyPatch, on_green: tuple[LedgerLength, ...] | None
) -> None:
    """The copy starts where the subscriptions that are idle now need it."""
    assert _forgotten(monkeypatch, on_green) == [_TOPIC]


def test_the_record_stays_if_green_has_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be copies that a lost attempt did not record, which start where the record says."""
    with pytest.raises(StoreConflict, match="from before the start of the copy"):
        _forgotten(monkeypatch, (LedgerLength(5, 2),))

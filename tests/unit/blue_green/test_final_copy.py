"""The final copy right before the flag, and attempts at it that were lost."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import namespace_redirect
from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.copy import backlogs
from clients.cas.store import CasStore
from clients.errors import StoreUnreachable
from clients.pulsar.names import TopicName
from models.blue_green.claims import Stage
from models.blue_green.copies import CopyFigures, CopyProof, CursorFigures, FinalCopy
from models.blue_green.input import IdleSubscriptions

_RUN = "run-1"


class _Batch:
    """A namespace whose final copy is done, as its guard and its record."""

    namespace = "t/space"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copied_in, self.stage, self.skipped = _RUN, Stage.FLIPPED, False
        self.has_uncopied_entries = self.is_lost = False

        def idle(*_: object) -> dict[object, Any]:
            return {self: {}}

        def nothing(*_: object, **_more: object) -> tuple[()]:
            return ()

        def has_uncopied_entries(*_: object) -> bool:
            return self.has_uncopied_entries

        def copy_tail(*_: object) -> CopyFigures:
            self.has_uncopied_entries = False
            return CopyFigures()

        def place_cursors(*_: object) -> CursorFigures:
            if self.is_lost:
                raise StoreUnreachable("the worker is lost")
            return CursorFigures()

        def compare_cursors(*_: object) -> CopyProof:
            return CopyProof()

        monkeypatch.setattr(backlogs, "_idle", idle)
        monkeypatch.setattr(backlogs, "_still_idle", nothing)
        monkeypatch.setattr(backlogs, "_copy_of", nothing)
        monkeypatch.setattr(backlogs, "has_uncopied_entries", has_uncopied_entries)
        monkeypatch.setattr(backlogs, "copy_tail", copy_tail)
        monkeypatch.setattr(backlogs, "compare_entries", nothing)
        monkeypatch.setattr(backlogs, "place_cursors", place_cursors)
        monkeypatch.setattr(backlogs, "compare_cursors", compare_cursors)

    def repeat(self) -> FinalCopy | None:
        """Run the next attempt."""
        attempt = SimpleNamespace(run_id=_RUN)
        task = SimpleNamespace(input=SimpleNamespace(quiesce_timeout=timedelta(minutes=1)), attempt=attempt)
        return backlogs.repeat_final_copy(
            cast("AnyBlueGreenTask", task), [cast("NamespaceGuard", self)], cast("CasStore", None)
        )

    def require(self) -> _Batch:
        """Return the record."""
        return self

    def note(self, *, copied_in: str) -> None:
        """Change the record."""
        self.copied_in = copied_in


def test_nothing_is_repeated_without_new_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The final copy in QUIESCE is enough."""
    assert _Batch(monkeypatch).repeat() is None


def test_a_copy_that_was_lost_before_its_end_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attempt may have placed a cursor after the copy, for a consumer that has left since."""
    batch = _Batch(monkeypatch)
    batch.has_uncopied_entries = batch.is_lost = True
    with pytest.raises(StoreUnreachable):
        batch.repeat()
    assert batch.copied_in == ""
    assert not batch.has_uncopied_entries
    batch.is_lost = False
    assert batch.repeat() is not None
    assert batch.copied_in == _RUN
    assert batch.repeat() is None


@pytest.mark.parametrize(
    ("stage", "skipped", "ended", "copied"),
    [
        (Stage.FLIPPED, False, False, True),
        (Stage.FLIPPED, True, False, False),
        (Stage.FLIPPED, False, True, False),
        (Stage.CLAIMED, False, True, True),
    ],
)
def test_which_backlogs_are_copied_again(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, *, skipped: bool, ended: bool, copied: bool
) -> None:
    """Nothing is copied again once DRAIN has skipped a backlog, or the flip has terminated a topic.

    The cursor on blue would acknowledge the skipped messages on green, and clients may use green already: a copy that
    fails there would leave DRAIN waiting for backlogs that green has.
    """
    topic, find_idle = TopicName.parse("persistent://t/space/topic"), backlogs._idle  # pyright: ignore[reportPrivateUsage]

    def topics(*_: object) -> list[TopicName]:
        return [topic]

    def no_flag(*_: object) -> bool:
        return False

    def is_ended(*_: object) -> bool:
        return ended

    def no_clients(*_: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr(backlogs, "topics_of", topics)
    monkeypatch.setattr(backlogs, "recorded_copies", topics)
    monkeypatch.setattr(namespace_redirect, "read_flag", no_flag)
    monkeypatch.setattr(namespace_redirect, "has_terminated_topics", is_ended)
    monkeypatch.setattr(backlogs, "saved_clients", no_clients)
    batch = _Batch(monkeypatch)
    batch.stage, batch.skipped = stage, skipped
    guard = cast("NamespaceGuard", batch)
    wanted = SimpleNamespace(idle_subscriptions=IdleSubscriptions.COPY)
    task = cast("AnyBlueGreenTask", SimpleNamespace(input=wanted, blue=SimpleNamespace(admin=None)))
    idle = find_idle(task, [guard], cast("CasStore", None))
    assert [*idle.values()] == ([{topic: ()}] if copied else [])

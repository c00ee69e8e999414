"""How long PREPARATION waits for participants, with doubles of the stores and of the clock."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from temporalio.exceptions import ApplicationError

from activities.metadata_store import preparation
from activities.metadata_store.preparation import prepare
from tests.support.bookie_cluster.in_memory import answering


class Scene:
    """A clock, and participants that are missing for some of its seconds after the flag was set.

    Attributes:
        missing: for so many seconds.
    """

    def __init__(self, missing: float) -> None:
        self.missing = missing
        self.now, self.blocked = 0.0, 0.0

    def answer(self) -> None:
        """Answer as a broker, after almost all the available time."""
        self.now += 50.0

    def block(self, *_: object, **__: object) -> Any:
        """Set the flag."""
        self.blocked = self.now
        return SimpleNamespace(since_ms=0, claim=SimpleNamespace(mark_of=None))

    def pause(self, _: float) -> None:
        """Advance the clock by a second."""
        self.now += 1.0

    def readiness(self, *_: object) -> Any:
        """Return the participants that are missing."""
        missing = "participants one" if self.now - self.blocked < self.missing else ""
        return SimpleNamespace(missing=missing, only_unknown_clients=False, ephemerals=3)


def prepared(monkeypatch: pytest.MonkeyPatch, missing: float) -> int:
    """Return the number of recreated ephemerals, if participants were missing for so many seconds."""
    scene = Scene(missing)
    able, flag, task = MagicMock(), MagicMock(), MagicMock()
    able.require = scene.answer
    flag.is_at_phase.return_value = False
    flag.advance = scene.block
    task.flag = lambda: nullcontext(flag)
    task.input.preparation_timeout = timedelta(seconds=110)
    task.context.pause, task.context.waited = scene.pause, 0.0
    monkeypatch.setattr(preparation, "_able_brokers", answering(lambda: able))
    for name in ("require_covered", "require_no_indexed", "_stop_lost_tasks", "not_caught_up"):
        monkeypatch.setattr(preparation, name, answering(str))
    monkeypatch.setattr(preparation, "write_marks", answering(dict[int, int]))
    monkeypatch.setattr(preparation, "_watch_or_scan", answering(lambda: None))
    monkeypatch.setattr(preparation, "open_reader", answering(nullcontext))
    monkeypatch.setattr(preparation, "_readiness", scene.readiness)
    monkeypatch.setattr(preparation, "time", SimpleNamespace(monotonic=lambda: scene.now))
    return prepare(task).ephemerals


def test_participants_have_their_time_from_the_flag_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that passes before writes are blocked does not shorten the time that participants get."""
    assert prepared(monkeypatch, missing=105.0) == 3
    with pytest.raises(ApplicationError, match="not ready: participants one"):
        prepared(monkeypatch, missing=115.0)

"""The wait for old messages of a topic that is scalable."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.lifecycle.context import ActivityContext
from activities.scalable_topic import drain


def test_the_wait_ends_by_the_clock_of_temporal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose clock is hours ahead waits as long as any other one."""
    scheduled, begun = datetime(2020, 1, 1, tzinfo=UTC), time.monotonic()

    def nothing(*_: object) -> None:
        pass

    def guard(*_: object) -> SimpleNamespace:
        return SimpleNamespace(read=nothing)

    def delay(_: float) -> float:
        return 0.02

    def backlogs(_: object) -> dict[str, int]:
        return {"slow": 5}

    task = SimpleNamespace(
        context=ActivityContext(scheduled=scheduled),
        name="t/n/a",
        cluster=SimpleNamespace(store=nullcontext),
        topic_guard=guard,
        find_topic=nothing,
    )
    monkeypatch.setattr(drain, "old_messages", backlogs)
    monkeypatch.setattr(drain, "next_poll_delay", delay)
    drained = drain.drain(cast("Any", task), scheduled + timedelta(seconds=0.2))
    assert time.monotonic() - begun >= 0.19
    assert drained.backlogs == {"slow": 5}

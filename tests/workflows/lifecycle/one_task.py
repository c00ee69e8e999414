"""Requests that a workflow gets in one task, as when its worker is busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.workflows.lifecycle.harness import Run
from workflows.lifecycle.status import StatusBoard

# Less than the two seconds after which the SDK takes a task for a deadlock.
_LONGEST_TASK = 1.5
_ARRIVES = 0.3


@asynccontextmanager
async def in_one_task(run: Run, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """Keep a task of a migration running during the block: its next task gets all that is sent there."""
    note, entered, released = StatusBoard.note, threading.Event(), threading.Event()

    def slow(self: StatusBoard, text: str, **fields: Any) -> None:
        if "unknown signal" in text and not entered.is_set():
            entered.set()
            released.wait(_LONGEST_TASK)
        note(self, text, **fields)

    with monkeypatch.context() as patched:
        patched.setattr(StatusBoard, "note", slow)
        await run.handle.signal("wait")
        await asyncio.to_thread(entered.wait)
        yield
        # An update has no answer before the server has it.
        await asyncio.sleep(_ARRIVES)
        released.set()

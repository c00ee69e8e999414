"""Reports of an item to the migration of its waves: whether the stop switch holds it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from temporalio import workflow

from models.lifecycle.policy import VerbState
from models.lifecycle.status import ProgressReport, Waiting, WaitKind, WaitReason
from models.metadata_store.input import KIND
from models.metadata_store.phases import Phase
from models.metadata_store.state import MetadataStoreState
from workflows.lifecycle import status
from workflows.metadata_store.policy import POLICIES

STOP = WaitReason(kind=WaitKind.STOP_SWITCH, why="the stop switch is set: OPS-1")


class _Parent:
    """Takes signals in the order in which they are sent, and acknowledges them when the test lets it."""

    def __init__(self) -> None:
        self.taken: list[WaitKind | None] = []
        self.acknowledges = asyncio.Event()

    async def signal(self, name: str, report: ProgressReport) -> None:
        """Take a report."""
        assert name == "report_progress"
        self.taken.append(report.waiting and report.waiting.kind)
        await self.acknowledges.wait()


def _board(monkeypatch: pytest.MonkeyPatch, parent: _Parent, state: MetadataStoreState) -> status.StatusBoard:
    """Return the board of an item whose reports the parent gets."""
    info = SimpleNamespace(
        workflow_id="blue-green/prod/acme",
        first_execution_run_id="1",
        parent=SimpleNamespace(workflow_id="p", run_id="2"),
    )
    doubles: dict[str, Any] = {
        "info": lambda: info,
        "now": lambda: datetime(2026, 1, 1, tzinfo=UTC),
        "set_current_details": Mock(),
        "get_external_workflow_handle": Mock(return_value=parent),
    }
    for name, double in doubles.items():
        monkeypatch.setattr(workflow, name, double)
    monkeypatch.setattr(status, "log", Mock())
    return status.StatusBoard(state, kind=KIND, cluster="prod", target="target", first=Phase.PRECHECK)


async def test_a_report_is_sent_after_the_previous_one_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal delivers signals that are under way together in any order: the end of a stop may not overtake it."""
    parent = _Parent()
    state = MetadataStoreState(verbs=VerbState(policy=POLICIES[Phase.PRECHECK]))
    board = _board(monkeypatch, parent, state)
    for waiting in (STOP, STOP, None):
        board.activity_reports(ProgressReport(waiting=waiting))
    for _ in range(10):
        await asyncio.sleep(0)
    assert parent.taken == [WaitKind.STOP_SWITCH]
    parent.acknowledges.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert parent.taken == [WaitKind.STOP_SWITCH, None]


async def test_a_run_reports_the_stop_of_the_previous_run_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that ends in a later run of an item than the one in which it began is reported as ended."""
    parent = _Parent()
    parent.acknowledges.set()
    state = MetadataStoreState(verbs=VerbState(policy=POLICIES[Phase.PRECHECK]))
    state.activity_waiting = Waiting(**STOP.model_dump(), since=datetime(2026, 1, 1, tzinfo=UTC))
    board = _board(monkeypatch, parent, state)
    for waiting in (STOP, None):
        board.activity_reports(ProgressReport(waiting=waiting))
    for _ in range(10):
        await asyncio.sleep(0)
    assert parent.taken == [WaitKind.STOP_SWITCH, None]

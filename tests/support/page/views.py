"""Views of migrations in each phase, and at their ends, as saved histories have them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from models.lifecycle.report import Report
from page.guide import BATCH, guides
from tests.histories.record import FOLDER
from tests.support.page.recorded import Recorded, statuses
from views.listing import Listed
from views.migration import Failure, View
from worker.catalog import KINDS

HISTORIES = tuple(file.stem for file in sorted(FOLDER.glob("*.json")) if not file.stem.startswith("topic-controller"))
"""Histories of migrations."""

LATER = timedelta(seconds=3)
"""Time between a state and the page that shows it."""

_CHILDREN = {"blue-green": "blue-green-batch", "scalable-namespace": "scalable-topic-of-many"}


def view_of(recorded: Recorded, **fields: Any) -> View:
    """Return what Temporal and a worker would have answered at that time."""
    history = recorded.status.history
    given: dict[str, Any] = {
        "workflow_id": recorded.workflow_id,
        "run_id": "run",
        "execution": "RUNNING",
        "started": history[0].started if history else recorded.at,
        "closed": None,
        "phase": recorded.status.phase,
        "status": recorded.status,
        "silence": "",
        "steps": [],
        "report": None,
        "failure": None,
    }
    return View.model_validate({**given, **fields})


def kind_of(name: str) -> str:
    """Return the kind of a history, by its file's name; parts of a blue-green migration have one of their own."""
    if name.startswith(BATCH):
        return BATCH
    return next(kind for kind in KINDS if name.startswith(kind))


@cache
def running() -> Mapping[str, tuple[View, datetime]]:
    """Return views by kind, phase and reason to wait, with the time of the page."""
    views: dict[str, tuple[tuple[bool, ...], Recorded, str]] = {}
    for name in HISTORIES:
        kind = kind_of(name)
        for recorded in statuses(name):
            waiting = recorded.status.waiting
            key = f"{kind}/{recorded.status.phase}/{waiting.kind if waiting else 'works'}"
            # The last state in which most happens: the phase runs, items of a fleet run, and a verb ends the wait.
            rank = (_phase_runs(recorded), _items_run(recorded), _can_be_ended(recorded))
            if key not in views or rank >= views[key][0]:
                views[key] = (rank, recorded, kind)
    return {
        key: (view_of(recorded, **_parts(kind, recorded)), recorded.at + LATER)
        for key, (_, recorded, kind) in views.items()
    }


def _phase_runs(recorded: Recorded) -> bool:
    return bool(recorded.status.history) and recorded.status.history[-1].ended is None


def _can_be_ended(recorded: Recorded) -> bool:
    waiting = recorded.status.waiting
    return waiting is not None and not {*waiting.ends_on}.isdisjoint(recorded.status.legal_verbs)


def _items_run(recorded: Recorded) -> bool:
    progress = recorded.status.progress
    return progress is not None and "running" in progress.detail


PHASES = tuple((kind, phase) for kind, guide in guides().items() for phase in (*guide.phases, *guide.rollback))
"""All phases of all kinds."""


def running_in(kind: str, phase: str) -> list[tuple[View, datetime]]:
    """Return the views of one phase: one for each reason to wait, and one that waits for nothing."""
    views = [view for name, view in running().items() if name.startswith(f"{kind}/{phase}/")]
    assert views, f"no saved history goes through {phase} of {kind}"
    return views


@cache
def ended() -> Mapping[str, tuple[View, datetime]]:
    """Return the view of each migration at its end, by the name of its history."""
    return {name: _end(name) for name in HISTORIES}


def listed(view: View) -> Listed:
    """Return a migration as the list has it."""
    assert view.status is not None
    return Listed(
        **view.model_dump(include={"workflow_id", "run_id", "execution", "phase", "silence", "started", "closed"}),
        **view.status.model_dump(include={"kind", "cluster", "target", "outcome", "waiting", "progress"}),
        failure="",
        since=view.started,
    )


def _parts(kind: str, recorded: Recorded) -> dict[str, Any]:
    """Return the running parts of a fleet, in one of their phases."""
    if kind not in _CHILDREN or not _items_run(recorded):
        return {}
    of_part = statuses(_CHILDREN[kind])
    child = view_of(of_part[len(of_part) // 2]).model_copy(update={"workflow_id": f"{recorded.workflow_id}/acme/audit"})
    return {"children": [child], "children_count": 1}


def _end(name: str) -> tuple[View, datetime]:
    last = json.loads((FOLDER / f"{name}.json").read_text())["events"][-1]
    recorded = statuses(name)[-1]
    at = datetime.fromisoformat(last["eventTime"])
    if completed := last.get("workflowExecutionCompletedEventAttributes"):
        data = base64.b64decode(completed["result"]["payloads"][0]["data"])
        report = _report(json.loads(data))
        return view_of(recorded, execution="COMPLETED", closed=at, report=report), at + LATER
    if "workflowExecutionCanceledEventAttributes" in last:
        failure = Failure(kind="CancelledError", message="Workflow cancelled")
        return view_of(recorded, execution="CANCELED", closed=at, failure=failure), at + LATER
    failed = last["workflowExecutionFailedEventAttributes"]["failure"]
    failed = failed if "applicationFailureInfo" in failed else failed.get("cause", failed)
    kind = failed.get("applicationFailureInfo", {}).get("type", "CancelledError")
    failure = Failure(kind=kind, message=failed.get("message", ""))
    return view_of(recorded, execution="FAILED", closed=at, failure=failure), at + LATER


def _report(result: dict[str, Any]) -> Report | None:
    # A part returns the outcome of its items, and no report.
    return Report.model_validate(result) if "outcome" in result else None

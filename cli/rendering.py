"""Views of migrations as text: plain lines for pipes, and a screen for terminals."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.view import View
from models.lifecycle.failures import failed_lines
from models.lifecycle.report import Report
from models.lifecycle.status import PhaseEntry

_HEADER = ("phase", "outcome", "seconds", "undo", "note")


def lines(view: View) -> list[str]:
    """Everything, in plain lines."""
    return [_head(view), *(_phase_line(row) for row in _rows(view)), *_rest(view)]


def screen(view: View) -> Group:
    """The same for a terminal."""
    table = Table(*_HEADER, box=None, pad_edge=False, show_header=bool(_rows(view)))
    for row in _rows(view):
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(_head(view), style="bold"), table, *(Text(line) for line in _rest(view)))


def headline(view: View) -> str:
    """One line for a log; equal as long as nothing happens."""
    status = view.status
    parts = [view.workflow_id, status.outcome if status and not view.ended else view.execution.lower()]
    parts.append(status.phase if status else view.phase)
    if status and status.progress:
        parts.append(str(status.progress))
    if status and status.waiting:
        parts.append(f"waits for {status.waiting.why}")
    parts += [
        f"{step.name}: attempt {step.attempt}, last: {step.last_failure}" for step in view.steps if step.attempt > 1
    ]
    parts += [view.silence] if view.silence else []
    return " | ".join(part for part in parts if part)


def ending(view: View) -> list[str]:
    """How it ended; nothing while it runs."""
    if view.report:
        return report_lines(view.report)
    if view.failure:
        return [f"failed     {view.failure.kind}: {view.failure.message}"]
    return []


def report_lines(report: Report) -> list[str]:
    """A report without its history."""
    named = [("figure", report.figures), ("certificate", report.certificate)]
    listed = [f"{title:<10} {name} = {value}" for title, values in named for name, value in values.items()]
    failed = [f"failed     {item}" for item in failed_lines(report.failed_items)]
    return [f"result     {report.outcome}: {report.summary}", *listed, *failed]


def _head(view: View) -> str:
    status = view.status
    if status is None:
        return f"{view.workflow_id} | {view.execution} | {view.phase or 'phase unknown'}"
    paused = " | PAUSED" if status.paused else ""
    return f"{view.workflow_id} → {status.target} | {view.execution} | {status.phase}{paused}"


def _rows(view: View) -> list[tuple[str, ...]]:
    history: list[PhaseEntry] = view.status.history if view.status else view.report.history if view.report else []
    now = datetime.now(UTC)
    return [
        (entry.phase, entry.outcome.value, f"{entry.seconds(now):.1f}", entry.undo.value, entry.note)
        for entry in history
    ]


def _phase_line(row: tuple[str, ...]) -> str:
    phase, outcome, seconds, undo, note = row
    return f"phase      {phase:<12} {outcome:<11} {seconds:>9} s  undo: {undo}  {note}".rstrip()


def _rest(view: View) -> list[str]:
    found: list[str] = [f"silence    {view.silence}"] if view.silence else []
    status = view.status
    if status:
        found += [f"ALARM      {alarm}" for alarm in status.alarms]
    if status and not view.ended:
        if status.progress:
            found.append(f"progress   {status.progress}; as of {status.progress.as_of.astimezone(UTC):%H:%M:%S}Z")
        if wait := status.waiting:
            until = f", until {_time(wait.until)}" if wait.until else ""
            ends = f"; ends on: {', '.join(wait.ends_on)}" if wait.ends_on else ""
            found.append(f"waits for  {wait.why}, since {_time(wait.since)}{until}{ends}")
            found += [f"please     {wait.action}"] if wait.action else []
        found += [f"deadline   {name}: {_time(at)}" for name, at in status.deadlines.items()]
        found.append(f"way back   {status.undo}: {status.undo_cost}")
        found.append(f"verbs now  {', '.join(status.legal_verbs) or 'none'}")
    found += [_step_line(view, number) for number in range(len(view.steps))]
    if status:
        found += [] if view.report else [f"failed     {item}" for item in failed_lines(status.failed_items)]
        found += [f"note       {note}" for note in status.notes[-10:]]
    return found + ending(view)


def _step_line(view: View, number: int) -> str:
    step = view.steps[number]
    again = f", next attempt {_time(step.next_attempt)}" if step.next_attempt else ""
    failure = f", last failure: {step.last_failure}" if step.last_failure else ""
    return f"step       {step.name}: attempt {step.attempt}{again}{failure}"


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"

"""Views of migrations as text: plain lines for pipes, and a screen for terminals."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from models.coverage.results import FeatureUse
from models.lifecycle.failures import failed_lines
from models.lifecycle.report import Report
from models.lifecycle.status import RESUME_IT, CutoverPlan, HookStatus, PhaseEntry, Progress, Status, Waiting
from models.lifecycle.units import Quantity, Unit, format_value
from models.lifecycle.verbs import ApprovalRequest
from models.text import one_line, printable
from views.migration import Step, View
from views.values import described
from worker.catalog import KINDS

NOTES = 10
"""Most notes that are shown, the newest ones."""

_BAR = 40
_TIME = Unit(Quantity.TIME)
_HEADER = ("phase", "outcome", "time", "undo", "note")
_STYLES = {"ALARM": "bold red", "do now": "bold yellow", "failed": "red"}

Line = tuple[str, str]
"""Label and text of a line."""


def lines(view: View) -> list[str]:
    """Return the whole view as plain lines."""
    return [
        one_line(_head(view)),
        *map(_plain, _now(view)),
        *(_phase_line(row) for row in _rows(view)),
        *map(_plain, _rest(view)),
    ]


def screen(view: View) -> Group:
    """Return the whole view for a terminal."""
    table = Table(*_HEADER, box=None, pad_edge=False, show_header=bool(_rows(view)))
    table.columns[2].justify = "right"
    for row in _rows(view):
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return Group(Text(one_line(_head(view)), style="bold"), _bars(view), _grid(_now(view)), table, _grid(_rest(view)))


def _bars(view: View) -> Table:
    """Return a bar for the progress of a migration that runs, and one for each of its running parts."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=10, no_wrap=True)
    grid.add_column(width=_BAR)
    grid.add_column(overflow="fold")
    for name, progress in _progress(view):
        share = 100 * progress.done / progress.total if progress.total else 0
        # Rich's own colour for an unfinished bar is the red of our alarms.
        bar = ProgressBar(progress.total or 1, progress.done, width=_BAR, complete_style="blue", finished_style="green")
        grid.add_row(Text(""), bar, Text(one_line(f"{share:.0f} %{name}")))
    return grid


def _progress(view: View) -> list[tuple[str, Progress]]:
    """Return what is counted and has a total, with the name of the part that it belongs to."""
    views = {"": view}
    views |= {f"  {child.workflow_id.removeprefix(f'{view.workflow_id}/')}": child for child in view.children}
    counted = [(name, each.status.progress) for name, each in views.items() if each.status and not each.ended]
    return [(name, progress) for name, progress in counted if progress and progress.total]


def headline(view: View) -> str:
    """Return one line for a log; it is the same as long as nothing happens."""
    status = view.status
    parts = [view.workflow_id, status.outcome if status and not view.ended else view.execution.lower()]
    parts.append(status.phase if status else view.phase)
    if status and not view.ended:
        parts += [str(status.progress)] if status.progress else []
        parts += [f"do now: {action}"] if (action := _action(status)) else []
        parts += [f"waits for {status.waiting.why}"] if status.waiting else []
    parts += [
        f"{step.name}: attempt {step.attempt}, last: {step.last_failure}" for step in view.steps if step.attempt > 1
    ]
    parts += [view.silence] if view.silence else []
    parts += map(headline, view.children)
    return one_line(" | ".join(text for text in parts if text))


def ending(view: View) -> list[str]:
    """Return how the migration ended; nothing while it runs."""
    return [_plain(line) for line in _ending(view)]


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago a time was, in whole seconds."""
    seconds = round((now - at).total_seconds())
    return f"{_TIME.format(seconds)} ago" if seconds > 0 else "just now"


def _plain(line: Line) -> str:
    # The lines of a long text are indented, so that none of them looks like one of ours.
    text = printable(line[1]).replace("\n", f"\n{'':<11}")
    return f"{line[0]:<10} {text}"


def _grid(rows: list[Line]) -> Table:
    """Return lines with their labels on the left and their texts folded."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=10, no_wrap=True)
    grid.add_column(overflow="fold")
    for about, text in rows:
        grid.add_row(Text(about), Text(printable(text)), style=_STYLES.get(about, ""))
    return grid


def _head(view: View) -> str:
    status = view.status
    if status is None:
        return f"{view.workflow_id} | {view.execution} | {view.phase or 'phase unknown'}"
    paused = " | PAUSED" if status.paused else ""
    return f"{view.workflow_id} → {status.target} | {view.execution} | {status.phase}{paused}"


def _now(view: View) -> list[Line]:
    """Return the most urgent lines: alarms, what the operator must do, what is waited for, and progress."""
    now = datetime.now(UTC)
    rows: list[Line] = [("silence", view.silence)] if view.silence else []
    status = view.status
    if status:
        rows += [("ALARM", alarm) for alarm in status.alarms]
        rows += [_hook(hook, now) for hook in status.hooks if hook.failing_since or hook.lost]
    if status and not view.ended:
        rows += _asked(status.request, now) if status.request else []
        rows += [("do now", action)] if (action := _action(status)) else []
        rows += _waits(status.waiting, now) if status.waiting else []
        if status.progress:
            rows.append(("progress", f"{status.progress}; {ago(status.progress.as_of, now)}"))
        if view.outlook:
            rows.append(("ahead", str(view.outlook)))
    return [*rows, *(_step(step, now) for step in view.steps), *_children(view)]


def _hook(hook: HookStatus, now: datetime) -> Line:
    failing = f", failing since {format_value(hook.failing_since)}" if hook.failing_since else ""
    age = f" ({ago(hook.failing_since, now)}): {hook.error}" if hook.failing_since else ""
    lost = f", {hook.lost:,} lost" if hook.lost else ""
    return "hook", f"{hook.name}: {hook.pending:,} events are not delivered{lost}{failing}{age}"


def _asked(request: ApprovalRequest, now: datetime) -> list[Line]:
    because = f" ({request.reason})" if request.reason else ""
    since = f"since {format_value(request.since)} ({ago(request.since, now)})"
    return [
        ("do now", f"as another person, give `approve` or `reject`: {request.effect}"),
        ("asked for", f"{request.verb} by {request.by}{because}, {since}"),
    ]


def _action(status: Status) -> str:
    """Return what the operator can do about the wait or the pause; empty for nothing."""
    # Paused already, while what runs ends first.
    during_pause = RESUME_IT if status.paused else ""
    return status.waiting.action if status.waiting else during_pause


def _waits(wait: Waiting, now: datetime) -> list[Line]:
    until = f", until {format_value(wait.until)}" if wait.until else ""
    ends = f"; ends on: {', '.join(wait.ends_on)}" if wait.ends_on else ""
    since = f"since {format_value(wait.since)} ({ago(wait.since, now)})"
    return [("waits for", f"{wait.why}, {since}{until}{ends}")]


def _step(step: Step, now: datetime) -> Line:
    again = ""
    if step.next_attempt:
        again = f", next attempt in {_TIME.format(max(0, round((step.next_attempt - now).total_seconds())))}"
    failure = f", last failure: {step.last_failure}" if step.last_failure else ""
    return "step", f"{step.name}: attempt {step.attempt}{again}{failure}"


def _children(view: View) -> list[Line]:
    """Return a line for each running child workflow; `status` with its id shows more of one."""
    rows: list[Line] = [("batch", headline(child)) for child in view.children]
    more = view.children_count - len(view.children)
    return [*rows, ("batch", f"and {more:,} more")] if more else rows


def _rows(view: View) -> list[tuple[str, ...]]:
    history: list[PhaseEntry] = view.status.history if view.status else view.report.history if view.report else []
    now = datetime.now(UTC)
    return [
        (entry.phase, entry.outcome.value, _TIME.format(entry.seconds(now)), entry.undo.value, entry.note)
        for entry in history
    ]


def _phase_line(row: tuple[str, ...]) -> str:
    phase, outcome, taken, undo, note = row
    return f"phase      {phase:<15} {outcome:<11} {taken:>12}  undo: {undo:<9}  {one_line(note)}".rstrip()


def _rest(view: View) -> list[Line]:
    status = view.status
    rows = _outlook(status) if status and not view.ended else []
    if status and not view.report:
        rows += [("failed", item) for item in failed_lines(status.failed_items)]
    if status:
        rows += _measured(status) if not view.report else []
        rows += _notes(status.notes)
    return rows + _ending(view)


def _outlook(status: Status) -> list[Line]:
    """Return what comes next, and what an operator can do about it."""
    rows: list[Line] = [
        ("deadline", f"{name}: {format_value(at)}{_time_until(at)}") for name, at in status.deadlines.items()
    ]
    if planned := _cutover(status.cutover):
        rows.append(("cut-over", planned))
    rows.append(("undo", f"{status.undo}: {status.undo_cost}"))
    rows.append(("verbs now", ", ".join(status.legal_verbs) or "none"))
    return rows


def _cutover(plan: CutoverPlan) -> str:
    """Return what holds the cut-over, and how to change that; empty if nothing does."""
    if plan.begun:
        return ""
    held = ["held until `proceed` (hold --off ends it)"] if plan.hold else []
    timed = [f"not before {format_value(plan.at)}{_time_until(plan.at)} (cutover-at changes it)"] if plan.at else []
    window = [f"in a change window: {plan.window} (change-windows changes it)"] if plan.window else []
    return ", ".join(held + timed + window)


def _measured(status: Status) -> list[Line]:
    """Return one line with the figures so far, without those that are zero."""
    texts = [text for _, text in _values(status.kind, {"figure": status.figures}, zeros=False)]
    return [("measured", "; ".join(texts))] if texts else []


def _time_until(at: datetime) -> str:
    seconds = round((at - datetime.now(UTC)).total_seconds())
    return f", in {_TIME.format(seconds)}" if seconds > 0 else ""


def _notes(notes: list[str]) -> list[Line]:
    hidden = len(notes) - NOTES
    earlier: list[Line] = [("note", f"… {hidden:,} earlier ones: -o json")] if hidden > 0 else []
    return [*earlier, *(("note", note) for note in notes[-NOTES:])]


def _ending(view: View) -> list[Line]:
    if view.report:
        return _report(view.report)
    return [("failed", f"{view.failure.kind}: {view.failure.message}")] if view.failure else []


def _report(report: Report) -> list[Line]:
    """Return the lines of a report without its history."""
    values = _values(report.kind, {"figure": report.figures, "certificate": report.certificate})
    failed = [("failed", item) for item in failed_lines(report.failed_items)]
    return [("result", f"{report.outcome}: {report.summary}"), *values, *_features(report.features), *failed]


def _features(uses: list[FeatureUse]) -> list[Line]:
    """Return the features in use by outcome; the JSON output also has their objects."""
    words = {use.feature: "accepted" if use.accepted else str(use.outcome) for use in uses}
    by_word = {word: [name for name, of in words.items() if of == word] for word in dict.fromkeys(words.values())}
    return [("features", f"{word}: {', '.join(names)}") for word, names in by_word.items()]


def _values(kind: str, groups: Mapping[str, dict[str, Any]], *, zeros: bool = True) -> list[Line]:
    """Return figures and facts, rounded and with units; the JSON output has exact values."""
    models = KINDS[kind].models if kind in KINDS else {}
    return [
        (title, str(value))
        for title, values in groups.items()
        for value in described(values, models.get(title), zeros=zeros)
    ]

"""Views of migrations as text: plain lines for pipes, and a screen for terminals."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pydantic
from pydantic import BaseModel
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.view import Step, View
from models.coverage.results import FeatureUse
from models.lifecycle.failures import failed_lines
from models.lifecycle.report import Report
from models.lifecycle.status import CutoverPlan, PhaseEntry, Status, Waiting
from models.lifecycle.units import Described, Quantity, Unit, describe, format_value
from worker.catalog import KINDS

NOTES = 10
"""Most notes that are shown; the newest ones."""

_TIME = Unit(Quantity.TIME)
_HEADER = ("phase", "outcome", "time", "undo", "note")
_STYLES = {"ALARM": "bold red", "do now": "bold yellow", "failed": "red"}

Line = tuple[str, str]
"""What a line is about, and its text."""


def lines(view: View) -> list[str]:
    """Everything, in plain lines."""
    return [
        _head(view),
        *map(_plain, _now(view)),
        *(_phase_line(row) for row in _rows(view)),
        *map(_plain, _rest(view)),
    ]


def screen(view: View) -> Group:
    """The same for a terminal."""
    table = Table(*_HEADER, box=None, pad_edge=False, show_header=bool(_rows(view)))
    table.columns[2].justify = "right"
    for row in _rows(view):
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(_head(view), style="bold"), _grid(_now(view)), table, _grid(_rest(view)))


def headline(view: View) -> str:
    """One line for a log; equal as long as nothing happens."""
    status = view.status
    parts = [view.workflow_id, status.outcome if status and not view.ended else view.execution.lower()]
    parts.append(status.phase if status else view.phase)
    if status and not view.ended:
        parts += [str(status.progress)] if status.progress else []
        parts += [f"do now: {status.waiting.action}"] if status.waiting and status.waiting.action else []
        parts += [f"waits for {status.waiting.why}"] if status.waiting else []
    parts += [
        f"{step.name}: attempt {step.attempt}, last: {step.last_failure}" for step in view.steps if step.attempt > 1
    ]
    parts += [view.silence] if view.silence else []
    parts += map(headline, view.children)
    return " | ".join(part for part in parts if part)


def ending(view: View) -> list[str]:
    """How it ended; nothing while it runs."""
    return [_plain(line) for line in _ending(view)]


def ago(at: datetime, now: datetime) -> str:
    """How long ago something was, in whole seconds."""
    seconds = round((now - at).total_seconds())
    return f"{_TIME.format(seconds)} ago" if seconds > 0 else "just now"


def _plain(line: Line) -> str:
    return f"{line[0]:<10} {line[1]}"


def _grid(found: list[Line]) -> Table:
    """Lines whose texts are folded beside what they are about."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=10, no_wrap=True)
    grid.add_column(overflow="fold")
    for about, text in found:
        grid.add_row(Text(about), Text(text), style=_STYLES.get(about, ""))
    return grid


def _head(view: View) -> str:
    status = view.status
    if status is None:
        return f"{view.workflow_id} | {view.execution} | {view.phase or 'phase unknown'}"
    paused = " | PAUSED" if status.paused else ""
    return f"{view.workflow_id} → {status.target} | {view.execution} | {status.phase}{paused}"


def _now(view: View) -> list[Line]:
    """What matters most: dangers, what the operator is asked to do, what is waited for, and how far it is."""
    now = datetime.now(UTC)
    found: list[Line] = [("silence", view.silence)] if view.silence else []
    status = view.status
    if status:
        found += [("ALARM", alarm) for alarm in status.alarms]
    if status and not view.ended:
        found += _waits(status.waiting, now) if status.waiting else []
        if status.progress:
            found.append(("progress", f"{status.progress}; {ago(status.progress.as_of, now)}"))
    return [*found, *(_step(step, now) for step in view.steps), *_children(view)]


def _waits(wait: Waiting, now: datetime) -> list[Line]:
    until = f", until {format_value(wait.until)}" if wait.until else ""
    ends = f"; ends on: {', '.join(wait.ends_on)}" if wait.ends_on else ""
    since = f"since {format_value(wait.since)} ({ago(wait.since, now)})"
    action: list[Line] = [("do now", wait.action)] if wait.action else []
    return [*action, ("waits for", f"{wait.why}, {since}{until}{ends}")]


def _step(step: Step, now: datetime) -> Line:
    again = ""
    if step.next_attempt:
        again = f", next attempt in {_TIME.format(max(0, round((step.next_attempt - now).total_seconds())))}"
    failure = f", last failure: {step.last_failure}" if step.last_failure else ""
    return "step", f"{step.name}: attempt {step.attempt}{again}{failure}"


def _children(view: View) -> list[Line]:
    """Child workflows that run, a line for each; `status` shows more of one of them by its id."""
    found: list[Line] = [("batch", headline(child)) for child in view.children]
    more = view.children_count - len(view.children)
    return [*found, ("batch", f"and {more:,} more")] if more else found


def _rows(view: View) -> list[tuple[str, ...]]:
    history: list[PhaseEntry] = view.status.history if view.status else view.report.history if view.report else []
    now = datetime.now(UTC)
    return [
        (entry.phase, entry.outcome.value, _TIME.format(entry.seconds(now)), entry.undo.value, entry.note)
        for entry in history
    ]


def _phase_line(row: tuple[str, ...]) -> str:
    phase, outcome, taken, undo, note = row
    return f"phase      {phase:<15} {outcome:<11} {taken:>12}  undo: {undo:<9}  {note}".rstrip()


def _rest(view: View) -> list[Line]:
    status = view.status
    found = _outlook(status) if status and not view.ended else []
    if status and not view.report:
        found += [("failed", item) for item in failed_lines(status.failed_items)]
    if status:
        found += _measured(status) if not view.report else []
        found += _notes(status.notes)
    return found + _ending(view)


def _outlook(status: Status) -> list[Line]:
    """What comes, and what an operator can do about it."""
    found: list[Line] = [
        ("deadline", f"{name}: {format_value(at)}{_left(at)}") for name, at in status.deadlines.items()
    ]
    if planned := _cutover(status.cutover):
        found.append(("cut-over", planned))
    found.append(("undo", f"{status.undo}: {status.undo_cost}"))
    found.append(("verbs now", ", ".join(status.legal_verbs) or "none"))
    return found


def _cutover(plan: CutoverPlan) -> str:
    """What holds the cut-over, and who can change that; empty where nothing does."""
    if plan.begun:
        return ""
    held = ["held until `proceed` (hold --off ends it)"] if plan.hold else []
    timed = [f"not before {format_value(plan.at)}{_left(plan.at)} (cutover-at changes it)"] if plan.at else []
    return ", ".join(held + timed)


def _measured(status: Status) -> list[Line]:
    """What was measured so far, in one line; what is still zero is left out."""
    texts = [text for _, text in _values(status.kind, {"figure": status.figures}, zeros=False)]
    return [("measured", "; ".join(texts))] if texts else []


def _left(at: datetime) -> str:
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
    """A report without its history."""
    values = _values(report.kind, {"figure": report.figures, "certificate": report.certificate})
    failed = [("failed", item) for item in failed_lines(report.failed_items)]
    return [("result", f"{report.outcome}: {report.summary}"), *values, *_features(report.features), *failed]


def _features(uses: list[FeatureUse]) -> list[Line]:
    """What the cluster used, by what became of it; in JSON each is told with its objects."""
    words = {use.feature: "accepted" if use.accepted else str(use.outcome) for use in uses}
    by_word = {word: [name for name, of in words.items() if of == word] for word in dict.fromkeys(words.values())}
    return [("features", f"{word}: {', '.join(names)}") for word, names in by_word.items()]


def _values(kind: str, told: Mapping[str, dict[str, Any]], *, zeros: bool = True) -> list[Line]:
    """Figures and the like, rounded and with their units; in JSON they are exact."""
    models = KINDS[kind].models if kind in KINDS else {}
    return [
        (title, str(one)) for title, values in told.items() for one in described(values, models.get(title), zeros=zeros)
    ]


def described(values: Mapping[str, Any], model: type[BaseModel] | None, *, zeros: bool = True) -> list[Described]:
    """Each value as text.

    Args:
        values: as a migration answered them, in JSON's types.
        model: what they are in this version; None if it is not known. A newer version may tell more.
        zeros: also numbers that are zero.
    """
    try:
        known = describe(model.model_validate(values), zeros=zeros) if model else []
    except pydantic.ValidationError:
        known, model = [], None
    fields = model.model_fields if model else {}
    others = [(name, value) for name, value in values.items() if name not in fields and value is not None]
    return [*known, *(_unknown(name, value) for name, value in others if value != 0 or zeros)]


def _unknown(name: str, value: object) -> Described:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Described(name, _label(name), format_value(value, _guessed(name)), is_number)


def _guessed(name: str) -> Unit | None:
    words = name.split("_")
    found = [quantity for quantity in (Quantity.TIME, Quantity.SIZE) if quantity.value in words]
    return Unit(found[0]) if found else None


def _label(name: str) -> str:
    words = [word for word in name.split("_") if word not in {Quantity.TIME.value, Quantity.SIZE.value}]
    return " ".join(words) or name

"""The state of a migration as Markdown, for the Web UI's current details."""

from __future__ import annotations

from datetime import datetime
from html import escape

from models.lifecycle.status import Outcome, Status

_MARKS = {
    Outcome.DONE: "✅",
    Outcome.DONE_WITH_FAILURES: "⚠️",
    Outcome.RUNNING: "▶️",
    Outcome.FAILED: "❌",
    Outcome.ROLLED_BACK: "↩️",
    Outcome.PLANNED: "📝",
}

_SHOWN = 8
"""Longest list on the one screen."""


def render(status: Status, now: datetime) -> str:
    """One screen: headline, phases, what is waited for, the way back and the last notes."""
    lines = [f"**{status.phase}** · {status.cluster} → `{status.target}` · {status.outcome}", ""]
    for alarm in status.alarms:
        lines += [f'🔴 <span style="color:red">**{escape(alarm)}**</span>', ""]
    lines += ["| | phase | seconds | undo | note |", "|---|---|---:|---|---|"]
    lines += [
        f"| {_MARKS[entry.outcome]} | {entry.phase} | {entry.seconds(now):.1f} | {entry.undo} | {_cell(entry.note)} |"
        for entry in status.history
    ]
    if status.waiting:
        until = f", until {status.waiting.until:%Y-%m-%d %H:%M:%S}Z" if status.waiting.until else ""
        ends = f"; ends on: {', '.join(status.waiting.ends_on)}" if status.waiting.ends_on else ""
        lines += ["", f"**Waits for** {status.waiting.why}, since {status.waiting.since:%H:%M:%S}Z{until}{ends}"]
        if status.waiting.action:
            lines += ["", f"**Please** {status.waiting.action}"]
    lines += ["", f"**Way back** ({status.undo}): {status.undo_cost}"]
    lines += ["", f"**Verbs now**: {', '.join(status.legal_verbs) or 'none'}"]
    if count := sum(failed.count for failed in status.failed_items):
        shown = [item for failed in status.failed_items for item in failed.items][:_SHOWN]
        lines += ["", f"**Failed** ({count:,})", "", *(f"- {' '.join(str(item).split())}" for item in shown)]
        lines += [f"- … and {count - len(shown):,} more"] if count > len(shown) else []
    if status.notes:
        lines += ["", "**Notes**", "", *(f"- {note}" for note in status.notes[-_SHOWN:])]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

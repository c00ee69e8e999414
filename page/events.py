"""Timeline of the page: what has happened to a migration, from its phases and notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from models.lifecycle.status import Outcome, PhaseEntry
from models.lifecycle.units import Quantity, Unit

_TIME = Unit(Quantity.TIME)
_DATED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)Z (.*)", re.DOTALL)


class Event(NamedTuple):
    """An event of the timeline.

    Attributes:
        at: its time; None if it is unknown.
        text: in words.
        kind: `phase`, `alarm`, `refused` or `note`.
    """

    at: datetime | None
    text: str
    kind: str


def events_of(history: Sequence[PhaseEntry], notes: Sequence[str]) -> list[Event]:
    """Return phases and notes as events, the newest first."""
    events = [Event(entry.started, _took(entry), "phase") for entry in history]
    events += [
        Event(entry.ended, f"{entry.phase} {entry.outcome}" + (f": {entry.note}" if entry.note else ""), "phase")
        for entry in history
        if entry.ended and (entry.note or entry.outcome is not Outcome.DONE)
    ]
    events += map(event_of, notes)
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(events, key=lambda event: event.at or oldest)[::-1]


def event_of(note: str) -> Event:
    """Return a note as an event."""
    dated = _DATED.fullmatch(note)
    at = datetime.strptime(dated[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if dated else None
    text = dated[2] if dated else note
    kind = "alarm" if text.startswith("🔴") else "refused" if " refused" in text else "note"
    return Event(at, text, kind)


def whole_seconds(seconds: float) -> float:
    """Return a time without fractions of a second, which matter only below ten seconds."""
    return seconds if seconds < 10 else round(seconds)


def _took(entry: PhaseEntry) -> str:
    return f"{entry.phase} started" + (
        f", took {_TIME.format(whole_seconds(entry.seconds(entry.ended)))}" if entry.ended else ""
    )

"""Change windows: when changes may start, by daily windows and dates; without a clock of its own.

Windows have fixed offsets from UTC, not named time zones. The rules of time zones come from a database that differs
between machines, and a replayed workflow must decide the same again.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from models.base import Frozen
from models.lifecycle.fields import Time

_DAY = timedelta(days=1)


class Weekday(StrEnum):
    """Days of the week, in the order of `date.weekday()`."""

    MONDAY = "mon"
    TUESDAY = "tue"
    WEDNESDAY = "wed"
    THURSDAY = "thu"
    FRIDAY = "fri"
    SATURDAY = "sat"
    SUNDAY = "sun"


_WEEKDAYS = tuple(Weekday)


def _checked_offset(text: str) -> str:
    match = re.fullmatch(r"[+-](\d\d):([0-5]\d)", text)
    # The widest offsets in use are -12:00 and +14:00.
    if match is None or int(match[1]) * 60 + int(match[2]) > 14 * 60:
        raise ValueError(f"invalid UTC offset {text!r}; expected an offset such as +02:00")
    return text


UtcOffset = Annotated[str, AfterValidator(_checked_offset)]
"""An offset from UTC such as `+02:00` or `-03:30`."""


def _checked_time(value: time) -> time:
    if value.tzinfo is not None:
        raise ValueError("give the offset from UTC in `utc_offset`")
    return value


LocalTime = Annotated[time, AfterValidator(_checked_time)]
"""A time of day such as `22:30`."""


class DailyWindow(Frozen):
    """A window of each day, from `start` until before `end`.

    Attributes:
        start: local time of day.
        end: local time of day; one of the next day if before `start`. Equal times mean 24 hours.
        utc_offset: of both times, all year.
        weekdays: the local days on which the window starts; all by default.
    """

    start: LocalTime
    end: LocalTime
    utc_offset: UtcOffset = "+00:00"
    weekdays: frozenset[Weekday] = frozenset(_WEEKDAYS)

    @model_validator(mode="after")
    def _has_days(self) -> Self:
        if not self.weekdays:
            raise ValueError("a window without weekdays is never open")
        return self

    @property
    def length(self) -> timedelta:
        """Time from start to end: more than zero, at most a day."""
        length = datetime.combine(date.min, self.end) - datetime.combine(date.min, self.start)
        return length if length > timedelta(0) else length + _DAY

    def is_open(self, at: datetime) -> bool:
        """Return whether an aware time is in the window."""
        start = self._last_start(at)
        return start is not None and at < start + self.length

    def next_opening(self, at: datetime) -> datetime:
        """Return the earliest time in the window, `at` or later, in UTC."""
        if self.is_open(at):
            return at.astimezone(UTC)
        today = at.astimezone(self._zone).date()
        # Eight days: today's window may have started before `at`, and the same weekday comes again after seven days.
        starts = (self._start(today + days * _DAY) for days in range(8))
        return next(start for start in starts if start is not None and start >= at)

    @property
    def _zone(self) -> timezone:
        hours, minutes = self.utc_offset[1:].split(":")
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return timezone(-offset if self.utc_offset.startswith("-") else offset)

    def _last_start(self, at: datetime) -> datetime | None:
        """Return the last start before a time: today's, or yesterday's of a window over midnight."""
        today = at.astimezone(self._zone).date()
        starts = (self._start(day) for day in (today, today - _DAY))
        return next((start for start in starts if start is not None and start <= at), None)

    def _start(self, day: date) -> datetime | None:
        """Return when the window of a local day starts, in UTC."""
        if _WEEKDAYS[day.weekday()] not in self.weekdays:
            return None
        return datetime.combine(day, self.start, self._zone).astimezone(UTC)


class ChangeWindows(Frozen):
    """When changes may start; by default always.

    Attributes:
        not_before: from this time on, with its offset from UTC.
        not_after: before this time.
        daily: in one of these windows; at any time of day where empty.
    """

    not_before: Time | None = None
    not_after: Time | None = None
    daily: tuple[DailyWindow, ...] = ()

    @model_validator(mode="after")
    def _opens(self) -> Self:
        if self.not_before and self.not_after and self.not_before >= self.not_after:
            raise ValueError("not_before is not before not_after")
        return self

    def is_open(self, at: datetime) -> bool:
        """Return whether changes may start at an aware time."""
        if self.not_before is not None and at < self.not_before:
            return False
        if self.not_after is not None and at >= self.not_after:
            return False
        return not self.daily or any(window.is_open(at) for window in self.daily)

    def next_opening(self, at: datetime) -> datetime | None:
        """Return the earliest time, `at` or later, at which changes may start, in UTC; None if they never may again."""
        earliest = max(at, self.not_before) if self.not_before is not None else at
        opening = min((window.next_opening(earliest) for window in self.daily), default=earliest.astimezone(UTC))
        return None if self.not_after is not None and opening >= self.not_after else opening

"""When changes may begin: arithmetic over daily windows and dates, without a clock of its own.

Windows have fixed offsets from UTC, no zones with names: the rules of zones come from a database that differs from
machine to machine, and a workflow that is replayed elsewhere must decide the same again.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, model_validator

from models.base import Frozen

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
    found = re.fullmatch(r"[+-](\d\d):([0-5]\d)", text)
    # The widest in use are -12:00 and +14:00.
    if found is None or int(found[1]) * 60 + int(found[2]) > 14 * 60:
        raise ValueError(f"{text!r} is no offset from UTC such as +02:00")
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
    """Hours of a day, from `start` on and before `end`.

    Attributes:
        start: local time of day.
        end: local time of day; before `start` it is one of the next day, and equal to it the window lasts 24 hours.
        utc_offset: of both times, all year.
        weekdays: the local days on which the window begins; all by default.
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
        """From start to end; more than nothing, a day at most."""
        length = datetime.combine(date.min, self.end) - datetime.combine(date.min, self.start)
        return length if length > timedelta(0) else length + _DAY

    def is_open(self, at: datetime) -> bool:
        """Whether an aware time lies in the window."""
        begin = self._last_begin(at)
        return begin is not None and at < begin + self.length

    def next_opening(self, at: datetime) -> datetime:
        """The earliest time, `at` or later, that lies in the window; in UTC."""
        if self.is_open(at):
            return at.astimezone(UTC)
        today = at.astimezone(self._zone).date()
        # The same weekday comes again after seven days, later than today's begin.
        begins = (self._begin(today + days * _DAY) for days in range(8))
        return next(begin for begin in begins if begin is not None and begin >= at)

    @property
    def _zone(self) -> timezone:
        hours, minutes = self.utc_offset[1:].split(":")
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return timezone(-offset if self.utc_offset.startswith("-") else offset)

    def _last_begin(self, at: datetime) -> datetime | None:
        """The begin that can still count at a time: today's, or yesterday's of a window over midnight."""
        today = at.astimezone(self._zone).date()
        begins = (self._begin(day) for day in (today, today - _DAY))
        return next((begin for begin in begins if begin is not None and begin <= at), None)

    def _begin(self, day: date) -> datetime | None:
        """When the window of a local day begins, in UTC."""
        if _WEEKDAYS[day.weekday()] not in self.weekdays:
            return None
        return datetime.combine(day, self.start, self._zone).astimezone(UTC)


class ChangeWindows(Frozen):
    """When changes may begin; by default always.

    Attributes:
        not_before: from this time on, with its offset from UTC.
        not_after: up to this time, which is out already.
        daily: in one of these hours; at any hour without them.
    """

    not_before: AwareDatetime | None = None
    not_after: AwareDatetime | None = None
    daily: tuple[DailyWindow, ...] = ()

    @model_validator(mode="after")
    def _opens(self) -> Self:
        if self.not_before and self.not_after and self.not_before >= self.not_after:
            raise ValueError("not_before is not before not_after")
        return self

    def is_open(self, at: datetime) -> bool:
        """Whether changes may begin at an aware time."""
        if self.not_before is not None and at < self.not_before:
            return False
        if self.not_after is not None and at >= self.not_after:
            return False
        return not self.daily or any(window.is_open(at) for window in self.daily)

    def next_opening(self, at: datetime) -> datetime | None:
        """The earliest time, `at` or later, at which changes may begin, in UTC; None if they never may again."""
        earliest = max(at, self.not_before) if self.not_before is not None else at
        opening = min((window.next_opening(earliest) for window in self.daily), default=earliest.astimezone(UTC))
        return None if self.not_after is not None and opening >= self.not_after else opening

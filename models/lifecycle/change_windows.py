"""Windows of time: recurring starts in a named time zone, a length, and blackouts; without a clock of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from heapq import merge
from itertools import groupby
from typing import Annotated, NamedTuple, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from models.base import Frozen, Result
from models.lifecycle.fields import Duration, Time
from models.lifecycle.time_zones import ZoneName, zone_of
from models.lifecycle.units import format_value

HORIZON = timedelta(days=366)
"""How far the next opening is searched."""

MOST_STARTS = 100
"""Most cron expressions, and most blackouts, of windows: they are part of inputs and states."""

LONGEST_WINDOW = timedelta(days=7)

TIME_TO_BEGIN = timedelta(minutes=5)
"""How much longer than a change a window must be: the change begins some time after the window opens."""

_MOST_EXAMINED = 50_000
"""Starts that one search looks at, about a second's work: a worker and a query do nothing else in that time."""

_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
# Windows that follow each other without a gap are one window. A longer one is cut: its end is not needed.
_CUT = 2 * LONGEST_WINDOW
# Any year that is not a leap year will do: this only checks the syntax of the expression.
_ANY_DAY = datetime(2026, 1, 1)  # noqa: DTZ001 - cron has no time zones
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_FIELDS = "minute hour day month weekday"


def _cron(text: str) -> str:
    try:
        if len(text.split()) != len(_FIELDS.split()):
            raise CronSimError("wrong number of fields")
        next(CronSim(text, _ANY_DAY))
    except (CronSimError, StopIteration) as error:
        why = str(error).lower() or "no such day"
        raise ValueError(f"invalid cron expression {text!r} ({why}); write {_FIELDS}: 0 22 * * MON-FRI") from None
    return text


Cron = Annotated[str, Field(max_length=200), AfterValidator(_cron)]
"""Starts of windows: minute, hour, day, month and weekday, as in a crontab."""


def _read_local(value: object) -> date | datetime:
    if isinstance(value, datetime | date):
        local = value
    else:
        text = str(value).strip()
        try:
            local = date.fromisoformat(text) if _DATE.fullmatch(text) else datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"invalid time {text!r}; write a date or a time: 2026-12-20 or 2026-12-20T18:00") from None
    if isinstance(local, datetime) and local.tzinfo is not None:
        raise ValueError(f"the time {local} has a zone of its own; write it in `zone`, without an offset")
    if not _FIRST_YEAR <= local.year <= _LAST_YEAR:
        raise ValueError(f"the year {local.year} is out of range; write a time from {_FIRST_YEAR} to {_LAST_YEAR}")
    return local


_LOCAL_SCHEMA = {"type": "string", "examples": ["2026-12-20", "2026-12-20T18:00"]}

LocalTime = Annotated[date | datetime, BeforeValidator(_read_local), WithJsonSchema(_LOCAL_SCHEMA)]
"""A day, or a time of a day, in the zone of its windows."""


class Opening(Result):
    """One time in which windows are open.

    Attributes:
        opens: start.
        closes: end.
        local: start in the zone of the windows, for people.
    """

    opens: Time
    closes: Time
    local: str = ""

    def __str__(self) -> str:
        """Return start and length."""
        return f"{self.local}, that is {self.opens:%Y-%m-%dT%H:%M}Z, for {format_value(self.closes - self.opens)}"


class Blackout(Frozen):
    """A time without changes.

    Attributes:
        start: first day, or the time at which it starts; in the zone of the windows.
        end: last day, which is part of it, or the time at which it ends.
        reason: shown while it lasts.
    """

    start: LocalTime
    end: LocalTime
    reason: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if _first_moment(self.start) >= _end_moment(self.end):
            raise ValueError(f"the blackout ends ({self.end}) before it starts ({self.start})")
        return self


class _Span(NamedTuple):
    start: datetime
    end: datetime


class Schedule(Frozen):
    """Windows that recur.

    Attributes:
        open: start of each window, as in a crontab: minute hour day month weekday; in `zone`.
        duration: length of each window, as time that passes.
        zone: time zone of `open` and `blackouts`, a name of the IANA database.
        blackouts: times without a window.
    """

    open: tuple[Cron, ...] = Field(default=(), max_length=MOST_STARTS)
    duration: Duration | None = Field(default=None, gt=timedelta(0), le=LONGEST_WINDOW)
    zone: ZoneName = "UTC"
    blackouts: tuple[Blackout, ...] = Field(default=(), max_length=MOST_STARTS)

    @model_validator(mode="after")
    def _has_lengths(self) -> Self:
        if bool(self.open) != (self.duration is not None):
            given, missing = ("open", "duration") if self.open else ("duration", "open")
            raise ValueError(f"`{given}` needs `{missing}`: write both, or neither")
        return self

    def is_open(self, at: datetime) -> bool:
        """Return whether a window is open at an aware time."""
        return any(opening.opens <= at for opening in self.openings(at, most=1, within=_MINUTE))

    def openings(
        self, at: datetime, *, most: int, needed: timedelta = timedelta(0), within: timedelta = HORIZON
    ) -> list[Opening]:
        """Return the next times in which windows are open; one that is open already starts at `at`.

        Args:
            at: an aware time.
            most: number of openings.
            needed: leave out those that are shorter.
            within: how far to search.
        """
        openings: list[Opening] = []
        for span in self._open_spans(at.astimezone(UTC), within):
            if span.end - span.start >= needed:
                openings.append(self._opening(span))
            if len(openings) == most:
                break
        return openings

    def blackout_at(self, at: datetime) -> Blackout | None:
        """Return the blackout that includes an aware time."""
        spans = ((blackout, self._blackout_span(blackout)) for blackout in self.blackouts)
        return next((blackout for blackout, span in spans if span.start <= at < span.end), None)

    # Inside -----------------------------------------------------------------------------------------------------------

    def _limits(self) -> _Span:
        """Return the time outside of which no window is open."""
        return _Span(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))

    def _open_spans(self, at: datetime, within: timedelta) -> Iterator[_Span]:
        budget = iter(range(_MOST_EXAMINED))
        for free in self._free_spans():
            start, end = max(free.start, at), min(free.end, at + within)
            if start < end:
                yield from self._windows(start, end, budget) if self.open else [_Span(start, end)]

    def _free_spans(self) -> Iterator[_Span]:
        """Return the times between blackouts, in their order."""
        start, last = self._limits()
        for blackout in sorted(map(self._blackout_span, self.blackouts)):
            if blackout.start > start:
                yield _Span(start, min(blackout.start, last))
            start = max(start, blackout.end)
        if start < last:
            yield _Span(start, last)

    def _windows(self, start: datetime, end: datetime, budget: Iterator[int]) -> Iterator[_Span]:
        """Return the windows between two times, as far as the budget of starts reaches; those that touch are one."""
        assert self.duration is not None, "expressions have a length"
        window: _Span | None = None
        starts = merge(*(self._starts(cron, start - self.duration) for cron in self.open))
        for opens, _ in zip(starts, budget, strict=False):
            if opens >= end:
                break
            closes = opens + self.duration
            if closes <= start:
                continue
            clipped = _Span(max(opens, start), min(closes, end))
            if window is None:
                window = clipped
            elif opens <= window.end and window.end - window.start < _CUT:
                window = _Span(window.start, max(window.end, clipped.end))
            else:
                yield window
                window = _Span(max(clipped.start, window.end), clipped.end)
        if window is not None:
            yield window

    def _starts(self, cron: str, after: datetime) -> Iterator[datetime]:
        """Return the starts by one expression in UTC, from a day before `after` on."""
        zone = zone_of(self.zone)
        minute, hour, *_ = cron.split()
        # As Debian's cron: expressions with a star mean real minutes and hours, others a time of day.
        by_clock = minute.startswith("*") or hour.startswith("*")
        first = (after - 2 * _DAY).astimezone(zone).replace(tzinfo=None, microsecond=0)
        for _, times in groupby(CronSim(cron, first), key=datetime.date):
            # Sorted, because both hours that a clock shows twice belong to one day.
            yield from sorted(moment for local in times for moment in _moments(local, zone, by_clock=by_clock))

    def _blackout_span(self, blackout: Blackout) -> _Span:
        zone = zone_of(self.zone)
        # Of a time that the clock shows twice, a blackout includes both.
        start = _first_moment(blackout.start).replace(tzinfo=zone, fold=0)
        end = _end_moment(blackout.end).replace(tzinfo=zone, fold=1)
        return _Span(start.astimezone(UTC), end.astimezone(UTC))

    def _opening(self, span: _Span) -> Opening:
        local = span.start.astimezone(zone_of(self.zone))
        return Opening(
            opens=span.start, closes=span.end, local=f"{local:%a %Y-%m-%d %H:%M} {self.zone}{_abbreviation(local)}"
        )


class ChangeWindows(Schedule):
    """When changes may start; by default always.

    Attributes:
        not_before: from this time on, with its offset from UTC.
        not_after: before this time.
    """

    not_before: Time | None = None
    not_after: Time | None = None

    @model_validator(mode="after")
    def _opens(self) -> Self:
        if self.not_before and self.not_after and self.not_before >= self.not_after:
            raise ValueError("not_before is not before not_after")
        return self

    @property
    def always(self) -> bool:
        """True if changes may start at any time."""
        return not (self.open or self.blackouts or self.not_before or self.not_after)

    def allows_more_than(self, other: Self) -> bool:
        """Return whether changes may start when other windows are closed, by the fields alone.

        Windows that start at other times, or in another zone, count as more, even where they are open together.
        """
        same_zone = self.zone == other.zone or not (other.open or other.blackouts)
        starts = bool(self.open) and set(self.open) <= set(other.open) if other.open else True
        length = self.duration <= other.duration if self.duration and other.duration else True
        blackouts = all(blackout in self.blackouts for blackout in other.blackouts)
        begin = other.not_before is None or (self.not_before is not None and self.not_before >= other.not_before)
        end = other.not_after is None or (self.not_after is not None and self.not_after <= other.not_after)
        return not (same_zone and starts and length and blackouts and begin and end)

    def _limits(self) -> _Span:
        every = super()._limits()
        return _Span(self.not_before or every.start, self.not_after or every.end)


ALWAYS = ChangeWindows()
"""No limits: changes may start at any time."""


class WindowsReading(Result):
    """Change windows at one time, as an activity read them: the rules of time zones may differ at the next time.

    Attributes:
        openings: the next ones; the first may be open already. None within a year where empty.
        blackout: reason of the blackout that lasts; empty for none.
    """

    openings: tuple[Opening, ...] = ()
    blackout: str = ""

    @classmethod
    def of(cls, windows: ChangeWindows, at: datetime, needed: timedelta) -> Self:
        """Return windows at a time.

        Args:
            windows: of a migration.
            at: the time.
            needed: how long a change takes; only openings count in which it fits. Zero where that is not known.
        """
        blackout = windows.blackout_at(at)
        return cls(
            openings=tuple(windows.openings(at, most=3, needed=_with_begin(needed))),
            blackout=(blackout.reason or "without a reason") if blackout else "",
        )


def useless(needed: timedelta) -> str:
    """Return the refusal of windows that do not open within a year for as long as is needed."""
    length = f" for {format_value(_with_begin(needed))}" if needed else ""
    shorter = ", or lower the input's limit for the cut-over, which must fit into a window" if needed else ""
    return (
        f"the change windows do not open{length} within a year; correct `open`, `duration`, `blackouts` or "
        f"`not_after`{shorter}"
    )


def over_before(at: datetime | None, windows: ChangeWindows) -> str:
    """Return the refusal of a time of the cut-over at which the windows have ended; empty if they have not."""
    if at is None or windows.not_after is None or at < windows.not_after:
        return ""
    return (
        f"the change windows end at {windows.not_after.isoformat()}, and the cut-over may not begin before "
        f"{at.isoformat()}; correct `not_after` or `cutover_at`"
    )


def _with_begin(needed: timedelta) -> timedelta:
    return needed + TIME_TO_BEGIN if needed else needed


def _moments(local: datetime, zone: ZoneInfo, *, by_clock: bool) -> Iterable[datetime]:
    """Return when a clock in a zone shows a time, in UTC.

    Args:
        local: time of day that an expression means.
        zone: of the clock.
        by_clock: the expression means what a clock shows: no time that it skips, and twice what it shows twice. Others
            mean a time of day: the end of the skipped hour, and the first of both.
    """
    shown = local.replace(tzinfo=zone)
    if _skipped(shown):
        if by_clock:
            return
        while _skipped(shown):
            shown += _MINUTE
    yield shown.astimezone(UTC)
    if by_clock and shown.utcoffset() != shown.replace(fold=1).utcoffset():
        yield shown.replace(fold=1).astimezone(UTC)


def _skipped(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo) != local


def _first_moment(day_or_time: date | datetime) -> datetime:
    return day_or_time if isinstance(day_or_time, datetime) else datetime.combine(day_or_time, time())


def _end_moment(day_or_time: date | datetime) -> datetime:
    return day_or_time if isinstance(day_or_time, datetime) else datetime.combine(day_or_time + _DAY, time())


def _abbreviation(local: datetime) -> str:
    """Return the zone's own name for its offset, such as CET; empty if it has none."""
    name = local.tzname() or ""
    return f" ({name})" if name.isalpha() else ""

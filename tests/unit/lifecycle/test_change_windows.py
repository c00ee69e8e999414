"""Change windows in time zones, against a definition that walks minute by minute."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import NamedTuple

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.lifecycle import change_windows, time_zones
from models.lifecycle.change_windows import ALWAYS, MOST_STARTS, Blackout, ChangeWindows, WindowsReading, useless
from models.lifecycle.time_zones import zone_names, zone_of

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
BERLIN_SPRING, BERLIN_AUTUMN = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
NIGHTS = ChangeWindows(open=("0 22 * * MON-FRI",), duration=timedelta(hours=6), zone="Europe/Berlin")

# Days on which clocks change: by an hour, by half an hour, at midnight, and one day that does not exist.
CHANGES = {
    "UTC": BERLIN_SPRING,
    "Europe/Berlin": BERLIN_SPRING,
    "America/New_York": datetime(2026, 11, 1, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2026, 4, 5, tzinfo=UTC),
    "America/Santiago": datetime(2026, 9, 6, tzinfo=UTC),
    "Asia/Beirut": datetime(2026, 3, 29, tzinfo=UTC),
    "Asia/Kathmandu": BERLIN_AUTUMN,
    "Pacific/Apia": datetime(2011, 12, 30, tzinfo=UTC),
}


class _Times:
    """Expressions of cron that both sides read: lists of minutes and hours, or a star, and weekdays."""

    def __init__(self, minutes: list[int] | None, hours: list[int] | None, weekdays: list[int] | None) -> None:
        self.minutes, self.hours, self.weekdays = minutes, hours, weekdays

    @property
    def cron(self) -> str:
        minutes, hours, weekdays = (
            "*" if values is None else ",".join(map(str, values))
            for values in (self.minutes, self.hours, self.weekdays)
        )
        return f"{minutes} {hours} * * {weekdays}"

    @property
    def by_clock(self) -> bool:
        return self.minutes is None or self.hours is None

    def match(self, local: datetime) -> bool:
        return (
            (self.minutes is None or local.minute in self.minutes)
            and (self.hours is None or local.hour in self.hours)
            and (self.weekdays is None or (local.weekday() + 1) % 7 in self.weekdays)
        )

    def __repr__(self) -> str:
        return self.cron


def _values(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), min_size=1, max_size=3, unique=True)


times = st.one_of(
    st.builds(_Times, _values(59), _values(23), st.none() | _values(6)),
    st.builds(_Times, _values(59), st.none(), st.none() | _values(6)),
    st.builds(_Times, st.none(), _values(23), st.none() | _values(6)),
)
durations = st.integers(1, 30 * 60).map(lambda minutes: minutes * MINUTE)


class _Minute(NamedTuple):
    """A minute that passes: what the clock shows, and what it skipped just before.

    Attributes:
        at: the time in UTC.
        shown: time of the clock.
        again: it showed the same an hour ago.
        skipped: times that it jumped over.
    """

    at: datetime
    shown: datetime
    again: bool
    skipped: tuple[datetime, ...]


@cache
def _minutes(zone: str) -> list[_Minute]:
    """Walk the minutes of some days around the zone's change of the clock."""
    minutes: list[_Minute] = []
    for number in range(-5 * 1440, 3 * 1440):
        at = CHANGES[zone] + number * MINUTE
        local = at.astimezone(zone_of(zone))
        shown = local.replace(tzinfo=None, fold=0)
        before = minutes[-1].shown + MINUTE if minutes else shown
        skipped = tuple(before + step * MINUTE for step in range(max(int((shown - before) / MINUTE), 0)))
        minutes.append(_Minute(at, shown, bool(local.fold), skipped))
    return minutes


def _starts(expression: _Times, zone: str) -> list[datetime]:
    """Return the starts by definition: a time of day starts when the clock shows it first, or jumps over it."""
    if expression.by_clock:
        return [minute.at for minute in _minutes(zone) if expression.match(minute.shown)]
    return [
        minute.at
        for minute in _minutes(zone)
        if (not minute.again and expression.match(minute.shown)) or any(map(expression.match, minute.skipped))
    ]


@example(_Times([15], [2], None), timedelta(hours=6), "Europe/Berlin", -MINUTE)
@example(_Times([0], [0], None), timedelta(hours=2), "America/Santiago", -DAY)
@example(_Times([0], [5], None), timedelta(hours=30), "Pacific/Apia", DAY)
@given(times, durations, st.sampled_from(sorted(CHANGES)), st.integers(-1440, 1440).map(lambda n: n * MINUTE))
def test_a_window_is_open_from_its_start_for_its_duration(
    expression: _Times, duration: timedelta, zone: str, since_change: timedelta
) -> None:
    """Around a change of the clock, a window is open exactly while a start is less than its duration ago."""
    windows = ChangeWindows(open=(expression.cron,), duration=duration, zone=zone)
    at = CHANGES[zone] + since_change
    last = at + DAY
    starts = _starts(expression, zone)
    openings = windows.openings(at, most=1_000, within=DAY)
    for minute in range(0, 1440, 67):
        moment = at + minute * MINUTE
        expected = any(start <= moment < start + duration for start in starts)
        assert any(opening.opens <= moment < opening.closes for opening in openings) == expected, moment
        assert windows.is_open(moment) == expected, moment
    # Each edge is a start or an end, to the minute.
    for opening in openings:
        assert opening.opens == at or opening.opens in starts
        assert opening.closes == last or any(start + duration == opening.closes for start in starts)


spans = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)


@given(times, durations, st.lists(spans, max_size=3), st.integers(0, 3 * 1440).map(lambda n: n * MINUTE))
def test_blackouts_and_limits_cut_windows(
    expression: _Times, duration: timedelta, blackouts: list[list[int]], later: timedelta
) -> None:
    """Nothing is open in a blackout, whose last day is part of it, and outside of the limits; all else is as before."""
    first = BERLIN_SPRING - 2 * DAY
    free = ChangeWindows(open=(expression.cron,), duration=duration, zone="Europe/Berlin")
    days = [(first + start * DAY, first + end * DAY) for start, end in blackouts]
    limits = {"not_before": first + DAY, "not_after": first + 4 * DAY}
    cut = ChangeWindows.model_validate(
        {
            **free.model_dump(),
            **limits,
            "blackouts": [{"start": f"{start:%Y-%m-%d}", "end": f"{end:%Y-%m-%d}"} for start, end in days],
        }
    )
    at = first + later
    day = at.astimezone(zone_of("Europe/Berlin")).date()
    black = any(start.date() <= day <= end.date() for start, end in days)
    inside = limits["not_before"] <= at < limits["not_after"]
    assert (cut.blackout_at(at) is not None) == black
    assert cut.is_open(at) == (free.is_open(at) and inside and not black)
    opening = next(iter(cut.openings(at, most=1)), None)
    assert cut.is_open(at) == (opening is not None and opening.opens == at)


@given(times, st.integers(0, 1440).map(lambda n: n * MINUTE), st.integers(-14, 14))
def test_the_offset_of_the_clock_does_not_matter(expression: _Times, later: timedelta, hours: int) -> None:
    """A time is the same in any offset."""
    windows = ChangeWindows(open=(expression.cron,), duration=timedelta(hours=1), zone="Europe/Berlin")
    at = BERLIN_AUTUMN + later
    assert windows.openings(at.astimezone(timezone(timedelta(hours=hours))), most=2) == windows.openings(at, most=2)


@pytest.mark.parametrize(
    ("cron", "day", "opens"),
    [
        ("0 22 * * *", BERLIN_SPRING - DAY / 2, "2026-03-28T21:00"),  # the window across the change
        ("30 2 * * *", BERLIN_SPRING, "2026-03-29T01:00"),  # 02:30 does not exist: at 03:00
        ("30 2 * * *", BERLIN_AUTUMN, "2026-10-25T00:30"),  # 02:30 comes twice: the first
    ],
)
def test_change_of_the_clock(cron: str, day: datetime, opens: str) -> None:
    """A window lasts its duration, also across a change, and starts once where its start is skipped or comes twice."""
    windows = NIGHTS.model_copy(update={"open": (cron,)})
    opening = windows.openings(day, most=1)[0]
    assert opening.opens == datetime.fromisoformat(opens).replace(tzinfo=UTC)
    assert opening.closes - opening.opens == NIGHTS.duration


def test_openings_name_the_time_in_their_zone() -> None:
    """People read the day, the local time with the zone's name for it, the time in UTC and the length."""
    winter = NIGHTS.openings(datetime(2026, 11, 29, tzinfo=UTC), most=1)[0]
    assert str(winter) == "Mon 2026-11-30 22:00 Europe/Berlin (CET), that is 2026-11-30T21:00Z, for 6 h"
    summer = NIGHTS.openings(datetime(2026, 7, 5, tzinfo=UTC), most=1)[0]
    assert summer.local == "Mon 2026-07-06 22:00 Europe/Berlin (CEST)"
    nepal = NIGHTS.model_copy(update={"zone": "Asia/Kathmandu"}).openings(BERLIN_SPRING, most=1)[0]
    assert nepal.local == "Mon 2026-03-30 22:00 Asia/Kathmandu"


def test_windows_that_touch_are_one() -> None:
    """Windows that follow each other without a gap are one opening, up to a length at which it is cut."""
    day = ChangeWindows(open=("0 0 * * *", "0 12 * * *"), duration=timedelta(hours=12))
    first, second = day.openings(BERLIN_SPRING, most=2)
    assert first.closes == second.opens
    assert first.closes - first.opens > timedelta(days=13)
    assert day.is_open(first.closes)


def test_an_opening_that_is_too_short_is_left_out() -> None:
    """A change that needs five hours waits for the next window once less is left of this one."""
    needed = timedelta(hours=5)
    monday = datetime(2026, 11, 30, 21, tzinfo=UTC)
    assert NIGHTS.openings(monday + timedelta(hours=1), most=1, needed=needed)[0].opens == monday + timedelta(hours=1)
    assert NIGHTS.openings(monday + timedelta(hours=1, minutes=1), most=1, needed=needed)[0].opens == monday + DAY


def test_windows_that_never_open_are_noticed() -> None:
    """Blackouts that cover a year, a passed end, and windows that are too short leave no opening."""
    now = datetime(2026, 11, 29, tzinfo=UTC)
    year = {"start": "2026-01-01", "end": "2027-12-31", "reason": "no changes"}
    covered = ChangeWindows.model_validate({**NIGHTS.model_dump(), "blackouts": [year]})
    assert WindowsReading.of(NIGHTS, now, 355 * MINUTE).openings
    # A cut-over as long as the window would always find that it has just become too short.
    for windows, needed in ((covered, 0), (NIGHTS, 356), (ChangeWindows(not_after=now), 0)):
        assert not WindowsReading.of(windows, now, needed * MINUTE).openings
    assert "do not open for 6 h 1 min within a year" in useless(356 * MINUTE)
    reading = WindowsReading.of(covered, now, timedelta(0))
    assert (reading.openings, reading.blackout) == ((), "no changes")


def test_a_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred expressions that start each second minute, and never for long enough, keep a worker for a second."""
    starts = 0

    class Counted(CronSim):
        def __next__(self) -> datetime:
            nonlocal starts
            starts += 1
            return super().__next__()

    monkeypatch.setattr(change_windows, "CronSim", Counted)
    windows = ChangeWindows(open=("*/2 * * * *",) * MOST_STARTS, duration=MINUTE)
    assert not WindowsReading.of(windows, BERLIN_SPRING, 10 * MINUTE).openings
    assert starts < 200_000


def test_windows_are_open_by_default() -> None:
    """Without any field, changes may start at any time."""
    assert ChangeWindows().always
    assert ChangeWindows().is_open(BERLIN_SPRING)
    assert not NIGHTS.always


def test_windows_survive_their_json() -> None:
    """Windows are the same after they were written as JSON; a blackout of days stays one of days."""
    windows = ChangeWindows.model_validate(
        {
            **NIGHTS.model_dump(),
            "not_before": "2026-12-01T00:00:00+01:00",
            "blackouts": [
                {"start": "2026-12-20", "end": "2027-01-06", "reason": "end of the year"},
                {"start": "2027-02-01T18:00", "end": "2027-02-01T20:00"},
            ],
        }
    )
    assert ChangeWindows.model_validate_json(windows.model_dump_json()) == windows
    assert '"end":"2027-01-06"' in windows.model_dump_json()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"zone": "Europe/Berln"}, "unknown time zone 'Europe/Berln'; the nearest names: Europe/Berlin"),
        ({"zone": "berlin"}, "Europe/Berlin"),
        ({"zone": "Europe/../Berlin"}, "unknown time zone"),
        ({"zone": "CEST"}, "unknown time zone"),
        ({"open": ["0 22 * *"], "duration": "1h"}, "wrong number of fields"),
        ({"open": ["0 0 22 * * *"], "duration": "1h"}, "wrong number of fields"),
        ({"open": ["0 25 * * *"], "duration": "1h"}, "bad hour"),
        ({"open": ["0 22 31 2 *"], "duration": "1h"}, "bad day-of-month"),
        ({"open": ["0 22 * * *"]}, "`open` needs `duration`"),
        ({"duration": "1h"}, "`duration` needs `open`"),
        ({"open": ["0 22 * * *"], "duration": "8d"}, "less than or equal to"),
        ({"blackouts": [{"start": "2026-12-20", "end": "2026-12-19"}]}, "ends (2026-12-19) before it starts"),
        ({"blackouts": [{"start": "2026-12-20T18:00Z", "end": "2026-12-21"}]}, "without an offset"),
        ({"blackouts": [{"start": "20 Dec", "end": "2026-12-21"}]}, "invalid time '20 Dec'"),
        ({"not_before": "2026-12-20T18:00Z", "not_after": "2026-12-20T18:00Z"}, "not_before is not before not_after"),
        ({"daily": []}, "daily"),
    ],
)
def test_wrong_windows_are_refused(fields: dict[str, object], why: str) -> None:
    """Each fault is refused with its value and what to write."""
    with pytest.raises(ValidationError) as refused:
        ChangeWindows.model_validate(fields)
    assert why in str(refused.value)


def test_rules_of_zones_do_not_come_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each zone has rules on a machine without files of its own: those of the installed package."""
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    time_zones.zone_of.cache_clear()
    assert len(zone_names()) > 500
    for name in zone_names():
        assert zone_of(name).utcoffset(BERLIN_SPRING.replace(tzinfo=None)) is not None


@pytest.mark.parametrize(
    ("new", "more"),
    [
        ({}, False),
        ({"open": ("0 22 * * FRI",)}, True),
        ({"open": ()}, True),
        ({"duration": timedelta(hours=5)}, False),
        ({"duration": timedelta(hours=7)}, True),
        ({"zone": "UTC"}, True),
        ({"blackouts": ()}, True),
        ({"not_before": BERLIN_SPRING + DAY, "not_after": BERLIN_AUTUMN - DAY}, False),
        ({"not_before": BERLIN_SPRING - DAY}, True),
        ({"not_after": BERLIN_AUTUMN + DAY}, True),
        ({"not_after": None}, True),
    ],
)
def test_windows_that_allow_more(new: dict[str, object], *, more: bool) -> None:
    """Windows allow more than others unless they have all limits of these, each as strict."""
    blackout = Blackout(start=BERLIN_SPRING.date(), end=BERLIN_SPRING.date())
    limits = {"blackouts": (blackout,), "not_before": BERLIN_SPRING, "not_after": BERLIN_AUTUMN}
    windows = NIGHTS.model_copy(update=limits)
    changed = windows.model_copy(update=new)
    assert changed.allows_more_than(windows) is more
    assert not changed.allows_more_than(ALWAYS)
    assert ALWAYS.allows_more_than(changed)

"""Arithmetic of change windows: against a definition that checks every minute."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.lifecycle.change_windows import ChangeWindows, DailyWindow, Weekday

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
# A Monday.
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

moments = st.integers(0, 3 * 7 * 24 * 60).map(lambda minutes: EPOCH + minutes * MINUTE)
times = st.integers(0, 24 * 60 - 1).map(lambda minutes: time(minutes // 60, minutes % 60))
offsets = st.integers(-14 * 60, 14 * 60).map(
    lambda minutes: f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
)
days = st.frozensets(st.sampled_from(list(Weekday)), min_size=1)
windows = st.builds(DailyWindow, start=times, end=times, utc_offset=offsets, weekdays=days)


def _open_by_definition(window: DailyWindow, at: datetime) -> bool:
    """Return whether a window that begins on one of the last days includes a time."""
    sign = -1 if window.utc_offset.startswith("-") else 1
    hours, minutes = (int(word) for word in window.utc_offset[1:].split(":"))
    local = at.astimezone(timezone(sign * timedelta(hours=hours, minutes=minutes))).replace(tzinfo=None)
    for back in range(3):
        day: date = local.date() - back * DAY
        if list(Weekday)[day.weekday()] not in window.weekdays:
            continue
        begin = datetime.combine(day, window.start)
        end = datetime.combine(day if window.end > window.start else day + DAY, window.end)
        if begin <= local < end:
            return True
    return False


@given(windows, moments)
def test_a_daily_window_is_open_from_its_start_and_before_its_end(window: DailyWindow, at: datetime) -> None:
    """A window is open exactly where one that began on an allowed local day covers the time."""
    assert window.is_open(at) == _open_by_definition(window, at)


@given(windows, moments)
def test_the_next_opening_is_the_first_time_that_is_open(window: DailyWindow, at: datetime) -> None:
    """The window is open at its next opening, and at no minute before."""
    opening = window.next_opening(at)
    assert at <= opening <= at + WEEK + DAY
    assert window.is_open(opening)
    closed = range(0, int((opening - at) / MINUTE), 7)
    assert not any(window.is_open(at + minute * MINUTE) for minute in closed)
    assert opening == at or not window.is_open(opening - MINUTE)


@given(windows, moments)
def test_windows_repeat_every_week(window: DailyWindow, at: datetime) -> None:
    """A window that is open at a time is open a week later."""
    assert window.is_open(at) == window.is_open(at + WEEK)
    assert window.next_opening(at) + WEEK == window.next_opening(at + WEEK)


@given(windows, moments, st.integers(-14, 14))
def test_the_offset_of_the_clock_does_not_matter(window: DailyWindow, at: datetime, hours: int) -> None:
    """A time is the same in any offset."""
    written = at.astimezone(timezone(timedelta(hours=hours)))
    assert window.is_open(written) == window.is_open(at)
    assert window.next_opening(written) == window.next_opening(at)


bounds = st.one_of(st.none(), moments)
unions = st.lists(windows, max_size=3).map(tuple)


@given(bounds, bounds, unions, moments)
def test_not_before_and_not_after_cut_the_daily_windows(
    not_before: datetime | None, not_after: datetime | None, daily: tuple[DailyWindow, ...], at: datetime
) -> None:
    """Changes may begin where a daily window is open, from `not_before` on and before `not_after`."""
    if not_before and not_after and not_before >= not_after:
        not_before, not_after = not_after, not_before + MINUTE
    allowed = ChangeWindows(not_before=not_before, not_after=not_after, daily=daily)
    inside = (not_before is None or at >= not_before) and (not_after is None or at < not_after)
    assert allowed.is_open(at) == (inside and (not daily or any(window.is_open(at) for window in daily)))

    opening = allowed.next_opening(at)
    last = EPOCH + 5 * WEEK
    if opening is None:
        assert not_after is not None
        steps = range(0, max(0, int((not_after - at) / MINUTE)), 11)
        assert not any(allowed.is_open(at + minute * MINUTE) for minute in steps)
    else:
        assert at <= opening <= last
        assert allowed.is_open(opening)
        steps = range(0, int((opening - at) / MINUTE), 11)
        assert not any(allowed.is_open(at + minute * MINUTE) for minute in steps)


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    """Friday's window from 22:00 to 04:00 covers Saturday's first hours, and no others of them."""
    window = DailyWindow(
        start=time(22), end=time(4), utc_offset="+02:00", weekdays=frozenset({Weekday.FRIDAY, Weekday.SUNDAY})
    )
    friday = datetime(2024, 1, 5, 20, 0, tzinfo=UTC)
    assert window.is_open(friday)
    assert window.is_open(friday + timedelta(hours=5, minutes=59))
    assert not window.is_open(friday + timedelta(hours=6))
    assert window.next_opening(friday + timedelta(hours=6)) == friday + timedelta(days=2)


def test_windows_are_written_as_people_write_them() -> None:
    """JSON has times of day, offsets such as +05:30, and days of three letters."""
    text = """{"not_before": "2024-01-01T00:00:00+01:00",
               "daily": [{"start": "22:30", "end": "00:00", "utc_offset": "+05:30", "weekdays": ["mon", "tue"]}]}"""
    allowed = ChangeWindows.model_validate_json(text)
    assert allowed.daily[0].length == timedelta(hours=1, minutes=30)
    assert allowed.is_open(datetime(2024, 1, 1, 17, 0, tzinfo=UTC))
    assert not allowed.is_open(datetime(2024, 1, 1, 18, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    "wrong",
    [
        '{"daily": [{"start": "22:00", "end": "04:00", "utc_offset": "CET"}]}',
        '{"daily": [{"start": "22:00", "end": "04:00", "utc_offset": "+15:00"}]}',
        '{"daily": [{"start": "22:00+02:00", "end": "04:00"}]}',
        '{"daily": [{"start": "22:00", "end": "04:00", "weekdays": []}]}',
        '{"not_before": "2024-01-01T00:00:00"}',
        '{"not_before": "2024-01-02T00:00:00Z", "not_after": "2024-01-01T00:00:00Z"}',
        '{"days": []}',
    ],
)
def test_ambiguous_windows_are_refused(wrong: str) -> None:
    """Names of zones, offsets that do not exist, times without an offset and windows that never open are errors."""
    with pytest.raises(ValidationError):
        ChangeWindows.model_validate_json(wrong)

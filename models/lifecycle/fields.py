"""Types of input fields: ambiguous values are refused with the accepted forms."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, TypeAdapter, ValidationError, WithJsonSchema

from models.text import shown

FORMS = "write 90s, 30m, 24h, 2d or PT24H"
"""Accepted forms of durations."""

LONGEST = timedelta(days=3650)
"""Longest duration: the end of a longer one may have no date."""

_FIRST_YEAR, _LAST_YEAR = 1970, 9000

_SECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(sorted(_SECONDS, key=len, reverse=True))})(?![a-z])\s*")
_WITH_PARTS = re.compile(rf"(?:{_PART.pattern})+")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_STANDARD: TypeAdapter[timedelta] = TypeAdapter(timedelta)


def read_duration(value: object) -> timedelta:
    """Return a duration from `90s`, `30m`, `24h`, `2d`, `1h30m`, `2 days`, ISO 8601 (`PT24H`) or `00:01:30`.

    Raises:
        ValueError: another form; for example a number without a unit.
    """
    if isinstance(value, timedelta):
        return _bounded(value)
    text = str(value).strip()
    if not isinstance(value, str) or _NUMBER.fullmatch(text):
        raise ValueError(f"{value!r} has no unit; {FORMS}")
    try:
        if _WITH_PARTS.fullmatch(text.lower()):
            parts = _PART.findall(text.lower())
            duration = timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
        else:
            duration = _STANDARD.validate_python(text)
    except (ValidationError, OverflowError):
        raise ValueError(f"invalid duration {shown(value)!r}; {FORMS}") from None
    return _bounded(duration)


def _bounded(duration: timedelta) -> timedelta:
    if abs(duration) > LONGEST:
        raise ValueError(f"a duration of {duration.days:,} days is too long; the longest is {LONGEST.days:,} days")
    return duration


def _check_year(time: datetime) -> datetime:
    if not _FIRST_YEAR <= time.year <= _LAST_YEAR:  # mutant: shared/times-that-utc-does-not-have
        raise ValueError(f"the year {time.year} is out of range; write a time from {_FIRST_YEAR} to {_LAST_YEAR}")
    return time


def _read_bool(value: object) -> object:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither true nor false; write one of these, without quotes")


_DURATION_SCHEMA = {"type": "string", "examples": ["90s", "30m", "24h", "2d", "PT24H"]}

Duration = Annotated[timedelta, BeforeValidator(read_duration), WithJsonSchema(_DURATION_SCHEMA)]
"""A length of time, with its unit."""

Time = Annotated[AwareDatetime, AfterValidator(_check_year)]
"""A time with its time zone. Times at the ends of the calendar do not exist in each zone."""

Bool = Annotated[bool, BeforeValidator(_read_bool)]
"""True or false. The text `"false"` is refused: some programs would read it as true."""

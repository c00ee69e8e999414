"""Time zones by the `tzdata` package alone, so that each machine has the same rules.

`zoneinfo` would prefer the files of the operating system, which differ between machines, and which an image may lack.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

_SHOWN = 3


@cache
def zone_names() -> frozenset[str]:
    """Return the names of all zones."""
    return frozenset((files("tzdata") / "zones").read_text().split())


@cache
def zone_of(name: str) -> ZoneInfo:
    """Return the rules of a zone.

    Raises:
        ValueError: there is no such zone.
    """
    if name not in zone_names():
        raise ValueError(f"unknown time zone {name!r}; {_cure(name)}")
    with (files("tzdata") / "zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _cure(name: str) -> str:
    by_lower_case = {zone.lower(): zone for zone in zone_names()}
    # The last part alone, because people write Berlin, or Europe/Munich for a zone that has another name.
    by_city = {zone.rpartition("/")[2].lower(): zone for zone in sorted(zone_names())}
    near = [
        *(by_lower_case[match] for match in get_close_matches(name.lower(), by_lower_case, _SHOWN)),
        *(by_city[match] for match in get_close_matches(name.rpartition("/")[2].lower(), by_city, 1)),
    ]
    nearest = ", ".join(list(dict.fromkeys(near))[:_SHOWN])
    return f"the nearest names: {nearest}" if nearest else "expected a name such as Europe/Berlin"


def _existing(name: str) -> str:
    zone_of(name)
    return name


ZoneName = Annotated[str, Field(max_length=100), AfterValidator(_existing)]
"""Name of a time zone in the IANA database, such as `Europe/Berlin`."""

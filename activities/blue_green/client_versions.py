"""Which clients follow when a broker sends them to another cluster."""

from __future__ import annotations

import re

# The first release of each library that follows for producers and for consumers.
_FIRST = {
    "Java": (3, 0, 0),
    "CPP": (3, 5, 0),
    "Go": (0, 13, 0),
}
# Built on the C++ library, whose version they tell as their own.
_ALIASES = {"python": "CPP", "node": "CPP", "c++": "CPP"}
_VERSION = re.compile(r"Pulsar[- ](?P<library>[A-Za-z+]+)[- :]*v?(?P<major>\d+)\.(?P<minor>\d+)(?:\.(?P<patch>\d+))?")


def is_of_cpp(client_version: str) -> bool:
    """Whether a client's library is that of C++, or is built on it.

    Args:
        client_version: as the broker shows it.
    """
    return _library(found) == "CPP" if (found := _VERSION.match(client_version)) else False


def cannot_follow(client_version: str) -> str:
    """Why a client of this version does not follow to another cluster; empty where it does, or that is not known.

    Args:
        client_version: as the broker shows it, for example `Pulsar-CPP-v3.7.1`.
    """
    found = _VERSION.match(client_version)
    if found is None:
        return ""
    first = _FIRST.get(_library(found))
    version = (int(found["major"]), int(found["minor"]), int(found["patch"] or 0))
    if first is None or version >= first:
        return ""
    return f"{client_version} is older than {'.'.join(map(str, first))}"


def _library(found: re.Match[str]) -> str:
    library = found["library"]
    return _ALIASES.get(library.lower(), library)

"""Client versions that follow when a broker redirects them to another cluster."""

from __future__ import annotations

import re

from activities.lifecycle.precheck import Findings
from models.blue_green.input import ClusterAddresses
from models.defects import has_defect
from models.releases import TESTED_CLIENTS, Release

# The first release of each library whose producers and consumers follow. Java clients of 3.0 and 3.1 connect to green
# without a lookup there (#21356): only the owner of the topic serves them, and often the topic has no owner yet.
_FIRST = {
    "Java": (3, 2, 0),  # mutant: blue-green/java-clients-without-a-lookup
    "CPP": (3, 5, 0),
    "Go": (0, 13, 0),
}
# Until #23534 Java clients needed both addresses of the other cluster, and otherwise did not follow.
_JAVA_REPAIRS = ((3, 3, 3), (4, 0, 1))
_REDIRECT_NPE = "REDIRECT_NPE"
# These are built on the C++ library, and report its version as their own.
_ALIASES = {"python": "CPP", "node": "CPP", "c++": "CPP"}
# Java clients up to 2.11 report a bare number, and so do those of C++ up to 3.1 and some of .NET.
_BARE_JAVA = 2
_VERSION = re.compile(
    r"(?:Pulsar[- ](?P<library>[A-Za-z+]+)[- :]*v?)?(?P<major>\d+)\.(?P<minor>\d+)(?:\.(?P<patch>\d+))?"
)


def lacking_address(green: ClusterAddresses) -> str:
    """Return the field of green's addresses that is not given; empty if both are."""
    if not green.broker_service_url_tls:
        return "broker_service_url_tls"
    return "" if green.broker_service_url else "broker_service_url"


def check_redirect(findings: Findings, blue: Release, green: ClusterAddresses) -> None:
    """Note a blocker if blue's brokers cannot redirect clients to a cluster with only one address."""
    lacks = lacking_address(green)
    if lacks and has_defect(blue, _REDIRECT_NPE):  # mutant: blue-green/brokers-that-want-both-addresses
        findings.block(
            "BLUE_NEEDS_ADDRESS",
            f"brokers of {blue} do not redirect clients to a cluster without {lacks} ({_REDIRECT_NPE}, #23534)",
            f"give {lacks} of green, or upgrade blue to 4.0.1 or newer",
        )


def is_known(client_version: str) -> bool:
    """Return whether a client's version is enough to decide if it follows.

    Args:
        client_version: as the broker shows it.
    """
    match = _VERSION.match(client_version)
    return match is not None and _library(match) in _FIRST and not _is_bare(match)


def is_untested(client_version: str) -> bool:
    """Return whether a client's version is known, and its release line was not tested.

    Args:
        client_version: as the broker shows it.
    """
    match = _VERSION.match(client_version)
    if match is None or not is_known(client_version):
        return False
    return f"{match['major']}.{match['minor']}" not in TESTED_CLIENTS.get(_library(match), ())


def _is_bare(match: re.Match[str]) -> bool:
    """Return whether a version is a number without the library, and not of old Java: Java names itself since 3.0."""
    return not match["library"] and int(match["major"]) > _BARE_JAVA


def is_of_cpp(client_version: str) -> bool:
    """Return whether a client's library is that of C++, or is built on it.

    Args:
        client_version: as the broker shows it.
    """
    return _library(match) == "CPP" if (match := _VERSION.match(client_version)) else False


def cannot_follow(client_version: str, *, lacks_address: str = "") -> str:
    """Return why a client of this version does not follow to another cluster; empty if it does, or is not known.

    Args:
        client_version: as the broker shows it, for example `Pulsar-CPP-v3.7.1`.
        lacks_address: the field of the other cluster's addresses that is not given; empty if both are.
    """
    match = _VERSION.match(client_version)
    if match is None or _is_bare(match) or (first := _FIRST.get(_library(match))) is None:
        return ""
    version = (int(match["major"]), int(match["minor"]), int(match["patch"] or 0))
    if version < first:
        return f"{client_version} is older than {_text(first)}"
    if _library(match) == "Java" and lacks_address and not _is_repaired(version):
        repairs = ", or ".join(map(_text, _JAVA_REPAIRS))
        return f"{client_version} follows only if {lacks_address} is given too, unless it is {repairs} or newer"
    return ""


def _is_repaired(version: tuple[int, int, int]) -> bool:
    same_line = (repair for repair in _JAVA_REPAIRS if repair[:2] == version[:2])
    return any(version >= repair for repair in same_line) or version[:2] > _JAVA_REPAIRS[-1][:2]


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def _library(match: re.Match[str]) -> str:
    library = match["library"] or "Java"
    return _ALIASES.get(library.lower(), library)

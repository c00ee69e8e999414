"""Which clients follow when a broker sends them to another cluster."""

from __future__ import annotations

import re

from activities.lifecycle.precheck import Findings
from models.blue_green.input import PulsarCluster
from models.defects import has_defect
from models.releases import TESTED_CLIENTS, Release

# The first release of each library that follows for producers and for consumers. Java clients of 3.0 and 3.1 connect to
# green without a lookup there (#21356): no broker but the owner of the topic serves them, and often there is none yet.
_FIRST = {
    "Java": (3, 2, 0),  # mutant: blue-green/java-clients-without-a-lookup
    "CPP": (3, 5, 0),
    "Go": (0, 13, 0),
}
# Until #23534 Java clients wanted both addresses of the other cluster, and stayed where they were without one of them.
_JAVA_REPAIRS = ((3, 3, 3), (4, 0, 1))
_REDIRECT_NPE = "REDIRECT_NPE"
# Built on the C++ library, whose version they tell as their own.
_ALIASES = {"python": "CPP", "node": "CPP", "c++": "CPP"}
# Java clients up to 2.11 report a bare number, and so do those of C++ up to 3.1 and some of .NET.
_BARE_JAVA = 2
_VERSION = re.compile(
    r"(?:Pulsar[- ](?P<library>[A-Za-z+]+)[- :]*v?)?(?P<major>\d+)\.(?P<minor>\d+)(?:\.(?P<patch>\d+))?"
)


def lacking_address(green: PulsarCluster) -> str:
    """Return the field of green's addresses that is not given; empty if both are."""
    if not green.broker_service_url_tls:
        return "broker_service_url_tls"
    return "" if green.broker_service_url else "broker_service_url"


def check_redirect(findings: Findings, blue: Release, green: PulsarCluster) -> None:
    """Note a blocker where brokers of blue fail to send clients to a cluster of which one address is not given."""
    lacks = lacking_address(green)
    if lacks and has_defect(blue, _REDIRECT_NPE):  # mutant: blue-green/brokers-that-want-both-addresses
        findings.block(
            "BLUE_NEEDS_ADDRESS",
            f"brokers of {blue} send no client to a cluster without {lacks} ({_REDIRECT_NPE}, #23534)",
            f"give {lacks} of green, or upgrade blue to 4.0.1 or newer",
        )


def is_known(client_version: str) -> bool:
    """Return whether a client's version says if it can follow.

    Args:
        client_version: as the broker shows it.
    """
    found = _VERSION.match(client_version)
    return found is not None and _library(found) in _FIRST and not _is_bare(found)


def is_untested(client_version: str) -> bool:
    """Return whether a client's version is known, and of a line of its library that was not tested.

    Args:
        client_version: as the broker shows it.
    """
    found = _VERSION.match(client_version)
    if found is None or not is_known(client_version):
        return False
    return f"{found['major']}.{found['minor']}" not in TESTED_CLIENTS.get(_library(found), ())


def _is_bare(found: re.Match[str]) -> bool:
    """Return whether the number alone is given, of any library but Java, which names itself since 3.0."""
    return not found["library"] and int(found["major"]) > _BARE_JAVA


def is_of_cpp(client_version: str) -> bool:
    """Return whether a client's library is that of C++, or is built on it.

    Args:
        client_version: as the broker shows it.
    """
    return _library(found) == "CPP" if (found := _VERSION.match(client_version)) else False


def cannot_follow(client_version: str, *, lacks_address: str = "") -> str:
    """Return why a client of this version does not follow to another cluster; empty where it does, or is not known.

    Args:
        client_version: as the broker shows it, for example `Pulsar-CPP-v3.7.1`.
        lacks_address: the field of the other cluster's addresses that is not given; empty if both are.
    """
    found = _VERSION.match(client_version)
    if found is None or _is_bare(found) or (first := _FIRST.get(_library(found))) is None:
        return ""
    version = (int(found["major"]), int(found["minor"]), int(found["patch"] or 0))
    if version < first:
        return f"{client_version} is older than {_text(first)}"
    if _library(found) == "Java" and lacks_address and not _is_repaired(version):
        repairs = ", or ".join(map(_text, _JAVA_REPAIRS))
        return f"{client_version} follows only if {lacks_address} is given too, unless it is {repairs} or newer"
    return ""


def _is_repaired(version: tuple[int, int, int]) -> bool:
    same_line = (repair for repair in _JAVA_REPAIRS if repair[:2] == version[:2])
    return any(version >= repair for repair in same_line) or version[:2] > _JAVA_REPAIRS[-1][:2]


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def _library(found: re.Match[str]) -> str:
    library = found["library"] or "Java"
    return _ALIASES.get(library.lower(), library)

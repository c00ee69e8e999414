"""The releases of Pulsar whose servers a stack can run, and which of them a process uses."""

from __future__ import annotations

import os
from dataclasses import dataclass

from models.releases import parse_release
from pulsar_devstack.errors import ToolMissing

VARIABLE = "PULSAR_MIGRATE_PULSAR"
"""The environment variable that names the release of demos, tests and benchmarks."""


@dataclass(frozen=True)
class ServerRelease:
    """Servers of one release line.

    Attributes:
        line: what `PULSAR_MIGRATE_PULSAR` calls it.
        version: the exact version of the brokers; ZooKeeper and BookKeeper are those it was released with.
    """

    line: str
    version: str

    @property
    def java(self) -> int:
        """Return the oldest Java that runs them."""
        return parse_release(self.version).minimum_java

    @property
    def jars(self) -> str:
        """Return the name of the lock of its jars."""
        return f"pulsar-{self.line}"


RELEASES = {
    release.line: release
    for release in (
        ServerRelease("5.0", "5.0.1"),
        ServerRelease("4.2", "4.2.4"),
        ServerRelease("4.0", "4.0.8"),
    )
}
"""By line, the default first."""


def chosen_release() -> ServerRelease:
    """Return the release that `PULSAR_MIGRATE_PULSAR` names, by default the newest.

    Raises:
        ToolMissing: there is no such release.
    """
    return release_of(os.environ.get(VARIABLE) or next(iter(RELEASES)))


def release_of(line: str) -> ServerRelease:
    """Return the release of a line.

    Raises:
        ToolMissing: there is no such release.
    """
    if line not in RELEASES:
        raise ToolMissing(f"unknown Pulsar release {line!r} in {VARIABLE}; set it to one of {', '.join(RELEASES)}")
    return RELEASES[line]

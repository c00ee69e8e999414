"""Jobs of the tier `releases`: tests that `make test-releases` runs on releases of Pulsar other than the default.

`make test` runs a sample of each job. A job's name says what runs on which line: `stores-4.2` has all servers of 4.2,
and `blue-4.0` a blue cluster of 4.0 and a green one of the default release.
"""

from __future__ import annotations

from typing import NamedTuple

from pulsar_devstack.servers.server_releases import VARIABLE

BLUE_VARIABLE = "PULSAR_MIGRATE_BLUE"
"""The environment variable that names the release line of the blue cluster in tests of blue-green migrations."""


class Selection(NamedTuple):
    """Tests on one release line.

    Attributes:
        what: the first half of the job's name.
        line: the release line.
        variable: the environment variable that takes the line.
        tests: arguments of pytest.
        sample: arguments of pytest for `make test`.
    """

    what: str
    line: str
    variable: str
    tests: tuple[str, ...]
    sample: tuple[str, ...]

    @property
    def job(self) -> str:
        """Return the job's name."""
        return f"releases/{self.what}-{self.line}"

    def command(self, pytest: list[str], *, exhaustive: bool) -> list[str]:
        """Return the command of the job.

        Args:
            pytest: how tests are run.
            exhaustive: run everything, not only the sample.
        """
        return ["env", f"{self.variable}={self.line}", *pytest, *(self.tests if exhaustive else self.sample)]


def _on(line: str, what: str, tests: tuple[str, ...], sample: tuple[str, ...] = ()) -> Selection:
    return Selection(what, line, VARIABLE, tests, sample)


def _from_blue(line: str, sample: tuple[str, ...] = ()) -> Selection:
    names = ("client_releases", "release_checks", "migration", "secure", "reopened", "throttle")
    return Selection("blue", line, BLUE_VARIABLE, tuple(f"{_BLUE}/test_{name}.py" for name in names), sample)


_STORE, _BOOKIES, _BLUE = (f"tests/integration/{area}" for area in ("metadata_store", "bookie_cluster", "blue_green"))
_SWITCH = f"{_BOOKIES}/test_restart.py"
_CONTROLLER = (
    "tests/integration/topic_controller",
    "tests/integration/gateway",
    "scalable_client/tests/integration/test_controlled.py",
)

SELECTIONS: tuple[Selection, ...] = (
    _on(
        "4.2",
        "stores",
        (
            *(f"{_STORE}/test_{name}.py" for name in ("live", "late_brokers", "rollback", "zookeeper", "offline")),
            _SWITCH,
        ),
        (f"{_STORE}/test_late_brokers.py",),
    ),
    _on(
        "4.0",
        "stores",
        (
            f"{_STORE}/test_offline.py",
            f"{_STORE}/test_zookeeper.py",
            _SWITCH,
            "tests/integration/lifecycle/test_everything_in_use.py",
        ),
        (f"{_STORE}/test_offline.py",),
    ),
    _from_blue("4.2"),
    _from_blue("4.0", (f"{_BLUE}/test_client_releases.py", f"{_BLUE}/test_release_checks.py")),
    # The sample of the controller on 4.0 is in its own tests: `test_client.py` takes two releases.
    _on("4.2", "controller", _CONTROLLER),
    _on("4.0", "controller", _CONTROLLER),
)

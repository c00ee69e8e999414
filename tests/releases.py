"""What `make test-releases` runs on releases of Pulsar other than the default: jobs of the tier `releases`.

`make test` runs a sample of each job. A job's name says what runs on which line: `stores-4.2` has all servers of 4.2,
and `blue-4.0` a blue cluster of 4.0 and a green one of the default release.
"""

from __future__ import annotations

from typing import NamedTuple

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


SELECTIONS: tuple[Selection, ...] = ()

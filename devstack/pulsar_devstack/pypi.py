"""Programs that PyPI has as wheels, installed by pip into a folder of their own."""

from __future__ import annotations

from pathlib import Path

from pulsar_devstack import tools


def install(requirement: Path, folder: Path, log: Path) -> None:
    """Install what the requirement file names into the folder, from wheels only.

    Raises:
        ToolMissing: there is no pip.
        ProvisionFailed: there is no wheel for this platform, its sha256 sum is not the file's, or PyPI is out of reach.
    """
    options = ["--quiet", "--no-deps", "--no-compile", "--only-binary=:all:", "--target", str(folder)]
    tools.run_tool([*tools.find_pip(), "install", *options, "-r", str(requirement)], cwd=folder, log=log)

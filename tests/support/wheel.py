"""The project as others get it: a wheel, installed into an environment that has nothing but the runtime lock."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_LIMIT = 120
_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
_PINNED = re.compile(r"^([A-Za-z0-9._-]+==\S+.*?) \\$", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """A virtual environment without pip; pip of this process's environment works on it.

    Attributes:
        folder: where it lies.
    """

    folder: Path

    @property
    def programs(self) -> Path:
        """The folder of its programs."""
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.programs / "python"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder)}))

    def pip(self, *arguments: str) -> None:
        """Run pip on it.

        Raises:
            AssertionError: pip failed; its output is in the message.
        """
        _run([*_PIP, "--python", str(self.python), *arguments])


def build_wheel(folder: Path, project: Path = ROOT) -> Path:
    """Build the wheel of one of the checkout's distributions into an empty folder; return the wheel."""
    _run([*_PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(project)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def copy_checkout(folder: Path) -> None:
    """Copy the checkout into a folder: what is committed or would be, and nothing that was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        # A deleted file is listed until its deletion is committed.
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def runtime_environment(folder: Path) -> Environment:
    """Create an environment with exactly the distributions in `requirements.lock`.

    Their files are links to those of this process's environment: it has the same versions, and nothing is fetched.
    """
    venv.create(folder, symlinks=True)
    made = Environment(folder)
    for line in _PINNED.findall((ROOT / "requirements.lock").read_text()):
        pinned = Requirement(line)
        if pinned.marker is None or pinned.marker.evaluate():
            _link(importlib.metadata.distribution(pinned.name), made.packages)
    return made


def _link(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or []:
        # Programs lie outside of site-packages and name the interpreter that they were made for.
        if PurePosixPath(file).parts[0] == "..":
            continue
        place = packages / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(str(distribution.locate_file(file))))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

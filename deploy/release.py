"""Build the distributions of a release twice, and keep them if both builds are equal."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECTS = (".", "scalable_client")
"""Folders of the distributions of a release. The dev stack is for checkouts only."""
SUMS = "SHA256SUMS"
_LIMIT = 300


class ReleaseError(Exception):
    """A release cannot be made; the message names the cause and the cure."""


def build_release(commit: str, folder: Path, scratch: Path) -> list[Path]:
    """Build wheels and source archives of a commit in two different folders; return those of the first.

    Args:
        commit: of this repository.
        folder: for the distributions.
        scratch: an empty folder for what is built from.

    Raises:
        ReleaseError: the two builds differ, or a build fails.
    """
    epoch = _git("log", "-1", "--format=%ct", commit)
    builds: list[dict[str, Path]] = []
    for number in range(2):
        # A build that writes its folder or the time into a file differs from the other one.
        source, built = scratch / f"source-{number}", scratch / f"built-{number}"
        _export(commit, source)
        for project in PROJECTS:
            _build(source / project, built, epoch)
        builds.append({path.name: path for path in sorted(built.iterdir())})
    first, second = builds
    different = sorted(
        name for name in first.keys() | second.keys() if _content(first.get(name)) != _content(second.get(name))
    )
    if different:
        raise ReleaseError(f"two builds of {commit} differ in {', '.join(different)}; compare them before a release")
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(path, folder)) for path in first.values()]


def write_sums(folder: Path) -> Path:
    """Write the SHA-256 of each file in a folder into a file that `sha256sum --check` reads; return the file."""
    sums = folder / SUMS
    files = sorted(path for path in folder.iterdir() if path.is_file() and path != sums)
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files))
    return sums


def _content(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None


def _export(commit: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    _git("archive", "--output", str(archive), commit)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def _build(project: Path, folder: Path, epoch: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=_LIMIT, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{project.name} cannot be built: {done.stderr.strip()}")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def main(folder: Path) -> None:
    """Build the release of the newest commit."""
    with tempfile.TemporaryDirectory() as scratch:
        built = build_release("HEAD", folder, Path(scratch))
    write_sums(folder)
    for path in built:
        print(f"{path} is the same in two builds")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ReleaseError as error:
        sys.exit(f"error: {error}")

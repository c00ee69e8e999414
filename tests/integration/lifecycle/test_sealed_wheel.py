"""The wheels are built without a network, from build tools with the locked sums, and always have the same bytes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.sealed.index import project_of, with_changed_byte
from tests.support.wheel import ROOT, build_wheel, copy_checkout

_SEALED = ["unshare", "--user", "--map-root-user", "--net"]
_PROJECTS = (".", "scalable_client")
_LOCK = str(ROOT / "requirements-build.lock")
_CONNECT = "import socket; socket.create_connection(('203.0.113.1', 443), timeout=5)"
_LIMIT = 240


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files of the build's lock for this interpreter."""
    if not shutil.which(_SEALED[0]):
        pytest.skip("a network of its own needs Linux and unshare")
    if (attempt := _run([*_SEALED, "true"])).returncode:
        pytest.skip(f"a network of its own needs user namespaces: {attempt.stderr}")
    folder = tmp_path_factory.mktemp("tools")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    done = _run([*pip, "--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", _LOCK])
    assert done.returncode == 0, done.stderr
    return folder


def test_wheels_are_built_without_a_network(tools: Path, tmp_path: Path) -> None:
    """A copy of the checkout and the build's tools make wheels with the bytes of those that are built here."""
    assert "Network is unreachable" in _run([*_SEALED, sys.executable, "-c", _CONNECT]).stderr
    checkout, wheels = tmp_path / "checkout", tmp_path / "wheels"
    copy_checkout(checkout)
    installed = _install(tools, tmp_path / "environment")
    assert installed.returncode == 0, installed.stderr
    options = ["--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels)]
    projects = [str(checkout / project) for project in _PROJECTS]
    built = _run([*_SEALED, *_pip(tmp_path / "environment"), "wheel", *options, *projects])
    assert built.returncode == 0, built.stderr
    for project in _PROJECTS:
        here = build_wheel(tmp_path / f"here-{project}", ROOT / project)
        assert (wheels / here.name).read_bytes() == here.read_bytes()


def test_a_changed_byte_in_a_tool_stops_the_build(tools: Path, tmp_path: Path) -> None:
    """A tool with one other byte is not installed, and pip names it with both sums."""
    changed = tmp_path / "changed"
    shutil.copytree(tools, changed)
    [tool] = [path for path in changed.iterdir() if project_of(path.name) == "hatchling"]
    tool.write_bytes(with_changed_byte(tool.read_bytes()))
    refused = _install(changed, tmp_path / "environment")
    assert refused.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr
    assert tool.name in refused.stderr


def _install(tools: Path, environment: Path) -> subprocess.CompletedProcess[str]:
    """Install the build's lock into a new environment, without a network."""
    venv.create(environment, symlinks=True)
    options = ["--no-index", "--find-links", str(tools), "--require-hashes", "--no-compile", "--requirement", _LOCK]
    return _run([*_SEALED, *_pip(environment), "install", *options])


def _pip(environment: Path) -> list[str]:
    # Settings of pip could name another source.
    program = ["env", "--unset=PIP_FIND_LINKS", "PIP_CONFIG_FILE=/dev/null", sys.executable, "-m", "pip"]
    return [*program, "--disable-pip-version-check", "--python", str(environment / "bin/python")]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)

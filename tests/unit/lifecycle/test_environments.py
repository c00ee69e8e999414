"""The environments of tests: what the locks hold, and which interpreters are tried."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.environments import PYTHONS, ROOT, find_interpreter

_PINNED = {
    requirement.name: next(iter(requirement.specifier)).version
    for line in (ROOT / "requirements-lowest.lock").read_text().splitlines()
    if "==" in line and line[0].isalpha()
    for requirement in [Requirement(line.removesuffix("\\"))]
}


@pytest.mark.parametrize("folder", [".", "scalable_client"])
def test_the_lowest_lock_holds_each_lower_bound(folder: str) -> None:
    """`requirements-lowest.lock` pins each dependency to the oldest version that its distribution accepts."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    requirements = map(Requirement, project["dependencies"])
    # The other distribution of this repository has the version of the checkout.
    bounds = {requirement.name: requirement.specifier for requirement in requirements if requirement.specifier}
    lowest = {name: min(Version(bound.version) for bound in bounds[name] if bound.operator == ">=") for name in bounds}
    assert {name: Version(_PINNED[name]) for name in lowest} == lowest


@pytest.mark.parametrize("folder", [".", "scalable_client", "devstack"])
def test_the_build_lock_has_the_tools_of_each_build(folder: str) -> None:
    """`requirements-build.lock` pins what a distribution's build asks for, and setuptools for the others."""
    lock = (ROOT / "requirements-build.lock").read_text()
    pinned = set(re.findall(r"^(\S+==\S+) ", lock, re.MULTILINE))
    build = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["build-system"]
    assert set(build["requires"]) <= pinned
    assert any(name.startswith("setuptools==") for name in pinned)


def test_the_bill_of_materials_has_no_build_tools() -> None:
    """The environment that `make sbom` describes loses the build's tools, and keeps what the runtime lock has."""
    names = {
        lock: set(re.findall(r"^(\S+)==", (ROOT / lock).read_text(), re.MULTILINE))
        for lock in ("requirements-build.lock", "requirements.lock")
    }
    [removed] = re.findall(r"bin/pip uninstall --quiet --yes (.*)", (ROOT / "Makefile").read_text())
    rest = names["requirements-build.lock"] - names["requirements.lock"] - set(removed.split())
    assert rest == set()
    assert not set(removed.split()) & names["requirements.lock"]


@pytest.mark.parametrize("file", ["Makefile", "deploy/container/Dockerfile", "README.md"])
def test_pip_gets_nothing_without_a_sum(file: str) -> None:
    """Each pip command checks sums or fetches nothing; none but that of the build's tools may fetch a build's tools."""
    text = (ROOT / file).read_text().replace("$(PIP)", "pip install").replace("\\\n", " ")
    commands = [line for line in text.splitlines() if re.search(r"^(?!PIP :=).*\bpip (install|wheel) ", line)]
    assert commands
    for command in commands:
        from_here = "--no-index" in command or "--no-deps" in command or "./scalable_client ." in command
        assert from_here or "--require-hashes" in command, command
        fetches_tools = not from_here and "requirements-build.lock" in command
        assert fetches_tools or "--no-index" in command or "--no-build-isolation" in command, command


def test_commits_are_checked_by_the_same_ruff() -> None:
    """The hooks of pre-commit run the version of ruff that the lock names."""
    [locked] = re.findall(r"^ruff==(\S+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE)
    assert f"rev: v{locked} " in (ROOT / ".pre-commit-config.yaml").read_text()


@pytest.mark.parametrize("folder", [".", "scalable_client", "devstack"])
def test_classifiers_name_the_tested_interpreters(folder: str) -> None:
    """Each distribution names the interpreters that `make test-pythons` tries, and no other."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert tuple(versions) == PYTHONS


def test_the_running_interpreter_is_found() -> None:
    """An interpreter that this machine has is found by its version."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert running in PYTHONS
    assert Path(find_interpreter(running)).exists()


def test_a_shim_without_an_interpreter_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that cannot run the interpreter it is named after is not taken for one."""
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    for name in ("PATH", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    assert find_interpreter("3.12") == ""

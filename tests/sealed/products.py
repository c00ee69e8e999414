"""The products that a sealed network serves, fetched before it is sealed: an engine, a base image and Python packages.

Signatures and sums are checked when they are fetched: apt and debootstrap check Debian's, and pip checks the locks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pulsar_devstack.servers.cache import Cache, Product, cache_folder
from pulsar_devstack.servers.fetch import print_progress

ROOT = Path(__file__).parents[2]
SUITE = "bookworm"
"""The release of Debian that the base image is made of; its Python is 3.11, and its Java 17."""
LOCKS = ("requirements-build.lock", "requirements.lock", "requirements-audit.lock")
"""What a build of the image and of its bill of materials installs."""

_ENGINE = ("docker.io", "containerd", "runc", "docker-registry", "debootstrap", "libdevmapper1.02.1")
_BASE = ("ca-certificates", "openjdk-17-jre-headless", "procps", "python3-venv")
_PYTHON = (3, 11)
_PROGRAMS = ("apt-get", "dpkg-deb", "ip", "tar", "unshare")


@dataclass(frozen=True)
class Products:
    """Folders and files in the user's cache.

    Attributes:
        engine: the root of Debian's packages of the engine, which are extracted there and not installed.
        base: the file system of the base image, as a tar file.
        packages: the files that the locks name for this Python.
    """

    engine: Path
    base: Path
    packages: Path

    @property
    def path(self) -> str:
        """The PATH on which the engine's programs come first."""
        return os.pathsep.join([f"{self.engine}/usr/bin", f"{self.engine}/usr/sbin", os.environ["PATH"]])


def unavailable_reason() -> str | None:
    """Return the reason why this machine cannot run an engine in a sealed network; None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "root on Linux is needed, to make a network and to run an engine in it"
    if missing := [program for program in _PROGRAMS if not shutil.which(program)]:
        return f"this machine has no {', '.join(missing)}"
    if sys.version_info[:2] != _PYTHON:
        return f"the Python of the base image is needed here too, {'.'.join(map(str, _PYTHON))}"
    return None


def fetch() -> Products:
    """Return the products; fetch what the cache does not have.

    Raises:
        ProvisionFailed: another process held the cache for an hour.
        CalledProcessError: a client of a registry failed.
    """
    cache = Cache(cache_folder(), print_progress)
    with cache.locked():
        engine = cache.ensure(Product("container-engine", _names(_ENGINE), _fetch_engine))
        base = Product("debian-base", _names((SUITE, *_BASE)), lambda folder: _make_base(engine, folder))
        sums = tuple((ROOT / lock).read_bytes() for lock in LOCKS)
        packages = Product("python-packages", (*_names(_PYTHON), *sums), _fetch_packages)
        return Products(engine, cache.ensure(base) / "rootfs.tar", cache.ensure(packages))


def _names(names: Iterable[object]) -> tuple[bytes, ...]:
    return tuple(str(name).encode() for name in names)


def _fetch_engine(folder: Path) -> None:
    """Extract Debian's packages, with lists of packages of our own: those of the machine may be absent or old."""
    lists, archives = folder / "lists", folder / "archives"
    for own in (lists / "partial", archives):
        own.mkdir(parents=True)
    apt = ["apt-get", "-qq", "-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=root"]
    _run([*apt, "update"])
    _run([*apt, "download", *_ENGINE], cwd=archives)
    for archive in archives.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(archive), str(folder)])
    shutil.rmtree(lists)
    shutil.rmtree(archives)


def _make_base(engine: Path, folder: Path) -> None:
    root = folder / "rootfs"
    command = [f"{engine}/usr/sbin/debootstrap", "--variant=minbase", f"--include={','.join(_BASE)}", SUITE, str(root)]
    # Its mounts end with the namespace.
    _run(
        ["unshare", "--mount", "--propagation", "private", *command],
        env={**os.environ, "DEBOOTSTRAP_DIR": f"{engine}/usr/share/debootstrap"},
    )
    for leftover in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / leftover, ignore_errors=True)
    _run(["tar", "-C", str(root), "-cf", str(folder / "rootfs.tar"), "."])
    shutil.rmtree(root)


def _fetch_packages(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    for lock in LOCKS:
        _run([*pip, "--require-hashes", "--no-build-isolation", "--dest", str(folder), "-r", str(ROOT / lock)])


def _run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=cwd, env=env)

"""The cache of provisioned products: complete or absent, found again by content, repaired when something is missing.

A product is a folder `<name>-<key>` where the key is the digest of everything that decides its content. It is made in a
temporary folder, described by a manifest of sizes, times and sha256 sums, and renamed into place.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pulsar_devstack.errors import ProvisionFailed
from pulsar_devstack.servers.timings import Timings

MANIFEST = "manifest.json"
_LOCK_LIMIT = 3600.0

Progress = Callable[[str], None]


def cache_folder() -> Path:
    """Return the cache's folder: `$PULSAR_MIGRATE_CACHE`, or `pulsar-migrate` in the user's cache folder."""
    if own := os.environ.get("PULSAR_MIGRATE_CACHE"):
        return Path(own).expanduser().absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser().absolute() / "pulsar-migrate"
    return Path.home() / ".cache" / "pulsar-migrate"


def sha256_of(path: Path) -> str:
    """Return the sha256 sum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Product:
    """Something that provisioning makes.

    Attributes:
        name: what progress lines call it.
        inputs: everything that decides its content; the key is their digest.
        make: fills an empty folder, or raises a `DevStackError`.
    """

    name: str
    inputs: tuple[bytes, ...]
    make: Callable[[Path], None]

    @property
    def folder_name(self) -> str:
        """Name and key, which together are the product's place in the cache."""
        digest = hashlib.sha256()
        for value in self.inputs:
            digest.update(hashlib.sha256(value).digest())
        return f"{self.name}-{digest.hexdigest()[:16]}"


class Cache:
    """Products in one folder, shared by all checkouts of one user.

    Args:
        root: the folder.
        progress: receives a line for each product that is made.
        timings: what is made is measured there.
    """

    def __init__(self, root: Path, progress: Progress, timings: Timings | None = None) -> None:
        self.root, self.progress = root, progress
        self._timings = timings or Timings()

    def folder(self, product: Product) -> Path:
        """Return the folder of a product, whether it exists or not."""
        return self.root / product.folder_name

    def fault(self, product: Product, *, full: bool = False) -> str | None:
        """Return the defect of a product, or None. Compare sizes and times; with `full` also sha256 sums."""
        folder = self.folder(product)
        try:
            manifest = cast("dict[str, dict[str, Any]]", json.loads((folder / MANIFEST).read_text()))
        except FileNotFoundError:
            return "not there yet"
        except ValueError:
            return "its manifest cannot be read"
        for name, expected in manifest.items():
            try:
                stat = (folder / name).stat()
            except FileNotFoundError:
                return f"{name} is missing"
            if (stat.st_size, stat.st_mtime_ns) != (expected["size"], expected["mtime_ns"]):
                return f"{name} has changed"
            if full and sha256_of(folder / name) != expected["sha256"]:
                return f"{name} is corrupt"
        return None

    def ensure(self, product: Product) -> Path:
        """Return the product's folder; make a missing or damaged product first. The caller holds the cache's lock.

        Raises:
            DevStackError: the product could not be made; the cache is as it was.
        """
        fault = self.fault(product)
        if fault is None:
            return self.folder(product)
        begin = time.monotonic()
        self.progress(f"{product.name}: begin ({fault})")
        fresh = Path(tempfile.mkdtemp(prefix=f".{product.name}-", dir=self.root))
        try:
            with self._timings.measure(product.name):
                product.make(fresh)
                _write_manifest(fresh)
                self._move_in(fresh, self.folder(product))
        finally:
            _remove(fresh)
        self.progress(f"{product.name}: done in {time.monotonic() - begin:.1f} s")
        return self.folder(product)

    def discard(self, product: Product) -> None:
        """Remove the product, so that the next `ensure` makes it again."""
        _remove(self.folder(product))

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the cache alone; a second provision waits and then finds everything made.

        Raises:
            ProvisionFailed: the other one held the lock for an hour.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as lock:
            deadline = time.monotonic() + _LOCK_LIMIT
            announced = False
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not announced:
                        self.progress("waiting for another provision to finish")
                        announced = True
                    if time.monotonic() > deadline:
                        raise ProvisionFailed(f"another provision has held {self.root} for an hour; end it") from None
                    time.sleep(0.1)
            yield

    def _move_in(self, fresh: Path, place: Path) -> None:
        old = Path(tempfile.mkdtemp(prefix=".old-", dir=self.root))
        if place.exists():
            place.rename(old / "product")
        fresh.rename(place)
        _remove(old)


def _write_manifest(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        str(path.relative_to(folder)): {
            "size": path.stat().st_size,
            "mtime_ns": path.stat().st_mtime_ns,
            "sha256": sha256_of(path),
        }
        for path in files
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    folder.chmod(0o755)


def _remove(folder: Path) -> None:
    def make_writable(_function: object, path: str, _error: object) -> None:
        # Go marks the folders of its modules as read-only.
        Path(path).parent.chmod(0o755)
        Path(path).unlink()

    if folder.exists():
        shutil.rmtree(folder, onerror=make_writable)

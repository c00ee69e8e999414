"""Jars through Maven, from one pom with exact versions, checked against a lock of sha256 sums."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from deploy.devstack import tools
from deploy.devstack.cache import Product, sha256_of
from deploy.devstack.errors import ChecksumMismatch

LOCK = "jars.lock"


def jars_product(name: str, data: Path, logs: Path) -> Product:
    """A flat folder of the jars that `data/pom.xml` resolves to, each of them named by `data/jars.lock`."""
    inputs = ((data / "pom.xml").read_bytes(), (data / LOCK).read_bytes())
    return Product(name, inputs, partial(_copy_jars, data, logs / f"{name}.log"))


def read_lock(path: Path) -> dict[str, str]:
    """File name to sha256 sum; the lock has one `name sum` a line."""
    return dict(line.split() for line in path.read_text().splitlines() if line)


def check_jars(folder: Path, lock: Path) -> None:
    """Compare a folder of jars with a lock.

    Raises:
        ChecksumMismatch: a jar is missing, is too many, or has another content; the message names up to five.
    """
    locked = read_lock(lock)
    found = {path.name: sha256_of(path) for path in folder.glob("*.jar")}
    faults = [f"{name} is missing" for name in sorted(locked.keys() - found.keys())]
    faults += [f"{name} is not in the lock" for name in sorted(found.keys() - locked.keys())]
    faults += [
        f"{name} has sha256 {found[name]}, locked is {digest}"
        for name, digest in sorted(locked.items())
        if name in found and found[name] != digest
    ]
    if faults:
        shown = "\n".join(f"  {fault}" for fault in faults[:5])
        raise ChecksumMismatch(
            f"{len(faults)} jars differ from {lock}:\n{shown}\n"
            "remove them from Maven's local repository and provision again; if they differ again, trust none of them"
        )


def _copy_jars(data: Path, log: Path, folder: Path) -> None:
    maven = tools.find_maven()
    log.unlink(missing_ok=True)
    command = [str(maven), "--batch-mode", "--no-transfer-progress", "dependency:copy-dependencies"]
    options = [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    with tempfile.TemporaryDirectory(prefix="devstack-") as scratch:
        shutil.copy(data / "pom.xml", scratch)
        tools.run_tool([*command, *options], cwd=Path(scratch), log=log)
    check_jars(folder, data / LOCK)

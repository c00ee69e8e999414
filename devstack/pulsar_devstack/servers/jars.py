"""Jars through Maven, by exact coordinates, each checked against a lock of sha256 sums.

A lock has one `group:artifact:version[:classifier] sha256` a line. Maven resolves no dependencies: some parent POMs of
released jars cannot be had, and the lock names every jar anyway.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from pulsar_devstack.errors import ChecksumMismatch
from pulsar_devstack.servers import tools
from pulsar_devstack.servers.cache import Product, sha256_of
from pulsar_devstack.servers.toolchain import DATA

# The first version of the plugin that copies a jar without reading its POM's parents.
_PLUGIN = "3.10.0"
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-migrate</groupId>
  <artifactId>devstack-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId>
    <version>{plugin}</version>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""


class Coordinates(NamedTuple):
    """A jar in a Maven repository.

    Attributes:
        group: such as `org.apache.pulsar`.
        artifact: such as `pulsar-broker`.
        version: an exact one.
        classifier: such as `linux-x86_64`; empty for the main jar.
    """

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """Return the name under which Maven copies the jar."""
        return "-".join(field for field in (self.artifact, self.version, self.classifier) if field) + ".jar"


def jars_product(name: str, logs: Path) -> Product:
    """Return the product that is a flat folder of the jars that `data/jars/<name>.lock` names."""
    lock = lock_file(name)
    return Product(name, (lock.read_bytes(),), partial(_copy_jars, lock, logs / f"{name}.log"))


def lock_file(name: str) -> Path:
    """Return the path of a lock."""
    return DATA / "jars" / f"{name}.lock"


def read_lock(path: Path) -> dict[Coordinates, str]:
    """Return the sha256 sum of each jar that the lock names."""
    lines = [line.split() for line in path.read_text().splitlines() if line]
    return {Coordinates(*name.split(":")): digest for name, digest in lines}


def check_jars(folder: Path, lock: Path) -> None:
    """Compare a folder of jars with a lock.

    Raises:
        ChecksumMismatch: a jar is missing, is too many, or has another content; the message names up to five.
    """
    locked = {jar.file_name: digest for jar, digest in read_lock(lock).items()}
    sums = {path.name: sha256_of(path) for path in folder.glob("*.jar")}
    faults = [f"{name} is missing" for name in sorted(locked.keys() - sums.keys())]
    faults += [f"{name} is not in the lock" for name in sorted(sums.keys() - locked.keys())]
    faults += [
        f"{name} has sha256 {sums[name]}, locked is {digest}"
        for name, digest in sorted(locked.items())
        if name in sums and sums[name] != digest
    ]
    if faults:
        shown = "\n".join(f"  {fault}" for fault in faults[:5])
        raise ChecksumMismatch(
            f"{len(faults)} jars differ from {lock}:\n{shown}\n"
            "remove them from Maven's local repository and provision again; if they differ again, trust none of them"
        )


def _copy_jars(lock: Path, log: Path, folder: Path) -> None:
    maven = tools.find_maven()
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="devstack-") as scratch:
        (Path(scratch) / "pom.xml").write_text(_pom(read_lock(lock)))
        command = [str(maven), "--batch-mode", "--no-transfer-progress", "dependency:copy"]
        tools.run_tool([*command, f"-DoutputDirectory={folder}"], cwd=Path(scratch), log=log)
    check_jars(folder, lock)


def _pom(jars: dict[Coordinates, str]) -> str:
    items = "".join(
        f"<artifactItem><groupId>{escape(jar.group)}</groupId><artifactId>{escape(jar.artifact)}</artifactId>"
        f"<version>{escape(jar.version)}</version><classifier>{escape(jar.classifier)}</classifier></artifactItem>\n"
        for jar in jars
    )
    return _POM.format(plugin=_PLUGIN, items=items)

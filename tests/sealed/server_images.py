"""Make images of the servers from the provisioned ones, and run a command that starts its stacks in containers.

`python -m tests.sealed python -m tests.sealed.server_images COMMAND…`: the images are those that
`PULSAR_MIGRATE_STACK=containers` otherwise takes from a registry, made of the same jars and programs as the processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pulsar_devstack.servers.provision import Toolchain, provision

_DOCKERFILE = """
ARG BASE
FROM ${BASE} AS java
COPY java /opt/java
ENV PATH=/opt/java/bin:$PATH

FROM java AS zookeeper
COPY jars /apache-zookeeper-dev/lib

FROM java AS pulsar
COPY jars /pulsar/lib

FROM ${BASE} AS oxia
COPY oxia /usr/local/bin/oxia
"""
_PRODUCTS = ("zookeeper", "pulsar", "oxia")


def main(command: list[str]) -> int:
    """Make the images, and run the command with their names in its environment; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-images-") as folder:
        _fill(Path(folder), provision())
        images = {product: _build(Path(folder), product) for product in _PRODUCTS}
    names = {f"PULSAR_MIGRATE_IMAGE_{product.upper()}": image for product, image in images.items()}
    environment = {**os.environ, "PULSAR_MIGRATE_STACK": "containers", **names}
    return subprocess.run(command, env=environment, check=False).returncode


def _fill(folder: Path, tools: Toolchain) -> None:
    """Copy what the images are made of."""
    (folder / "Dockerfile").write_text(_DOCKERFILE)
    # Files of the system's JDK may be links to its settings.
    shutil.copytree(tools.java.resolve().parents[1], folder / "java", ignore=shutil.ignore_patterns("src.zip", "jmods"))
    # Servers with TLS do without the FIPS edition of Bouncy Castle: see `plans`.
    shutil.copytree(tools.jars, folder / "jars", ignore=shutil.ignore_patterns("bc-fips-*"))
    shutil.copy(tools.oxia, folder / "oxia")


def _build(folder: Path, product: str) -> str:
    name = f"devstack-{product}"
    build = ["docker", "build", "--quiet", "--build-arg", f"BASE={os.environ['SEALED_BASE']}", "--target", product]
    subprocess.run([*build, "--tag", name, str(folder)], check=True, stdout=subprocess.DEVNULL)
    return name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

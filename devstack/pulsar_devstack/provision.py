"""Everything that servers need: what `fetch` gets, and archives of loaded classes. A second run only compares times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pulsar_devstack.archives import archives_product
from pulsar_devstack.cache import Cache, Progress, cache_folder
from pulsar_devstack.errors import ServerFailed
from pulsar_devstack.fetch import Fetcher, print_progress
from pulsar_devstack.server_releases import chosen_release
from pulsar_devstack.timings import Timings
from pulsar_devstack.toolchain import Toolchain

__all__ = ["Toolchain", "print_progress", "provision"]


def provision(
    progress: Progress = print_progress,
    *,
    cache_root: Path | None = None,
    servers_only: bool = False,
    verify: bool = False,
) -> Toolchain:
    """Make what is missing or damaged, tell how long each part of it took, and say where everything is.

    Args:
        progress: told what happens, line by line.
        cache_root: where everything goes; the user's cache by default.
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
    product = archives_product(toolchain)
    if cache.fault(product):
        if not make:
            return toolchain
        try:
            with cache.locked():
                cache.ensure(product)
        except ServerFailed as error:
            # Servers start without archives too, if they start at all; whoever starts them learns why not.
            cache.progress(f"{product.name}: left out, {error}")
            return toolchain
    return replace(toolchain, archives=cache.folder(product))

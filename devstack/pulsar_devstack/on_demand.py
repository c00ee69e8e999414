"""Jars next to those that the dev stack starts with, which few need: fetched when they are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pulsar_devstack import tools as machine
from pulsar_devstack.cache import Cache, Progress, cache_folder
from pulsar_devstack.fetch import print_progress
from pulsar_devstack.jars import jars_product
from pulsar_devstack.provision import with_archives
from pulsar_devstack.server_releases import release_of
from pulsar_devstack.toolchain import Toolchain


def with_release(tools: Toolchain, line: str, progress: Progress = print_progress) -> Toolchain:
    """Return the same programs with the servers of another release line, and with a Java that runs them.

    Args:
        tools: what the dev stack has.
        line: of Pulsar, such as `4.0`.
        progress: told what happens, line by line.

    Raises:
        ToolMissing: there is no such release, no JDK that runs it, or no Maven.
        ProvisionFailed: Maven failed.
        ChecksumMismatch: a registry served a file that is not the locked one.
    """
    release = release_of(line)
    if release.version == tools.pulsar:
        return tools
    java, java_version = machine.find_java(release.java)
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

"""Jars beside those of the dev stack, which few need: fetched when they are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deploy.devstack.cache import Cache, Progress, cache_folder
from deploy.devstack.fetch import print_progress
from deploy.devstack.jars import jars_product
from deploy.devstack.toolchain import DATA, Toolchain


def older_pulsar(tools: Toolchain, progress: Progress = print_progress) -> Toolchain:
    """The same programs, with Pulsar 4.0.7 and the ZooKeeper and BookKeeper that belong to it: an upgrade begins there.

    Args:
        tools: what the dev stack has.
        progress: told what happens, line by line.

    Raises:
        ToolMissing: there is no Maven.
        ProvisionFailed: Maven failed.
        ChecksumMismatch: a registry served a file that is not the locked one.
    """
    # Archives of loaded classes belong to the jars that they were made of.
    return replace(tools, jars=_jars("pulsar-4-jars", "pulsar_4", progress), archives=None)


def with_scalable_clients(tools: Toolchain, progress: Progress = print_progress) -> Toolchain:
    """The same, with Pulsar's Java library for scalable topics; see `older_pulsar`."""
    return replace(tools, more_jars=(_jars("pulsar-v5-jars", "pulsar_v5", progress),))


def _jars(name: str, data: str, progress: Progress) -> Path:
    cache = Cache(cache_folder(), progress)
    product = jars_product(name, DATA / data, cache.root / "logs")
    if cache.fault(product):
        with cache.locked():
            cache.ensure(product)
    return cache.folder(product)

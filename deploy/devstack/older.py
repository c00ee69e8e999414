"""An older Pulsar beside the one of the dev stack: what an upgrade begins with. It is fetched when it is asked for."""

from __future__ import annotations

from dataclasses import replace

from deploy.devstack.cache import Cache, Progress, cache_folder
from deploy.devstack.fetch import print_progress
from deploy.devstack.jars import jars_product
from deploy.devstack.toolchain import DATA, Toolchain


def older_pulsar(tools: Toolchain, progress: Progress = print_progress) -> Toolchain:
    """The same programs, with Pulsar 4.0.7 and the ZooKeeper and BookKeeper that belong to it.

    Args:
        tools: what the dev stack has.
        progress: told what happens, line by line.

    Raises:
        ToolMissing: there is no Maven.
        ProvisionFailed: Maven failed.
        ChecksumMismatch: a registry served a file that is not the locked one.
    """
    cache = Cache(cache_folder(), progress)
    product = jars_product("pulsar-4-jars", DATA / "pulsar_4", cache.root / "logs")
    if cache.fault(product):
        with cache.locked():
            cache.ensure(product)
    # Archives of loaded classes belong to the jars that they were made of.
    return replace(tools, jars=cache.folder(product), archives=None)

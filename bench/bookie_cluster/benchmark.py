"""Our copy of ledgers compared with BookKeeper's own Java client: `make bench-bookie` (see `bench/README.md`)."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from bench.bookie_cluster.pause import measure_pause
from bench.bookie_cluster.results import KINDS, BookieResults, Kind
from bench.bookie_cluster.runs import CopyBench
from bench.bookie_cluster.servers import Clusters
from bench.lifecycle.machine import machine, positive, tell
from bench.lifecycle.results import conclude, write
from pulsar_devstack.servers.cache import cache_folder
from pulsar_devstack.servers.provision import Toolchain, provision

_WARM_UP = 3


def main(arguments: list[str]) -> None:
    """Run the benchmark, print its tables, and write its figures to `bench/out/bookie.json`."""
    options = _parse(arguments)
    tools = provision()
    results = BookieResults(machine(tools) | {"passes": options.passes}, _WARM_UP)
    for kind in options.kinds:
        _run_kind(kind, tools, options.passes, results)
    if not options.skip_pause:
        results.pause = _measure_pause(tools)
    files = [write("bookie.json", results.summary()), write("bookie-details.json", results.details())]
    conclude(results.table(), *files)


def _run_kind(kind: Kind, tools: Toolchain, passes: int, results: BookieResults) -> None:
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch:
        folder = Path(scratch)
        with Clusters(folder, tools) as clusters, CopyBench(clusters, kind, folder, cache_folder() / "bench") as bench:
            bench.generate()
            for number in range(1, _WARM_UP + passes + 1):
                for measured in bench.copy_in_turn(number, compare=number > _WARM_UP):
                    results.passes.append(measured)
                    rate = measured.entries / measured.seconds
                    tell(
                        f"{kind.name} {number}: {measured.copier} {rate:,.0f} entries/s,"
                        f" {measured.cpu_seconds['client']:.2f} s"
                    )
            if kind is KINDS[0]:
                for parallelism in range(1, (os.cpu_count() or 1) + 1):
                    results.scaling[parallelism] = bench.copy_by_jobs(parallelism)
                    tell(f"{parallelism} jobs at once: {results.scaling[parallelism]:,.0f} entries/s")


def _measure_pause(tools: Toolchain) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch:
        figures = measure_pause(tools, Path(scratch), cache_folder() / "bench")
    tell(f"a whole switch: {figures['pause_seconds']:.2f} s between the broker's end and the commit")
    return figures


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench bookie-cluster", description=__doc__)
    parser.add_argument("--passes", type=positive, default=3, help="passes that count, after three to warm up (3)")
    parser.add_argument("--kinds", type=_kinds, default=KINDS, help="some of 1KB,64KB,small_ledgers (all)")
    parser.add_argument("--skip-pause", action="store_true", help="do not measure the pause of a whole switch")
    return parser.parse_args(arguments)


def _kinds(text: str) -> list[Kind]:
    kinds = {kind.name: kind for kind in KINDS}
    if unknown := set(text.split(",")) - set(kinds):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(kinds)}")
    return [kinds[name] for name in text.split(",")]

"""The metadata store migration compared with Pulsar's own: `make bench-metadata` (see `bench/README.md`)."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.lifecycle.machine import machine, positive, positives, tell
from bench.lifecycle.results import Side, conclude, order, write
from bench.metadata_store import dataset
from bench.metadata_store.baseline import Peer
from bench.metadata_store.measure import Bench
from bench.metadata_store.results import SizedResults, SizedRun
from bench.metadata_store.servers import Ports, Stores
from models.settings import Settings
from pulsar_devstack.servers.cache import cache_folder
from pulsar_devstack.servers.provision import Toolchain, provision
from pulsar_devstack.servers.stack import Stack, StackSpec


def main(arguments: list[str]) -> None:
    """Run the benchmark, print its table, and write its figures to `bench/out/metadata.json`."""
    options = _parse(arguments)
    tools = provision()
    results = SizedResults(machine=_machine(options, tools))
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch:
        folder = Path(scratch)
        with Stack(StackSpec(temporal=True), folder / "temporal", tools) as stack:
            bench = Bench(Peer(tools, _cache()), stack.temporal_address)
            _run_all(options, tools, bench, folder, results)
    conclude(results.table(), write("metadata.json", results.summary()))


def _run_all(options: argparse.Namespace, tools: Toolchain, bench: Bench, folder: Path, results: SizedResults) -> None:
    sides = [Side.OURS, Side.JOBS] if options.skip_peer else [Side.OURS, Side.PEER, Side.JOBS]
    ports, runs = Ports(), int(options.runs)
    for mb in options.sizes:
        data = dataset.cached(mb, _cache())
        results.datasets[mb] = {"records": data.records, "value_bytes": data.value_bytes}
        for number, (side, _) in enumerate(order(dict.fromkeys(sides, runs)), 1):
            name = f"bench-{mb}mb-{number}"
            run_folder = folder / name
            run_folder.mkdir()
            with Stores(data, run_folder, tools, ports, options.shards) as stores:
                figures = bench.measure(side, name, data, stores, run_folder)
            shutil.rmtree(run_folder)
            results.runs.append(SizedRun(side, figures, mb=mb))
            tell(f"{mb} MB, run {number}: {side.value} {_short(figures)}")


def _cache() -> Path:
    return cache_folder() / "bench"


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench metadata-store", description=__doc__)
    parser.add_argument("--runs", type=positive, default=3, help="runs of each side and size, alternating (3)")
    parser.add_argument(
        "--sizes", type=positives, default=[50, 500], help="megabytes of metadata, separated by commas (50,500)"
    )
    parser.add_argument("--shards", type=positive, default=1, help="shards of Oxia (1)")
    parser.add_argument("--skip-peer", action="store_true", help="measure our side only")
    return parser.parse_args(arguments)


def _machine(options: argparse.Namespace, tools: Toolchain) -> dict[str, Any]:
    return {
        **machine(tools),
        "spark_master": Settings().spark_master,
        "oxia_shards": options.shards,
        "runs": options.runs,
    }


def _short(figures: dict[str, float]) -> str:
    shown = ("blocked_seconds", "copy_seconds", "compare_seconds", "total_seconds")
    return ", ".join(f"{name} {figures[name]:.2f}" for name in shown if name in figures)

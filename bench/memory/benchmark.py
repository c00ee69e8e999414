"""The memory of a worker, its Spark driver and executors together, on a very large cluster: `make bench-memory`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.bookie_cluster.runs import PEER
from bench.bookie_cluster.servers import Clusters
from bench.lifecycle.machine import importable, machine, positive, tell
from bench.memory import bookie_cluster, metadata_store
from bench.memory.metadata_store import damage
from bench.memory.meter import MemoryMeter, Usage
from bench.metadata_store import dataset
from bench.metadata_store.servers import Ports, Stores
from models.bookie_cluster.input import KIND as BOOKIE_CLUSTER
from models.metadata_store.input import KIND as METADATA_STORE
from pulsar_devstack.servers.cache import cache_folder
from pulsar_devstack.servers.child_programs import Child
from pulsar_devstack.servers.java_programs import JavaProgram
from pulsar_devstack.servers.provision import Toolchain, provision

_OUT = Path(__file__).parents[1] / "out" / "memory.json"
_START_SECONDS = 900.0
_STEP_SECONDS = 3_600.0
_STEPS = {METADATA_STORE: metadata_store.STEPS, BOOKIE_CLUSTER: bookie_cluster.STEPS}
#: Values of the dataset take so many bytes for each record.
_VALUE_BYTES = 522

Row = dict[str, Any]
Before = Mapping[str, Callable[[], None]]


def main(arguments: list[str]) -> None:
    """Run the steps, print a table of their peaks, and write the figures to `bench/out/memory.json`."""
    options = _parse(arguments)
    tools = provision()
    rows: list[Row] = []
    began = machine(tools)
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-", dir=options.folder) as scratch:
        for name, run in (("records", _records), ("ledgers", _ledgers)):
            if getattr(options, name):
                folder = Path(scratch) / name
                folder.mkdir()
                for row in run(options, tools, folder):
                    rows.append(row)
                    tell(_line(row))
    _OUT.parent.mkdir(exist_ok=True)
    _OUT.write_text(json.dumps({"machine": began, "steps": rows}, indent=1) + "\n")
    print("\n".join(_line(row) for row in rows))
    print(f"most: {max(row['total'] for row in rows):.0f} MB; figures are in {_OUT}")


def _records(options: argparse.Namespace, tools: Toolchain, folder: Path) -> Iterator[Row]:
    cache = cache_folder() / "bench" if options.folder is None else options.folder
    data = dataset.cached(max(1, round(options.records * _VALUE_BYTES / 1e6)), cache)
    with Stores(data, folder, tools, Ports(), shards=1) as stores:
        input = {
            "cluster": "bench",
            "source": stores.source,
            "target": stores.target,
            "allow_no_brokers": True,
            "full_verify": True,
        }
        before = {"copy again": lambda: damage(stores.source, stores.target, options.different)}
        yield from _run(METADATA_STORE, input, options, folder, before)


def _ledgers(options: argparse.Namespace, tools: Toolchain, folder: Path) -> Iterator[Row]:
    with Clusters(folder, tools, heap_mb=512 + options.ledgers // 150) as clusters:
        tell(f"writing {options.ledgers:,} ledgers")
        writer = JavaProgram(PEER, tools, cache=cache_folder() / "bench")
        command = writer.command(clusters.source, clusters.target, "single", options=("-Xmx1g",))
        with Child(command, folder / "generator.log") as generator:
            generator.await_line("READY", _START_SECONDS)
            generator.order(f"generate 1 {options.ledgers} 1 0")
            generator.figures(_STEP_SECONDS)
        store = f"zk:{clusters.zookeeper_address}"
        bookie_cluster.refer(store, options.ledgers)
        input = {
            "cluster": "bench",
            "metadata_url": store,
            "source": {"name": "a", "metadataServiceUri": clusters.source},
            "target": {"name": "b", "metadataServiceUri": clusters.target},
            "routing": "restart",
            "allow_no_brokers": True,
            "advance_ids": True,
        }
        yield from _run(BOOKIE_CLUSTER, input, options, folder, {})


def _run(kind: str, input: Row, options: argparse.Namespace, folder: Path, before: Before) -> Iterator[Row]:
    command = [sys.executable, "-m", "bench.memory.steps", kind, json.dumps(input)]
    with Child(command, folder / "steps.log", importable()) as child:
        child.await_line("READY", _START_SECONDS)
        meter = MemoryMeter(child.pid)
        yield _row(kind, "idle", meter.now(), 0.0, {})
        for step in [step for step in _STEPS[kind] if step not in options.leave_out]:
            before.get(step, lambda: None)()
            begun = time.monotonic()
            with meter.peak() as usages:
                child.order(step)
                facts = child.figures(_STEP_SECONDS)
            yield _row(kind, step, usages[0], time.monotonic() - begun, facts)


def _row(kind: str, step: str, usage: Usage, seconds: float, facts: dict[str, float]) -> Row:
    parts = {name: round(size / 1e6, 1) for name, size in usage._asdict().items()}
    return {"kind": kind, "step": step, "total": round(usage.total / 1e6, 1), **parts, "seconds": round(seconds, 1)} | {
        "facts": facts
    }


def _line(row: Row) -> str:
    parts = " ".join(f"{field} {row[field]:6.0f}" for field in Usage._fields)
    facts = ", ".join(f"{name} {value:,}" for name, value in row["facts"].items())
    return f"{row['kind']:22} {row['step']:17} {row['total']:6.0f} MB ({parts}) {row['seconds']:7.1f} s  {facts}"


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench memory", description=__doc__)
    parser.add_argument("--records", type=_count, default=3_000_000, help="of the metadata store; 0: leave out")
    parser.add_argument("--different", type=_count, default=200_000, help="records that a second attempt repairs")
    parser.add_argument("--ledgers", type=_count, default=200_000, help="of the bookie cluster; 0: leave out")
    parser.add_argument(
        "--leave-out",
        type=lambda text: text.split(","),
        default=(),
        help="steps that nothing else needs, separated by commas",
    )
    parser.add_argument("--folder", type=Path, help="for data (the system's for temporary files)")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    return 0 if text == "0" else positive(text)

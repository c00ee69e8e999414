"""The blue-green migration beside the brokers' own mechanism: `make bench-blue-green` (see `bench/README.md`)."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.blue_green import scale
from bench.blue_green.measure import measure
from bench.blue_green.results import Flips
from bench.blue_green.servers import Servers
from bench.lifecycle.machine import machine, positive, tell
from bench.lifecycle.results import OUT, Side, conclude, order, write
from pulsar_devstack.servers.provision import provision
from pulsar_devstack.servers.toolchain import Toolchain


def main(arguments: list[str]) -> None:
    """Run the benchmark, print its table, and write its figures to `bench/out/`."""
    options = _parse(arguments)
    tools = provision()
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch:
        folder = Path(scratch)
        with Servers(folder, tools) as servers:
            if options.scale:
                out = OUT / "blue_green_scale.json"
                table = scale.run(options.scale, servers, out, machine(tools))
            else:
                out = OUT / "blue_green.json"
                table = _flips(options, servers, folder, tools)
    conclude(table, out)


def _flips(options: argparse.Namespace, servers: Servers, folder: Path, tools: Toolchain) -> str:
    results = Flips(machine=machine(tools))
    of_peer = options.flips if options.peer_flips is None else options.peer_flips
    for side, number in order({Side.OURS: options.flips, Side.PEER: of_peer}):
        logs = folder / f"{side.value}-{number}"
        logs.mkdir()
        flip = measure(side, number, servers, logs, tools)
        results.runs.append(flip)
        gap = flip.figures["longest_gap_seconds"]
        tell(f"flip {number}, {side.value}: gap {gap:.2f} s; {'; '.join(flip.faults) or 'no fault'}")
        # After each flip: a benchmark that is ended leaves what it has found.
        write("blue_green.json", results.summary())
    return results.table()


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench blue-green", description=__doc__)
    parser.add_argument("--flips", type=positive, default=20, help="our flips (20)")
    parser.add_argument("--peer-flips", type=int, help="flips of the peer, spread over ours (as many)")
    parser.add_argument("--scale", type=_sizes, help="instead: migrations of so many namespaces, for example 5,10,20")
    return parser.parse_args(arguments)


def _sizes(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]

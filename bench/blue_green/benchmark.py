"""The blue-green migration next to the brokers' own mechanism: `make bench-blue-green` (see `bench/README.md`)."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.blue_green import scale
from bench.blue_green.servers import Servers
from bench.lifecycle.machine import machine, positive, positives, tell
from bench.lifecycle.results import (
    DELIVERY,
    OUT,
    SIDES,
    Results,
    Run,
    Side,
    conclude,
    delivery_figures,
    figures_table,
    order,
    write,
)
from clients.pulsar.admin.errors import AdminError
from pulsar_devstack.servers.provision import provision
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import mixed_topics
from pulsar_devstack.traffic.runner import Traffic
from pulsar_devstack.traffic.two_clusters import flip_bare

# Two seconds of what a producer sends.
_MESSAGES = 100
_MOVE_SECONDS = 60.0
_DELIVERY_SECONDS = 30.0
# What is counted adds up, what lasts is as long as the longest.
_SUMS = (*DELIVERY, "stuck_brokers")
_LONGEST = ("longest_gap_seconds", "longest_send_seconds")
_LABELS = DELIVERY | {
    "stuck_brokers": "flips after which brokers were restarted",
    "longest_gap_seconds": "longest gap (s)",
    "median_gap_seconds": "median of the flips' longest gaps (s)",
    "longest_send_seconds": "longest send (s)",
}


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
    parser.add_argument(
        "--scale", type=positives, help="instead: migrations of so many namespaces, for example 5,10,20"
    )
    return parser.parse_args(arguments)


def measure(side: Side, number: int, servers: Servers, folder: Path, tools: Toolchain) -> Run:
    """Return the figures of one flip.

    Args:
        side: who flips.
        number: of the flip.
        servers: both clusters.
        folder: an empty folder for the clients' logs.
        tools: Java and the jars.
    """
    namespace = f"bench/{side.value}-{number}"
    topics = mixed_topics(namespace)
    clusters = servers.clusters
    # Our migration provisions green itself.
    clusters.prepare(namespace, topics, on_green=side is Side.PEER)
    with Traffic.in_programs(clusters.blue_url, topics, folder, tools) as traffic:
        traffic.wait_for_more(_MESSAGES)
        at = time.time()
        own = _flip(side, servers, namespace)
        flipped = time.time()
        # Twice: who followed sends on green then, and who received there has got some of it.
        moved = traffic.flows(_MESSAGES, _MOVE_SECONDS) and traffic.flows(_MESSAGES, _MOVE_SECONDS)
        audit = traffic.stop(_DELIVERY_SECONDS)
    longest = {"longest_send_seconds": audit.longest_send, "longest_gap_seconds": audit.longest_gap}
    figures = {"seconds": flipped - at, "moved": float(moved), **delivery_figures(audit), **longest, **own}
    with suppress(AdminError):
        clusters.leave(namespace)
    figures["stuck_brokers"] = float(servers.recovered())
    return Run(side, figures, tuple(audit.faults()))


def _flip(side: Side, servers: Servers, namespace: str) -> dict[str, float]:
    if side is Side.OURS:
        return servers.migrations.run(namespace)
    flip_bare(servers.clusters, namespace)
    return {}


class Flips(Results[Run]):
    """Flips of one benchmark: by the migration, and by the broker's mechanism alone."""

    def of(self, side: Side) -> dict[str, float] | None:
        """Return the figures of one side over all its flips; None without any."""
        flips = self.of_side(side)
        if not flips:
            return None
        figures = [flip.figures for flip in flips]
        return {
            "flips": len(figures),
            **_over(figures, _SUMS, sum),
            **_over(figures, _LONGEST, max),
            "median_gap_seconds": statistics.median(flip["longest_gap_seconds"] for flip in figures),
            "flips_with_faults": sum(bool(flip.faults) for flip in flips),
        }

    def summary(self) -> dict[str, Any]:
        """Return the content of `bench/out/blue_green.json`."""
        return {
            "flips": max(len(self.of_side(side)) for side in SIDES),
            **{side.value: self.of(side) for side in SIDES},
            "detail": {
                "machine": self.machine,
                "runs": [
                    {"side": flip.side.value, "figures": flip.figures, "faults": flip.faults} for flip in self.runs
                ],
            },
        }

    def table(self) -> str:
        """Return a Markdown table: both sides next to each other, sums and longest times over all flips."""
        sides = {side: figures for side in SIDES if (figures := self.of(side))}
        head = ["", *(f"{side.value}, {int(figures['flips'])} flips" for side, figures in sides.items())]
        return figures_table(head, _LABELS, [*sides.values()])


def _over(
    figures: Sequence[dict[str, float]], names: Sequence[str], combine: Callable[[list[float]], float]
) -> dict[str, float]:
    return {name: combine([figure[name] for figure in figures]) for name in names}

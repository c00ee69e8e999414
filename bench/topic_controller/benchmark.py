"""Splits, merges and lost consumers of scalable topics: `make bench-controller` (`bench/README.md`)."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from bench.lifecycle.machine import machine, positive, tell
from bench.lifecycle.results import OUT, SIDES, Side, conclude, parse_sides, write
from bench.topic_controller.measure import Clients, changes, deaths
from bench.topic_controller.results import ControllerResults, ControllerRun
from bench.topic_controller.servers import GRACE, NAMESPACE, Servers
from bench.topic_controller.topics import Topic
from pulsar_devstack.servers.provision import provision, with_scalable_clients
from pulsar_devstack.servers.toolchain import Toolchain

_FILE = "controller.json"
_SEGMENTS = 2


def main(arguments: list[str]) -> None:
    """Run the benchmark, print its table, and write its figures to `bench/out/`."""
    options = _parse(arguments)
    tools = provision()
    clients = with_scalable_clients(tools)
    results = ControllerResults(machine(tools) | vars(options))
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch,
        Servers(Path(scratch), tools) as servers,
    ):
        for side in options.sides:
            run = ControllerRun(side)
            results.runs.append(run)
            _measure(run, servers, Path(scratch), clients, options)
            tell(f"{side.value}: {'; '.join(run.faults) or 'no fault'}")
            # After each side: a benchmark that is ended leaves what it has found.
            write(_FILE, results.summary())
    conclude(results.table(), OUT / _FILE)


def _measure(run: ControllerRun, servers: Servers, folder: Path, tools: Toolchain, options: argparse.Namespace) -> None:
    for kind in ("changes", "deaths"):
        path = f"persistent://{NAMESPACE}/{run.side.value}-{kind}"
        topic = Topic.create(run.side, servers.admin(run.side), path, _SEGMENTS)
        if run.side is Side.OURS:
            servers.shorten_grace(path)
        logs = folder / f"{run.side.value}-{kind}"
        logs.mkdir()
        with Clients(topic, servers.stack.broker_url, logs, tools, options.rate) as clients:
            if kind == "changes":
                changes(topic, clients, run, options.operations, random.Random(options.seed))
            else:
                deaths(topic, clients, run, options.deaths, GRACE)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench controller", description=__doc__)
    parser.add_argument("--operations", type=positive, default=20, help="splits and merges of each side (20)")
    parser.add_argument("--deaths", type=positive, default=3, help="consumers that are killed on each side (3)")
    parser.add_argument("--rate", type=positive, default=500, help="messages per second (500)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of segments (1)")
    parser.add_argument("--sides", type=parse_sides, default=list(SIDES), help="ours,peer or one of them (both)")
    return parser.parse_args(arguments)

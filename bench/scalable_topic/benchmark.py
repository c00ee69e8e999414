"""Topics become scalable, by ours and by the brokers' own command: `make bench-scalable-topic` (`bench/README.md`)."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.lifecycle.machine import machine, positive, tell
from bench.lifecycle.results import OUT, SIDES, conclude, parse_sides, write
from bench.scalable_topic.measure import measure
from bench.scalable_topic.results import TopicResults
from bench.scalable_topic.servers import CLUSTER, Servers
from pulsar_devstack.servers.provision import provision, with_scalable_clients
from pulsar_devstack.traffic.scalable_plan import scalable_topics

_FILE = "scalable_topic.json"


def main(arguments: list[str]) -> None:
    """Run the benchmark, print its table, and write its figures to `bench/out/`."""
    options = _parse(arguments)
    tools = provision()
    clients = with_scalable_clients(tools)
    results = TopicResults(machine(tools) | {"rate": options.rate}, topics=options.topics)
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch,
        Servers(Path(scratch), tools) as servers,
    ):
        for side in options.sides:
            logs = Path(scratch) / side.value
            logs.mkdir()
            topics = scalable_topics(f"{CLUSTER}/{side.value}", options.topics, options.rate)
            run = measure(side, topics, servers, logs, clients)
            results.runs.append(run)
            tell(f"{side.value}: {'; '.join(run.faults) or 'no fault'}")
            # After each side: a benchmark that is ended leaves what it has found.
            write(_FILE, results.summary())
    conclude(results.table(), OUT / _FILE)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench scalable-topic", description=__doc__)
    parser.add_argument("--topics", type=positive, default=50, help="topics of each side (50)")
    parser.add_argument("--rate", type=positive, default=10, help="messages per second of each topic (10)")
    parser.add_argument("--sides", type=parse_sides, default=list(SIDES), help="ours,peer or one of them (both)")
    return parser.parse_args(arguments)

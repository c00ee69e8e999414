"""How long brokers wait for a whole switch: 10,000 closed ledgers, and 20 topics whose broker was killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.bookie_cluster.runs import PEER
from bench.lifecycle.measure import execute, serving_worker
from models.bookie_cluster.input import BookieClusterInput
from models.lifecycle.failures import failed_lines
from models.lifecycle.report import Report
from pulsar_devstack.servers.child_programs import Child
from pulsar_devstack.servers.java_programs import JavaProgram
from pulsar_devstack.servers.plans import METADATA_DRIVERS
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.runner import Traffic

CLOSED, OPEN = 10_000, 20
_ENTRIES, _SIZE = 5, 1_000
# Far above the ids that the broker uses.
_FIRST = 1_000_000
_TOPICS = OPEN + 4
_MESSAGES = 50
_START_SECONDS = 180.0
_RUN_SECONDS = 600.0


class PauseFailed(Exception):
    """The switch was not what it must be: then its pause means nothing."""


def measure_pause(tools: Toolchain, folder: Path, cache: Path) -> dict[str, float]:
    """Switch a whole cluster, and return its report's figures.

    Args:
        tools: the programs.
        folder: for data and logs.
        cache: a folder for the compiled peer, which writes the closed ledgers.

    Raises:
        PauseFailed: fewer ledgers were open, or not all was moved.
    """
    spec = StackSpec(
        zookeepers=1,
        bookies=2,
        second_bookies=2,
        brokers=1,
        temporal=True,
        cluster="bench",
        broker_settings={"brokerDeleteInactiveTopicsEnabled": "false"},
    )
    with Stack(spec, folder / "stack", tools) as stack:
        _write_closed(stack, tools, folder, cache)
        with Traffic.here(stack.broker_url, [f"open-{number}" for number in range(_TOPICS)]) as traffic:
            traffic.wait_for_more(_MESSAGES)
        report = _switch(stack, folder)
    figures = {name: float(value) for name, value in report.figures.items() if isinstance(value, (int, float))}
    recovered, copied = report.figures["tail"]["recovered_ledgers"], report.figures["build"]["copied_ledgers"]
    if report.failed_items or recovered < OPEN or copied < CLOSED:
        raise PauseFailed(f"{report.summary}: {failed_lines(report.failed_items)[:3]}, {figures}")
    return {**figures, "tail_recovered_ledgers": float(recovered)}


def _write_closed(stack: Stack, tools: Toolchain, folder: Path, cache: Path) -> None:
    options = ("-Xmx1g", *METADATA_DRIVERS)
    program = JavaProgram(PEER, tools, cache=cache)
    command = program.command(stack.bookkeeper_uri, stack.second_bookkeeper_uri, "single", options=options)
    with Child(command, folder / "generator.log") as generator:
        generator.await_line("READY", _START_SECONDS)
        generator.order(f"generate {_FIRST} {CLOSED} {_ENTRIES} {_SIZE}")
        generator.figures(_RUN_SECONDS)


def plan(metadata_url: str, source: str, target: str) -> BookieClusterInput:
    """Return the plan of what is measured."""
    return BookieClusterInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": "bench",
            "metadata_url": metadata_url,
            "source": {"name": "a", "metadataServiceUri": source},
            "target": {"name": "b", "metadataServiceUri": target},
            "routing": "restart",
            # The ledgers that are made for it belong to no topic.
            "ledgers": "all",
            "exclusive": True,
            "advance_ids": True,
            "broker_control": "command",
            "rollback_window": "PT0S",
        }
    )


def _switch(stack: Stack, folder: Path) -> Report:
    input = plan(stack.zk_url, stack.bookkeeper_uri, stack.second_bookkeeper_uri)
    dev = [sys.executable, "-m", "pulsar_migrate", "dev"]
    settings = {
        # A crash, so that ledgers stay open.
        "PULSAR_MIGRATE_BROKER_STOP_COMMAND": json.dumps([*dev, "kill", "broker-1", "--folder", str(stack.folder)]),
        "PULSAR_MIGRATE_BROKER_START_COMMAND": json.dumps([*dev, "start-brokers", "--folder", str(stack.folder)]),
    }
    with serving_worker(stack.temporal_address, folder, **settings):
        return execute(stack.temporal_address, "BookieClusterMigration", input)

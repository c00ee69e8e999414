"""Our side: the workflow `BlueGreenMigration` of one namespace, on a Temporal dev server with one worker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.lifecycle.machine import importable
from bench.metadata_store.measure import execute
from models.blue_green.input import BlueGreenInput
from pulsar_devstack.servers.child_programs import Child
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.two_clusters import BLUE, GREEN

_START_SECONDS = 180.0


@dataclass(frozen=True)
class Migrations:
    """Runs migrations, one after the other.

    Attributes:
        blue: the cluster that is left.
        green: the one that takes over.
        temporal: `host:port` of the server.
    """

    blue: Stack
    green: Stack
    temporal: str

    @classmethod
    @contextmanager
    def serving(cls, blue: Stack, green: Stack, temporal: str, logs: Path) -> Generator[Migrations]:
        """With a worker that is ready, and ends with the context; its log is in `logs`."""
        settings = {"TEMPORAL_ADDRESS": temporal, "PULSAR_MIGRATE_METRICS_ADDRESS": "", **importable()}
        with Child([sys.executable, "-m", "pulsar_migrate", "worker"], logs / "worker.log", settings) as worker:
            worker.await_line("worker ready", _START_SECONDS)
            yield cls(blue, green, temporal)

    def input(self, namespaces: str, **more: object) -> BlueGreenInput:
        """The migration of the namespaces of a pattern, with further fields of the input."""
        return BlueGreenInput.model_validate(
            {
                "cluster": BLUE,
                "blue": _reached(self.blue),
                "green_cluster": GREEN,
                "green": _reached(self.green),
                "namespaces": [namespaces],
                "waves": {"gate": "none"},
                "grace_window": "PT0S",
                "complete_cluster": False,
                **more,
            }
        )

    def run(self, namespaces: str, **more: object) -> dict[str, float]:
        """Move the namespaces of a pattern, to the end of the migration; returns the workflow's own figures.

        Raises:
            MigrationFailed: it failed.
        """
        input = self.input(namespaces, **more)
        report = asyncio.run(execute(self.temporal, "BlueGreenMigration", input, input.workflow_id))
        return {f"reported_{key}": value for key, value in report.figures.items() if isinstance(value, (int, float))}


def _reached(stack: Stack) -> dict[str, object]:
    return {
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "service_url": stack.admin_urls[0],
        "broker_service_url": stack.broker_url,
    }

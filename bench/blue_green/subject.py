"""Our side: the workflow `BlueGreenMigration` of one namespace, on a Temporal dev server with one worker."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.lifecycle.measure import execute, reported, serving_worker
from models.blue_green.input import BlueGreenInput
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.two_clusters import BLUE, GREEN


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
        with serving_worker(temporal, logs):
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
        return reported(execute(self.temporal, "BlueGreenMigration", self.input(namespaces, **more)))


def _reached(stack: Stack) -> dict[str, object]:
    return {
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "service_url": stack.admin_urls[0],
        "broker_service_url": stack.broker_url,
    }

"""Our side: the workflow `ScalableNamespaceMigration`, on a Temporal dev server with one worker."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client

from bench.lifecycle.measure import execute, serving_worker
from bench.scalable_topic.results import TopicFlip
from models.lifecycle.report import Report
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from models.scalable_topic.phases import Phase
from models.scalable_topic.state import TopicFigures
from pulsar_devstack.servers.stack import Stack
from temporal.converter import DATA_CONVERTER

# Each topic waits for the consumer that comes last.
_RUN_SECONDS = 7_200.0
PARALLEL = 10
"""Topics that become scalable at once, on either side."""


@dataclass(frozen=True)
class Migrations:
    """Runs migrations, one after the other.

    Attributes:
        stack: the cluster, with the Temporal server.
        cluster: its name.
    """

    stack: Stack
    cluster: str

    @classmethod
    @contextmanager
    def serving(cls, stack: Stack, cluster: str, logs: Path) -> Generator[Migrations]:
        """Start a worker and wait until it is ready; it ends with the context. Its log is in `logs`."""
        with serving_worker(stack.temporal_address, logs):
            yield cls(stack, cluster)

    def run(self, namespace: str, topics: Sequence[str]) -> tuple[list[TopicFlip], Report[Any, Any]]:
        """Make the topics of a namespace scalable, to the end of the migration.

        Returns:
            How long each took, and the report of all.

        Raises:
            MigrationFailed: it failed.
        """
        input = self._input(namespace)
        report = execute(self.stack.temporal_address, "ScalableNamespaceMigration", input, _RUN_SECONDS)
        return asyncio.run(self._flips(input.workflow_id, topics)), report

    def _input(self, namespace: str) -> ScalableNamespaceInput:
        return ScalableNamespaceInput.model_validate(
            {
                "cluster": self.cluster,
                "metadata_url": self.stack.metadata_url,
                "admin_urls": self.stack.admin_urls,
                "topics": [f"{namespace}/*"],
                "hold_before_cutover": False,
                "client_timeout": "PT10M",
                "drain_timeout": "PT10M",
                "grace_window": "PT0S",
                "waves": {"gate": "none", "parallelism": PARALLEL, "deadline": "PT1H"},
            }
        )

    async def _flips(self, parent: str, topics: Sequence[str]) -> list[TopicFlip]:
        client = await Client.connect(self.stack.temporal_address, data_converter=DATA_CONVERTER)
        flips: list[TopicFlip] = []
        for topic in topics:
            child = client.get_workflow_handle(f"{parent}/{topic.partition('://')[2]}", result_type=Report)
            flips.append(_flip(topic, await child.result()))
        return flips


def _flip(topic: str, report: Report[Any, Any]) -> TopicFlip:
    figures = TopicFigures.model_validate(report.figures)
    phase = next(entry for entry in report.history if entry.phase == Phase.FLIP)
    assert phase.ended is not None, "the phase has ended, as the workflow has"
    return TopicFlip(
        topic,
        call_seconds=figures.migrate_seconds or 0.0,
        work_seconds=figures.flip_seconds or 0.0,
        flip_seconds=phase.seconds(phase.ended),
    )

"""Measure a migration: a worker that serves it, and the workflow from its start to its report."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import FailureError

from bench.lifecycle.machine import importable
from models.lifecycle.input import MigrationInput
from models.lifecycle.names import TASK_QUEUE
from models.lifecycle.report import Report
from pulsar_devstack.servers.child_programs import Child
from temporal.converter import DATA_CONVERTER

_START_SECONDS = 180.0
_RUN_SECONDS = 1_800.0


class MigrationFailed(Exception):
    """A measured migration did not come to its end."""


@contextmanager
def serving_worker(temporal: str, logs: Path, **settings: str) -> Generator[Child]:
    """Run a worker from when it is ready to the end of the context; its log is in `logs`.

    Args:
        temporal: `host:port` of the server.
        logs: a folder.
        settings: further variables of its environment.
    """
    environment = {"TEMPORAL_ADDRESS": temporal, "PULSAR_MIGRATE_METRICS_ADDRESS": "", **importable(), **settings}
    with Child([sys.executable, "-m", "pulsar_migrate", "worker"], logs / "worker.log", environment) as worker:
        worker.await_line("worker ready", _START_SECONDS)
        yield worker


def execute(temporal: str, workflow: str, input: MigrationInput, limit: float = _RUN_SECONDS) -> Report:
    """Run a migration to its end.

    Args:
        temporal: `host:port` of the server.
        workflow: the workflow's type.
        input: its input.
        limit: seconds that it may take.

    Raises:
        MigrationFailed: it failed.
    """

    async def run() -> Report:
        client = await Client.connect(temporal, data_converter=DATA_CONVERTER)
        async with asyncio.timeout(limit):
            return await client.execute_workflow(
                workflow, input, id=input.workflow_id, task_queue=TASK_QUEUE, result_type=Report
            )

    try:
        return asyncio.run(run())
    except WorkflowFailureError as failure:
        raise MigrationFailed(_innermost(failure)) from failure


def reported(report: Report) -> dict[str, float]:
    """Return the numbers of a report, as figures of a run."""
    return {f"reported_{key}": value for key, value in report.figures.items() if isinstance(value, (int, float))}


def _innermost(failure: BaseException) -> str:
    cause = failure
    while isinstance(cause, (WorkflowFailureError, FailureError)) and cause.cause is not None:
        cause = cause.cause
    return str(cause)

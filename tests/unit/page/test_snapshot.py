"""Snapshots of a namespace, with a double of Temporal that fails at the wrong moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from page.snapshot import SnapshotReader

_ENDED = SimpleNamespace(
    id="metadata-store/prod",
    run_id="run-1",
    workflow_type="MetadataStoreMigration",
    task_queue="q",
    parent_id=None,
    status=WorkflowExecutionStatus.COMPLETED,
    close_time=datetime.now(UTC),
)


class Temporal:
    """A namespace with one migration that has ended; the first request for its result is not answered."""

    namespace = "default"

    def __init__(self) -> None:
        self._requests = 0
        self.workflow_service = self

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[SimpleNamespace]:
        """List the migration where ended ones are asked for."""
        if "!= 'Running'" in query:
            yield _ENDED

    def get_workflow_handle(self, *_: Any, **__: Any) -> Temporal:
        """Return itself as the handle."""
        return self

    async def describe(self, **_: Any) -> SimpleNamespace:
        """Describe the migration."""
        return _ENDED

    async def result(self, **_: Any) -> Report:
        """Return the report, but not at the first request."""
        self._requests += 1
        if self._requests == 1:
            raise RPCError("timeout", RPCStatusCode.DEADLINE_EXCEEDED, b"")
        return Report(
            kind="", cluster="prod", outcome=Outcome.DONE, summary="", history=[], figures={}, certificate={}, notes=[]
        )

    async def describe_task_queue(self, *_: Any, **__: Any) -> SimpleNamespace:
        """Return a queue without pollers."""
        return SimpleNamespace(pollers=[])


async def test_an_end_that_cannot_be_read_is_left_out_until_it_can() -> None:
    """One slow answer of Temporal must not report a finished migration for an hour as one that has failed."""
    reader = SnapshotReader(cast("Client", Temporal()), "q")
    assert (await reader.read()).ended == ()
    [end] = (await reader.read()).ended
    assert (end.outcome, end.failure) == ("done", "")

"""The list of migrations: running and ended ones, with what each waits for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowExecution

from models.lifecycle.status import Outcome, Progress, Waiting
from process.exit_codes import CommandFailed
from temporal.client import ANSWER_LIMIT
from temporal.encryption import unreadable_because
from views.migration import RUNNING, View, list_filter, read_view
from worker.catalog import KINDS

QUERY_LIMIT = timedelta(seconds=2)
"""Longest wait for the status of one migration: a few without a worker must not delay the list by minutes."""

MAX_CONCURRENT_QUERIES = 16
"""Most migrations that are queried at once: without a worker, the page waits for all in its list."""


class Listed(BaseModel):
    """A migration in the list.

    Attributes:
        execution: Temporal's status of the workflow: RUNNING, COMPLETED, FAILED, …
        phase: the running phase, or the last one.
        outcome: state, or how it ended; None if it is unknown.
        failure: type of the failure that ended it, for example `PrecheckFailed`; empty for none.
        waiting: what it waits for; None if it waits for nothing, or no worker answered.
        progress: progress of the running phase; None if nothing is counted.
        silence: why the migration itself did not answer; empty if it did.
        since: start of the wait; else start of the running phase; else the end.
    """

    workflow_id: str
    run_id: str
    kind: str
    cluster: str
    target: str
    execution: str
    phase: str
    outcome: Outcome | None
    failure: str
    waiting: Waiting | None
    progress: Progress | None
    silence: str
    since: datetime
    started: datetime
    closed: datetime | None


async def list_migrations(client: Client, *, ended: bool, limit: int | None) -> list[Listed]:
    """Return migrations that are not part of another one: running ones first, then by start, newest first.

    Args:
        client: client of Temporal.
        ended: whether to include ended migrations.
        limit: most migrations to return; None for all.

    Raises:
        RPCError: Temporal does not answer.
    """
    workflows = await _top_level(client, list_filter(RUNNING), limit)
    remaining = None if limit is None else limit - len(workflows)
    if ended and remaining != 0:
        # A run that continued as new belongs to a migration that continues.
        closed = list_filter("!= 'Running' AND ExecutionStatus != 'ContinuedAsNew'")
        workflows += await _top_level(client, closed, remaining)
    free = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

    async def read(workflow: WorkflowExecution) -> list[Listed]:
        async with free:
            running = workflow.close_time is None
            options: dict[str, Any] = {"run_id": workflow.run_id, "with_status": running, "limit": QUERY_LIMIT}
            try:
                view = await read_view(client, workflow.id, children=0, **options)
            except CommandFailed:
                # Temporal has forgotten it since it was listed.
                return []
            except RuntimeError as error:
                if not (why := unreadable_because(error)):
                    raise
                # One whose key is lost hides no other one.
                view = _unread(workflow, why)
            return [_listed(workflow, view)]

    listed = chain.from_iterable(await asyncio.gather(*map(read, workflows)))
    return sorted(listed, key=lambda migration: (migration.closed is None, migration.started), reverse=True)


async def _top_level(client: Client, query: str, limit: int | None) -> list[WorkflowExecution]:
    """Return migrations that match a query, without children of others, of which there may be hundreds."""
    workflows: list[WorkflowExecution] = []
    async for workflow in client.list_workflows(query, rpc_timeout=ANSWER_LIMIT):
        if workflow.parent_id is None:
            workflows.append(workflow)
        if len(workflows) == limit:
            break
    return workflows


def _unread(workflow: WorkflowExecution, silence: str) -> View:
    """Return what Temporal alone knows of a migration."""
    return View(
        workflow_id=workflow.id,
        run_id=workflow.run_id,
        execution=workflow.status.name if workflow.status else "UNKNOWN",
        started=workflow.start_time,
        closed=workflow.close_time,
        phase=str(next(iter(workflow.search_attributes.get("MigrationPhase", [])), "")),
        status=None,
        silence=silence,
        steps=[],
        report=None,
        failure=None,
    )


def _listed(workflow: WorkflowExecution, view: View) -> Listed:
    name = workflow.workflow_type
    kind = next((kind.name for kind in KINDS.values() if kind.workflow == name), name)
    reported = view.status or view.report
    target = workflow.search_attributes.get("MigrationTarget", [""])[0]
    history = reported.history if reported else []
    began = next((entry.started for entry in history if entry.ended is None), view.started)
    waiting = view.status.waiting if view.status else None
    return Listed(
        workflow_id=view.workflow_id,
        run_id=view.run_id,
        kind=kind,
        cluster=reported.cluster if reported else view.workflow_id.removeprefix(f"{kind}/").partition("/")[0],
        target=view.status.target if view.status else str(target),
        execution=view.execution,
        phase=view.status.phase if view.status else view.phase or (history[-1].phase if history else ""),
        outcome=Outcome.FAILED if view.failure else reported.outcome if reported else None,
        failure=view.failure.kind if view.failure else "",
        waiting=waiting,
        progress=view.status.progress if view.status else None,
        silence=view.silence,
        since=(view.closed or (waiting.since if waiting else began)).astimezone(UTC),
        started=history[0].started if history else view.started,
        closed=view.closed,
    )

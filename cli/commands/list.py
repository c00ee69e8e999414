"""`pulsar-migrate list`: running and ended migrations."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from pydantic import BaseModel
from temporalio.client import Client, WorkflowExecution

from cli.operations import against_temporal
from cli.options import Form, Output, answer
from cli.rendering import ago
from cli.tables import print_table
from cli.view import RUNNING, View, list_filter, look
from models.lifecycle.status import Outcome, Progress, Waiting
from temporal.client import ANSWER_LIMIT
from worker.catalog import KINDS

_HEAD = ("KIND", "CLUSTER", "PHASE", "SINCE", "STATE")


def list_command(
    *,
    running: Annotated[bool, typer.Option("--running", help="Only those that run.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Without a limit.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most to show; running ones first, then the newest.")] = 20,
    output: Output = Form.TEXT,
) -> None:
    """List migrations: kind, cluster, phase, and what each waits for."""
    most = None if all_ else limit
    found = against_temporal(lambda client: list_migrations(client, ended=not running, limit=most))
    if output is Form.JSON:
        answer(output, [], [one.model_dump(mode="json") for one in found])
    elif found:
        now = datetime.now(UTC)
        print_table(_HEAD, [_row(one, now) for one in found])
    else:
        answer(output, ["no migration runs" if running else "there are no migrations"], [])


def _row(one: Listed, now: datetime) -> tuple[str, ...]:
    # The rest of the id, which says of which topic of the cluster; ids of one's own say anything.
    usual = one.workflow_id.removeprefix(f"{one.kind}/")
    named = usual if usual.startswith(one.cluster) else one.cluster
    return (one.kind, named, one.phase or "-", ago(one.since, now), _state(one))


def _state(one: Listed) -> str:
    if one.silence:
        return f"no answer: {one.silence}"
    if one.waiting:
        return f"{one.waiting.action}; waits for {one.waiting.why}".removeprefix("; ")
    if one.progress and not one.closed:
        return str(one.progress)
    if one.failure:
        return f"{one.outcome}: {one.failure}"
    return str(one.outcome or one.execution.lower())


QUERY_LIMIT = timedelta(seconds=2)
"""Longest wait for one migration's own answer: a list with a few that no worker serves must not take minutes."""

AT_ONCE = 8
"""Most migrations that are asked at once."""


class Listed(BaseModel):
    """A migration in the list.

    Attributes:
        execution: Temporal's word for the workflow: RUNNING, COMPLETED, FAILED, …
        phase: the running phase, or the last one.
        outcome: how it stands or ended; None where nobody could say.
        failure: type of the failure that ended it, for example `PrecheckFailed`; empty for none.
        waiting: what it waits for; None if for nothing, or if no worker answered.
        progress: of the running phase; None where nothing is counted.
        silence: why the migration itself did not answer; empty if it did.
        since: since when it waits; else since when the phase runs; else when it ended.
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
    """Find migrations that are no part of another one, running ones first, then by their start, newest first.

    Args:
        client: of Temporal.
        ended: those that have ended as well.
        limit: most that are returned; None for all.

    Raises:
        RPCError: Temporal does not answer.
    """
    found = await _whole(client, list_filter(RUNNING), limit)
    left = None if limit is None else limit - len(found)
    if ended and left != 0:
        # A run that continued as new is the same migration, which continues.
        closed = list_filter("!= 'Running' AND ExecutionStatus != 'ContinuedAsNew'")
        found += await _whole(client, closed, left)
    free = asyncio.Semaphore(AT_ONCE)

    async def ask(one: WorkflowExecution) -> Listed:
        async with free:
            running = one.close_time is None
            return _listed(one, await look(client, one.id, run_id=one.run_id, with_status=running, limit=QUERY_LIMIT))

    listed = await asyncio.gather(*map(ask, found))
    return sorted(listed, key=lambda one: (one.closed is None, one.started), reverse=True)


async def _whole(client: Client, query: str, limit: int | None) -> list[WorkflowExecution]:
    """Migrations that fit a query, without those that another one has begun: there may be hundreds."""
    found: list[WorkflowExecution] = []
    async for workflow in client.list_workflows(query, rpc_timeout=ANSWER_LIMIT):
        if workflow.parent_id is None:
            found.append(workflow)
        if len(found) == limit:
            break
    return found


def _listed(one: WorkflowExecution, view: View) -> Listed:
    kind = next((kind.name for kind in KINDS.values() if kind.workflow == one.workflow_type), one.workflow_type)
    known = view.status or view.report
    target = one.search_attributes.get("MigrationTarget", [""])[0]
    history = known.history if known else []
    began = next((entry.started for entry in history if entry.ended is None), view.started)
    waiting = view.status.waiting if view.status else None
    return Listed(
        workflow_id=view.workflow_id,
        run_id=view.run_id,
        kind=kind,
        cluster=known.cluster if known else view.workflow_id.removeprefix(f"{kind}/").partition("/")[0],
        target=view.status.target if view.status else str(target),
        execution=view.execution,
        phase=view.status.phase if view.status else view.phase,
        outcome=Outcome.FAILED if view.failure else known.outcome if known else None,
        failure=view.failure.kind if view.failure else "",
        waiting=waiting,
        progress=view.status.progress if view.status else None,
        silence=view.silence,
        since=(view.closed or (waiting.since if waiting else began)).astimezone(UTC),
        started=history[0].started if history else view.started,
        closed=view.closed,
    )

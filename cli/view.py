"""What a command shows of a migration: its own status, joined with what Temporal knows of its steps and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Progress, ProgressReport, Status, WaitReason
from process.exit_codes import CommandFailed, ExitCode, code_of_failure
from temporal.client import ANSWER_LIMIT
from worker.catalog import ENTITIES, KINDS

Handle = WorkflowHandle[Any, Report]

RUNNING = "= 'Running'"
"""Status of those that run, for `list_filter`."""

SHOWN_CHILDREN = 5
"""Child workflows that are asked how they stand; more would make a look slow, and a screen long."""


class Step(BaseModel):
    """A step that runs or waits for its next attempt.

    Attributes:
        attempt: counts from 1.
        last_failure: why the attempt before ended; empty in the first.
        next_attempt: when it is tried again, if it waits for that.
        progress: how far it is, by its last heartbeat, which is at most a second old while it runs.
        waiting: what it waits for, by the same heartbeat.
    """

    name: str
    attempt: int
    last_failure: str
    next_attempt: datetime | None
    worker: str
    progress: Progress | None
    waiting: WaitReason | None


class Failure(BaseModel):
    """Why a migration ended without a report."""

    kind: str
    message: str


class View(BaseModel):
    """Everything known of one migration.

    Attributes:
        execution: Temporal's word for the workflow: RUNNING, COMPLETED, FAILED, …
        phase: as the search attribute has it, which needs no worker.
        status: the migration's own answer, with the progress of the steps' heartbeats; None where no worker gave it,
            and `silence` says why.
        steps: pending steps.
        children: child workflows that run, such as batches of a wave; those that began first, and at most five.
        children_count: how many there are.
        report: of a migration that ended with one; otherwise `failure` says why not.
    """

    workflow_id: str
    run_id: str
    execution: str
    started: datetime
    closed: datetime | None
    phase: str
    status: Status | None
    silence: str
    steps: list[Step]
    children: list[View] = []
    children_count: int = 0
    report: Report | None
    failure: Failure | None

    @property
    def ended(self) -> bool:
        """Whether the workflow is closed."""
        return self.execution != WorkflowExecutionStatus.RUNNING.name

    @property
    def code(self) -> ExitCode:
        """The exit code that stands for the end; OK while it runs."""
        if self.failure:
            return code_of_failure(self.failure.kind)
        return code_of_report(self.report) if self.report else ExitCode.OK


def code_of_report(report: Report) -> ExitCode:
    """The exit code for a migration that ended with a report."""
    if report.outcome is Outcome.PLANNED:
        # A dry run that found blockers ends well as a workflow.
        return ExitCode.PRECHECK if report.figures.get("blockers") else ExitCode.OK
    return ExitCode.OK if report.outcome is Outcome.DONE else ExitCode.FAILED


async def look(
    client: Client,
    workflow_id: str,
    *,
    run_id: str | None = None,
    with_status: bool = True,
    limit: timedelta = ANSWER_LIMIT,
) -> View:
    """Ask Temporal, and the migration through one of its workers.

    Args:
        client: of Temporal.
        workflow_id: of the migration.
        run_id: one of its runs; the newest by default.
        with_status: ask the migration itself.
        limit: longest wait for its answer.

    Raises:
        CommandFailed: there is no such workflow, or it is no migration.
        RPCError: Temporal does not answer.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id, result_type=Report)
    try:
        described = await handle.describe(rpc_timeout=ANSWER_LIMIT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise not_found(client, workflow_id) from error
        raise
    for entity in ENTITIES.values():
        if described.workflow_type == entity.workflow:
            cause = f"{workflow_id} ({entity.workflow}) is no migration."
            raise CommandFailed(ExitCode.USAGE, cause, f"use pulsar-migrate {entity.command}")
    status, silence = await _ask(handle, described, limit) if with_status else (None, "")
    steps = [await _step(client, pending) for pending in described.raw_description.pending_activities]
    running = described.raw_description.pending_children
    children = await asyncio.gather(
        *(look(client, child.workflow_id, with_status=with_status, limit=limit) for child in running[:SHOWN_CHILDREN])
    )
    report, failure = await _end(handle, described)
    phases = described.search_attributes.get("MigrationPhase", [])
    return View(
        workflow_id=workflow_id,
        run_id=described.run_id,
        execution=described.status.name if described.status else "UNKNOWN",
        started=described.start_time,
        closed=described.close_time,
        phase=str(phases[0]) if phases else "",
        status=with_latest_progress(status, steps) if status else None,
        silence=silence,
        steps=steps,
        children=children,
        children_count=len(running),
        report=report,
        failure=failure,
    )


def with_latest_progress(status: Status, steps: Sequence[Step]) -> Status:
    """A status with the newest progress that is known: its own is as old as the last signal of a step."""
    known = [status.progress, *(step.progress for step in steps)]
    newest = max((one for one in known if one), key=lambda one: one.as_of, default=None)
    return status.model_copy(update={"progress": newest})


def list_filter(status: str) -> str:
    """Return Temporal's list filter of all migrations with a status such as `RUNNING`."""
    # By type: one that was just started by another client has no search attributes yet, and a namespace without
    # workers may lack them altogether.
    types = ", ".join(f"'{kind.workflow}'" for kind in KINDS.values())
    return f"WorkflowType IN ({types}) AND ExecutionStatus {status}"


def not_found(client: Client, workflow_id: str) -> CommandFailed:
    """There is no such workflow."""
    cure = "list migrations: pulsar-migrate list"
    return CommandFailed(ExitCode.USAGE, f"no workflow {workflow_id} in namespace {client.namespace}.", cure)


async def _ask(handle: Handle, described: WorkflowExecutionDescription, limit: timedelta) -> tuple[Status | None, str]:
    try:
        return await handle.query("status", result_type=Status, rpc_timeout=limit), ""
    except WorkflowQueryFailedError as error:
        cause = f"{handle.id} ({described.workflow_type}) is no migration: {error}."
        raise CommandFailed(ExitCode.USAGE, cause, "name the id of a migration") from error
    except RPCError as error:
        if error.status is RPCStatusCode.UNAVAILABLE:
            raise
        return None, f"no worker on the queue {described.task_queue} answers ({error.message})"


async def _end(handle: Handle, described: WorkflowExecutionDescription) -> tuple[Report | None, Failure | None]:
    if described.status is WorkflowExecutionStatus.RUNNING:
        return None, None
    try:
        return await handle.result(rpc_timeout=ANSWER_LIMIT), None
    except WorkflowFailureError as error:
        cause = error.cause
        kind = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
        message = cause.message if isinstance(cause, ApplicationError) else str(cause)
        return None, Failure(kind=kind, message=message)


async def _step(client: Client, pending: PendingActivityInfo) -> Step:
    told = await _heartbeat(client, pending)
    waits = pending.HasField("next_attempt_schedule_time")
    return Step(
        name=pending.activity_type.name,
        attempt=pending.attempt,
        last_failure=pending.last_failure.message,
        next_attempt=pending.next_attempt_schedule_time.ToDatetime(tzinfo=UTC) if waits else None,
        worker=pending.last_worker_identity,
        progress=told.progress,
        waiting=told.waiting,
    )


async def _heartbeat(client: Client, pending: PendingActivityInfo) -> ProgressReport:
    """What a step told by its last heartbeat; nothing where there was none, or one of another version."""
    details = list(pending.heartbeat_details.payloads)
    if not details:
        return ProgressReport()
    try:
        (report,) = await client.data_converter.decode(details, [ProgressReport])
    except (ValueError, RuntimeError):
        return ProgressReport()
    return report

"""View of a migration: its own status, with what Temporal knows of its steps and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel
from temporalio.api.failure.v1 import Failure as TemporalFailure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.outlook import Outlook, outlook_of
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Progress, ProgressReport, Status, WaitReason
from models.text import one_line
from process.exit_codes import CommandFailed, ExitCode, code_of_failure
from temporal.client import ANSWER_LIMIT
from temporal.encryption import unreadable_because
from worker.catalog import ENTITIES, KINDS, VERIFICATION

Handle = WorkflowHandle[Any, Report]

_WORKFLOWS = {name.partition(":")[2] for kind in KINDS.values() for name in kind.workflows}

RUNNING = "= 'Running'"
"""Status of running migrations, for `list_filter`."""

SHOWN_CHILDREN = 5
"""Most child workflows whose status a command reads; more would make `status` slow, and its output long."""


class Step(BaseModel):
    """A step that runs or waits for its next attempt.

    Attributes:
        attempt: counts from 1.
        last_failure: why the previous attempt ended; empty in the first.
        next_attempt: time of the next attempt, if the step waits for it.
        progress: progress from its last heartbeat, which is at most a second old while it runs.
        waiting: what it waits for, from the same heartbeat.
    """

    name: str
    attempt: int
    last_failure: str
    next_attempt: datetime | None
    worker: str
    progress: Progress | None
    waiting: WaitReason | None


class Failure(BaseModel):
    """Failure of a migration that ended without a report."""

    kind: str
    message: str


class View(BaseModel):
    """Everything that is known of one migration.

    Attributes:
        execution: Temporal's status of the workflow: RUNNING, COMPLETED, FAILED, …
        phase: value of the search attribute, which needs no worker.
        status: the migration's own status, with the progress from heartbeats; None if no worker returned it, and
                `silence` says why.
        outlook: when it is expected to stop next; None if it has ended, or waits for a person now.
        steps: pending steps.
        children: running child workflows, such as batches of a wave; the oldest ones, and not all.
        children_count: number of all running child workflows.
        report: report of a migration that ended with one; otherwise `failure` says why not.
    """

    workflow_id: str
    run_id: str
    execution: str
    started: datetime
    closed: datetime | None
    phase: str
    status: Status | None
    silence: str
    outlook: Outlook | None = None
    steps: list[Step]
    children: list[View] = []
    children_count: int = 0
    report: Report | None
    failure: Failure | None

    @property
    def ended(self) -> bool:
        """True once the workflow is closed."""
        return self.execution != WorkflowExecutionStatus.RUNNING.name

    @property
    def code(self) -> ExitCode:
        """Exit code for the end of the migration; OK while it runs."""
        if self.failure:
            return code_of_failure(self.failure.kind)
        return code_of_report(self.report) if self.report else ExitCode.OK


def code_of_report(report: Report) -> ExitCode:
    """Return the exit code for a migration that ended with a report."""
    if report.outcome is Outcome.PLANNED:
        # A dry run that found blockers completes as a workflow.
        return ExitCode.PRECHECK if report.figures.get("blockers") else ExitCode.OK
    return ExitCode.OK if report.outcome in {Outcome.DONE, Outcome.REHEARSED} else ExitCode.FAILED


async def read_view(
    client: Client,
    workflow_id: str,
    *,
    run_id: str | None = None,
    with_status: bool = True,
    limit: timedelta = ANSWER_LIMIT,
    children: int = SHOWN_CHILDREN,
) -> View:
    """Read the view of a migration from Temporal and, through one of its workers, from the migration itself.

    Args:
        client: client of Temporal.
        workflow_id: id of the migration.
        run_id: one of its runs; the newest by default.
        with_status: whether to query the migration itself.
        limit: longest wait for its answer.
        children: most child workflows whose status is read.

    Raises:
        CommandFailed: there is no such workflow, or it is not a migration.
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
            cause = f"{workflow_id} ({entity.workflow}) is not a migration."
            raise CommandFailed(ExitCode.USAGE, cause, f"use pulsar-migrate {entity.name}")
    if described.workflow_type == VERIFICATION.workflow:
        cause = f"{workflow_id} is not a migration, but the verification of one."
        raise CommandFailed(ExitCode.USAGE, cause, f"use pulsar-migrate verify {workflow_id.partition('/')[2]}")
    status, silence = await _ask(handle, described, limit) if with_status else (None, "")
    steps = [await _step(client, pending) for pending in described.raw_description.pending_activities]
    running = described.raw_description.pending_children
    read = await asyncio.gather(
        *(
            read_view(client, child.workflow_id, with_status=with_status, limit=limit, children=children)
            for child in running[:children]
        )
    )
    report, failure, unread = await _end(handle, described)
    status = with_latest_progress(status, steps) if status else None
    phases = described.search_attributes.get("MigrationPhase", [])
    return View(
        workflow_id=workflow_id,
        run_id=described.run_id,
        execution=described.status.name if described.status else "UNKNOWN",
        started=described.start_time,
        closed=described.close_time,
        phase=str(phases[0]) if phases else "",
        status=status,
        silence=silence or unread,
        outlook=outlook(status, datetime.now(UTC)) if status and report is None else None,
        steps=steps,
        children=read,
        children_count=len(running),
        report=report,
        failure=failure,
    )


def with_latest_progress(status: Status, steps: Sequence[Step]) -> Status:
    """Return a status with the newest known progress: its own is as old as the last signal of a step."""
    reported = [status.progress, *(step.progress for step in steps)]
    newest = max((progress for progress in reported if progress), key=lambda progress: progress.as_of, default=None)
    return status.model_copy(update={"progress": newest})


def outlook(status: Status, now: datetime) -> Outlook | None:
    """Return when a migration with this status, which has its newest progress, is expected to stop next."""
    return outlook_of(status, KINDS[status.kind].legs, now) if status.kind in KINDS else None


def list_filter(status: str) -> str:
    """Return Temporal's list filter of all migrations with a status such as `RUNNING`."""
    # By type: a workflow that another client has just started has no search attributes yet, and a namespace without
    # workers may lack them altogether.
    types = ", ".join(f"'{kind.workflow}'" for kind in KINDS.values())
    return f"WorkflowType IN ({types}) AND ExecutionStatus {status}"


def not_found(client: Client, workflow_id: str) -> CommandFailed:
    """Return the failure for a workflow id that does not exist."""
    cure = "list migrations: pulsar-migrate list"
    return CommandFailed(ExitCode.USAGE, f"no workflow {workflow_id} in namespace {client.namespace}.", cure)


async def _ask(handle: Handle, described: WorkflowExecutionDescription, limit: timedelta) -> tuple[Status | None, str]:
    try:
        return await handle.query("status", result_type=Status, rpc_timeout=limit), ""
    except WorkflowQueryFailedError as error:
        if described.workflow_type in _WORKFLOWS:
            # Its code differs from the history, or it cannot be read by this version: it is there all the same.
            return None, f"its worker cannot answer ({one_line(str(error))})"
        cause = f"{handle.id} ({described.workflow_type}) is not a migration: {error}."
        raise CommandFailed(ExitCode.USAGE, cause, "name the id of a migration") from error
    except RPCError as error:
        if error.status is RPCStatusCode.UNAVAILABLE:
            raise
        return None, f"no worker on the queue {described.task_queue} answers ({error.message})"
    except Exception as error:  # noqa: BLE001 - a payload codec of an operator raises what it likes
        return None, _unreadable("answer", error)


def _unreadable(what: str, error: Exception) -> str:
    """Return why what a migration sent is not shown.

    Raises:
        Exception: the error, where a key is missing: the operator can give it.
    """
    if unreadable_because(error):
        raise error
    return f"its {what} cannot be read by this version ({one_line(str(error))})"


async def _end(handle: Handle, described: WorkflowExecutionDescription) -> tuple[Report | None, Failure | None, str]:
    """Return how a migration ended: its report, or its failure, or why neither can be read."""
    if described.status is WorkflowExecutionStatus.RUNNING:
        return None, None, ""
    try:
        return await handle.result(rpc_timeout=ANSWER_LIMIT), None, ""
    except RPCError:
        raise
    except WorkflowFailureError as error:
        cause = error.cause
        kind = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
        message = cause.message if isinstance(cause, ApplicationError) else str(cause)
        return None, Failure(kind=kind, message=message), ""
    except Exception as error:  # noqa: BLE001 - a payload codec of an operator raises what it likes
        return None, None, _unreadable("report", error)


async def _step(client: Client, pending: PendingActivityInfo) -> Step:
    heartbeat = await heartbeat_of(client, pending)
    waits = pending.HasField("next_attempt_schedule_time")
    return Step(
        name=pending.activity_type.name,
        attempt=pending.attempt,
        last_failure=await _message(client, pending.last_failure),
        next_attempt=pending.next_attempt_schedule_time.ToDatetime(tzinfo=UTC) if waits else None,
        worker=pending.last_worker_identity,
        progress=heartbeat.progress,
        waiting=heartbeat.waiting,
    )


async def _message(client: Client, failure: TemporalFailure) -> str:
    """Return the message of a failure, which a payload codec may have encoded."""
    if not failure.HasField("encoded_attributes"):
        return failure.message
    try:
        decoded = await client.data_converter.decode_failure(failure)
    except Exception as error:  # noqa: BLE001 - a payload codec of an operator raises what it likes
        return _unreadable("failure", error)
    return decoded.message if isinstance(decoded, FailureError) else str(decoded)


async def heartbeat_of(client: Client, pending: PendingActivityInfo) -> ProgressReport:
    """Return the report in a step's last heartbeat; empty if there was none, or one of another version."""
    details = list(pending.heartbeat_details.payloads)
    if not details:
        return ProgressReport()
    try:
        (report,) = await client.data_converter.decode(details, [ProgressReport])
    except Exception:  # noqa: BLE001 - a payload codec of an operator raises what it likes
        return ProgressReport()
    return report

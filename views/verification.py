"""Verifications of a migration: their start, their progress and their certificates."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.status import ProgressReport, Status
from models.verification.input import VerificationInput, objection, unsupported, verification_id
from models.verification.results import VerificationCertificate
from process.exit_codes import CommandFailed, ExitCode, code_of_failure
from temporal.client import ANSWER_LIMIT
from views.migration import heartbeat_of, not_found
from worker.catalog import KINDS

_EVERY = 1.0
"""Seconds between two looks at a running verification."""

FIRST_TASK = timedelta(seconds=90)
"""Longest wait for a worker to take a verification; on a busy machine a worker takes up to a minute to start."""

_NOT_TAKEN = 2
"""Events of a workflow that no worker has taken: its start, and its first task."""


async def input_of(client: Client, workflow_id: str, values: dict[str, Any]) -> VerificationInput:
    """Return the input of a verification.

    Args:
        client: client of Temporal.
        workflow_id: id of the migration.
        values: scope, throttle and other fields of the input.

    Raises:
        CommandFailed: the migration does not exist, or does not have two sides to compare now.
        ValidationError: a value is wrong.
        RPCError: Temporal does not answer.
    """
    handle = client.get_workflow_handle(workflow_id)
    try:
        described = await handle.describe(rpc_timeout=ANSWER_LIMIT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise not_found(client, workflow_id) from error
        raise
    kind = next((kind for kind in KINDS.values() if kind.workflow == described.workflow_type), None)
    if kind is None:
        raise CommandFailed(ExitCode.USAGE, f"{workflow_id} ({described.workflow_type}) is not a migration.")
    running = described.status is WorkflowExecutionStatus.RUNNING
    if why := unsupported(kind.name) or objection(kind.name, await last_phase(client, described), running=running):
        raise CommandFailed(ExitCode.REFUSED, f"{workflow_id} cannot be verified: {why}.")
    started = await _start_argument(client, workflow_id, described.run_id)
    # A run that continues another one has the input next to its state.
    plan = kind.input.model_validate(started["input"] if {*started} == {"input", "state"} else started)
    return VerificationInput.model_validate(
        {
            **values,
            "cluster": plan.cluster,
            "migration": workflow_id,
            "migration_run": described.raw_info.first_run_id,
            "migration_kind": kind.name,
            "migration_input": plan.as_json(),
        }
    )


async def running_scope(client: Client, migration: str) -> str:
    """Return what the newest verification of a migration compares.

    Raises:
        CommandFailed: Temporal has no history of it.
        RPCError: Temporal does not answer.
    """
    workflow_id = verification_id(migration)
    described = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=ANSWER_LIMIT)
    started = await _start_argument(client, workflow_id, described.run_id)
    return VerificationInput.model_validate(started).scope


async def certificate_of(
    client: Client, migration: str, show: Callable[[ProgressReport], None]
) -> VerificationCertificate:
    """Return the certificate of the newest verification of a migration, and show its progress until its end.

    Raises:
        CommandFailed: there is none, it failed, or no worker takes it.
        RPCError: Temporal does not answer.
    """
    handle: Any = client.get_workflow_handle(verification_id(migration), result_type=VerificationCertificate)
    limit = time.monotonic() + FIRST_TASK.total_seconds()
    while True:
        described = await handle.describe(rpc_timeout=ANSWER_LIMIT)
        if described.status is not WorkflowExecutionStatus.RUNNING:
            break
        if described.history_length <= _NOT_TAKEN and time.monotonic() > limit:
            cause = f"{handle.id} is started, but no worker on the queue {described.task_queue} takes it."
            raise CommandFailed(ExitCode.UNREACHABLE, cause, "start one: pulsar-migrate worker")
        for pending in described.raw_description.pending_activities:
            report = await heartbeat_of(client, pending)
            failure = pending.last_failure.message
            show(
                report.model_copy(update={"summary": f"{report.summary} (attempt {pending.attempt}, last: {failure})"})
                if failure
                else report
            )
        await asyncio.sleep(_EVERY)
    try:
        return await handle.result(rpc_timeout=ANSWER_LIMIT)
    except WorkflowFailureError as error:
        cause = error.cause
        kind = cause.type if isinstance(cause, ApplicationError) else None
        message = cause.message if isinstance(cause, ApplicationError) else str(cause)
        raise CommandFailed(code_of_failure(kind), f"the verification of {migration} failed: {message}.") from error


async def certificates(
    client: Client, migration: str, first_run: str
) -> AsyncIterator[tuple[str, VerificationCertificate]]:
    """Yield run id and certificate of each completed verification of a migration that Temporal still has.

    Args:
        client: client of Temporal.
        migration: workflow id of the migration.
        first_run: id of its first run; later migrations may have the same workflow id.
    """
    query = f"WorkflowId = {json.dumps(verification_id(migration))} AND ExecutionStatus = 'Completed'"
    async for ended in client.list_workflows(query, rpc_timeout=ANSWER_LIMIT):
        handle = client.get_workflow_handle(ended.id, run_id=ended.run_id, result_type=VerificationCertificate)
        certificate = await handle.result(rpc_timeout=ANSWER_LIMIT)
        if certificate.migration_run == first_run:
            yield ended.run_id, certificate


async def last_phase(client: Client, described: WorkflowExecutionDescription) -> str:
    """Return the running phase of a migration, or its last one.

    Raises:
        CommandFailed: no worker tells it, and the namespace lacks the search attribute.
        RPCError: Temporal does not answer.
    """
    # As in the step, which commands do not import.
    if phases := described.search_attributes.get("MigrationPhase"):
        return str(phases[0])
    handle = client.get_workflow_handle(described.id, run_id=described.run_id)
    try:
        status = await handle.query("status", result_type=Status, rpc_timeout=ANSWER_LIMIT)
    except WorkflowQueryFailedError as error:
        cause = f"{described.id} does not tell its phase: {error}."
        raise CommandFailed(ExitCode.UNREACHABLE, cause, "start a worker of the version that began it") from error
    return status.phase


async def _start_argument(client: Client, workflow_id: str, run_id: str) -> dict[str, Any]:
    events = client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events(
        page_size=1, rpc_timeout=ANSWER_LIMIT
    )
    async for event in events:
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        (value,) = await client.data_converter.decode(payloads, [dict[str, Any]])
        return value
    raise CommandFailed(ExitCode.UNREACHABLE, f"Temporal has no history of {workflow_id}.")

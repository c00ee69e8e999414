"""Requests of commands to Temporal, and the equivalent lines of the `temporal` CLI."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from cli.options import hint
from models.base import faults
from models.lifecycle.input import WorkflowInput
from models.lifecycle.names import keyword, summary_line
from process.exit_codes import CommandFailed, ExitCode
from temporal.client import ANSWER_LIMIT, connect, start_workflow
from temporal.encryption import unreadable_because
from temporal.search_attributes import create_line, missing_search_attributes, register_search_attributes
from views.migration import View, not_found, read_view
from worker.catalog import Registered

AnswerT = TypeVar("AnswerT")
ModelT = TypeVar("ModelT", bound=BaseModel)
ResultT = TypeVar("ResultT")

_NO_HANDLER = "expected but not found"
"""Words of the SDK for an update that a workflow does not have."""

ACCEPT_LIMIT = timedelta(seconds=20)
"""Longest wait for a worker to accept or refuse an update."""

EFFECT_LIMIT = timedelta(seconds=60)
"""Longest wait for an accepted update to take effect."""


def status_of(workflow_id: str) -> str:
    """Return the command that shows a migration."""
    return f"pulsar-migrate status {workflow_id}"


def against_temporal(work: Callable[[Client], Awaitable[ResultT]]) -> ResultT:
    """Run a command against Temporal.

    Raises:
        CommandFailed: Temporal does not answer, or refuses.
    """

    async def connected() -> ResultT:
        return await work(await connect())

    try:
        return asyncio.run(connected())
    except RuntimeError as error:
        if not (why := unreadable_because(error)):
            raise
        raise CommandFailed(ExitCode.USAGE, f"{why}.", "check PULSAR_MIGRATE_PAYLOAD_KEYS_FILE") from error
    except RPCError as error:
        if error.status in {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED}:
            cause, cure = f"Temporal refuses: {error.message}.", "check TEMPORAL_API_KEY and TEMPORAL_NAMESPACE"
            raise CommandFailed(ExitCode.USAGE, cause, cure) from error
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise CommandFailed(ExitCode.USAGE, f"Temporal refuses: {error.message}.", "correct the value") from error
        if error.status is RPCStatusCode.NOT_FOUND:
            cure = "check TEMPORAL_NAMESPACE"
            raise CommandFailed(ExitCode.USAGE, f"Temporal does not find it: {error.message}.", cure) from error
        cause = f"Temporal does not answer: {error.message}."
        raise CommandFailed(ExitCode.UNREACHABLE, cause, "check the server and TEMPORAL_ADDRESS") from error


async def start(client: Client, kind: Registered, input: WorkflowInput, queue: str, see: str = "") -> str:
    """Start a workflow and return its run id.

    Args:
        client: client of Temporal.
        kind: kind of the workflow.
        input: input of the workflow.
        queue: task queue of its workers.
        see: command that shows it; by default that of a migration.

    Raises:
        CommandFailed: the workflow is running already, or a search attribute has another type.
    """
    if warning := (await register_search_attributes(client)).warning:
        hint(f"warning: {warning}")
    try:
        handle = await start_workflow(client, kind.workflow, input, kind=kind.name, queue=queue)
    except WorkflowAlreadyStartedError as error:
        cure = f"see {see or status_of(input.workflow_id)}"
        raise CommandFailed(ExitCode.CONFLICT, f"{input.workflow_id} is running already.", cure) from error
    return handle.first_execution_run_id or ""


async def execute_update(
    client: Client,
    workflow_id: str,
    name: str,
    argument: BaseModel | dict[str, Any] | None,
    answer: type[AnswerT],
    *,
    see: str = "",
) -> AnswerT:
    """Send an update to a workflow and return its answer.

    Args:
        client: client of Temporal.
        workflow_id: id of the workflow.
        name: name of the update.
        argument: argument of the update; None for none.
        answer: type of the answer.
        see: command that shows it; by default that of a migration.

    Raises:
        CommandFailed: it was refused, no worker accepted it, or it had no effect in time.
    """
    handle = client.get_workflow_handle(workflow_id)
    accepted = False
    try:
        async with asyncio.timeout(ACCEPT_LIMIT.total_seconds()):
            update = await handle.start_update(  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation
                name,
                args=[] if argument is None else [argument],
                wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                result_type=answer,
            )
        accepted = True
        async with asyncio.timeout(EFFECT_LIMIT.total_seconds()):
            return await update.result()
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and _NO_HANDLER in cause.message:
            reason = f"migrations of this kind do not have {name}."
            raise CommandFailed(ExitCode.REFUSED, reason, f"see {see or status_of(workflow_id)}") from error
        code = ExitCode.REFUSED if isinstance(cause, ApplicationError) else ExitCode.FAILED
        raise CommandFailed(code, f"{cause}.", f"see {see or status_of(workflow_id)}") from error
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        raise _not_in_time(name, see or status_of(workflow_id), accepted=accepted) from error
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise await _not_running(client, workflow_id) from error


def send_update(
    workflow_id: str,
    name: str,
    argument: BaseModel | dict[str, Any] | None,
    answer_type: type[AnswerT],
    refused: Callable[[CommandFailed], Any] | None = None,
    *,
    see: str = "",
) -> AnswerT:
    """Send an update, and print the equivalent line of the `temporal` CLI.

    Args:
        workflow_id: id of the workflow.
        name: name of the update.
        argument: argument of the update; None for none.
        answer_type: type of the answer.
        refused: called with a refusal before it is raised.
        see: command that shows it; by default that of a migration.

    Raises:
        CommandFailed: it was refused, no worker accepted it, or it had no effect in time.
    """
    hint(update_line(workflow_id, name, *([] if argument is None else [to_jsonable_python(argument)])))
    try:
        return against_temporal(
            lambda client: execute_update(client, workflow_id, name, argument, answer_type, see=see)
        )
    except CommandFailed as error:
        if refused and error.code is ExitCode.REFUSED:
            refused(error)
        raise


def checked(model: type[ModelT], values: dict[str, Any]) -> ModelT:
    """Return the argument of an update from typed values.

    Raises:
        CommandFailed: a value is wrong; the message names it.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise CommandFailed(ExitCode.USAGE, f"{faults(error)}.", "correct the value") from error


async def query(client: Client, workflow_id: str, name: str, answer: type[AnswerT], *arguments: Any) -> AnswerT | None:
    """Send a query to a workflow and return its answer, which may be None.

    Raises:
        CommandFailed: there is no such workflow, it does not have the query, or no worker answers.
        RPCError: Temporal does not answer.
    """
    handle = client.get_workflow_handle(workflow_id)
    try:
        return await handle.query(name, args=arguments, result_type=answer, rpc_timeout=ANSWER_LIMIT)
    except WorkflowQueryFailedError as error:
        raise CommandFailed(ExitCode.USAGE, f"{workflow_id} does not know {name}: {error}.") from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise not_found(client, workflow_id) from error
        if error.status is RPCStatusCode.UNAVAILABLE:
            raise
        cause = f"no worker answers for {workflow_id} ({error.message})."
        raise CommandFailed(ExitCode.UNREACHABLE, cause, "start a worker: pulsar-migrate worker") from error


async def follow(
    client: Client,
    workflow_id: str,
    show: Callable[[View], None],
    interval: timedelta,
    on_outage: Callable[[str], None],
) -> View:
    """Show a migration repeatedly until its end; report and wait out outages of Temporal."""
    while True:
        try:
            view = await read_view(client, workflow_id)
        except RPCError as error:
            on_outage(f"Temporal does not answer ({error.message}); trying again")
        else:
            show(view)
            if view.ended:
                return view
        await asyncio.sleep(interval.total_seconds())


async def hint_at_missing_attributes(client: Client) -> None:
    """Print why a phase or target is unknown, if the namespace lacks search attributes."""
    try:
        missing = await missing_search_attributes(client)
    except CommandFailed as error:
        hint(f"note: {error.cause}")
        return
    if missing:
        hint(
            f"note: phases are unknown where no worker answers, since the namespace {client.namespace} lacks the "
            f"search attributes {', '.join(missing)}; add them: {create_line(client.namespace, missing)}"
        )


def start_line(kind: Registered, input: WorkflowInput, queue: str) -> str:
    """Return `temporal workflow start …`, quoted for a POSIX shell."""
    attributes = {"MigrationKind": kind.name, "MigrationTarget": keyword(input.target_name)}
    listed = [f"--search-attribute={name}={json.dumps(value)}" for name, value in attributes.items()]
    words = ["--type", kind.workflow, "--task-queue", queue, "--workflow-id", input.workflow_id]
    words += ["--fail-existing", "--static-summary", summary_line(input.summary), *listed]
    return shlex.join(["temporal", "workflow", "start", *words, "--input", _json(input.as_json())])


def update_line(workflow_id: str, name: str, *arguments: Any) -> str:
    """Return `temporal workflow update execute …`."""
    words = ["--workflow-id", workflow_id, "--name", name, *_input_options(arguments)]
    return shlex.join(["temporal", "workflow", "update", "execute", *words])


def query_line(workflow_id: str, name: str = "status", *arguments: Any) -> str:
    """Return `temporal workflow query …`, by default for the status."""
    words = ["--workflow-id", workflow_id, "--type", name, *_input_options(arguments)]
    return shlex.join(["temporal", "workflow", "query", *words])


async def _not_running(client: Client, workflow_id: str) -> CommandFailed:
    try:
        described = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=ANSWER_LIMIT)
    except RPCError:
        return not_found(client, workflow_id)
    state = described.status.name if described.status else "closed"
    cure = f"see pulsar-migrate report {workflow_id}"
    return CommandFailed(ExitCode.REFUSED, f"{workflow_id} has ended ({state}). Legal now: none.", cure)


def _not_in_time(name: str, see: str, *, accepted: bool) -> CommandFailed:
    if accepted:
        cause = f"{name} was accepted, but has no effect after {EFFECT_LIMIT.total_seconds():.0f} s."
        return CommandFailed(ExitCode.UNREACHABLE, cause, f"see {see}")
    cause = f"no worker accepted {name} in {ACCEPT_LIMIT.total_seconds():.0f} s; it can still take effect."
    return CommandFailed(ExitCode.UNREACHABLE, cause, "start a worker: pulsar-migrate worker")


def _input_options(arguments: Iterable[Any]) -> list[str]:
    return [word for argument in arguments for word in ("--input", _json(argument))]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

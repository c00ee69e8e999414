"""`pulsar-migrate verify`: compare both sides of a migration again."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
import typer
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from cli.inputs import parse_duration
from cli.operations import against_temporal, start, start_line
from cli.options import Form, Output, WorkflowId, answer, hint, read_settings
from models.base import faults
from models.lifecycle.status import ProgressReport
from models.verification.input import VerificationInput, verification_id
from process.exit_codes import CommandFailed, ExitCode
from views.verification import certificate_of, input_of, running_scope
from worker.catalog import VERIFICATION

_OF_NAMESPACE = (
    "/admin/policies",
    "/admin/local-policies",
    "/admin/partitioned-topics/persistent",
    "/managed-ledgers",
    "/schemas",
)
"""Parents of the records of a namespace (5.0.1, 4.0.8)."""


def verify_command(
    workflow_id: WorkflowId,
    *,
    path: Annotated[
        list[str] | None, typer.Option(help="Metadata store: compare this path and what is beneath it (default: all).")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option(help="Metadata store: compare the records of TENANT/NAMESPACE (default: all).")
    ] = None,
    ledgers: Annotated[str, typer.Option(help="Bookie cluster: compare ledgers FIRST-LAST (default: all).")] = "",
    throttle: Annotated[
        float | None, typer.Option(help="Most megabytes per second to read of both sides together (default: any).")
    ] = None,
    recheck_after: Annotated[
        str, typer.Option(help="Before the commit: how long a difference must last to count, such as 1m (default 30s).")
    ] = "",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for the end; the same command shows it later.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Cancel the verification that runs.")] = False,
    output: Output = Form.TEXT,
) -> None:
    """Compare both sides of a migration again: before the cut-over, or after it for as long as the old side exists."""
    paths = [*(path or []), *(f"{parent}/{name}" for name in namespace or [] for parent in _OF_NAMESPACE)]
    values: dict[str, Any] = {"paths": paths, "ledgers": ledgers, "throttle": throttle}
    values |= {"recheck_after": parse_duration(recheck_after)} if recheck_after else {}

    async def work(client: Client) -> ExitCode:
        if stop:
            return await _stop(client, workflow_id)
        try:
            input = await input_of(client, workflow_id, values)
        except pydantic.ValidationError as error:
            raise CommandFailed(ExitCode.USAGE, f"{faults(error)}.", "correct the value") from error
        await _start(client, input)
        if no_wait:
            answer(output, [f"started {input.workflow_id}"], {"workflow_id": input.workflow_id})
            return ExitCode.OK
        certificate = await certificate_of(client, workflow_id, _shown_once())
        answer(output, certificate.lines(), certificate)
        return ExitCode.OK if certificate.holds else ExitCode.VERIFICATION

    raise typer.Exit(against_temporal(work))


async def _start(client: Client, input: VerificationInput) -> None:
    """Start a verification; one of the same scope that runs already is followed instead.

    Raises:
        CommandFailed: one of another scope runs.
    """
    queue = read_settings().task_queue
    hint(start_line(VERIFICATION, input, queue))
    try:
        await start(client, VERIFICATION, input, queue)
    except CommandFailed as error:
        if error.code is not ExitCode.CONFLICT:
            raise
        if (scope := await running_scope(client, input.migration)) != input.scope:
            cause = f"{input.workflow_id} is running already, and compares {scope}."
            cure = f"wait for its end, or stop it: pulsar-migrate verify {input.migration} --stop"
            raise CommandFailed(ExitCode.CONFLICT, cause, cure) from error
        hint(f"{input.workflow_id} is running already; this shows it")


async def _stop(client: Client, workflow_id: str) -> ExitCode:
    verification = verification_id(workflow_id)
    try:
        await client.get_workflow_handle(verification).cancel()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise CommandFailed(ExitCode.REFUSED, f"no verification of {workflow_id} is running.") from error
    hint(f"asked {verification} to stop")
    return ExitCode.OK


def _shown_once() -> Any:
    """Return a function that prints a report of progress on standard error, once."""
    last = ""

    def show(report: ProgressReport) -> None:
        nonlocal last
        if report.summary and report.summary != last:
            last = report.summary
            hint(last)

    return show

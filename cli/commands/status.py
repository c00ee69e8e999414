"""`pulsar-migrate status` and `report`: state of a migration, once or until its end, and its result."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from temporalio.client import Client

from cli.operations import against_temporal, follow, hint_at_missing_attributes, query_line
from cli.options import Form, Output, WorkflowId, answer, formatted, hint
from cli.rendering import ending, headline, lines, screen
from process.exit_codes import CommandFailed, ExitCode
from process.files import write_private
from views.listing import QUERY_LIMIT
from views.migration import View, code_of_report, read_view

_EVERY = timedelta(seconds=2)


def status_command(
    workflow_id: WorkflowId,
    watch_: Annotated[  # noqa: FBT002
        bool, typer.Option("--watch", help="Follow the migration until its end; the exit code is that of the end.")
    ] = False,
    output: Output = Form.TEXT,
) -> None:
    """Show the phase of a migration, what it waits for, and which verbs are legal now."""
    hint(query_line(workflow_id))

    async def work(client: Client) -> ExitCode:
        if watch_:
            return await watch(client, workflow_id, output)
        view = await read_view(client, workflow_id)
        if view.status is None and not view.phase:
            await hint_at_missing_attributes(client)
        if output is Form.TEXT and sys.stdout.isatty():
            Console().print(screen(view))
        else:
            answer(output, lines(view), view)
        return ExitCode.UNREACHABLE if view.silence and not view.ended else ExitCode.OK

    raise typer.Exit(against_temporal(work))


async def watch(client: Client, workflow_id: str, form: Form, *, first_answer: timedelta | None = None) -> ExitCode:
    """Follow a migration to its end and return its exit code.

    A terminal shows one screen that changes; a pipe gets a line for each change, and the report at the end.

    Args:
        client: client of Temporal.
        workflow_id: id of the migration.
        form: output format.
        first_answer: longest wait for the first answer of a worker; None to wait indefinitely.

    Raises:
        CommandFailed: no worker has answered in that time.
    """
    started, answered = time.monotonic(), first_answer is None
    # A terminal that cannot move its cursor would show nothing before the end.
    terminal = form is Form.TEXT and sys.stdout.isatty() and not Console().is_dumb_terminal
    last = ""
    with Live(auto_refresh=False) if terminal else nullcontext() as live:

        def show(view: View) -> None:
            nonlocal last, answered
            answered = answered or view.ended or view.status is not None
            if live is not None:
                live.update(screen(view), refresh=True)
            elif (line := headline(view)) != last:
                last = line
                print(line if form is Form.TEXT else formatted(form, view, of_stream=True), flush=True)
            if not answered and first_answer and time.monotonic() - started > first_answer.total_seconds():
                cause = f"{workflow_id} is started, but {view.silence}; it waits for a worker."
                raise CommandFailed(ExitCode.UNREACHABLE, cause, "start one: pulsar-migrate worker")

        end = await follow(client, workflow_id, show, _EVERY, hint)
    if form is Form.TEXT and not terminal:
        print(*ending(end), sep="\n", flush=True)
    return end.code


def report_command(
    workflow_id: WorkflowId,
    html: Annotated[
        Path | None,
        typer.Option(help="Write the page to this file instead, also before the end (default: none)."),
    ] = None,
    output: Output = Form.TEXT,
) -> None:
    """Print the result of a migration that has ended; the exit code is that of the end."""

    async def work(client: Client) -> ExitCode:
        if html:
            return write_page(await read_view(client, workflow_id), html)
        view = await read_view(client, workflow_id, with_status=False)
        if not view.ended:
            cure = f"pulsar-migrate status {workflow_id} --watch"
            raise CommandFailed(ExitCode.REFUSED, f"{workflow_id} still runs; there is no report yet.", cure)
        if view.failure:
            # Only the workflow has the phases and notes of a failed migration: they are shown if a worker answers.
            view = await read_view(client, workflow_id, limit=QUERY_LIMIT)
        if view.report:
            answer(output, lines(view), view.report)
            return code_of_report(view.report)
        answer(output, lines(view), view)
        return view.code

    raise typer.Exit(against_temporal(work))


def write_page(view: View, file: Path) -> ExitCode:
    """Write the page of a migration to one file, which needs no other; return the exit code of its end.

    Raises:
        CommandFailed: the file cannot be written.
    """
    from page.html import report_document

    write_private(file, report_document(view, datetime.now(UTC)))
    print(f"wrote {file}", flush=True)
    return ExitCode.UNREACHABLE if view.silence and not view.ended else view.code

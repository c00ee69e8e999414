"""The commands that look: `status`, `report`, `history` and `replay`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from temporalio.client import Client

from cli.exit_codes import CommandFailed, ExitCode
from cli.operations import against_temporal, follow
from cli.options import Form, Output, WorkflowId, answer, hint
from cli.rendering import ending, headline, lines, screen
from cli.temporal_lines import query_line
from cli.view import View, code_of_report, look
from worker.connection import ANSWER_LIMIT

_EVERY = timedelta(seconds=2)


def status_command(
    workflow_id: WorkflowId,
    watch_: Annotated[bool, typer.Option("--watch", help="Go on until the end; the exit code tells it.")] = False,  # noqa: FBT002
    output: Output = Form.TEXT,
) -> None:
    """Say where a migration stands, what it waits for, and which verbs are legal now."""
    hint(query_line(workflow_id))

    async def work(client: Client) -> ExitCode:
        if watch_:
            return await watch(client, workflow_id, output)
        view = await look(client, workflow_id)
        if output is Form.TEXT and sys.stdout.isatty():
            Console().print(screen(view))
        else:
            answer(output, lines(view), view)
        return ExitCode.UNREACHABLE if view.silence and not view.ended else ExitCode.OK

    raise typer.Exit(against_temporal(work))


async def watch(client: Client, workflow_id: str, form: Form) -> ExitCode:
    """Follow a migration to its end and return the exit code that stands for it.

    A terminal shows one screen that changes; a pipe gets a line for each change, and the report at the end.
    """
    terminal = form is Form.TEXT and sys.stdout.isatty()
    last = ""
    with Live(auto_refresh=False) if terminal else nullcontext() as live:

        def show(view: View) -> None:
            nonlocal last
            if live is not None:
                live.update(screen(view), refresh=True)
            elif (line := headline(view)) != last:
                last = line
                print(line if form is Form.TEXT else view.model_dump_json(), flush=True)

        end = await follow(client, workflow_id, show, _EVERY, hint)
    if form is Form.TEXT and not terminal:
        print(*ending(end), sep="\n", flush=True)
    return end.code


def report_command(workflow_id: WorkflowId, output: Output = Form.TEXT) -> None:
    """Print the result of a migration that has ended; the exit code tells how."""

    async def work(client: Client) -> ExitCode:
        view = await look(client, workflow_id, with_status=False)
        if not view.ended:
            cure = f"pulsar-migrate status {workflow_id} --watch"
            raise CommandFailed(ExitCode.REFUSED, f"{workflow_id} still runs; there is no report yet.", cure)
        if view.report:
            answer(output, lines(view), view.report)
            return code_of_report(view.report)
        answer(output, lines(view), view)
        return view.code

    raise typer.Exit(against_temporal(work))


def history_command(
    workflow_id: WorkflowId,
    to: Annotated[Path | None, typer.Option(help="The file to write; standard output by default.")] = None,
) -> None:
    """Save the history of a migration as JSON, for `replay`."""

    async def work(client: Client) -> str:
        handle = client.get_workflow_handle(workflow_id)
        return (await handle.fetch_history(rpc_timeout=ANSWER_LIMIT)).to_json()

    history = against_temporal(work)
    if to is None:
        print(history)
        return
    try:
        to.write_text(history)
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", "name a file that can be written") from error
    print(f"wrote {to}")


def replay_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Histories, as `history` saves them.")],
    output: Output = Form.TEXT,
) -> None:
    """Replay saved histories with the code of this version: would it carry on those migrations?"""
    from cli.replay import replay

    results = replay(files)
    told = [f"{file}: {fault or 'replays'}" for file, fault in results.items()]
    answer(output, told, {str(file): {"replays": not fault, "fault": fault} for file, fault in results.items()})
    raise typer.Exit(ExitCode.VERIFICATION if any(results.values()) else ExitCode.OK)

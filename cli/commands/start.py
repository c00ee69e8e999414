"""`pulsar-migrate start KIND`: one command for each kind of migration."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer
from temporalio.client import Client

from cli.commands.status import watch
from cli.help import Sections
from cli.input_options import input_command
from cli.operations import against_temporal, start
from cli.options import Form, Output, answer, hint, read_settings
from cli.temporal_lines import start_line
from models.lifecycle.input import MigrationInput
from worker.catalog import KINDS, Kind
from worker.exit_codes import ExitCode

# A worker that starts takes up to a minute on a busy machine.
_FIRST_ANSWER = timedelta(seconds=90)
_WAIT = Annotated[bool, typer.Option("--wait", help="Follow the migration to its end.")]


def start_app() -> typer.Typer:
    """The command `start`, with one command below it for each kind of migration."""
    app = typer.Typer(
        cls=Sections, no_args_is_help=True, rich_markup_mode=None, help="Start a migration; its input is checked first."
    )
    for kind in KINDS.values():
        text = f"Start {kind.workflow}. Durations: 90s, 30m, 24h or PT24H."
        further = {"output": (Output, Form.TEXT), "wait": (_WAIT, False)}
        app.command(kind.name)(input_command(kind, text, _start, further))
    return app


def _start(kind: Kind[Any], input: MigrationInput, *, output: Form, wait: bool) -> None:
    queue = read_settings().task_queue
    hint(start_line(kind, input, queue))

    async def work(client: Client) -> ExitCode:
        run_id = await start(client, kind, input, queue)
        workflow_id = input.workflow_id
        started = {"workflow_id": workflow_id, "run_id": run_id}
        if not wait:
            line = f"started {workflow_id} (run {run_id}); see pulsar-migrate status {workflow_id} --watch"
            answer(output, [line], started)
            return ExitCode.OK
        return await watch(client, workflow_id, output, first_answer=_FIRST_ANSWER)

    raise typer.Exit(against_temporal(work))

"""`pulsar-migrate start KIND`: one command for each kind of workflow."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer
from temporalio.client import Client

from cli.commands.status import watch
from cli.inputs import input_command
from cli.operations import against_temporal, start, start_line, status_of
from cli.options import Form, Output, answer, hint, read_settings
from cli.plan_files import KindGroup
from models.lifecycle.input import MigrationInput, WorkflowInput
from process.exit_codes import ExitCode
from worker.catalog import ENTITIES, KINDS, Entity, Kind, Registered

# On a busy machine a worker takes up to a minute to start.
_FIRST_ANSWER = timedelta(seconds=90)
_WAIT = Annotated[bool, typer.Option("--wait", help="Follow the migration until its end.")]


def start_app() -> typer.Typer:
    """Return the command `start`, with a subcommand for each kind of workflow."""
    text = "Start a migration, or the controller of a topic; the input is checked first."
    app = typer.Typer(cls=KindGroup, no_args_is_help=True, rich_markup_mode=None, help=text)
    for kind in KINDS.values():
        further = {"output": (Output, Form.TEXT), "wait": (_WAIT, False)}
        app.command(kind.name)(input_command(kind, _help(kind), _start, further))
    for entity in ENTITIES.values():
        app.command(entity.name)(input_command(entity, _help(entity), _start_entity, {"output": (Output, Form.TEXT)}))
    return app


def _help(kind: Registered) -> str:
    return f"Start {kind.workflow}. Durations: 90s, 30m, 24h or PT24H."


def _start(kind: Kind[Any], input: MigrationInput, *, output: Form, wait: bool) -> None:
    queue = read_settings().task_queue
    hint(start_line(kind, input, queue))

    async def work(client: Client) -> ExitCode:
        run_id = await start(client, kind, input, queue)
        if not wait:
            _print_started(input, run_id, f"{status_of(input.workflow_id)} --watch", output)
            return ExitCode.OK
        return await watch(client, input.workflow_id, output, first_answer=_FIRST_ANSWER)

    raise typer.Exit(against_temporal(work))


def _start_entity(entity: Entity, input: WorkflowInput, *, output: Form) -> None:
    """Start a workflow that runs as long as its subject exists."""
    queue, see = read_settings().task_queue, f"pulsar-migrate {entity.name} status {input.workflow_id}"
    hint(start_line(entity, input, queue))
    run_id = against_temporal(lambda client: start(client, entity, input, queue, see))
    _print_started(input, run_id, see, output)


def _print_started(input: WorkflowInput, run_id: str, see: str, form: Form) -> None:
    line = f"started {input.workflow_id} (run {run_id}); see {see}"
    answer(form, [line], {"workflow_id": input.workflow_id, "run_id": run_id})

"""`pulsar-migrate start` and `plan`: one command for each kind of workflow, or the kind that a plan file names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pydantic
import typer
from temporalio.client import Client

from cli.commands.status import watch
from cli.documents import DocumentFault, read_file
from cli.inputs import input_command
from cli.operations import against_temporal, start, start_line, status_of
from cli.options import Form, Output, answer, hint, read_settings
from cli.plan_files import KindGroup
from models.base import faults
from models.lifecycle.input import MigrationInput, WorkflowInput
from models.lifecycle.receipt import Receipt
from process.exit_codes import CommandFailed, ExitCode
from process.files import write_private
from views.migration import read_view
from worker.catalog import ENTITIES, KINDS, Entity, Kind, Registered

# On a busy machine a worker takes up to a minute to start.
_FIRST_ANSWER = timedelta(seconds=90)
_RECEIPT = Annotated[
    str | None,
    typer.Option("--receipt", metavar="FILE", help="Receipt of `plan`: refuse to start if something differs from it."),
]
_WRITE = Annotated[
    Path | None, typer.Option("--receipt", metavar="FILE", help="File to write the receipt to (default: none).")
]
_WAIT = Annotated[bool, typer.Option("--wait", help="Follow the migration until its end.")]


def start_app() -> typer.Typer:
    """Return the command `start`, with a subcommand for each kind of workflow."""
    text = "Start a migration, or the controller of a topic; the input is checked first."
    app = typer.Typer(cls=KindGroup, no_args_is_help=True, rich_markup_mode=None, help=text)
    for kind in KINDS.values():
        further = {"output": (Output, Form.TEXT), "wait": (_WAIT, False), "receipt": (_RECEIPT, None)}
        app.command(kind.name)(input_command(kind, _help(kind), _start, further))
    for entity in ENTITIES.values():
        app.command(entity.name)(input_command(entity, _help(entity), _start_entity, {"output": (Output, Form.TEXT)}))
    return app


def plan_app() -> typer.Typer:
    """Return the command `plan`, with a subcommand for each kind of migration."""
    text = "Dry run: list blockers and what would be done; write nothing to the cluster, and a receipt for `start`."
    app = typer.Typer(cls=KindGroup, no_args_is_help=True, rich_markup_mode=None, help=text)
    for kind in KINDS.values():
        further = {"output": (Output, Form.TEXT), "receipt": (_WRITE, None)}
        app.command(kind.name)(input_command(kind, f"Plan a {kind.workflow}.", _plan, further))
    return app


def _plan(kind: Kind[Any], input: MigrationInput, *, output: Form, receipt: Path | None) -> None:
    input = input.model_copy(update={"dry_run": True})
    queue = read_settings().task_queue
    hint(start_line(kind, input, queue))

    async def work(client: Client) -> ExitCode:
        await start(client, kind, input, queue)
        code = await watch(client, input.workflow_id, output, first_answer=_FIRST_ANSWER)
        if receipt is not None and code is ExitCode.OK:
            view = await read_view(client, input.workflow_id, with_status=False)
            _write_receipt(receipt, view.report.receipt if view.report else None)
        return code

    raise typer.Exit(against_temporal(work))


def _write_receipt(file: Path, receipt: Receipt | None) -> None:
    if receipt is None:
        cause = "the dry run compared no features of a cluster, so that it has no receipt"
        raise CommandFailed(ExitCode.USAGE, cause, "start without one")
    write_private(file, f"{receipt.model_dump_json(indent=2)}\n")
    hint(f"wrote {file}; bind the start to it: --receipt {file}")


def _bound(kind: Kind[Any], input: MigrationInput, file: str) -> MigrationInput:
    """Return an input with a receipt.

    Raises:
        CommandFailed: the file is not a receipt, or not of this input.
    """
    try:
        return kind.input.model_validate({**input.as_json(), "receipt": read_file(file).values})
    except DocumentFault as fault:
        raise CommandFailed(ExitCode.USAGE, str(fault), fault.cure) from fault
    except pydantic.ValidationError as error:
        cure = f"write a new one: pulsar-migrate plan … --receipt {file}"
        raise CommandFailed(ExitCode.USAGE, f"{file} cannot be used: {faults(error)}.", cure) from error


def _help(kind: Registered) -> str:
    return f"Start {kind.workflow}. Durations: 90s, 30m, 24h or PT24H."


def _start(kind: Kind[Any], input: MigrationInput, *, output: Form, wait: bool, receipt: str | None) -> None:
    if receipt is not None:
        input = _bound(kind, input, receipt)
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

"""`pulsar-migrate start KIND`: one command for each kind of migration, with one option for each field of its input."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo
from temporalio.client import Client

from cli.commands.status import watch
from cli.inputs import field_help, is_model, read_input
from cli.operations import against_temporal, start
from cli.options import Form, Output, answer, hint, read_settings
from cli.temporal_lines import start_line
from worker.catalog import KINDS, Kind
from worker.exit_codes import ExitCode

_INPUT = Annotated[str | None, typer.Option("--input", metavar="JSON|@FILE", help="The input; options win over it.")]
_WAIT = Annotated[bool, typer.Option("--wait", help="Follow the migration to its end.")]


def start_app() -> typer.Typer:
    """The command `start`, with one command below it for each kind of migration."""
    app = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Start a migration; its input is checked first."
    )
    for kind in KINDS.values():
        app.command(kind.name)(_command(kind))
    return app


def _command(kind: Kind[Any]) -> Callable[..., None]:
    def run(**values: Any) -> None:
        text, form, wait = values.pop("input_"), values.pop("output"), values.pop("wait")
        _start(kind, read_input(kind.input, text, values), form, wait=wait)

    run.__doc__ = f"Start {kind.workflow}. Durations: 90s, 30m, 24h or PT24H."
    texts = field_help(kind.input)
    named = {name: _option(name, field, texts.get(name, "")) for name, field in kind.input.model_fields.items()}
    shared = {"input_": (_INPUT, None), "output": (Output, Form.TEXT), "wait": (_WAIT, False)}
    run.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess] - read by `inspect.signature`
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in {**named, **shared}.items()
        ]
    )
    return run


def _option(name: str, field: FieldInfo, text: str) -> tuple[Any, None]:
    flag = name.replace("_", "-")
    if field.annotation is bool:
        return Annotated[bool | None, typer.Option(f"--{flag}/--no-{flag}", help=text, show_default=False)], None
    unit = "DURATION" if field.annotation is timedelta else "VALUE"
    if is_model(field.annotation):
        unit = "=".join(field.annotation.model_fields).upper()
    return Annotated[str | None, typer.Option(f"--{flag}", metavar=unit, help=text, show_default=False)], None


def _start(kind: Kind[Any], input: Any, form: Form, *, wait: bool) -> None:
    queue = read_settings().task_queue
    hint(start_line(kind, input, queue))

    async def work(client: Client) -> ExitCode:
        run_id = await start(client, kind, input, queue)
        workflow_id = input.workflow_id
        started = {"workflow_id": workflow_id, "run_id": run_id}
        if not wait:
            line = f"started {workflow_id} (run {run_id}); see pulsar-migrate status {workflow_id} --watch"
            answer(form, [line], started)
            return ExitCode.OK
        return await watch(client, workflow_id, form)

    raise typer.Exit(against_temporal(work))

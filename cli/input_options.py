"""Commands that take a workflow's input: `--input`, and one option for each of its fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, get_origin

import typer
from pydantic.fields import FieldInfo

from cli.inputs import field_help, is_model, read_input
from worker.catalog import Registered

_INPUT = Annotated[str | None, typer.Option("--input", metavar="JSON|@FILE", help="The input; options win over it.")]


def input_command(
    kind: Registered, text: str, run: Callable[..., None], further: Mapping[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """A command for one kind of workflow.

    Args:
        kind: of the workflow.
        text: the command's help.
        run: is called with the kind and the checked input, and with the further options by name.
        further: annotation and default of each further option, by name.
    """

    def command(**values: Any) -> None:
        named = {name: values.pop(name) for name in further}
        given = values.pop("input_")
        run(kind, read_input(kind.input, given, values), **named)

    command.__doc__ = text
    texts = field_help(kind.input)
    fields = {name: _option(name, field, texts.get(name, "")) for name, field in kind.input.model_fields.items()}
    command.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess] - read by `inspect.signature`
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in {**fields, "input_": (_INPUT, None), **further}.items()
        ]
    )
    return command


def _option(name: str, field: FieldInfo, text: str) -> tuple[Any, None]:
    flag = name.replace("_", "-")
    if field.annotation is bool:
        return Annotated[bool | None, typer.Option(f"--{flag}/--no-{flag}", help=text, show_default=False)], None
    unit = "DURATION" if field.annotation is timedelta else "VALUE"
    if get_origin(field.annotation) is tuple:
        unit = "VALUE,VALUE"
    if get_origin(field.annotation) is dict:
        unit = "NAME=VALUE,NAME=VALUE"
    if is_model(field.annotation):
        unit = "=".join(field.annotation.model_fields).upper()
    return Annotated[str | None, typer.Option(f"--{flag}", metavar=unit, help=text, show_default=False)], None

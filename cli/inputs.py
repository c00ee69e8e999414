"""Inputs from the command line: one option for each field, or JSON; errors name the field."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

import pydantic
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from models.base import faults, valid_fields
from models.lifecycle.fields import INTERNAL, read_duration
from models.lifecycle.input import WorkflowInput
from process.exit_codes import CommandFailed, ExitCode
from worker.catalog import Registered

InputT = TypeVar("InputT", bound=WorkflowInput)
Typed: TypeAlias = str | bool | Sequence[str] | None
"""An option as typed: a list where it can be given several times, None where it was not given."""

_INPUT = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="JSON|@FILE", help="Input as JSON, or a file with it; options override its fields."
    ),
]


def read_input(model: type[InputT], text: str | None, options: Mapping[str, Typed]) -> InputT:
    """Check an input.

    Args:
        model: model of the input.
        text: JSON, or `@` and the name of a file with JSON; options override it.
        options: values by field as typed; a list of `KEY=VALUE` for a field with fields of its own.

    Raises:
        CommandFailed: the text is not a JSON object, or a field is wrong; the message names it.
    """
    values = read_json(text, "--input") if text else {}
    for name, typed in options.items():
        annotation = model.model_fields[name].annotation
        if isinstance(typed, Sequence) and not isinstance(typed, str):
            for pair in typed:
                values[name] = _with_pair(annotation, values.get(name), pair, name)
        elif typed is not None:
            values[name] = _value(annotation, typed)
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        cure = f"correct this; {valid_fields(model)}"
        raise CommandFailed(ExitCode.USAGE, f"the input is wrong: {faults(error)}.", cure) from error


def input_command(
    kind: Registered, text: str, run: Callable[..., None], further: Mapping[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """Return a command for one kind of workflow.

    Args:
        kind: kind of the workflow.
        text: the command's help.
        run: called with the kind and the checked input, and with the further options by name.
        further: annotation and default of each further option, by name.
    """

    def command(**values: Any) -> None:
        named = {name: values.pop(name) for name in further}
        given = values.pop("input_")
        run(kind, read_input(kind.input, given, values), **named)

    command.__doc__ = text
    texts = field_help(kind.input)
    typable = {name: field for name, field in kind.input.model_fields.items() if INTERNAL not in field.metadata}
    fields = {name: _option(name, field, texts.get(name, "")) for name, field in typable.items()}
    command.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess] - read by `inspect.signature`
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in {**fields, "input_": (_INPUT, None), **further}.items()
        ]
    )
    return command


def parse_duration(text: str) -> timedelta:
    """Return a duration, as `read_duration` accepts it.

    Raises:
        CommandFailed: the text is not a duration.
    """
    try:
        return read_duration(text)
    except ValueError as error:
        cause, _, cure = str(error).partition("; ")
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error


def field_help(model: type[WorkflowInput]) -> dict[str, str]:
    """Return the help of each field from the docstrings of the input and its base classes."""
    texts: dict[str, str] = {}
    for cls in (base for base in reversed(model.__mro__) if issubclass(base, WorkflowInput)):
        _, _, attributes = (cls.__doc__ or "").partition("Attributes:\n")
        for match in re.finditer(r"^\s+(\w+): (.+?)(?=^\s+\w+: |\Z)", attributes, re.MULTILINE | re.DOTALL):
            texts[match[1]] = " ".join(match[2].split())
    return texts


def read_json(text: str, option: str) -> dict[str, Any]:
    """Return a JSON object from the command line or from a file.

    Args:
        text: JSON, or `@` and the name of a file with JSON.
        option: option that it was given for, for messages.

    Raises:
        CommandFailed: it is not a JSON object, or the file cannot be read.
    """
    try:
        raw = Path(text[1:]).read_text() if text.startswith("@") else text
        values: Any = json.loads(raw)
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{option}: {error}.", "name a file that can be read") from error
    except ValueError as error:
        raise CommandFailed(
            ExitCode.USAGE, f"{option} is not JSON: {error}.", "write a JSON object, or @FILE"
        ) from error
    if not isinstance(values, dict):
        raise CommandFailed(ExitCode.USAGE, f"{option} is not a JSON object.", 'write {"name": "…", …}')
    return values  # pyright: ignore[reportUnknownVariableType] - checked by the model that takes it


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a field that has fields of its own, which may be null; None for another field."""
    models = (kind for kind in _alternatives(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel))
    return next(models, None)


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types of a field that may have one of several, without their validators."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]


def _with_pair(annotation: Any, value: object, pair: str, option: str) -> Any:
    """Return the value of a field with the one of its own fields that `KEY=VALUE` names, `.` between keys."""
    model = _model_of(annotation)
    if _is_off(annotation, pair):
        return None
    key, separator, text = pair.partition("=")
    if model is None or not separator:
        form = "KEY=VALUE" if model else f"{option}=VALUE"
        raise CommandFailed(ExitCode.USAGE, f"--{option.replace('_', '-')}: {pair!r} is not {form}.", f"write {form}")
    outer, _, inner = key.partition(".")
    values: dict[str, Any] = {**value} if isinstance(value, dict) else {}
    # An unknown key is kept: the model names it, and the keys that it has.
    field = model.model_fields[outer].annotation if outer in model.model_fields else None
    values[outer] = _with_pair(field, values.get(outer), f"{inner}={text}", option) if inner else _value(field, text)
    return values


def _is_off(annotation: Any, value: object) -> bool:
    return value == "off" and NoneType in _alternatives(annotation)


def _value(annotation: Any, value: object) -> Any:
    if _is_off(annotation, value):
        return None
    if not isinstance(value, str):
        return value
    if get_origin(annotation) is tuple:
        return value.split(",")
    if get_origin(annotation) is dict:
        return {name: text for name, _, text in (pair.partition("=") for pair in value.split(","))}
    if bool in _alternatives(annotation):
        return {"true": True, "false": False}.get(value, value)
    return value


def _option(name: str, field: FieldInfo, text: str) -> tuple[Any, None]:
    flag = name.replace("_", "-")
    if field.annotation is bool:
        return Annotated[bool | None, typer.Option(f"--{flag}/--no-{flag}", help=text, show_default=False)], None
    if model := _model_of(field.annotation):
        text = f"{text} Keys: {', '.join(_keys(model))}. Give the option once for each key."
        return Annotated[
            list[str] | None, typer.Option(f"--{flag}", metavar="KEY=VALUE", help=text, show_default=False)
        ], None
    unit = "DURATION" if field.annotation is timedelta else "VALUE"
    if get_origin(field.annotation) is tuple:
        unit = "VALUE,VALUE"
    if get_origin(field.annotation) is dict:
        unit = "NAME=VALUE,NAME=VALUE"
    return Annotated[str | None, typer.Option(f"--{flag}", metavar=unit, help=text, show_default=False)], None


def _keys(model: type[BaseModel]) -> Iterator[str]:
    """Yield the keys of the fields that can be typed; lists of models have no form but JSON."""
    for name, field in model.model_fields.items():
        if inner := _model_of(field.annotation):
            yield from (f"{name}.{key}" for key in _keys(inner))
        elif not any(_model_of(kind) for kind in get_args(field.annotation)):
            yield name

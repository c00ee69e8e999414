"""Inputs from the command line: a plan in YAML or JSON, and one option for each field; errors name line and field."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

import pydantic
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cli.documents import Document, DocumentFault, read_document, read_file
from models.base import Frozen, fault_text, valid_fields
from models.field_texts import INTERNAL, field_texts
from models.lifecycle.change_windows import Opening, WindowsReading, useless
from models.lifecycle.fields import read_duration
from models.lifecycle.input import MigrationInput, WorkflowInput
from process.exit_codes import CommandFailed, ExitCode
from worker.catalog import Registered

InputT = TypeVar("InputT", bound=WorkflowInput)
Typed: TypeAlias = str | bool | Sequence[str] | None
"""An option as typed: a list where it can be given several times, None where it was not given."""

_INPUT = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="TEXT|@FILE",
        help="Plan in YAML or JSON, or @ and the name of a file with it; options override its fields.",
    ),
]
INLINE = "--input"
"""Name of a plan on the command line."""
_WINDOWS = "change_windows"
_KIND, _SCHEMA = "kind", "$schema"
"""Names in a plan that are not fields: its kind, and the schema that editors of JSON read."""


class Fault(Frozen):
    """A mistake in an input.

    Attributes:
        where: file or option, with the line where it is known; empty for a value that is missing or was an option.
        field: name of the field, with its path; empty for the whole input.
        cause: what is wrong.
        cure: what to do about it.
    """

    where: str = ""
    field: str = ""
    cause: str
    cure: str

    @property
    def text(self) -> str:
        """Place, field and cause."""
        return ": ".join(filter(None, (self.where, self.field, self.cause)))


class InvalidInput(Exception):
    """An input that cannot be used.

    Attributes:
        faults: all mistakes that were found.
        fields: the valid fields of the input, in a sentence; empty if it could not be read at all.
    """

    def __init__(self, faults: Sequence[Fault], fields: str = "") -> None:
        self.faults, self.fields = faults, fields
        super().__init__("; ".join(fault.text for fault in faults))


def read_input(model: type[InputT], text: str | None, options: Mapping[str, Typed], *, kind: str = "") -> InputT:
    """Check an input.

    Args:
        model: model of the input.
        text: YAML or JSON, or `@` and the name of a file with it; options override it.
        options: values by field as typed; a list of `KEY=VALUE` for a field with fields of its own.
        kind: name of the kind, which the plan may repeat.

    Raises:
        CommandFailed: the text cannot be read, or a field is wrong; the message names line and field.
    """
    try:
        document = read_plan(text) if text else None
        return input_of(model, document, options, kind=kind)
    except DocumentFault as fault:
        raise CommandFailed(ExitCode.USAGE, str(fault), fault.cure) from fault
    except InvalidInput as error:
        cure = f"correct this; {error.fields}" if error.fields else error.faults[0].cure
        raise CommandFailed(ExitCode.USAGE, f"the input is wrong: {error}.", cure) from error


def read_plan(text: str) -> Document:
    """Return a plan.

    Args:
        text: YAML or JSON, or `@` and the name of a file with it.

    Raises:
        DocumentFault: it cannot be read.
    """
    return read_file(text[1:]) if text.startswith("@") else read_document(text, INLINE)


def input_of(model: type[InputT], document: Document | None, options: Mapping[str, Typed], *, kind: str = "") -> InputT:
    """Return the input of a plan and options; see `read_input`.

    Raises:
        CommandFailed: an option is not `KEY=VALUE`.
        InvalidInput: a field is wrong, or the plan is of another kind.
    """
    values = {**document.values} if document else {}
    named = values.pop(_KIND, kind)
    values.pop(_SCHEMA, None)
    if document and kind and named != kind:
        where = _where(document, (_KIND,))
        raise InvalidInput(
            [
                Fault(
                    where=where,
                    field=_KIND,
                    cause=f"this plan is of the kind {named}",
                    cure=f"name {named}, not {kind}",
                )
            ]
        )
    typed = {name: value for name, value in options.items() if value is not None}
    for name, value in typed.items():
        annotation = model.model_fields[name].annotation
        if isinstance(value, Sequence) and not isinstance(value, str):
            for pair in value:
                values[name] = _with_pair(annotation, values.get(name), pair, name)
        else:
            values[name] = _value(annotation, value)
    try:
        input = model.model_validate(values)
    except pydantic.ValidationError as error:
        raise InvalidInput([*_faults(model, error, document, typed)], valid_fields(model)) from error
    if isinstance(input, MigrationInput) and openings_of(input) == ():
        cause, _, cure = useless(input.longest_cutover).partition("; ")
        where = _where(document, (_WINDOWS,)) if document else ""
        raise InvalidInput([Fault(where=where, field=_WINDOWS, cause=cause, cure=cure)])
    return input


def openings_of(input: WorkflowInput) -> tuple[Opening, ...] | None:
    """Return the next change windows of an input: none if they do not open within a year, None for at any time."""
    if not isinstance(input, MigrationInput) or input.change_windows.always:
        return None
    return WindowsReading.of(input.change_windows, datetime.now(UTC), input.longest_cutover).openings


def _faults(
    model: type[BaseModel], error: pydantic.ValidationError, document: Document | None, typed: Collection[str]
) -> Iterator[Fault]:
    faults = error.errors(include_url=False)
    if document:
        faults.sort(key=lambda fault: document.line_of(fault["loc"]))
    for fault in faults:
        location = fault["loc"]
        is_typed = location[:1] and location[0] in typed
        owner, name = _owner(model, location), str(location[-1]) if location else ""
        expected = field_texts(owner).get(name, "")
        match fault["type"]:
            case "extra_forbidden":
                close = get_close_matches(name, owner.model_fields, n=1)
                cure = f"write {close[0]}" if close else f"remove it; {valid_fields(owner)}"
            case "missing":
                cure = f"add it: {expected}" if expected else "add it"
            case _:
                cure = f"correct it: {expected}" if expected else "correct the value"
        yield Fault(
            where=_where(document, location) if document and not is_typed else "",
            field=".".join(map(str, location)) or "input",
            cause=fault_text(fault["type"], fault["msg"]),
            cure=cure,
        )


def _where(document: Document, location: Sequence[str | int]) -> str:
    """Return the file and line of a value; empty for a plan on the command line, which has one line."""
    return "" if document.name == INLINE else f"{document.name}:{document.line_of(location)}"


def _owner(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel]:
    """Return the model that has the last field of a location."""
    for name in location[:-1]:
        field = model.model_fields.get(str(name))
        model = (field and nested_model(field.annotation)) or model
    return model


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
        run(kind, read_input(kind.input, given, values, kind=kind.name), **named)

    command.__doc__ = text
    texts = field_texts(kind.input)
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


def read_object(text: str, option: str) -> dict[str, Any]:
    """Return named values from the command line or from a file.

    Args:
        text: YAML or JSON, or `@` and the name of a file with it.
        option: option that it was given for, for messages.

    Raises:
        CommandFailed: the text or the file cannot be read.
    """
    try:
        return (read_file(text[1:]) if text.startswith("@") else read_document(text, option)).values
    except DocumentFault as fault:
        raise CommandFailed(ExitCode.USAGE, str(fault), fault.cure) from fault


def nested_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a field that has fields of its own, which may be null; None for another field."""
    models = (kind for kind in _alternatives(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel))
    return next(models, None)


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types of a field that may have one of several, without their validators."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]


def _with_pair(annotation: Any, value: object, pair: str, option: str) -> Any:
    """Return the value of a field with the one of its own fields that `KEY=VALUE` names, `.` between keys."""
    model = nested_model(annotation)
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
    if model := nested_model(field.annotation):
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
        if inner := nested_model(field.annotation):
            yield from (f"{name}.{key}" for key in _keys(inner))
        elif not any(nested_model(kind) for kind in get_args(field.annotation)):
            yield name

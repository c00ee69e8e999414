"""Inputs from the command line: JSON and options to a checked input, and what is wrong with it, by field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, get_args, get_origin

import pydantic
from pydantic import BaseModel

from models.lifecycle.base import faults, valid_fields
from models.lifecycle.fields import read_duration
from models.lifecycle.input import WorkflowInput
from process.exit_codes import CommandFailed, ExitCode

InputT = TypeVar("InputT", bound=WorkflowInput)


def read_input(model: type[InputT], text: str | None, options: Mapping[str, str | bool | None]) -> InputT:
    """Check an input.

    Args:
        model: what the input has to be.
        text: JSON, or `@` and the name of a file with JSON; options win over it.
        options: values by field as typed; None where an option was not given.

    Raises:
        CommandFailed: the text is not a JSON object, or a field is wrong; the message names it.
    """
    values = read_json(text, "--input") if text else {}
    given = {name: value for name, value in options.items() if value is not None}
    values |= {name: _value(model.model_fields[name].annotation, value) for name, value in given.items()}
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        cure = f"correct this; {valid_fields(model)}"
        raise CommandFailed(ExitCode.USAGE, f"the input is wrong: {faults(error)}.", cure) from error


def parse_duration(text: str) -> timedelta:
    """A duration, as `read_duration` takes it.

    Raises:
        CommandFailed: it is none.
    """
    try:
        return read_duration(text)
    except ValueError as error:
        cause, _, cure = str(error).partition("; ")
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error


def field_help(model: type[WorkflowInput]) -> dict[str, str]:
    """What the docstrings of the input and its base say about each field."""
    found: dict[str, str] = {}
    for cls in (base for base in reversed(model.__mro__) if issubclass(base, WorkflowInput)):
        _, _, attributes = (cls.__doc__ or "").partition("Attributes:\n")
        for match in re.finditer(r"^\s+(\w+): (.+?)(?=^\s+\w+: |\Z)", attributes, re.MULTILINE | re.DOTALL):
            found[match[1]] = " ".join(match[2].split())
    return found


def read_json(text: str, option: str) -> dict[str, Any]:
    """A JSON object that was typed, or is in a file.

    Args:
        text: JSON, or `@` and the name of a file with JSON.
        option: that it was typed for, for messages.

    Raises:
        CommandFailed: it is none.
    """
    try:
        raw = Path(text[1:]).read_text() if text.startswith("@") else text
        values: Any = json.loads(raw)
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{option}: {error}.", "name a file that can be read") from error
    except ValueError as error:
        raise CommandFailed(
            ExitCode.USAGE, f"{option} is no JSON: {error}.", "write a JSON object, or @FILE"
        ) from error
    if not isinstance(values, dict):
        raise CommandFailed(ExitCode.USAGE, f"{option} is no JSON object.", 'write {"name": "…", …}')
    return values  # pyright: ignore[reportUnknownVariableType] - checked by the model that takes it


def is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Whether a field holds several values."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _value(annotation: Any, value: object) -> Any:
    if value == "off" and type(None) in get_args(annotation):
        return None
    if not isinstance(value, str):
        return value
    if get_origin(annotation) is tuple:
        return value.split(",")
    if get_origin(annotation) is dict:
        return {name: text for name, _, text in (part.partition("=") for part in value.split(","))}
    if is_model(annotation):
        # Each value but the last ends at the first `=`.
        return dict(zip(annotation.model_fields, value.split("=", len(annotation.model_fields) - 1), strict=False))
    return value

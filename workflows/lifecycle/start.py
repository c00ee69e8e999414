"""What a workflow was started with, and its end where that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from temporalio.exceptions import ApplicationError

from models.lifecycle.base import refusal, valid_fields
from models.lifecycle.failures import FailureKind
from models.lifecycle.start import Start

_KINDS = {"list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null"}

StartT = TypeVar("StartT", bound=Start[Any, Any])


def read_start(model: type[StartT], given: Sequence[Any]) -> StartT:
    """The argument of a migration's workflow, as JSON values.

    Read here and not by the SDK: where there is no argument, or one that does not fit, that would try again for ever.

    Raises:
        ApplicationError: an operator started it with something that is no input; ends the workflow.
        ValidationError: a run of another version handed over a state that this one cannot read; a worker of that
            version can, so the task is tried again.
    """
    fields = cast("type[BaseModel]", model.model_fields["input"].annotation)
    if len(given) != 1:
        counted = "there is no input" if not given else f"there are {len(given)} inputs"
        raise _invalid(f"{counted}. Cure: give one JSON object with --input; {valid_fields(fields)}")
    value: object = given[0]
    if not isinstance(value, dict):
        cure = f"Cure: write a JSON object; {valid_fields(fields)}"
        sent = _KINDS.get(type(value).__name__, "a number")
        raise _invalid(f"the input is no JSON object, but {sent}. {cure}")
    start = cast("dict[str, Any]", value)
    try:
        return model.model_validate_json(json.dumps(start))
    except ValidationError as error:
        if start.get("state"):
            raise
        raise _invalid(f"the input is wrong: {refusal(fields, _of_input(fields, start, error))}") from None


def _of_input(fields: type[BaseModel], start: dict[str, Any], error: ValidationError) -> ValidationError:
    """The same error, told of the input alone."""
    try:
        fields.model_validate_json(json.dumps(start.get("input", start)))
    except ValidationError as own:
        return own
    return error


def _invalid(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)

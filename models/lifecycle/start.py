"""The argument of a migration's workflow: of an operator the input, of continue-as-new the state as well."""

from __future__ import annotations

import json
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from models.lifecycle.base import refusal, valid_fields

_KINDS = {"list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null", "bytes": "bytes"}


class Continued(BaseModel):
    """The argument with which a run continues as the next one.

    One argument, because Temporal decodes arguments by their types only if all are given. As they come, since an
    operator's start may look like this, and only the workflow can tell.

    Attributes:
        input: what the operator typed.
        state: as the run before left it.
    """

    model_config = ConfigDict(extra="forbid")

    input: Any
    state: Any


def start_refusal(fields: type[BaseModel], value: object) -> str:
    """Return why a start with this value, as JSON, is refused: the cause, the cure and the valid fields."""
    if not isinstance(value, dict):
        sent = _KINDS.get(type(value).__name__, "a number")
        return f"the input is not a JSON object, but {sent}. Cure: write a JSON object; {valid_fields(fields)}"
    given = cast("dict[str, Any]", value)
    try:
        fields.model_validate_json(json.dumps(given))
    except ValidationError as error:
        return f"the input is wrong: {refusal(fields, error)}"
    raise ValueError("the input is valid")

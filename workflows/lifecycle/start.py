"""The argument of a workflow, and the failure of a workflow with an invalid argument.

Without that failure Temporal would retry the first task of the workflow indefinitely. The converter refuses values that
do not match the model; this module refuses what the converter does not see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args, get_type_hints

from pydantic import BaseModel
from pydantic_core import to_json
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from models.base import valid_fields
from models.lifecycle.failures import FailureKind
from models.lifecycle.input import Continued, start_refusal

FieldsT = TypeVar("FieldsT", bound=BaseModel)
CarriedT = TypeVar("CarriedT", bound=BaseModel)


class OneInput:
    """Base of workflows that take one argument: `input: <model of the input> | Continued`."""

    if not TYPE_CHECKING:  # checkers compare it with the signature of `__init__`

        def __new__(cls, *given: Any) -> Self:
            """Refuse any number of arguments other than one, before Python does.

            Raises:
                ApplicationError: no argument, or several; ends the workflow.
            """
            if len(given) != 1:
                counted = f"expected one input, got {len(given)}" if given else "the input is missing"
                fields, *_ = get_args(get_type_hints(cls.__init__)["input"])
                raise _invalid(f"{counted}. Cure: give one JSON object with --input; {valid_fields(fields)}")
            return super().__new__(cls)


def read_start(
    fields: type[FieldsT], carried: type[CarriedT], given: FieldsT | Continued
) -> tuple[FieldsT, CarriedT | None]:
    """Return the input of a workflow, and the state of the previous run; None for a new workflow.

    Args:
        fields: model of the input.
        carried: model of the state.
        given: the argument.

    Raises:
        ApplicationError: an operator started the workflow with a state, or with null; ends the workflow.
        ValidationError: the state is from another version. A worker of that version can read it, so the task is
            retried.
    """
    if isinstance(given, fields):
        return given, None
    if not isinstance(given, Continued):
        # Null has its own encoding, which bypasses our converter.
        raise _invalid(start_refusal(fields, given))
    if not workflow.info().continued_run_id:
        raise _invalid(start_refusal(fields, given.model_dump()))
    return fields.model_validate_json(to_json(given.input)), carried.model_validate_json(to_json(given.state))


def _invalid(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)

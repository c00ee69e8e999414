"""What a migration's workflow is started with: by an operator the input, by continue-as-new the state as well."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, model_validator

from models.lifecycle.execution import InputT

CarriedT = TypeVar("CarriedT", bound=BaseModel)

_FIELDS = {"input", "state"}


class Start(BaseModel, Generic[InputT, CarriedT]):
    """The one argument of a workflow: JSON of the input alone, or an object with input and state.

    One argument, because Temporal decodes arguments by their types only if all are given.

    Attributes:
        input: what the operator typed.
        state: as the run before left it; None for a new one.
    """

    input: InputT
    state: CarriedT | None = None

    @model_validator(mode="before")
    @classmethod
    def _input_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and not ("input" in value and cast("dict[str, Any]", value).keys() <= _FIELDS):
            return {"input": cast("dict[str, Any]", value)}
        return value  # pyright: ignore[reportUnknownVariableType] - whatever was sent

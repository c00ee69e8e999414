"""Bases of everything that workflows carry."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer


def faults(error: ValidationError) -> str:
    """Every fault with its field, in one line."""
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'input'}: {fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors(include_url=False)
    )


class Frozen(BaseModel):
    """Base of inputs and of what operators send: immutable, and unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Result(BaseModel):
    """Base of what activities return: immutable; fields of a newer version are ignored, so that versions can mix."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Figures(BaseModel):
    """Base of figures, facts and certificates: they grow while a migration runs.

    A value that is not known yet is None, and is left out of the JSON.
    """

    model_config = ConfigDict(extra="ignore", validate_assignment=True)

    @model_serializer(mode="wrap")
    def _known_only(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    def update(self, **values: Any) -> None:
        """Set several values at once.

        Raises:
            ValueError: there is no such field, or the value does not fit it.
        """
        for name, value in values.items():
            setattr(self, name, value)

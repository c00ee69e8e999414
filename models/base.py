"""Bases of everything that workflows carry."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

_PLAIN = {"extra_forbidden": "there is no such field", "missing": "this field is needed"}


def faults(error: ValidationError) -> str:
    """Return every fault with its field, in one line."""
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'input'}: {_plain(fault['type'], fault['msg'])}"
        for fault in error.errors(include_url=False)
    )


def refusal(model: type[BaseModel], error: ValidationError) -> str:
    """Return why values do not make a model, and what would: the cause, the cure and the valid fields, in one line."""
    return f"{faults(error)}. Cure: correct this; {valid_fields(model)}"


def valid_fields(model: type[BaseModel]) -> str:
    """Return all fields that a model takes."""
    needed = [name for name, field in model.model_fields.items() if field.is_required()]
    others = [name for name, field in model.model_fields.items() if not field.is_required()]
    lists = [("needed are ", needed), ("optional are ", others)]
    return ", ".join(f"{words}{', '.join(names)}" for words, names in lists if names)


def _plain(kind: str, message: str) -> str:
    return _PLAIN.get(kind) or " ".join(message.removeprefix("Value error, ").split())


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

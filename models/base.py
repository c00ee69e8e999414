"""Bases of everything that workflows carry."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from models.field_texts import INTERNAL, field_texts, model_text

_PLAIN = {"extra_forbidden": "there is no such field", "missing": "this field is needed"}


def faults(error: ValidationError) -> str:
    """Return every fault with its field, in one line."""
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'input'}: {fault_text(fault['type'], fault['msg'])}"
        for fault in error.errors(include_url=False)
    )


def refusal(model: type[BaseModel], error: ValidationError) -> str:
    """Return why values do not make a model, and what would: the cause, the cure and the valid fields, in one line."""
    return f"{faults(error)}. Cure: correct this; {valid_fields(model)}"


def json_sum(content: dict[str, Any]) -> str:
    """Return the SHA-256 of JSON values in one form: compact, with sorted keys; hexadecimal."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def valid_fields(model: type[BaseModel]) -> str:
    """Return all fields that a model takes."""
    needed = [name for name, field in model.model_fields.items() if field.is_required()]
    others = [name for name, field in model.model_fields.items() if not field.is_required()]
    lists = [("needed are ", needed), ("optional are ", others)]
    return ", ".join(f"{words}{', '.join(names)}" for words, names in lists if names)


def fault_text(kind: str, message: str) -> str:
    """Return what is wrong with a value, from the type and the message of the error."""
    return _PLAIN.get(kind) or " ".join(message.removeprefix("Value error, ").split())


class Frozen(BaseModel):
    """Base of inputs and of what operators send: immutable, and unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        """Describe each field that operators write, from the docstrings."""
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema)
        described["description"] = model_text(cls)
        texts = field_texts(cls)
        for name, field in cls.model_fields.items():
            if INTERNAL in field.metadata:
                del described["properties"][name]
            elif name in texts:
                described["properties"][field.alias or name]["description"] = texts[name]
        return schema


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

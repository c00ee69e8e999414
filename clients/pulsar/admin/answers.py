"""Base of the answers of the admin interface."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel

NAMES = TypeAdapter(list[str])
STRINGS = TypeAdapter(dict[str, str])
OBJECT = TypeAdapter(dict[str, Any])

Rate = Annotated[float, AfterValidator(lambda rate: rate if math.isfinite(rate) else 0.0)]
"""Units per second; Java may have divided by no time, and says `"NaN"` or `"Infinity"` then."""


class Answer(BaseModel):
    """A part of an answer: fields of other releases are ignored, and names are those of Java."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)

    def body(self) -> dict[str, Any]:
        """Return the body of a request with these fields; None fields are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class WholeAnswer(Answer):
    """A part of an answer that also keeps unknown fields."""

    model_config = ConfigDict(extra="allow")

    @property
    def fields(self) -> dict[str, Any]:
        """Return all fields as the broker names them, those without an attribute as the JSON has them."""
        named = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        return {**named, **(self.model_extra or {})}

"""Facts and figures of migrations as texts, also those of another version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
from pydantic import BaseModel

from models.lifecycle.units import Described, Quantity, Unit, describe, format_value


def described(values: Mapping[str, Any], model: type[BaseModel] | None, *, zeros: bool = True) -> list[Described]:
    """Return each value as text.

    Args:
        values: values as a migration returned them, in JSON's types.
        model: their model in this version; None if unknown. A newer version may have more fields.
        zeros: whether to include numbers that are zero.
    """
    try:
        texts = describe(model.model_validate(values), zeros=zeros) if model else []
    except pydantic.ValidationError:
        texts, model = [], None
    fields = model.model_fields if model else {}
    others = [(name, value) for name, value in values.items() if name not in fields and value is not None]
    return [*texts, *(_unknown(name, value) for name, value in others if value != 0 or zeros)]


def _unknown(name: str, value: object) -> Described:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Described(name, _label(name), format_value(value, _guessed(name)), is_number)


def _guessed(name: str) -> Unit | None:
    words = name.split("_")
    quantities = [quantity for quantity in (Quantity.TIME, Quantity.SIZE) if quantity.value in words]
    return Unit(quantities[0]) if quantities else None


def _label(name: str) -> str:
    words = [word for word in name.split("_") if word not in {Quantity.TIME.value, Quantity.SIZE.value}]
    return " ".join(words) or name

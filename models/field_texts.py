"""Texts of models and their fields, from their docstrings: one source for command-line help and JSON Schema."""

from __future__ import annotations

import inspect
import re
from typing import Any

INTERNAL = "set by programs"
"""Metadata of input fields that operators do not write: they have no option, and are in no schema."""

# Several fields may share a text.
_NAMES = r"^\s*(\w+(?:, \w+)*): "
_FIELD = re.compile(rf"{_NAMES}(.+?)(?={_NAMES}|\Z)", re.MULTILINE | re.DOTALL)


def field_texts(model: type[Any]) -> dict[str, str]:
    """Return the text of each field from the section *Attributes* of a model's docstring, and of its base classes."""
    fields: dict[str, Any] = getattr(model, "model_fields", {})
    texts: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        _, _, attributes = (cls.__doc__ or "").partition("Attributes:\n")
        for match in _FIELD.finditer(attributes):
            texts |= dict.fromkeys(match[1].split(", "), " ".join(match[2].split()))
    return {name: text for name, text in texts.items() if name in fields}


def model_text(model: type[Any]) -> str:
    """Return the text of a model: its docstring without the section *Attributes*."""
    text, _, _ = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    return " ".join(text.split())

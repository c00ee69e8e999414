"""Texts of models and their fields, from their docstrings: one source for command-line help and JSON Schema."""

from __future__ import annotations

import inspect
import re
from typing import Any

_FIELD = re.compile(r"^\s*(\w+): (.+?)(?=^\s*\w+: |\Z)", re.MULTILINE | re.DOTALL)


def field_texts(model: type[Any]) -> dict[str, str]:
    """Return the text of each field from the section *Attributes* of a model's docstring, and of its base classes."""
    fields: dict[str, Any] = getattr(model, "model_fields", {})
    texts: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        _, _, attributes = (cls.__doc__ or "").partition("Attributes:\n")
        texts |= {match[1]: " ".join(match[2].split()) for match in _FIELD.finditer(attributes) if match[1] in fields}
    return texts


def model_text(model: type[Any]) -> str:
    """Return the text of a model: its docstring without the section *Attributes*."""
    text, _, _ = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    return " ".join(text.split())

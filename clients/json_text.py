"""JSON from outside: every fault is a ValueError or a typed error, however deep it is nested."""

from __future__ import annotations

import json
from typing import Any, cast

from clients.errors import StoreProtocolError


def read_json(data: bytes | str) -> Any:
    """Return a JSON value.

    Raises:
        ValueError: it is not JSON, or nested too deeply: the parser's RecursionError is caught.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def read_object(data: bytes | str, name: str, *, path: bytes = b"") -> dict[str, Any]:
    """Return a JSON object.

    Args:
        data: what was read.
        name: of the record or answer, for the error.
        path: of the record in its store, for the error; empty for none.

    Raises:
        StoreProtocolError: it is not a JSON object.
    """
    try:
        value = read_json(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise StoreProtocolError(f"{name} is not a JSON object; check which client wrote it", path=path)
    return cast("dict[str, Any]", value)

"""What the command line knows of one migration: the module `cli.<package>`, where there is one.

It may hold `COMMANDS`, the commands that this migration alone has, by name, and `servers`, the servers that `doctor`
looks after for an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from worker.catalog import Kind

Command = Callable[..., None]


def commands_of(kind: Kind[Any]) -> Mapping[str, Command]:
    """The commands that this migration alone has, by name."""
    return _exported(kind, "COMMANDS", {})


def _exported(kind: Kind[Any], name: str, default: Any) -> Any:
    module = f"cli.{kind.package}"
    return getattr(import_module(module), name, default) if find_spec(module) else default

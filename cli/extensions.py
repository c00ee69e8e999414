"""Commands that other installed distributions add, by entry points of the group `pulsar_migrate.commands`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

_GROUP = "pulsar_migrate.commands"


def extension_commands() -> Mapping[str, Callable[..., Any]]:
    """Return the added commands by name; each takes its `typer.Context` and parses the remaining arguments itself."""
    return {point.name: point.load() for point in entry_points(group=_GROUP)}

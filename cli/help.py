"""The list of commands in the help, by what they are for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_WHOLE = 200
"""Longest text of one command; the formatter folds it."""


class Sections(TyperGroup):
    """A group of commands that shows them in the sections that their `rich_help_panel` names, groups first."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's own signature
        """Write the sections, in the order in which they were first named."""
        sections: dict[str, list[tuple[bool, str, Any]]] = {}
        for name, command in self.commands.items():
            found = sections.setdefault(getattr(command, "rich_help_panel", None) or "Commands", [])
            found.append((isinstance(command, TyperGroup), name, command))
        # One width for all, so that the texts of all sections stand below each other.
        width = max(len(name) for name in self.commands)
        for title, found in sections.items():
            with formatter.section(title):
                rows = sorted(found, key=lambda row: not row[0])
                formatter.write_dl(
                    [(name.ljust(width), command.get_short_help_str(_WHOLE)) for _, name, command in rows]
                )

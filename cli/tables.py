"""Text tables, full width for pipes and folded to the window for terminals, and the sections of the help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from models.text import one_line


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns; the last column is not padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; in a terminal long cells are folded, so that columns stay apart."""
    # A cell of several lines would look like another row.
    rows = [[one_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        print(*table_lines([head, *rows]), sep="\n", flush=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in head:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


_WHOLE = 200
"""Longest help text of one command; the formatter folds it."""


class Sections(TyperGroup):
    """Group of commands that shows them in the sections of their `rich_help_panel`, subgroups first."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's own signature
        """Write the sections in the order in which they first occur."""
        sections: dict[str, list[tuple[bool, str, Any]]] = {}
        for name, command in self.commands.items():
            entries = sections.setdefault(getattr(command, "rich_help_panel", None) or "Commands", [])
            entries.append((isinstance(command, TyperGroup), name, command))
        # One width for all sections, so that their texts are aligned.
        width = max(len(name) for name in self.commands)
        for title, entries in sections.items():
            with formatter.section(title):
                rows = sorted(entries, key=lambda row: not row[0])
                formatter.write_dl(
                    [(name.ljust(width), command.get_short_help_str(_WHOLE)) for _, name, command in rows]
                )

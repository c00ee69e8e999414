"""Tables of text: as wide as they are for pipes, folded to the window for terminals."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns; the last column is as long as it is."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; in a terminal long cells are folded, so that columns stay apart."""
    if not sys.stdout.isatty():
        print(*table_lines([head, *rows]), sep="\n", flush=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(head):
        table.add_column(title, no_wrap=place < len(head) - 1, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)

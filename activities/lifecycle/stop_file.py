"""The file that stops all fleets while it exists."""

from __future__ import annotations

from pathlib import Path

from models.text import shown


def stop_reason(name: str) -> str:
    """Return the first line of a stop file, or why it may be there; empty if it is not there."""
    file = Path(name)
    try:
        lines = file.read_text("utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:
        if file.is_symlink():
            return "the stop file is a link to a file that is not there"
        # Its file system may not be mounted.
        return "" if file.parent.is_dir() else f"the folder of the stop file is not there: {file.parent}"
    except OSError as error:
        # It may be there: what is not known stops.
        return f"the stop file cannot be read ({error.strerror})"
    return f"the stop switch is set: {shown(lines[0]) if lines else 'no reason is given'}"

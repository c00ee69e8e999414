"""Files that hold secrets of the settings."""

from __future__ import annotations

from pathlib import Path

from clients.errors import NoCredentials


def secret_text(file: str, setting: str) -> str:
    """Return the text of a file that a setting names.

    Raises:
        NoCredentials: it cannot be read, or is not text.
    """
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NoCredentials(f"{setting}: {file} cannot be read ({why}); write the credentials into it") from None

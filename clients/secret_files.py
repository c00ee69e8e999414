"""Files that hold secrets of the settings."""

from __future__ import annotations

from pathlib import Path

from clients.errors import NoCredentials


def is_token(text: str) -> bool:
    """Return whether a header can carry a text as a token: one line of ASCII without spaces."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def secret_text(file: str, setting: str) -> str:
    """Return the text of a file that a setting names.

    Raises:
        NoCredentials: it cannot be read, is empty, or is not text. It may be renewed at this moment.
    """
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NoCredentials(f"{setting}: {file} cannot be read ({why}); write the credentials into it") from None
    if not text.strip():
        # Without this, ZooKeeper would get no credentials, and protect no node of ours.
        raise NoCredentials(f"{setting}: {file} is empty; write the credentials into it")
    return text

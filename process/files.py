"""Files that a process writes for its user."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(file: Path, text: str) -> None:
    """Write a file that only its user may read.

    A link is not followed: in a folder that all users may write, it could lead to a file of this user.

    Raises:
        OSError: it cannot be written, or is a link.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)

"""Files that a process writes for its user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from process.exit_codes import CommandFailed, ExitCode


def write_private(file: Path, text: str) -> None:
    """Write a file that only its user may read.

    A link is not followed: in a folder that all users may write, it could lead to a file of this user.

    Raises:
        CommandFailed: it cannot be written, or is a link.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            # A file from before may be open to others. A device, such as /dev/null, stays as it is.
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.fchmod(descriptor, 0o600)
            opened.write(text)
    except OSError as error:
        cause = f"{file} cannot be written: {error.strerror or error}."
        raise CommandFailed(ExitCode.USAGE, cause, "name a file that can be written and is not a link") from error

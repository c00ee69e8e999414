"""Standard output and standard error of a command: UTF-8, and in one line what keeps them from being written."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from process.exit_codes import CommandFailed, ExitCode


class _Output(io.TextIOWrapper):
    """Standard output; what follows a failure is discarded, so that it is reported once.

    Args:
        stream: as Python opened it.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._failed = False

    def write(self, text: str, /) -> int:
        """Write a text.

        Raises:
            CommandFailed: it cannot be written.
            BrokenPipeError: the reader has closed the pipe.
        """
        # Libraries write nothing to find out whether they can, and discard the failure.
        if text != "":
            self._checked(lambda: super(_Output, self).write(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered; errors as of `write`."""
        self._checked(super().flush)

    def _checked(self, act: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            act()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._failed = True
            cause = f"standard output cannot be written: {error.strerror or error}"
            raise CommandFailed(ExitCode.USAGE, cause, "free space there, or send the output elsewhere") from error


class _Messages(_Output):
    """Standard error; messages that cannot be written are discarded, and the exit code says what happened."""

    def _checked(self, act: Callable[[], object]) -> None:
        try:
            super()._checked(act)
        except CommandFailed:
            return


def open_streams() -> None:
    """Write UTF-8 whatever the locale is, and discard what goes to a stream that the caller has closed."""
    for name, kind in (("stdout", _Output), ("stderr", _Messages)):
        stream = getattr(sys, name)
        closed = stream is None
        setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8") if closed else kind(stream))  # noqa: SIM115 - until the end

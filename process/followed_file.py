"""A file of the operator that is read again when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from models.file_stamp import stamp_of

ContentT = TypeVar("ContentT")

MAX_FILE_BYTES = 1 << 20
"""Most bytes of a file."""

_log = logging.getLogger(__name__)


class FileError(ValueError):
    """A file cannot be used; the message says why, and has no secret."""


class EmptyFileError(FileError):
    """A file has nothing in it, and so revokes what it granted."""


class FollowedFile(Generic[ContentT]):
    """The content of a file.

    A file that is deleted, unreadable or empty has no content, so that it revokes what it granted, unless it keeps its
    content. If its changed content is invalid, that is reported, and the previous content is used.

    Args:
        file: the file.
        parse: returns the content; raises `EmptyFileError` if there is none, and `FileError` if it is invalid.
        keeps: whether the previous content is used also while the file is deleted or unreadable.

    Raises:
        FileError: the file cannot be used when it is read first.
    """

    def __init__(self, file: Path, parse: Callable[[Path, bytes], ContentT], *, keeps: bool = False) -> None:
        self._file = file
        self._parse = parse
        self._keeps = keeps
        self._stamp: tuple[int, ...] = ()
        self._content: ContentT | None = None
        self._reported = ""
        self._read()

    def content(self) -> ContentT | None:
        """Return the current content; None if the file has none."""
        try:
            self._read()
            self._reported = ""
        except FileError as error:
            if str(error) != self._reported:
                self._reported = str(error)
                effect = "nothing in it is valid" if self._content is None else "its previous content stays valid"
                _log.error("%s; %s", error, effect)
        return self._content

    def _read(self) -> None:
        try:
            stamp = stamp_of(self._file)
            if stamp == self._stamp:
                return
            with self._file.open("rb") as opened:
                data = opened.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            self._stamp = ()
            # mutant: topic-controller/a-deleted-file-keeps-its-tokens
            self._content = self._content if self._keeps else None
            raise FileError(f"{self._file} cannot be read: {error.strerror or error}") from error
        # Also for an invalid file, so that it is reported once.
        self._stamp = stamp
        if len(data) > MAX_FILE_BYTES:
            raise FileError(f"{self._file} has more than {MAX_FILE_BYTES:,} bytes")
        try:
            self._content = self._parse(self._file, data)
        except EmptyFileError:
            self._content = None
            raise

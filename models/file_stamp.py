"""Tell whether a file has changed."""

from __future__ import annotations

from pathlib import Path


def stamp_of(file: str | Path) -> tuple[int, ...]:
    """Return a value that changes with the file, also when it is replaced by another file, as Kubernetes does."""
    status = Path(file).stat()
    return status.st_ino, status.st_mtime_ns, status.st_size

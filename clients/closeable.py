"""Clients whose connections end with a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closeable:
    """A context manager that closes itself at its end."""

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

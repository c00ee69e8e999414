"""One place where a text breaks the rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """A place where a text breaks the rules.

    Attributes:
        path: file, or the name of a commit.
        line: 1-based.
        kind: `idiom`, `docstring`, `name`, `sentence` or `cell`.
        text: what is wrong, and what to write instead.
    """

    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"

"""One change that makes the code wrong, and the tests that have to notice it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.mutants.marks import ROOT, Mark, Stale


class Quoted(NamedTuple):
    """A line that is turned or taken out.

    Attributes:
        name: `<migration>/<words>`.
        file: which one, relative to the root.
        line: text that stands there exactly once.
        instead: what stands there in the mutant.
        tests: what pytest runs: files, or single tests.
        survives: why no test notices it, where that is known.
    """

    name: str
    file: str
    line: str
    instead: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def selection(self) -> tuple[str, ...]:
        """Return the tests for pytest's command line."""
        return self.tests

    @property
    def mark(self) -> Mark:
        """Return the file, and no line."""
        return Mark(self.file, 0)

    def applied(self, root: Path = ROOT) -> str:
        """The file's text with the change.

        Raises:
            Stale: the line does not stand there exactly once, or what comes of it is no Python.
        """
        text = (root / self.file).read_text()
        if (count := text.count(self.line)) != 1:
            raise Stale(f"{self.name}: {self.file} has {count} times {self.line!r}, not once; correct the table")
        changed = text.replace(self.line, self.instead)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise Stale(f"{self.name}: the mutant is no Python ({error}); correct the table") from error
        return changed

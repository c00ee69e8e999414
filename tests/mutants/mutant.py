"""One change that makes the code wrong, and the tests that must notice it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.mutants.marks import ROOT, Change, Mark, Stale, marks


class Mutant(NamedTuple):
    """A marked line that is dropped or changed.

    Attributes:
        name: `<migration>/<words>`, as the mark has it.
        tests: what pytest runs: files, or single tests.
        change: what happens to the line.
        survives: why no test notices it, where that is known.
    """

    name: str
    tests: str | tuple[str, ...]
    change: Change
    survives: str = ""

    @property
    def selection(self) -> tuple[str, ...]:
        """Return the tests for pytest's command line."""
        return (self.tests,) if isinstance(self.tests, str) else self.tests

    @property
    def mark(self) -> Mark:
        """Return where the source is marked.

        Raises:
            Stale: it is not.
        """
        if mark := marks().get(self.name):
            return mark
        raise Stale(f"{self.name}: no line has the comment '# mutant: {self.name}'; mark one, or correct the list")

    def applied(self, root: Path = ROOT) -> str:
        """Return the file's text with the change.

        Raises:
            Stale: the line has nothing to change, or the result is not Python.
        """
        file, line = self.mark
        text = (root / file).read_text()
        try:
            changed = self.change(text, line)
            compile(changed, file, "exec")
        except (ValueError, LookupError, StopIteration, SyntaxError) as error:
            raise Stale(
                f"{self.name}: {file}:{line} cannot be changed: {error}; correct the mark or the list"
            ) from error
        if changed == ast.unparse(ast.parse(text)):
            raise Stale(f"{self.name}: {file}:{line} is the same after the change; correct the list")
        return changed


class Known(NamedTuple):
    """A change that no test can notice, and why."""

    change: Change
    survives: str


def mutants(noticed: Mapping[str | tuple[str, ...], Mapping[str, Change | Known]]) -> tuple[Mutant, ...]:
    """Return the mutants of a list: tests, and by name the changes that they must notice."""
    return tuple(
        Mutant(name, tests, *change) if isinstance(change, Known) else Mutant(name, tests, change)
        for tests, names in noticed.items()
        for name, change in names.items()
    )
